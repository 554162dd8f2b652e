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
        until(partial(_equal, capture, table), f"the topic of {table} has its rows", within_s=120)


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


@pytest.mark.parametrize(
    "between",
    [
        [*_SWAP, "insert into blue values (500, 'of green')", *_SWAP_BACK],
        [*_SWAP, "delete from blue where id > 40", *_SWAP_BACK],
        ["alter table blue rename to away", "delete from away where id < 20", "alter table away rename to blue"],
    ],
    ids=["inserted by another table", "deleted by another table", "deleted while it was away"],
)
@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
def test_rows_that_change_while_a_name_is_away_between_two_checks_reach_the_topic(
    capture: CaptureSite, between: list[str], *, down: bool
) -> None:
    """No check can see it: the names are back at the end of the transaction."""
    fill(capture)
    daemon = started(capture, _QUICK)
    until_equal(capture, "green")

    if down:
        daemon.stop()
    capture.transaction(*between)
    daemon = capture.running(_QUICK) if down else daemon
    until_equal(capture, "blue", "green")
    until(lambda: ("public.blue", "returned") in found(daemon), "it is reported")
    until(lambda: daemon.status().get("ddl_count") == 0, "the findings are settled")
    until_equal(capture, "blue", "green")


def test_rows_of_a_former_name_that_is_back_between_two_checks_reach_the_topic(capture: CaptureSite) -> None:
    """The stream last showed the table under that name: its description is the same, and still says something."""
    fill(capture)
    daemon = started(capture, _QUICK)
    until_equal(capture, "green")
    capture.sql("update blue set v = 'shown as blue' where id = 1")
    capture.transaction(*_SWAP)
    until_equal(capture, "blue", "blue_old")
    until(lambda: daemon.status().get("ddl_count") == 0, "the findings are settled")

    capture.transaction(*_SWAP_BACK, "insert into blue values (700, 'of the former name')", *_SWAP)
    capture.settled(daemon)
    until(lambda: ("public.blue_old", "returned") in found(daemon), "it is reported")
    until_equal(capture, "blue", "blue_old")
    until(lambda: daemon.status().get("ddl_count") == 0, "the findings are settled")
    until_equal(capture, "blue", "blue_old")


def test_snapshot_that_was_given_up_while_its_table_had_another_name_is_begun_again(capture: CaptureSite) -> None:
    fill(capture)
    capture.sql("insert into blue select n, repeat('x', 700) from generate_series(100, 400) n")
    snapshot = {**INITIAL["snapshot"], "chunk_bytes": 8192}
    sections = {**_QUICK, "snapshot": snapshot, "capture": {"catalog_check_s": 8.0}}
    daemon = capture.running(sections, mutant="slow_chunks:200")
    until(lambda: any(one["rows"] for one in daemon.status()["snapshots"]), "rows join")

    capture.sql("alter table blue rename to away")
    until(lambda: daemon.events("snapshot_abandoned"), "the snapshot is given up")
    capture.sql("alter table away rename to blue")

    until_equal(capture, "blue")
    assert [event["table"] for event in daemon.events("snapshot_resumed")] == ["public.blue"]


@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "after a restart"])
def test_new_table_under_the_former_name_of_a_renamed_one_has_a_topic_without_its_keys(
    capture: CaptureSite, *, restarted: bool
) -> None:
    fill(capture)
    capture.sql("create publication every_table for all tables")
    sections: Sections = {**_QUICK, "source": {"publication": "every_table"}}
    daemon = started(capture, sections)
    until_equal(capture, "green")

    capture.sql("alter table green rename to teal")
    until(lambda: ("public.teal", "renamed") in found(daemon), "the rename is found")
    until_equal(capture, "teal")
    if restarted:
        capture.settled(daemon)
        daemon.stop()
        capture.running(sections)
    capture.sql(_MADE.format("green"), "insert into green values (500, 'new')")

    until_equal(capture, "green")


def test_new_table_under_a_name_that_was_left_at_the_same_moment_is_read_under_any_policy(capture: CaptureSite) -> None:
    fill(capture)
    capture.sql("create publication every_table for all tables")
    daemon = started(capture, {**_QUICK, "source": {"publication": "every_table"}, "ddl": {"policy": "warn"}})
    until_equal(capture, "green")

    capture.transaction(
        "alter table green rename to teal", _MADE.format("green"), "insert into green values (500, 'new')"
    )
    until_equal(capture, "green")

    assert ("public.green", "replaced") in found(daemon)


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
