# New here? Run `make demo`, `make dev` and `make test`. All other targets are parts of them, or run for a long time.
# Needs Python >= 3.11 with venv. Uses an installed Java >= 17, else the JRE of a wheel.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READERS := .venv-readers
PYTEST := $(BIN)/python -m pytest -q

# Tests start `cdc` a thousand times; compiling all modules again would take a third of each start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# Every target is a command, none a file.
.PHONY: lake-lane capture-lane fault-lane $(shell sed -nE 's/^([a-z][a-z0-9-]*):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/ready ## create the virtual environment, every package by hash

$(VENV)/ready: constraints.txt pyproject.toml $(wildcard docker/compile_hook.py cdc/encode/_plain_rows.c)
	@$(PYTHON) -c 'import sys; sys.exit("Tailrace needs Python >= 3.11, this is %d.%d; set PYTHON=" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@echo "installing packages into $(VENV); this takes a minute or two, once ..."
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r constraints.txt
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## capture a live database exactly once, with a lake, an index and a cache, and prove it
	@$(BIN)/python -m cdc.demo

demo-capture: setup ## the demo with capture only, under two minutes
	@$(BIN)/python -m cdc.demo --capture-only

# Three lanes of about the same length, for two cores: a test on servers uses about half a core. If a tier fails, the
# next tiers still run, so one run shows all failures.
LANES := lake-lane capture-lane fault-lane
lake-lane: TIERS := static unit spark
capture-lane: TIERS := integration browser e2e
fault-lane: TIERS := faults contract property fresh

dev: setup ## run servers, a sample shop, capture, all sinks and the page until Ctrl-C
	@$(BIN)/cdc dev

test: setup ## run everything that CI runs, in three lanes
	@$(MAKE) --no-print-directory -k -j3 --output-sync=line $(LANES)

$(LANES):
	@failed=; for tier in $(TIERS); do $(MAKE) --no-print-directory $$tier || failed="$$failed $$tier"; done; \
		test -z "$$failed" || { echo "$@: failed:$$failed"; exit 1; }

quick: static unit property ## run the checks that need no servers
slow: integration faults ## test capture on real servers

static: setup ## run ruff, mypy and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: setup ## run the unit tests, no network
	$(PYTEST) tests/unit tests/tidy

property: setup ## run the property tests, derandomized
	$(PYTEST) tests/property

fresh: setup ## run simulation, models and properties with new seeds for two minutes; a failure prints its command
	$(BIN)/python -m tests.fresh --seconds $${TAILRACE_FRESH_S:-120}

contract: setup ## test the modules at the edge against real servers
	$(PYTEST) tests/contract

integration: setup ## test capture and commands on real servers
	$(PYTEST) tests/integration

spark: setup ## test the lake: cuts, mirrors, histories, views
	$(PYTEST) tests/spark

browser: setup ## test the live page in Debian's Chromium; skipped without it
	$(PYTEST) tests/browser

page-pictures: setup ## take pictures of the live page for docs/assets
	TAILRACE_SCREENSHOTS=docs/assets $(PYTEST) tests/browser -k pictures_of_the_documentation

e2e: setup ## run what the documentation shows
	$(PYTEST) tests/e2e

faults: setup ## test kills, restarts, stalls and other faults
	$(PYTEST) tests/faults

bench: setup ## measure speed and memory against pg_recvlogical, print JSON
	$(BIN)/python -m tests.bench

bench-debezium: setup ## measure against Debezium with several heaps and tuned snapshots; an hour, on an idle machine
	$(BIN)/python -m tests.bench --only debezium

sink-backlog: setup ## drain ten million events with one sink; TAILRACE_BACKLOG=n for another number
	TAILRACE_BACKLOG=$${TAILRACE_BACKLOG:-10000000} $(PYTEST) -s --timeout 7200 tests/faults/test_sink_backlog.py

sink-nemesis: setup ## run ten minutes of random faults of all servers of the sinks, then `cdc verify`
	TAILRACE_NEMESIS_S=$${TAILRACE_NEMESIS_S:-600} $(PYTEST) -s tests/faults/test_sink_nemesis.py

broker-cycles: setup ## measure 30 first starts and 30 restarts of Kafka under capture, cache, search and lake
	TAILRACE_BROKER_CYCLES=$${TAILRACE_BROKER_CYCLES:-30} $(PYTEST) -s --timeout 14400 tests/faults/test_broker_cycles.py

outbox-storm: setup ## kill a service and capture for five minutes; each event must arrive once, in order
	TAILRACE_STORM_S=$${TAILRACE_STORM_S:-300} $(PYTEST) -s --timeout 1800 tests/faults/test_outbox_storm.py

outbox-pruner: setup ## write 5,000 events per second for ten minutes; the outbox table must stay small
	$(BIN)/python -m tests.bench --only pruner --seconds $${TAILRACE_PRUNER_S:-600}

broker-faults: setup ## end each of three brokers in every role and way, twice; prints how long recovery took
	TAILRACE_FAULTS_LONG=1 TAILRACE_CLUSTER_ROUNDS=$${TAILRACE_CLUSTER_ROUNDS:-2} \
		$(PYTEST) -s --timeout 3600 tests/faults/test_cluster.py tests/faults/test_in_sync_replicas.py

kills: setup ## kill capture with SIGKILL at 30 random moments under load
	TAILRACE_KILLS=30 $(PYTEST) tests/faults -k kill

faults-long: setup ## run every fault of docs/reference/faults.md at full length, an hour; prints its numbers at the end
	@rm -f $(CURDIR)/.faults-tally
	TAILRACE_TALLY=$(CURDIR)/.faults-tally TAILRACE_FAULTS_LONG=1 TAILRACE_KILLS=200 TAILRACE_TERMS=200 \
		TAILRACE_FAILPOINTS=44 TAILRACE_CLUSTER_ROUNDS=2 TAILRACE_AWAY_S=300 TAILRACE_OUTAGE_S=60 \
		TAILRACE_RECOVERIES=10 TAILRACE_LIMITED_ROWS=1000000 TAILRACE_LARGE_ROWS=1000000 TAILRACE_LARGEST_ROW_MB=200 \
		$(PYTEST) --timeout 7200 $(FAULTS_LONG); status=$$?; cat $(CURDIR)/.faults-tally; exit $$status

FAULTS_LONG := $(addprefix tests/faults/test_,kill.py failpoints.py outage.py restarts.py recovery.py limits.py clock.py \
	large_rows.py network.py late_requests.py slow_broker.py broker_access.py takeover.py topics.py cluster.py \
	in_sync_replicas.py) \
	tests/integration/test_capture_transactions.py

consumer-kills: setup ## kill a consumer of events with SIGKILL 20 times in 20,000 events
	TAILRACE_CONSUMER_KILLS=20 TAILRACE_CONSUMER_EVENTS=20000 $(PYTEST) --timeout 1200 tests/faults/test_outbox_consumer_kill.py

snapshot-kills: setup ## kill capture 20 times during a snapshot of five million rows under 2,000 updates per second
	TAILRACE_SNAPSHOT_ROWS=5000000 TAILRACE_SNAPSHOT_KILLS=20 $(PYTEST) -s tests/faults/test_snapshot_large.py

add-table: setup ## test 200 random orders of ALTER PUBLICATION ADD TABLE and open transactions
	TAILRACE_SCHEDULES=200 $(PYTEST) tests/integration/test_add_table.py

lake-backlog: setup ## apply 5 GB of waiting rows, and 5 GB in one transaction, here and on a cluster; prints peaks
	TAILRACE_LAKE_BACKLOG_MB=$${TAILRACE_LAKE_BACKLOG_MB:-5000} TAILRACE_LAKE_TRANSACTION_MB=$${TAILRACE_LAKE_TRANSACTION_MB:-5000} \
		$(PYTEST) -s --timeout 14400 tests/spark/test_lake_backlog.py

lake-kills: setup ## make 200 cuts under load with 20 kills, and compare everything at every cut
	TAILRACE_LAKE_CUTS=200 TAILRACE_LAKE_KILLS=20 $(PYTEST) --timeout 7200 tests/spark/test_lake_workload.py tests/spark/test_lake_kill.py

cluster: setup ## kill, freeze and cut off the parts of a Spark cluster ten times each; every cut must be exact
	TAILRACE_CLUSTER_ROUNDS=$${TAILRACE_CLUSTER_ROUNDS:-10} $(PYTEST) -s --timeout 7200 tests/spark/test_cluster.py

view-proof: setup ## compare fifty views with PostgreSQL at the LSN of each of 240 cuts, with six seeds and ten kills
	TAILRACE_VIEW_CUTS=$${TAILRACE_VIEW_CUTS:-40} TAILRACE_VIEW_SEEDS=$${TAILRACE_VIEW_SEEDS:-6} \
		TAILRACE_VIEW_KILLS=$${TAILRACE_VIEW_KILLS:-10} $(PYTEST) -s --timeout 14400 tests/spark/viewshapes

time-proof: setup ## compare views of time with plain calculations at every cut of random histories; TAILRACE_TIME_SEEDS
	TAILRACE_TIME_SEEDS=$${TAILRACE_TIME_SEEDS:-50} $(PYTEST) --timeout 36000 tests/spark/test_time_proof.py

tpch-proof: setup ## compare TPC-H's 22 queries with PostgreSQL at ten cuts under load for each kind of plan; an hour
	TAILRACE_TPCH_SCALE=$${TAILRACE_TPCH_SCALE:-0.01} TAILRACE_TPCH_CUTS=$${TAILRACE_TPCH_CUTS:-10} \
		$(PYTEST) -s --timeout 14400 tests/spark/tpch/test_tpch_at_source.py

real-data: setup ## compare views over every flight of a year with PostgreSQL
	TAILRACE_FLIGHT_MONTHS=12 $(PYTEST) -s tests/spark/flights

view-grid: setup ## measure each plan of a view, for 200 k to 20 M rows; hours; writes data and plot to docs/measured
	$(BIN)/python -m tests.bench.views --csv docs/measured/views.csv
	$(BIN)/python -m tests.bench.viewplot docs/measured/views.csv docs/measured/views.png

majors: setup ## test capture and its faults on PostgreSQL 15, 16 and 17
	@failed=; for major in 15 16 17; do \
		TAILRACE_TEST_POSTGRES=$$major $(PYTEST) tests/integration tests/faults --ignore tests/integration/test_local.py \
			--ignore tests/faults/test_lake_commit.py || failed="$$failed $$major"; \
	done; test -z "$$failed" || { echo "failed on PostgreSQL$$failed"; exit 1; }

readers: setup $(READERS)/ready ## read the topics with Flink, ClickHouse, DuckDB, kcat and the Java client
	TAILRACE_READERS=$(CURDIR)/$(READERS)/bin/python $(PYTEST) --timeout 1200 tests/readers tests/integration/test_outside_readers.py

# Flink pins older versions of our packages, so it needs its own environment. Everything is pinned: nothing to resolve.
$(READERS)/ready: tests/readers/requirements.txt
	$(PYTHON) -m venv $(READERS)
	$(READERS)/bin/pip install -q --disable-pip-version-check --no-deps --require-hashes -r tests/readers/requirements.txt
	@touch $@

upgrade-proof: setup ## upgrade from the previous release and roll back under load; TAILRACE_UPGRADES=n times
	TAILRACE_UPGRADES=$${TAILRACE_UPGRADES:-5} $(PYTEST) -s --timeout 7200 tests/faults/test_upgrade.py

golden-records: setup ## let the previous release write its records on real servers, and keep them in tests/golden
	$(PYTEST) --timeout 1800 tests/golden/capture_records.py

debezium-values: setup ## record what Debezium's connector writes for every type, in tests/golden/debezium.json
	$(BIN)/python -m tests.bench.debeziumvalues

# Without -q: MkDocs would exit 0 in spite of broken links. The variable silences an advertisement.
static: site

site: setup ## build the documentation site in build/site, offline; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file docs/site/mkdocs.yml

SEEDS ?= 20000
FIRST ?= 0

simulate: setup ## simulate SEEDS histories of capture from seed FIRST on; a failure prints its seed
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --first $(FIRST) --processes 2

fuzz: setup ## run every property, including decoders, with new seeds for ten minutes
	TAILRACE_HYPOTHESIS_PROFILE=deep TAILRACE_HYPOTHESIS_SECONDS=8 $(PYTEST) --timeout 7200 tests/property

ddl-storm: setup ## run ten minutes of random DDL on all tables under capture; TAILRACE_DDL_STORM_S=n for another time
	TAILRACE_DDL_STORM_S=$${TAILRACE_DDL_STORM_S:-600} $(PYTEST) -s tests/faults/test_ddl_storm.py
sql-fuzz: setup ## compare 100,000 random expressions and 5,000 queries as views with PostgreSQL; prints seed and counts
	$(BIN)/python -m tests.sqlfuzz

signal-fuzz: setup ## send 20,000 random and hostile signals to capture; measures latencies before and during
	TAILRACE_SIGNAL_FUZZ=$${TAILRACE_SIGNAL_FUZZ:-20000} $(PYTEST) -s --timeout 3600 tests/faults/test_signal_fuzz.py

lock: ## update constraints.txt and the readers' requirements (maintainers; needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
		--extra capture --extra avro --extra outbox --extra otel --extra search --extra cache --extra warehouse --extra iceberg --extra charts --extra local --extra dev pyproject.toml -o constraints.txt
	$(BIN)/python docker/pins.py
	uv pip compile -q --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
		tests/readers/requirements.in -o tests/readers/requirements.txt

image-check: setup ## build both images by the steps of docker/Dockerfile in a root of Debian's packages, and run them
	TAILRACE_TEST_IMAGES=capture,full $(PYTEST) --timeout 3600 -p no:randomly tests/e2e/test_image.py

image-pins: ## write the newest digest of the base image into docker/Dockerfile (needs a Docker engine and its registry)
	@docker pull --quiet $(BASE) >/dev/null
	@found=$$(docker inspect --format '{{index .RepoDigests 0}}' $(BASE)) && sed -i "s|^ARG BASE=.*|ARG BASE=$(BASE)@$${found#*@}|" docker/Dockerfile
	@grep '^ARG BASE=' docker/Dockerfile
image-pins: BASE := debian:trixie-slim

chart: setup ## lint and render the Helm chart, and write the renderings that CI checks (needs Helm)
	$(BIN)/python docker/render_chart.py

release: setup ## make wheel, sdist, notes, list of packages and checksums in dist; DRAFT=1: of unreleased changes
	$(BIN)/python docker/release.py $(if $(DRAFT),--draft)

docs: setup ## write the generated pages of docs/reference, the alert rules and the dashboard
	$(BIN)/python docs/reference/generate.py
	$(BIN)/python docs/reference/generate_cli.py
	$(BIN)/python docker/observability/generate.py

clean: ## remove the virtual environments and caches, but not the data of servers
	rm -rf $(VENV) $(READERS) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
