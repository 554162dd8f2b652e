"""A name that belongs to another table: it is reported, and the topic ends with exactly the rows of that table.

The oracle is PostgreSQL's table: the keys of the topic are the keys of the table.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.fixtures.capture.snapshot_waits import INITIAL
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections

_QUICK: Final[Sections] = {**INITIAL, "capture": {"catalog_check_s": 0.2}}
_ONLY_BLUE: Final[Sections] = {**_QUICK, "source": {"tables": ["public.blue"]}}
_MADE: Final = "create table {} (id int primary key, v text not null)"
_SWAP: Final = ["alter table blue rename to blue_old", "alter table green rename to blue"]
_SWAP_BACK: Final = ["alter table blue rename to green", "alter table blue_old rename to blue"]
_RECREATE: Final = [
    "drop table blue",
    _MADE.format("blue"),
    "insert into blue select n, 'new' from generate_series(5, 8) n",
]


def fill(capture: CaptureSite) -> None:
    """Two tables whose keys differ in part."""
    capture.sql(
        _MADE.format("blue"),
        _MADE.format("green"),
        "insert into blue select n, 'blue' from generate_series(1, 40) n",
        "insert into green select n, 'green' from generate_series(31, 60) n",
    )


def differs(capture: CaptureSite, table: str) -> str:
    """How the topic of a table differs from it; empty when it does not."""
    topic = capture.log().fold(capture.topic(table))
    folded = sorted((row["id"], row["v"]) for row in topic.values())
    rows = capture.query(f"select id, v from {table} order by id")
    return "" if folded == rows else f"{table} has {rows}, its topic {folded}"


def until_equal(capture: CaptureSite, *tables: str) -> None:
    """Wait until the topics have exactly the rows of the tables."""
    for table in tables:
        until(partial(_equal, capture, table), f"the topic of {table} has its rows", within_s=60)


def _equal(capture: CaptureSite, table: str) -> bool:
    return not differs(capture, table)


def found(daemon: Daemon) -> set[tuple[str, str]]:
    """(table, kind) of everything that was found."""
    return {(event["table"], event["kind"]) for event in daemon.events("ddl_found")}


def started(capture: CaptureSite, sections: Sections) -> Daemon:
    daemon = capture.running(sections)
    until_equal(capture, "blue")
    return daemon


def test_swap_while_capture_runs_brings_both_topics_to_the_rows_of_their_tables(capture: CaptureSite) -> None:
    fill(capture)
    daemon = started(capture, _QUICK)

    capture.transaction(*_SWAP)
    capture.sql("delete from blue where id = 60", "insert into blue values (100, 'later')", "delete from blue_old")
    until_equal(capture, "blue", "blue_old")
    until(lambda: daemon.status().get("ddl_count") == 0, "the findings are settled")

    assert ("public.blue", "replaced") in found(daemon)
    assert capture.settled(daemon).faults() == []


def test_swap_while_capture_is_down_is_found_and_repaired_by_the_next_start(capture: CaptureSite) -> None:
    fill(capture)
    started(capture, _QUICK).stop()

    capture.sql("update blue set v = 'before the swap' where id < 5", "insert into blue values (41, 'old')")
    capture.transaction(*_SWAP)
    daemon = capture.running(_QUICK)
    until_equal(capture, "blue", "blue_old")

    assert ("public.blue", "replaced") in found(daemon)


def test_swap_with_a_table_that_was_not_published_brings_the_topic_to_its_rows(capture: CaptureSite) -> None:
    fill(capture)
    daemon = started(capture, _ONLY_BLUE)

    capture.transaction(*_SWAP)
    until_equal(capture, "blue")
    capture.sql("update blue set v = 'changed' where id = 31")
    until_equal(capture, "blue")

    assert ("public.blue", "replaced") in found(daemon)


def test_names_that_go_back_and_forth_end_with_the_rows_of_their_tables(capture: CaptureSite) -> None:
    """The topic of green has keys that were deleted while the table had another name."""
    fill(capture)
    started(capture, _QUICK)
    until_equal(capture, "green")

    for number in range(3):
        capture.transaction(*_SWAP)
        capture.sql(f"delete from blue where id = {31 + number}")
        until_equal(capture, "blue")
        capture.transaction(*_SWAP_BACK)
        capture.sql(f"delete from blue where id = {1 + number}")
    until_equal(capture, "blue", "green")


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
def test_table_dropped_and_created_in_one_transaction_is_reported_as_replaced(
    capture: CaptureSite, *, down: bool
) -> None:
    fill(capture)
    daemon = started(capture, _QUICK)

    if down:
        daemon.stop()
    capture.transaction(*_RECREATE)
    daemon = capture.running(_QUICK) if down else daemon
    until_equal(capture, "blue")
    capture.sql("insert into blue values (1, 'streamed')", "delete from blue where id = 5")
    until_equal(capture, "blue")

    assert ("public.blue", "replaced") in found(daemon)
    assert ("public.blue", "left") not in found(daemon)


def test_old_keys_that_are_streamed_after_the_swap_was_seen_are_swept_too(capture: CaptureSite) -> None:
    """The catalog is ahead of the stream: changes of the former table still come when the swap is known."""
    fill(capture)
    daemon = started(capture, _QUICK)

    daemon.freeze()
    capture.sql("insert into blue select n, 'late' from generate_series(200, 2200) n")
    capture.transaction(*_SWAP)
    daemon.thaw()

    until_equal(capture, "blue", "blue_old")


def test_swap_in_the_middle_of_the_snapshot_of_the_former_table_ends_with_the_new_rows(capture: CaptureSite) -> None:
    fill(capture)
    capture.sql("insert into blue select n, repeat('x', 700) from generate_series(100, 400) n")
    chunks = {**_QUICK, "snapshot": {**INITIAL["snapshot"], "chunk_bytes": 8192}}
    daemon = capture.running(chunks, mutant="slow_chunks:200")
    until(lambda: any(one["rows"] for one in daemon.status()["snapshots"]), "rows join")

    capture.transaction(*_SWAP)

    until_equal(capture, "blue", "blue_old")


def test_kill_in_the_middle_of_a_sweep_after_a_swap_leaves_no_key_behind(capture: CaptureSite) -> None:
    fill(capture)
    daemon = started(capture, _QUICK)

    capture.transaction(*_SWAP)
    until(lambda: daemon.events("ddl_found"), "the swap is found")
    daemon.kill()
    capture.running(_QUICK)

    until_equal(capture, "blue", "blue_old")


def test_with_policy_warn_a_swap_is_reported_and_stays_open(capture: CaptureSite) -> None:
    fill(capture)
    daemon = started(capture, {**_QUICK, "ddl": {"policy": "warn"}})

    capture.transaction(*_SWAP)
    until(lambda: ("public.blue", "replaced") in found(daemon), "the swap is reported")
    capture.settled(daemon)

    assert {(one["table"], one["kind"]) for one in daemon.status()["ddl"]} >= {("public.blue", "replaced")}
    assert differs(capture, "blue")
