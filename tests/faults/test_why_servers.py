"""The first cause that `cdc why` names while servers are down, slow or full, and sinks stopped or frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc.clock import SystemClock
from cdc.config.load import load
from cdc.config.settings import Applied
from sinks.contract import Outcome, Verdict
from sinks.deadletters.queue_setup import dead_letters
from tests.faults.test_gap import run_once
from tests.faults.test_source_access import CANARY
from tests.faults.test_why import assert_first
from tests.fixtures.faults.limits import small_disk
from tests.fixtures.faults.proxy import Proxy
from tests.fixtures.faults.secured import WRONG_PASSWORD, SecuredBroker
from tests.fixtures.faults.servers import frozen
from tests.fixtures.faults.wallclock import WallClock
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.first_cause import first_cause, listening, newest_config, until_healthy, why
from tests.fixtures.servers.freezing import freeze, thaw
from tests.fixtures.servers.pgbouncer import pgbouncer
from tests.fixtures.servers.supervised_run import Supervised, supervised
from tests.fixtures.servers.valkey import client_of
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.search_targets import ask
from tests.fixtures.sinks.sink_logs import LogBook

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.opensearch import OpenSearchServer
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack, PostgresServer, Servers
    from tests.fixtures.servers.valkey import MakeValkey

TABLE: Final = "create table t (id int primary key, v text)"
_DISK_BYTES: Final = 4 << 20
_SILENT_S: Final = 15.0  # longer than a diagnosis


def test_server_that_is_frozen_or_down_is_named_first_and_all_of_them_within_ten_seconds(
    fragile: Servers, fragile_capture: CaptureSite
) -> None:
    fragile_capture.sql(TABLE)
    daemon = fragile_capture.running(listening())
    path = newest_config(fragile_capture)
    until_healthy(path)

    with frozen(fragile.kafka):
        assert_first(first_cause(path), "broker-unreachable", "kafka")
    with frozen(fragile.postgres):
        assert_first(first_cause(path), "source-unreachable", "source")
    fragile.kafka.kill()
    assert_first(first_cause(path), "broker-unreachable", "kafka")
    fragile.postgres.stop("immediate")
    daemon.kill()

    began_s = SystemClock().monotonic_s()
    found = why(path)
    took_s = SystemClock().monotonic_s() - began_s
    fragile.postgres.start()
    fragile.kafka.start()

    codes = [one["code"] for one in found["causes"]]
    assert codes == ["source-unreachable", "broker-unreachable", "capture-down"]
    assert took_s < 10.0
    assert {one["what"] for one in found["unread"]} >= {"PostgreSQL", "Kafka", "capture"}


def test_slow_line_to_kafka_is_named_first(linked: tuple[CaptureSite, Proxy]) -> None:
    capture, proxy = linked
    capture.running(listening())
    until_healthy(newest_config(capture))
    proxy.latency_s = 0.4
    try:
        capture.sql("insert into t select g, 'x' from generate_series(1, 100) g")

        assert_first(first_cause(newest_config(capture)), "broker-slow", "kafka")
    finally:
        proxy.latency_s = 0.0


def test_half_open_line_to_kafka_is_named_first(linked: tuple[CaptureSite, Proxy]) -> None:
    """Connections are accepted, and nothing arrives."""
    capture, proxy = linked
    capture.running(listening())
    until_healthy(newest_config(capture))
    proxy.latency_s = _SILENT_S
    try:
        proxy.silence()
        found = first_cause(newest_config(capture))
    finally:
        proxy.latency_s = 0.0

    assert_first(found, "broker-unreachable", "kafka")
    assert "accepts the connection but does not answer" in found["says"], found["all"]


def test_search_store_that_is_full_or_down_is_named_first(capture: CaptureSite, opensearch: OpenSearchServer) -> None:
    capture.sql(TABLE)
    port = int(opensearch.url.rpartition(":")[2])
    with Proxy(port) as door:
        search = {"kind": "search", "url": f"http://127.0.0.1:{door.port}", "tables": ["public.t"]}
        sections = listening({"sinks.find": search, "sinks.find.index": {"number_of_replicas": 0}})
        path = capture.write_config(sections)
        with supervised(capture, sections, "why") as daemon:
            daemon.until_running()
            assert daemon.wait_for("find", capture.sql("insert into t values (1)"))[0] == 200
            until_healthy(path, within_s=120.0)

            # What OpenSearch itself does to an index whose node passes the flood stage watermark.
            settings = f"/{capture.name}.find.public.t/_settings"
            ask(opensearch.url, "PUT", settings, {"index.blocks.read_only_allow_delete": True})
            capture.sql("insert into t values (2)")
            found = until(lambda: found_in(path, "store-full"), "the full store is named", within_s=120.0)
            assert_first(found, "store-full", "sink find")
            ask(opensearch.url, "PUT", settings, {"index.blocks.read_only_allow_delete": None})
            until_healthy(path, within_s=120.0)

            door.close()
            door.reset()
            capture.sql("insert into t values (3)")
            until(lambda: daemon.status()["sinks"]["find"]["state"] == "WAITING", "it waits", within_s=120.0)
            assert_first(first_cause(path, "find"), "store-unreachable", "sink find")


def found_in(path: Path, code: str, sink: str = "find") -> dict[str, Any]:
    """The first cause of the sink if it is this one: a worker retries for a moment before it lags."""
    found = first_cause(path, sink)
    return found if found["code"] == code else {}


def test_credentials_certificates_and_rights_in_kafka_are_named_first(
    capture: CaptureSite, secured: SecuredBroker
) -> None:
    capture.sql(TABLE)
    for kafka in (secured.sasl_options(WRONG_PASSWORD), secured.tls_options(secured.other_ca)):
        found = first_cause(capture.write_config({"kafka": kafka}))
        assert_first(found, "broker-refused", "kafka")
        assert WRONG_PASSWORD not in found["all"]

    secured.grant(capture.name)
    capture.running(listening({"kafka": secured.sasl_options()}))
    secured.revoke(capture.name, transactional_id=True)
    secured.revoke(capture.name)
    capture.sql("insert into t values (1)")

    assert_first(first_cause(newest_config(capture)), "broker-refused", "kafka")


def test_pooler_before_the_source_is_named_first(
    capture: CaptureSite, postgres: PostgresServer, tmp_path: Path
) -> None:
    capture.sql(TABLE)
    with pgbouncer(postgres.dsn, "session", tmp_path) as port:
        dsn = capture.dsn.replace(f":{postgres.port}/", f":{port}/")

        assert_first(first_cause(capture.write_config({"source": {"dsn": dsn}})), "source-pooler", "source")


def test_prepared_transaction_full_slot_and_another_cluster_are_named_first(
    make_stack: MakeStack, capture: CaptureSite, kafka: KafkaServer, tmp_path: Path
) -> None:
    settings = {
        "max_prepared_transactions": "5",
        "max_slot_wal_keep_size": "48MB",
        "min_wal_size": "32MB",
        "max_wal_size": "32MB",
    }
    source = make_stack("postgres", postgres=settings).postgres
    run_once(capture)
    (tmp_path / "own").mkdir()
    with capture_site(capture.name, source.dsn, kafka.bootstrap, tmp_path / "own") as site:
        site.sql(TABLE)
        assert_first(first_cause(site.write_config()), "source-diverged", "source")

    with capture_site(f"{capture.name}b", source.dsn, kafka.bootstrap, tmp_path / "own") as site:
        site.sql("create table other (id int primary key)")
        with site.connect() as session:
            session.execute("begin; insert into t values (2); prepare transaction 'in the way'")
        daemon = site.daemon(listening())
        until(lambda: daemon.events("slot_creating"), "it creates the slot")
        found = first_cause(newest_config(site))
        assert_first(found, "prepared-transaction", "source")
        assert found["command"] == "rollback prepared 'in the way';"

        site.sql(found["command"])
        daemon.until_running()
        daemon.until_position(site.sql("insert into t values (3)"))
        daemon.kill()
        write(site, 32)
        found = why(newest_config(site))
        assert [one["code"] for one in found["causes"]] == ["capture-down", "wal-grows"]

        write(site, 64)
        assert_first(first_cause(newest_config(site)), "slot-lost", "source")


def write(site: CaptureSite, megabytes: int) -> None:
    """Write so much WAL, and let the server remove what it may."""
    emit = "select pg_logical_emit_message(false, 'other', repeat('x', 1000000))"
    site.sql(*([emit] * megabytes), "select pg_switch_wal()", "checkpoint")


def test_full_temporary_folder_is_named_first(capture: CaptureSite, tmp_path: Path) -> None:
    capture.sql("create table t (id text primary key)")
    with small_disk(tmp_path / "disk", _DISK_BYTES) as disk:
        disk.fill()
        daemon = capture.daemon(listening(), environ={"SQLITE_TMPDIR": str(disk.folder)}).until_running()
        capture.sql("insert into t select repeat(md5(g::text), 30) || g from generate_series(1, 25000) g")
        capture.sql("truncate t")
        daemon.until_state("WAITING")

        assert_first(first_cause(newest_config(capture)), "disk-full", "capture")


def test_clock_of_the_machine_is_a_risk_that_is_named(capture: CaptureSite, tmp_path: Path) -> None:
    capture.sql(TABLE)
    capture.running(listening())
    until_healthy(newest_config(capture))

    done = cdc("why", "-c", newest_config(capture), environ=WallClock(tmp_path, 3600).environ)

    assert done.code == 0, done
    assert "also clock-differs (source): the clock of PostgreSQL is 60 min behind" in done.out


@pytest.mark.timeout(400)
def test_sink_that_is_paused_frozen_or_whose_store_is_down_or_full_is_named_first(
    capture: CaptureSite, make_valkey: MakeValkey
) -> None:
    valkey = make_valkey()
    capture.sql(TABLE)
    sections = listening({"sinks.fast": {"kind": "cache", "url": valkey.url}})
    path = capture.write_config(sections)
    with supervised(capture, sections, "why") as daemon:
        daemon.until_running()
        capture.sql("insert into t values (1)")
        until_healthy(path, within_s=120.0)

        assert cdc("sink", "pause", "fast", "-c", path).code == 0
        assert_first(first_cause(path, "fast"), "sink-paused", "sink fast")
        assert cdc("sink", "resume", "fast", "-c", path).code == 0
        until_healthy(path, within_s=120.0)

        (pid,) = daemon.sink_pids()
        freeze(pid)
        until(lambda: (report_age_s(daemon) or 0) > 6, "it misses its reports")
        assert_first(first_cause(path, "fast"), "sink-stuck", "sink fast")
        thaw(pid)
        until_healthy(path, within_s=120.0)

        assert cdc("sink", "pause", "fast", "-c", path).code == 0
        freeze(pid)
        assert cdc("sink", "resume", "fast", "-c", path).code == 0
        until(lambda: (report_age_s(daemon) or 0) > 6, "it misses its reports")
        assert_first(first_cause(path, "fast"), "sink-stuck", "sink fast")
        thaw(pid)

        with client_of(valkey) as client:
            client.config_set("maxmemory", "3mb")
        capture.sql("insert into t select g, repeat('x', 50000) from generate_series(2, 200) g")
        until(lambda: lag_records(daemon), "it lags")
        found = until(lambda: found_in(path, "store-full", "fast"), "the full store is named", within_s=120.0)
        assert_first(found, "store-full", "sink fast")

        valkey.kill()
        capture.sql("insert into t values (1000, 'x')")
        until(lambda: daemon.status()["sinks"]["fast"]["state"] == "WAITING", "it waits")
        assert_first(first_cause(path, "fast"), "store-unreachable", "sink fast")


def report_age_s(daemon: Supervised) -> float | None:
    age_s: float | None = daemon.status()["sinks"]["fast"]["report_age_seconds"]
    return age_s


def lag_records(daemon: Supervised) -> int | None:
    lag: int | None = daemon.status()["sinks"]["fast"]["lag_records"]
    return lag


def test_sink_that_does_not_run_and_keys_that_are_blocked_are_named_first(
    capture: CaptureSite, make_valkey: MakeValkey
) -> None:
    capture.sql(TABLE)
    capture.running(listening({"sinks.fast": {"kind": "cache", "url": make_valkey().url}}))
    path = newest_config(capture)
    capture.settled(capture.daemons[-1])
    assert_first(first_cause(path, "fast"), "sink-down", "sink fast")

    config = load(path, {})
    settings = config.sinks["fast"]
    assert isinstance(settings, Applied)
    book, place = LogBook(capture.topic("t")), (capture.topic("t"), 0)
    book.put(7, {"id": 7, "v": CANARY})
    letters = dead_letters(config, "fast", settings, SystemClock())
    letters.assigned([place])
    letters.park(place, book.records[0].key or b"", book.records, Outcome(Verdict.REFUSED, "bad_value", "no date"))
    found = why(path, "fast")

    assert [one["code"] for one in found["causes"]] == ["sink-down", "key-blocked"]
    assert found["causes"][1]["command"] == "cdc dlq list fast"
    assert "error classes: bad_value" in found["causes"][1]["evidence"]
    assert CANARY not in str(found)
