"""Mirrors and histories equal a dict and a list, for any changes in any cuts (real deltalake)."""

from __future__ import annotations

import datetime as dt
import tempfile
from typing import Final

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.lake.committer import Txn

MIRROR: Final = "mirror/public.t"
HISTORY: Final = "history/public.t"
KEY: Final = ("tenant", "id")

type_of_key = st.tuples(st.sampled_from(["", "a", "B'", 'q"']), st.integers(-2, 2))
# None deletes; a batch has each key once, as the driver collapses it.
batches = st.lists(
    st.dictionaries(type_of_key, st.one_of(st.none(), st.integers(0, 9)), max_size=6), min_size=1, max_size=5
)
# What happens to keys in a cut, in order: many changes of one key may be in one cut.
events = st.lists(
    st.lists(st.tuples(type_of_key, st.one_of(st.none(), st.integers(0, 9))), max_size=8), min_size=1, max_size=5
)

Key = tuple[str, int]
Version = tuple[Key, int, int, int | None]
"""Key, value, valid from, valid to (None: it is open)."""


@settings(max_examples=30)
@given(batches)
def test_mirror_is_the_fold_of_its_batches_at_every_version(cuts: list[dict[Key, int | None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = DeltaRs(folder)
        version: int | None = None
        model: dict[Key, int] = {}
        wanted: list[tuple[int, dict[Key, int]]] = []
        for cut, changes in enumerate(cuts, start=1):
            version = lake.merge(MIRROR, _batch(changes), KEY, base=version, txn=Txn("m", cut))
            model = {key: value for key, value in {**model, **changes}.items() if value is not None}
            wanted.append((version, model))

        for at, rows in wanted:
            found = lake.read(MIRROR, at).to_pylist()
            assert {(row["tenant"], row["id"]): row["v"] for row in found} == rows
            assert len(found) == len(rows) == lake.rows(MIRROR, at)


@settings(max_examples=30)
@given(events)
def test_history_is_the_list_of_versions_and_closed_ones_never_change(
    cuts: list[list[tuple[Key, int | None]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = DeltaRs(folder)
        version: int | None = None
        model: list[Version] = []
        lsn = 0
        closed: set[Version] = set()
        for cut, changes in enumerate(cuts, start=1):
            model, closes, added = _model(model, changes, lsn)
            lsn += len(changes)
            version = lake.close_and_append(
                HISTORY, _closes(closes), _rows(added), KEY, base=version, txn=Txn("h", cut)
            )

            found = _found(lake, version)
            assert sorted(found, key=repr) == sorted(model, key=repr)
            assert closed <= set(found), "a closed row changed"
            closed = {row for row in found if row[3] is not None}


def _model(
    before: list[Version], changes: list[tuple[Key, int | None]], lsn: int
) -> tuple[list[Version], dict[Key, int], list[Version]]:
    """The history after a cut, what the cut closes of the history before it, and what it adds."""
    open_before = {row[0] for row in before if row[3] is None}
    added: list[Version] = []
    closes: dict[Key, int] = {}
    for at, (key, value) in enumerate(changes, start=lsn + 1):
        added = [(*row[:3], at) if row[0] == key and row[3] is None else row for row in added]
        closes.setdefault(key, at)
        if value is not None:
            added.append((key, value, at, None))
    kept = [(*row[:3], closes.get(row[0])) if row[3] is None and row[0] in open_before else row for row in before]
    return kept + added, closes, added


def _batch(changes: dict[Key, int | None]) -> pa.Table:
    return (
        _keys(list(changes))
        .append_column("v", pa.array(list(changes.values()), pa.int32()))
        .append_column("_deleted", pa.array([value is None for value in changes.values()], pa.bool_()))
    )


def _closes(closes: dict[Key, int]) -> pa.Table:
    return _valid_to(_keys(list(closes)), list(closes.values()))


def _rows(rows: list[Version]) -> pa.Table:
    table = _keys([row[0] for row in rows]).append_column("v", pa.array([row[1] for row in rows], pa.int32()))
    table = table.append_column("_valid_from_lsn", pa.array([row[2] for row in rows], pa.int64()))
    return _valid_to(table, [row[3] for row in rows])


def _valid_to(table: pa.Table, lsns: list[int | None] | list[int]) -> pa.Table:
    at = [None if lsn is None else dt.datetime.fromtimestamp(lsn, dt.UTC) for lsn in lsns]
    return table.append_column("_valid_to_lsn", pa.array(lsns, pa.int64())).append_column(
        "_valid_to", pa.array(at, pa.timestamp("us", "UTC"))
    )


def _keys(keys: list[Key]) -> pa.Table:
    return pa.table(
        {
            "tenant": pa.array([key[0] for key in keys], pa.string()),
            "id": pa.array([key[1] for key in keys], pa.int64()),
        }
    )


def _found(lake: DeltaRs, version: int) -> list[Version]:
    rows = lake.read(HISTORY, version).to_pylist()
    assert all(row["_open"] == (row["_valid_to_lsn"] is None) == (row["_valid_to"] is None) for row in rows)
    return [((row["tenant"], row["id"]), row["v"], row["_valid_from_lsn"], row["_valid_to_lsn"]) for row in rows]
