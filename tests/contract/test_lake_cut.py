"""A cut as the driver makes it: the order, a second attempt, and the resulting manifest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from cdc.errors import InvariantError, LakeDamaged
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.cut_commit import CutCommit
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import ManifestStore
from tests.fixtures.lake.lake_files import pending
from tests.fixtures.servers.object_store import everywhere

if TYPE_CHECKING:
    from sinks.warehouse.lake.manifest import Manifest

ORDERS: Final = layout.mirror("public", "orders")
USERS: Final = layout.mirror("public", "users")


class Lake:
    """A lake and a driver's two hands on it."""

    def __init__(self, location: Location) -> None:
        self.store = ManifestStore(location)
        self.tables = DeltaRs(location)

    def cut(self, cut: int) -> CutCommit:
        return CutCommit(self.store, self.tables, self.store.pending() or pending(cut))

    def sums(self, cut: int) -> int:
        state = self.store.at(cut).views["sum"]
        return int(self.tables.read(layout.view("sum"), state.version).column("s")[0].as_py())


@pytest.fixture
def lake(location: Location) -> Lake:
    return Lake(location)


def rows(**values: int) -> pa.Table:
    return pa.table({"k": list(values), "v": list(values.values()), "_deleted": [False] * len(values)})


def total(value: int) -> pa.Table:
    return pa.table({"s": [value]})


def published(commit: CutCommit) -> Manifest:
    return commit.publish(name="shop", committed_at_us=1)


def first(lake: Lake) -> None:
    commit = lake.cut(1)
    commit.mirror(ORDERS, rows(a=1, b=2), ["k"], schema_id="s1")
    commit.mirror(USERS, rows(u=1), ["k"], schema_id="s9")
    commit.view("sum", total(3), sql_sha="x")
    published(commit)


@everywhere
def test_nothing_is_written_before_the_range_is_durable(lake: Lake) -> None:
    lake.cut(1)

    assert lake.store.pending() == pending(1)
    assert lake.tables.version(ORDERS) is None


@everywhere
def test_cut_keeps_what_it_does_not_touch(lake: Lake) -> None:
    first(lake)
    commit = lake.cut(2)
    before = commit.version(ORDERS), commit.version("mirror/none")
    commit.mirror(ORDERS, rows(c=4), ["k"], schema_id="s2")
    after = published(commit)

    assert before == (0, None)
    assert lake.store.current() == after
    assert (after.cut, after.end_lsn, after.position) == (2, 200, pending(2).position)
    assert after.tables[USERS] == lake.store.at(1).tables[USERS]
    assert (after.tables[ORDERS].schema_id, after.tables[ORDERS].rows) == ("s2", 3)
    assert after.views == lake.store.at(1).views


def test_key_and_event_time_of_a_table_persist_across_cuts(lake: Lake) -> None:
    first(lake)
    commit = lake.cut(2)
    commit.describe(ORDERS, key=["k"], event_time="at")
    commit.describe("mirror/none", key=["k"])
    told = published(commit).tables
    commit = lake.cut(3)
    commit.mirror(ORDERS, rows(c=4), ["k"], schema_id="s2")
    commit.compact(ORDERS, sort_by=["k"])
    after = published(commit).tables

    assert (told[ORDERS].version, told[ORDERS].key, told[USERS].key) == (0, ("k",), None)
    assert "mirror/none" not in told
    assert (after[ORDERS].key, after[ORDERS].event_time, after[ORDERS].rows) == (("k",), "at", 3)


@everywhere
def test_second_attempt_finds_each_statement_of_the_first(lake: Lake) -> None:
    first(lake)

    def attempt() -> tuple[CutCommit, list[int]]:
        commit = lake.cut(2)
        reshaped = commit.reshape(ORDERS, lake.tables.read(ORDERS, commit.version(ORDERS) or 0), schema_id="s2")
        merged = commit.mirror(ORDERS, rows(c=4), ["k"], schema_id="s2")
        viewed = commit.view("sum", total(7), sql_sha="x")
        packed = commit.compact(ORDERS, sort_by=["k"])
        return commit, [reshaped, merged, viewed, packed]

    _, once = attempt()
    commit, again = attempt()
    published(commit)

    assert once == again == [1, 2, 1, 2], "what is in order is not packed again"
    assert lake.tables.rows(ORDERS, 2) == 3
    assert (lake.sums(1), lake.sums(2)) == (3, 7)


def test_view_that_is_left_says_why_and_since_when(lake: Lake) -> None:
    first(lake)
    commit = lake.cut(2)
    commit.keep_view("sum", "public.orders is snapshotting")
    commit.keep_view("never made", "public.orders is snapshotting")
    state = published(commit).views

    assert {name: (view.version, view.cut, view.reason) for name, view in state.items()} == {
        "sum": (0, 1, "public.orders is snapshotting")
    }


def test_view_that_an_interrupted_attempt_computed_is_not_left_behind(lake: Lake) -> None:
    first(lake)
    lake.cut(2).view("sum", total(5), sql_sha="x")
    commit = lake.cut(2)
    commit.keep_view("sum", "inputs did not change")
    state = published(commit).views["sum"]

    assert (state.version, state.cut, state.reason) == (1, 2, "")
    third = lake.cut(3)
    third.view("sum", total(6), sql_sha="x")
    published(third)
    assert [lake.sums(cut) for cut in (1, 2, 3)] == [3, 5, 6]


def test_new_generation_is_built_beside_the_old_one(lake: Lake) -> None:
    first(lake)
    commit = lake.cut(2)
    commit.view("sum", total(5), sql_sha="y", generation=2)
    state = published(commit).views["sum"]

    assert (state.version, state.generation, state.sql_sha) == (0, 2, "y")
    assert lake.sums(1) == 3
    assert lake.store.needed()[layout.view("sum", 2)] == {0}


def test_version_that_lost_rows_is_not_built_upon(lake: Lake, tmp_path: Path) -> None:
    first(lake)
    commit = lake.cut(2)
    commit.archive("archive/t", rows(a=1), schema_id="s")
    published(commit)
    third = lake.cut(3)
    third.archive("archive/t", rows(b=1), schema_id="s")
    published(third)
    entry = tmp_path / "lake/archive/t/_delta_log" / f"{1:020}.json"
    entry.write_bytes(entry.read_bytes().partition(b"\n")[0])

    with pytest.raises(LakeDamaged, match=r"version 1 of archive/t has 1 rows, the manifest says 2"):
        lake.cut(4).archive("archive/t", rows(c=1), schema_id="s")


def test_table_that_was_never_written_is_not_compacted(lake: Lake) -> None:
    with pytest.raises(InvariantError):
        lake.cut(1).compact(ORDERS)


@everywhere
def test_statement_that_changed_nothing_is_passed_over_where_a_later_piece_is_written(lake: Lake) -> None:
    """A piece may delete only keys that are not there: it makes no commit, and the next attempt finds none of it."""
    first(lake)
    nothing = pa.table({"k": ["z"], "v": [0], "_deleted": [True]})

    def attempt(*, to_the_end: bool) -> CutCommit:
        commit = lake.cut(2)
        for piece, found in enumerate((nothing, rows(c=4), nothing, rows(d=5))):
            if piece == 3 and not to_the_end:
                break
            commit.begin_piece(piece)
            commit.mirror(ORDERS, found, ["k"], schema_id="s1")
        return commit

    attempt(to_the_end=False)
    manifest = published(attempt(to_the_end=True))

    found = lake.tables.read(ORDERS, manifest.tables[ORDERS].version).sort_by("k").to_pylist()
    assert found == [{"k": key, "v": value} for key, value in (("a", 1), ("b", 2), ("c", 4), ("d", 5))]


@everywhere
def test_view_that_was_never_computed_is_in_the_manifest_with_its_reason(lake: Lake) -> None:
    first(lake)
    commit = lake.cut(2)
    commit.begin_views(commit.views, {"wrong": "text-1"})
    commit.keep_view("wrong", "there is no column x")

    manifest = published(commit)

    assert {name: (view.reason, view.text) for name, view in manifest.unbuilt.items()} == {
        "wrong": ("there is no column x", "text-1")
    }
    assert "wrong" not in manifest.views
    assert published(lake.cut(3)).unbuilt == {}, "a cut that does not say so has no such view"
