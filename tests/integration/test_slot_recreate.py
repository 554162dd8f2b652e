"""`cdc slot recreate --resnapshot`: refusals, what stays unchanged, every format. Faults: `test_repair`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fixtures.capture import avro_reader
from tests.fixtures.capture.repair_scenes import assert_repaired, captured, recreate, repaired, swept
from tests.fixtures.capture.snapshot_waits import INITIAL, complete
from tests.fixtures.servers.registry_api import RegistryApi
from tests.integration.test_capture_flat import folded, ids_are_unique_and_in_order, rows

if TYPE_CHECKING:
    from cdc.local.registry_server import Registry
    from tests.fixtures.servers.daemon import CaptureSite, Sections

_TABLE: Final = (
    "create table t (id int primary key, v text)",
    "insert into t select n, 'row ' || n from generate_series(1, 60) n",
)
_UNSEEN: Final = (
    "delete from t where id < 21",
    "update t set v = 'x' where id = 30",
    "insert into t values (99, 'new')",
)


def test_nothing_changes_without_a_log_without_confirmation_or_with_a_reader(capture: CaptureSite) -> None:
    capture.sql(*_TABLE)
    nothing = recreate(capture, "--resnapshot", "--yes")
    daemon = capture.running(INITIAL)
    complete(capture, daemon, "public.t")
    held = recreate(capture, "--resnapshot", "--yes")
    assert daemon.stop() == 0
    alone, unasked = recreate(capture, "--yes"), recreate(capture, "--resnapshot")

    assert (nothing.code, held.code, alone.code, unasked.code) == (2, 1, 2, 2)
    assert "try: cdc run" in nothing.err
    assert "in use" in held.err
    assert "try: cdc slot recreate --resnapshot" in alone.err
    assert "is not lost" in unasked.err, "what is about to happen is said before it is asked"
    assert {record["epoch"] for record in capture.log().progress} == {1}
    assert capture.running(INITIAL).state() in {"RUNNING", "CATCHING_UP"}


def test_lost_slot_is_repaired_by_the_command_that_the_gap_names(capture: CaptureSite) -> None:
    """A table without a key goes on as it is, and is named."""
    sections: Sections = {**INITIAL, "source": {"keyless": ["public.k"]}}
    captured(capture, *_TABLE, "create table k (v int)", "alter table k replica identity full", sections=sections)
    capture.sql(f"select pg_drop_replication_slot('{capture.slot}')", "insert into k values (1)", *_UNSEEN)
    stop = capture.daemon(sections).stopped_with()
    assert (stop["state"], stop["exit_code"]) == ("GAP", 3)

    asked = recreate(capture, "--resnapshot", sections=sections)
    done = repaired(capture, stop["command"], sections=sections)
    daemon = capture.running(sections)
    capture.sql("insert into k values (2)", "insert into t values (1, 'back')")
    log = complete(capture, daemon, "public.t")

    assert "public.k" in asked.err
    assert (done["epoch"], done["resnapshot"], done["keyless"]) == (2, ["public.t"], ["public.k"])
    assert_repaired(capture, log)
    assert {record.key for record in swept(capture, log)} >= {b'{"id":%d}' % n for n in range(2, 21)}
    assert [event.after["v"] for event in log.events_of(capture.topic("k"))] == [2]
    told = [cut["tables"] for cut in log.cuts if cut["epoch"] == 2 and "public.t" in cut["tables"]]
    assert (told[0], told[-1]["public.t"]) == ({"public.t": "snapshotting", "public.k": "complete"}, "complete")


def test_rows_alone_are_repaired(capture: CaptureSite) -> None:
    sections: Sections = {**INITIAL, "encode": {"format": "flat"}}
    captured(capture, *_TABLE, sections=sections)
    capture.sql(f"select pg_drop_replication_slot('{capture.slot}')", *_UNSEEN)

    repaired(capture, "cdc slot recreate --resnapshot", sections=sections)
    log = complete(capture, capture.running(sections), "public.t")

    assert folded(log, capture.topic("t")) == rows(capture, "t")
    assert ids_are_unique_and_in_order(log)
    gone = [record for record in log.topic(capture.topic("t")) if record.value is None]
    assert {(record.headers["__op"], record.headers["__epoch"]) for record in gone} == {(b"d", b"2")}


def test_events_in_avro_are_repaired(capture: CaptureSite, registry: Registry) -> None:
    sections: Sections = {**INITIAL, "encode": {"format": "avro"}, "registry": {"url": registry.url}}
    captured(capture, *_TABLE, sections=sections)
    capture.sql(f"select pg_drop_replication_slot('{capture.slot}')", *_UNSEEN)

    repaired(capture, "cdc slot recreate --resnapshot", sections=sections)
    log = complete(capture, capture.running(sections), "public.t")

    api = RegistryApi(registry.url)
    found: dict[bytes, dict[str, object] | None] = {}
    deleted = []
    for record in log.topic(capture.topic("t")):
        assert record.key is not None
        event = None
        if record.value is not None:
            event = avro_reader.decoded(record.value, api.schema(avro_reader.schema_id(record.value)))
            deleted += [event["before"]["id"]] if event["op"] == "d" else []
        found[record.key] = event and event["after"]
    live = {row["id"]: row for row in found.values() if row is not None}
    assert live == rows(capture, "t")
    assert sorted(deleted) == list(range(1, 21))
