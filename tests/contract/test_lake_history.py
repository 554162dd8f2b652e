"""Histories by a committer: versions are closed and added in one commit, and closed ones never change."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.lake.committer import Committer
from sinks.warehouse.lake.location import Location
from tests.fixtures.lake.lake_tables import HOSTILE, H, closing, history, stored, txn, versions_rows
from tests.fixtures.servers.object_store import everywhere


@pytest.fixture
def lake(location: Location) -> Committer:
    return DeltaRs(location)


@everywhere
def test_history_closes_open_rows_and_adds_new_ones_in_one_commit(lake: Committer) -> None:
    one = lake.close_and_append(
        H, closing(1), versions_rows((1, "a", 1, None), (2, "b", 1, None), (3, "c", 1, 2)), ["k"], base=None, txn=txn(1)
    )
    two = lake.close_and_append(
        H,
        closing(5, 1, 2, 8),
        versions_rows((1, "a2", 5, 6), (1, "a3", 6, None), (8, "n", 5, None)),
        ["k"],
        base=one,
        txn=txn(2),
    )
    three = lake.close_and_append(H, closing(7, 1), versions_rows(), ["k"], base=two, txn=txn(3))
    four = lake.close_and_append(H, closing(9), versions_rows((2, "b9", 9, None)), ["k"], base=three, txn=txn(4))

    assert (one, two, three, four) == (0, 1, 2, 3)
    assert history(lake, two) == [
        (1, "a", 1, 5),
        (1, "a2", 5, 6),
        (1, "a3", 6, None),
        (2, "b", 1, 5),
        (3, "c", 1, 2),
        (8, "n", 5, None),
    ]
    assert (1, "a3", 6, 7) in history(lake, three)
    assert set(history(lake, four)) - set(history(lake, three)) == {(2, "b9", 9, None)}


def test_files_of_closed_rows_are_never_written_again(lake: Committer) -> None:
    rows = versions_rows((1, "a", 1, None), (2, "b", 1, 2))
    one = lake.close_and_append(H, closing(1), rows, ["k"], base=None, txn=txn(1))
    two = lake.close_and_append(H, closing(5, 1), versions_rows((1, "c", 5, None)), ["k"], base=one, txn=txn(2))
    three = lake.close_and_append(H, closing(6, 1), versions_rows((1, "d", 6, None)), ["k"], base=two, txn=txn(3))

    def closed(version: int) -> set[str]:
        return {name for name in lake.files(H, version) if "_open=false" in name}

    assert closed(one) < closed(two) < closed(three)


def test_history_takes_new_columns_and_keeps_its_partitions_when_written_anew(lake: Committer) -> None:
    one = lake.close_and_append(H, closing(1), versions_rows((1, "a", 1, None)), ["k"], base=None, txn=txn(1))
    more = versions_rows((1, "b", 5, None)).append_column("n", pa.array([4], pa.int32()))
    two = lake.close_and_append(H, closing(5, 1), more, ["k"], base=one, txn=txn(2))
    whole = lake.read(H, two).drop_columns(["_open", "n"])
    three = lake.overwrite(H, whole, base=two, txn=txn(3, "reshape"), sort_by=["k"])
    four = lake.close_and_append(H, closing(7, 1), versions_rows((1, "c", 7, None)), ["k"], base=three, txn=txn(3))

    assert [row["n"] for row in lake.read(H, two, filter=pc.field("_valid_to_lsn") == 5).to_pylist()] == [None]
    assert history(lake, four) == [(1, "a", 1, 5), (1, "b", 5, 7), (1, "c", 7, None)]
    assert {Path(name).parent.name for name in lake.files(H, four)} == {"_open=true", "_open=false"}


def test_hostile_names_are_only_names_in_a_history_too(lake: Committer) -> None:
    def named(rows: pa.Table) -> pa.Table:
        return rows.rename_columns([HOSTILE[0] if name == "k" else name for name in rows.column_names])

    one = lake.close_and_append(
        H, named(closing(1)), named(versions_rows((1, "a", 1, None))), HOSTILE[:1], base=None, txn=txn(1)
    )
    two = lake.close_and_append(
        H, named(closing(5, 1)), named(versions_rows((1, "b", 5, None))), HOSTILE[:1], base=one, txn=txn(2)
    )

    assert sorted(lake.read(H, two).column("_valid_to_lsn").to_pylist(), key=str) == [5, None]


def test_compaction_orders_open_rows_and_leaves_files_of_closed_ones(lake: Committer, location: Location) -> None:
    version: int | None = None
    for cut in range(1, 5):
        rows = versions_rows((9 - cut, "new", cut, None), (1, "short", cut, cut + 1))
        version = lake.close_and_append(H, closing(cut), rows, ["k"], base=version, txn=txn(cut))
    assert version is not None
    ordered = lake.compact(H, base=version, txn=txn(5, "compact"), sort_by=["k"])
    packed = lake.compact(H, base=ordered, txn=txn(6, "compact"))

    def files(version: int, partition: str) -> set[str]:
        return {name for name in lake.files(H, version) if f"_open={partition}" in name}

    assert history(lake, version) == history(lake, ordered) == history(lake, packed)
    assert files(ordered, "false") == files(version, "false")
    assert (len(files(ordered, "true")), len(files(packed, "false"))) == (1, 1)
    assert stored(files(ordered, "true").pop(), location).column("k").to_pylist() == [5, 6, 7, 8]
