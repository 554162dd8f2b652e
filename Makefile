# The two commands a newcomer needs are `make demo` and `make test`. Everything else is a part of them, or takes long.
# Needs Python >= 3.11 with venv. Java >= 17 is used where it is; otherwise a JDK comes as a wheel.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READERS := .venv-readers
PYTEST := $(BIN)/python -m pytest -q

# Tests start `cdc` a thousand times; to compile all modules anew takes a third of each start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# Every target is a command, none a file.
.PHONY: quick-lane capture-lane slow-lane $(shell sed -nE 's/^([a-z][a-z0-9-]*):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/ready ## the virtual environment, every package by hash

$(VENV)/ready: constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Tailrace needs Python >= 3.11, this is %d.%d; set PYTHON=" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r constraints.txt
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## a live database, captured exactly once, with a Spark view, and the proof at the end
	@$(BIN)/python -m cdc.demo

demo-capture: setup ## the same without Spark, under two minutes
	@$(BIN)/python -m cdc.demo --capture-only

# Three lanes of about the same length, for two cores: a test on servers takes about half a core. A tier that
# fails does not keep the tiers behind it from running: one run tells all.
LANES := quick-lane capture-lane slow-lane
quick-lane: TIERS := static unit property fresh spark contract e2e
capture-lane: TIERS := integration
slow-lane: TIERS := faults

test: setup ## everything CI runs, in three lanes
	@$(MAKE) --no-print-directory -k -j3 --output-sync=line $(LANES)

$(LANES):
	@failed=; for tier in $(TIERS); do $(MAKE) --no-print-directory $$tier || failed="$$failed $$tier"; done; \
		test -z "$$failed" || { echo "$@: failed:$$failed"; exit 1; }

quick: static unit property ## without servers
slow: integration faults ## capture on real servers

static: setup ## ruff, mypy, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: setup ## under 10 s, no network
	$(PYTEST) tests/unit tests/tidy

property: setup ## Hypothesis, derandomised
	$(PYTEST) tests/property

fresh: setup ## simulation, snapshot models and properties with new seeds, two minutes; a failure names its command
	$(BIN)/python -m tests.fresh --seconds $${TAILRACE_FRESH_S:-120}

contract: setup ## our edges against a real broker and database
	$(PYTEST) tests/contract

integration: setup ## capture on real servers
	$(PYTEST) tests/integration

spark: setup ## the lake: cuts, mirrors, histories, views
	$(PYTEST) tests/spark

e2e: setup ## what the documents show, as shown
	$(PYTEST) tests/e2e

faults: setup ## what must survive: kills, restarts, stalls
	$(PYTEST) tests/faults

bench: setup ## speed and memory against pg_recvlogical, printed as JSON
	$(BIN)/python -m tests.bench

bench-debezium: setup ## the same beside Debezium, with the memory it needs and tuned snapshots; an hour, needs an idle machine
	$(BIN)/python -m tests.bench --only debezium

sink-backlog: setup ## a sink drains ten million events (fault table D7); TAILRACE_BACKLOG=n for another number
	TAILRACE_BACKLOG=$${TAILRACE_BACKLOG:-10000000} $(PYTEST) -s --timeout 7200 tests/faults/test_sink_backlog.py

sink-nemesis: setup ## ten minutes of random faults of everything under a search sink, then `cdc verify`
	TAILRACE_NEMESIS_S=$${TAILRACE_NEMESIS_S:-600} $(PYTEST) -s tests/faults/test_sink_nemesis.py

broker-cycles: setup ## 30 first starts and 30 restarts of Kafka under capture, cache, search and lake; how long each took
	TAILRACE_BROKER_CYCLES=$${TAILRACE_BROKER_CYCLES:-30} $(PYTEST) -s --timeout 14400 tests/faults/test_broker_cycles.py

outbox-storm: setup ## five minutes of kill -9 of a service and of capture, and rollbacks; its events once, in order
	TAILRACE_STORM_S=$${TAILRACE_STORM_S:-300} $(PYTEST) -s --timeout 1800 tests/faults/test_outbox_storm.py

outbox-pruner: setup ## 5,000 events a second for ten minutes: the outbox's table stays small
	$(BIN)/python -m tests.bench --only pruner --seconds $${TAILRACE_PRUNER_S:-600}

kills: setup ## kill -9 at 30 random moments under load
	TAILRACE_KILLS=30 $(PYTEST) tests/faults -k kill

faults-long: setup ## every fault of docs/reference/faults.md at its full length, an hour; its numbers at the end
	@rm -f $(CURDIR)/.faults-tally
	TAILRACE_TALLY=$(CURDIR)/.faults-tally TAILRACE_FAULTS_LONG=1 TAILRACE_KILLS=200 TAILRACE_TERMS=200 \
		TAILRACE_FAILPOINTS=44 TAILRACE_AWAY_S=300 TAILRACE_OUTAGE_S=60 TAILRACE_RECOVERIES=10 \
		TAILRACE_LIMITED_ROWS=1000000 TAILRACE_LARGE_ROWS=1000000 TAILRACE_LARGEST_ROW_MB=200 \
		$(PYTEST) --timeout 7200 $(FAULTS_LONG); status=$$?; cat $(CURDIR)/.faults-tally; exit $$status

FAULTS_LONG := $(addprefix tests/faults/test_,kill.py failpoints.py outage.py restarts.py recovery.py limits.py clock.py \
	large_rows.py network.py late_requests.py slow_broker.py broker_access.py takeover.py topics.py cluster.py) \
	tests/integration/test_capture_transactions.py

consumer-kills: setup ## kill -9 of a consumer of events, 20 times in 20,000 events
	TAILRACE_CONSUMER_KILLS=20 TAILRACE_CONSUMER_EVENTS=20000 $(PYTEST) --timeout 1200 tests/faults/test_outbox_consumer_kill.py

snapshot-kills: setup ## 20 times kill -9 while five million rows are read under 2,000 updates a second
	TAILRACE_SNAPSHOT_ROWS=5000000 TAILRACE_SNAPSHOT_KILLS=20 $(PYTEST) -s tests/faults/test_snapshot_large.py

add-table: setup ## 200 random orders of ALTER PUBLICATION ADD TABLE and open transactions
	TAILRACE_SCHEDULES=200 $(PYTEST) tests/integration/test_add_table.py

lake-backlog: setup ## the lake: 2 GB of waiting rows, and 1.5 GB in one transaction, with the default memory; prints peaks
	TAILRACE_LAKE_BACKLOG_MB=$${TAILRACE_LAKE_BACKLOG_MB:-2000} TAILRACE_LAKE_TRANSACTION_MB=$${TAILRACE_LAKE_TRANSACTION_MB:-1500} \
		$(PYTEST) -s --timeout 7200 tests/spark/test_lake_backlog.py

lake-kills: setup ## the lake: 200 cuts under load, 20 times kill -9, everything compared at every cut
	TAILRACE_LAKE_CUTS=200 TAILRACE_LAKE_KILLS=20 $(PYTEST) --timeout 7200 tests/spark/test_lake_workload.py tests/spark/test_lake_kill.py

view-proof: setup ## 240 cuts of fifty views, six seeds, ten times kill -9: each equals PostgreSQL's answer at its LSN
	TAILRACE_VIEW_CUTS=$${TAILRACE_VIEW_CUTS:-40} TAILRACE_VIEW_SEEDS=$${TAILRACE_VIEW_SEEDS:-6} \
		TAILRACE_VIEW_KILLS=$${TAILRACE_VIEW_KILLS:-10} $(PYTEST) -s --timeout 14400 tests/spark/viewshapes

real-data: setup ## views over every flight of a year, against PostgreSQL
	TAILRACE_FLIGHT_MONTHS=12 $(PYTEST) -s tests/spark/flights

view-grid: setup ## what each plan of a view costs, bases of 200 k to 20 M rows; hours; raw data and plot into docs/measured
	$(BIN)/python -m tests.bench.views --csv docs/measured/views.csv
	$(BIN)/python -m tests.bench.viewplot docs/measured/views.csv docs/measured/views.png

majors: setup ## capture and its faults on PostgreSQL 15, 16 and 17
	@failed=; for major in 15 16 17; do \
		TAILRACE_TEST_POSTGRES=$$major $(PYTEST) tests/integration tests/faults --ignore tests/integration/test_local.py \
			--ignore tests/faults/test_lake_commit.py || failed="$$failed $$major"; \
	done; test -z "$$failed" || { echo "failed on PostgreSQL$$failed"; exit 1; }

readers: setup $(READERS)/ready ## Flink, ClickHouse, DuckDB, kcat and Java's client read the topics
	TAILRACE_READERS=$(CURDIR)/$(READERS)/bin/python $(PYTEST) --timeout 1200 tests/readers tests/integration/test_outside_readers.py

# Flink pins packages that ours has newer, so it has an environment of its own. Everything is pinned: nothing to resolve.
$(READERS)/ready: tests/readers/requirements.txt
	$(PYTHON) -m venv $(READERS)
	$(READERS)/bin/pip install -q --disable-pip-version-check --no-deps --require-hashes -r tests/readers/requirements.txt
	@touch $@

debezium-values: setup ## what Debezium writes for every type, from its own connector, into tests/golden/debezium.json
	$(BIN)/python -m tests.bench.debeziumvalues

# Without -q: MkDocs would exit 0 in spite of broken links. The variable silences an advertisement.
static: site

site: setup ## build the documentation site in build/site, offline; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file docs/site/mkdocs.yml

SEEDS ?= 20000
FIRST ?= 0

simulate: setup ## SEEDS histories of capture in a simulated world, from FIRST on; a failure names its seed
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --first $(FIRST) --processes 2

fuzz: setup ## every property with new seeds, decoders among them, for ten minutes
	TAILRACE_HYPOTHESIS_PROFILE=deep TAILRACE_HYPOTHESIS_SECONDS=8 $(PYTEST) --timeout 1200 tests/property

signal-fuzz: setup ## 20,000 random and hostile signals to capture on real servers, with latencies before and during
	TAILRACE_SIGNAL_FUZZ=$${TAILRACE_SIGNAL_FUZZ:-20000} $(PYTEST) -s --timeout 3600 tests/faults/test_signal_fuzz.py

lock: ## renew constraints.txt and the readers' (maintainers; needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
		--extra capture --extra avro --extra outbox --extra search --extra cache --extra warehouse --extra charts --extra local --extra dev pyproject.toml -o constraints.txt
	$(BIN)/python docker/pins.py
	uv pip compile -q --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
		tests/readers/requirements.in -o tests/readers/requirements.txt

docs: setup ## the generated pages of docs/reference
	$(BIN)/python docs/reference/generate.py
	$(BIN)/python docs/reference/generate_cli.py

clean: ## the virtual environments and caches; not the servers' data
	rm -rf $(VENV) $(READERS) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
