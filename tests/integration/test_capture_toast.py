"""TOAST values that PostgreSQL does not send again never become null (fault table B4).

With `[toast] mode = "omit"`; for the default see test_capture_reselect.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Sections

# Long, and stored as it is: otherwise it would be compressed and stay in the row.
_TABLE: Final = (
    "create table t (id int primary key, n int, body text, note text)",
    "alter table t alter column body set storage external",
)
_OMIT: Final[Sections] = {"toast": {"mode": "omit"}}
_BODY: Final = "repeat('0123456789', 1000)"


def test_unchanged_large_value_is_left_out_and_named(capture: CaptureSite) -> None:
    capture.sql(*_TABLE)
    daemon = capture.running(_OMIT)

    capture.sql(f"insert into t values (1, 1, {_BODY}, null)", "update t set n = 2", "update t set body = 'short'")
    created, updated, shortened = capture.settled(daemon).events

    assert created.after == {"id": 1, "n": 1, "body": "0123456789" * 1000, "note": None}
    assert "unchanged" not in created.source
    assert updated.after == {"id": 1, "n": 2, "note": None}
    assert updated.source["unchanged"] == ["body"]
    assert shortened.after["body"] == "short"


def test_unchanged_large_value_is_left_out_when_the_key_changes_too(capture: CaptureSite) -> None:
    capture.sql(*_TABLE)
    daemon = capture.running(_OMIT)

    capture.sql(f"insert into t values (1, 1, {_BODY}, 'x')", "update t set id = 2")
    log = capture.settled(daemon)

    removed, created = log.events[1:]
    assert (removed.op, created.op) == ("d", "c")
    assert created.after == {"id": 2, "n": 1, "note": "x"}
    assert created.source["unchanged"] == ["body"]
    assert log.faults() == []


def test_unchanged_large_value_is_there_with_replica_identity_full(capture: CaptureSite) -> None:
    capture.sql(*_TABLE, "alter table t replica identity full")
    daemon = capture.running()

    capture.sql(
        f"insert into t values (1, 1, {_BODY}, null)", "update t set n = 2", "update t set id = 3", "delete from t"
    )
    log = capture.settled(daemon)

    created, updated, removed, moved, deleted = log.events
    body = created.after["body"]
    assert len(body) == 10000
    assert updated.after["body"] == updated.document["before"]["body"] == body
    assert moved.after["body"] == removed.document["before"]["body"] == deleted.document["before"]["body"] == body
    assert not any({"unchanged", "reselected"} & event.source.keys() for event in log.events)


def test_several_unchanged_values_are_all_named(capture: CaptureSite) -> None:
    capture.sql(*_TABLE, "alter table t alter column note set storage external")
    daemon = capture.running(_OMIT)

    capture.sql(f"insert into t values (1, 1, {_BODY}, {_BODY})", "update t set n = 2", "update t set note = null")
    _, updated, nulled = capture.settled(daemon).events

    assert updated.source["unchanged"] == ["body", "note"]
    assert nulled.source["unchanged"] == ["body"]
    assert nulled.after["note"] is None


def test_table_has_the_mode_of_the_last_pattern_that_fits(capture: CaptureSite) -> None:
    for name in ("docs_a", "docs_b", "t"):
        capture.sql(*[statement.replace("table t", f"table {name}") for statement in _TABLE])
    daemon = capture.running({"toast": {"tables": {"public.docs_*": "omit", "public.docs_b": "reselect"}}})

    for name in ("docs_a", "docs_b", "t"):
        capture.sql(f"insert into {name} values (1, 1, {_BODY}, null)", f"update {name} set n = 2")
    log = capture.settled(daemon)

    kept = {name: log.events_of(capture.topic(name))[-1] for name in ("docs_a", "docs_b", "t")}
    assert {name: event.source.get("unchanged") for name, event in kept.items()} == {
        "docs_a": ["body"],
        "docs_b": None,
        "t": None,
    }
    assert {name: event.source.get("reselected") for name, event in kept.items()} == {
        "docs_a": None,
        "docs_b": ["body"],
        "t": ["body"],
    }
    assert "body" not in kept["docs_a"].after
    assert kept["t"].after["body"] == kept["docs_b"].after["body"] == "0123456789" * 1000
