"""The primary is killed and a standby promoted: capture continues exactly, or stops with the reason (A11)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg

from cdc.lsn import Lsn
from tests.faults.test_why import assert_first
from tests.fixtures.capture.referee import Oracle, history_faults
from tests.fixtures.faults.workload import KEYS, SCHEMA, writing
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.first_cause import first_cause
from tests.fixtures.servers.running_servers import needs_major
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections
    from tests.fixtures.servers.running_servers import KafkaServer
    from tests.fixtures.servers.standby_pair import MakePair, Pair

WANTED: Sections = {
    "source": {"failover": True, "wal_check_s": 0.2},
    "capture": {
        "catalog_check_s": 0.2,
        "heartbeat_interval_s": 0.5,
        "heartbeat_query": "select pg_logical_emit_message(true, 'heartbeat', '')",
    },
}


def test_capture_goes_on_exactly_after_the_primary_died_under_load(
    make_pair: MakePair, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    pair = make_pair()
    with capture_site(topic_prefix, pair.dsn, kafka.bootstrap, tmp_path) as site:
        site.sql(*SCHEMA)
        daemon = site.running(WANTED)
        (problem,) = until(lambda: wal(daemon).get("failover_problems", []), "the first look")
        assert "synchronized_standby_slots" in problem
        pair.hold_back()
        pair.until_ready(site.slot)
        oracle = referee(pair, site)
        until(lambda: wal(daemon).get("failover_problems") == [], "nothing is known against it any more")
        until(lambda: daemon.events("failover_ready"), "that is logged")

        with writing(pair.dsn, seed()) as work:
            until(lambda: work.transactions > 100, "the writers write")
            pair.primary.kill()
            daemon.until_state("WAITING")
            pair.promote()
            count = work.transactions
            until(lambda: work.transactions > count + 100, "the writers write on", within_s=60)
        log = site.settled(daemon, 120)

        assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []
        assert tables(log, site) == database(site), "the log is the promoted database, row by row"
        promoted = daemon.events("source_promoted")
        assert [(event["before"], event["timeline"]) for event in promoted[:1]] == [(1, 2)]
        assert daemon.stop() == 0
        assert site.running(WANTED).stop() == 0, "the next start finds the timeline it knows"


def test_standby_without_the_slot_is_a_gap_that_names_the_range(
    make_pair: MakePair, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    pair = make_pair()
    with capture_site(topic_prefix, pair.dsn, kafka.bootstrap, tmp_path) as site:
        site.sql("create table t (id int primary key)")
        daemon = site.running()  # without source.failover
        known_to = site.sql("insert into t values (1)")
        daemon.until_position(known_to)
        assert daemon.stop() == 0
        pair.until_received(site.wal())
        pair.primary.kill()
        pair.promote()
        lost = site.sql("insert into t values (2)")

        code, said = status(site)
        assert (code, said["outlook"]["state"]) == (3, "GAP")
        assert_first(first_cause(site.write_config()), "slot-lost", "source")
        stop = site.daemon().stopped_with()

        assert (stop["state"], stop["exit_code"]) == ("GAP", 3)
        assert known_to <= Lsn.parse(stop["known_to"]) < lost <= Lsn.parse(stop["resumes_at"])
        assert stop["command"] == "cdc slot recreate --resnapshot"


def test_log_ahead_of_the_promoted_standby_is_diverged_with_the_range_and_the_way_back(
    make_pair: MakePair, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    pair = make_pair()
    with capture_site(topic_prefix, pair.dsn, kafka.bootstrap, tmp_path) as site:
        site.sql("create table t (id int primary key)", "insert into t values (0)")
        daemon = site.running(WANTED)  # and no synchronized_standby_slots
        pair.until_ready(site.slot)
        common = site.sql("insert into t values (1)")
        daemon.until_position(common)
        pair.until_received(common)

        pair.standby.kill()
        lost = site.sql("insert into t values (2)")
        daemon.until_position(lost)
        pair.primary.kill()
        pair.standby.start()
        pair.promote()
        stop = daemon.stopped_with()

        assert (stop["state"], stop["exit_code"]) == ("DIVERGED", 3)
        assert common <= Lsn.parse(stop["known_to"]) < lost <= Lsn.parse(stop["ahead_to"])
        assert stop["known_to"] in stop["message"]
        assert stop["command"] == "cdc slot recreate --resnapshot"
        code, said = status(site)
        assert (code, said["outlook"]["state"]) == (3, "DIVERGED")
        assert_first(first_cause(site.write_config(WANTED)), "source-diverged", "source")

        assert cdc("slot", "recreate", "--resnapshot", "--yes", "-c", site.write_config(WANTED)).code == 0
        initial: Sections = {**WANTED, "snapshot": {"mode": "initial"}}
        daemon = site.running(initial)
        complete = {"complete"}
        until(lambda: {one["state"] for one in daemon.status()["snapshots"]} == complete, "the table is read anew")
        rows = site.settled(daemon).fold(site.topic("t")).values()
        assert sorted(row["id"] for row in rows) == [0, 1], "the row that the database lost is gone from the topic"


def test_slot_that_exists_is_made_one_for_failover_by_the_next_start(capture: CaptureSite) -> None:
    needs_major(17, "slots are synchronised to standbys")
    capture.sql("create table t (id int primary key)")
    query = "select failover from pg_replication_slots where slot_name = %s"
    assert capture.running().stop() == 0
    assert capture.query(query, capture.slot) == [(False,)]

    daemon = capture.running({"source": {"failover": True}})

    assert capture.query(query, capture.slot) == [(True,)]
    capture.sql("insert into t values (1)")
    assert [event.after for event in capture.settled(daemon).events] == [{"id": 1}]


def wal(daemon: Daemon) -> dict[str, Any]:
    """What the guard says in /status."""
    return daemon.status().get("wal") or {}


def status(site: CaptureSite) -> tuple[int, dict[str, Any]]:
    """Exit code and document of `cdc status`."""
    ran = cdc("status", "--json", "-c", site.write_config(WANTED))
    return ran.code, json.loads(ran.out)


def referee(pair: Pair, site: CaptureSite) -> Oracle:
    """A slot of another plugin that is promoted, too."""
    oracle = Oracle(pair.dsn, f"oracle_{site.name}")
    site.query("select pg_create_logical_replication_slot(%s, 'test_decoding', false, false, true)", oracle.slot)
    pair.until_ready(oracle.slot, advanced=True)
    return oracle


def tables(log: Any, site: CaptureSite) -> dict[str, list[str]]:
    """What the topics fold to, as texts that can be compared."""
    found = {}
    for table in KEYS:
        name = table.partition(".")[2]
        found[table] = sorted(json.dumps(row, sort_keys=True) for row in log.fold(site.topic(name)).values())
    return found


def database(site: CaptureSite) -> dict[str, list[str]]:
    """The same of the database: PostgreSQL makes the JSON, `numeric` as a string as the log has it."""
    found = {}
    with psycopg.connect(site.dsn) as session:
        for table in KEYS:
            rows = session.execute(f"select to_jsonb(t) from {table} t".encode()).fetchall()
            found[table] = sorted(json.dumps(_texts(row[0]), sort_keys=True) for row in rows)
    return found


def _texts(row: dict[str, Any]) -> dict[str, Any]:
    if "amount" in row:
        row["amount"] = f"{row['amount']:.2f}"
    return row
