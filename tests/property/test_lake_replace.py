"""Replacing rows by key equals a list: any number of rows per key, null keys, nested values (files on disk)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from cdc.errors import InvariantError
from sinks.warehouse.delta.key_ranges import FileRange
from sinks.warehouse.delta.replace import replace
from sinks.warehouse.delta.table_files import SMALL_BYTES, Target
from tests.fixtures.lake.delta_log import apply, ordered

_SCHEMA: Final = pa.schema(
    [
        ("k", pa.int32()),
        ("t", pa.string()),
        ("items", pa.list_(pa.struct([("sku", pa.string()), ("more", pa.map_(pa.string(), pa.int64()))]))),
    ]
)
_KEY: Final = st.tuples(st.none() | st.integers(-2, 5), st.none() | st.sampled_from(["", "a", "é"]))
_ITEMS: Final = st.none() | st.lists(
    st.none() | st.builds(lambda sku, more: {"sku": sku, "more": more}, st.none() | st.text(max_size=2),
    st.none() | st.dictionaries(st.sampled_from("xy"), st.none() | st.integers(0, 3)).map(lambda one: [*one.items()])),
    max_size=2,
)  # fmt: skip
_CUT: Final = st.dictionaries(_KEY, st.lists(_ITEMS, max_size=2), max_size=6)

Row = tuple[Any, Any, Any]


@st.composite
def workloads(draw: st.DrawFn) -> tuple[tuple[str, ...], list[dict[tuple[Any, ...], list[Any]]], int]:
    """Columns that are the key, cuts (key -> what it has now, once for each row), rows a file."""
    key = draw(st.sampled_from([("k",), ("t",), ("k", "t"), ("t", "k")]))
    return key, draw(st.lists(_CUT, min_size=1, max_size=5)), draw(st.integers(1, 4))


@given(workloads())
def test_rows_are_those_of_a_list_and_files_without_a_key_stay(
    workload: tuple[tuple[str, ...], list[dict[tuple[Any, ...], list[Any]]], int],
) -> None:
    key, cuts, file_rows = workload
    places = [_SCHEMA.get_field_index(name) for name in key]
    model: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        files: dict[str, FileRange] = {}
        for cut in cuts:
            rows = [(*at, items) for at, found in cut.items() for items in found]
            keys = {tuple(at[place] for place in places) for at in cut}
            before = {name: _read(folder, name) for name in files}
            if keys:
                apply(replace(_target(folder, key, files, file_rows), _keys(key, keys), _rows(rows)), files, key[0],
                      _SCHEMA.field(key[0]).type)  # fmt: skip
            model = [row for row in model if tuple(row[place] for place in places) not in keys] + rows

            found = {name: _read(folder, name) for name in files}
            assert sorted(map(repr, (row for some in found.values() for row in some))) == sorted(map(repr, model))
            for name, some in found.items():
                values = [row[places[0]] for row in some if row[places[0]] is not None]
                assert files[name].rows == len(some) > 0
                assert files[name].low is None or files[name].low <= min(values) <= max(values) <= files[name].high
            assert all(_is_touched(before[name], keys, places) or rows for name in before.keys() - files.keys())


def test_new_rows_stand_where_the_old_ones_of_their_key_were_and_new_keys_behind() -> None:
    with tempfile.TemporaryDirectory() as folder:
        files: dict[str, FileRange] = {}
        first = [(3, "a", None), (1, "b", None), (2, "c", None), (1, "d", None), (4, "e", None)]
        apply(replace(_target(folder, ("k",), files, 9), _keys(("k",), {(9,)}), _rows([])), files, "k", pa.int32())
        apply(
            replace(_target(folder, ("k",), files, 9), _keys(("k",), {(n,) for n in range(9)}), _rows(first)),
            files, "k", pa.int32(),
        )  # fmt: skip
        fresh = [(4, "E", None), (1, "B", None), (0, "new", None)]

        gone = _keys(("k",), {(1,), (4,), (0,), (2,)})
        apply(replace(_target(folder, ("k",), files, 9), gone, _rows(fresh)), files, "k", pa.int32())

        (name,) = files
        assert [row[1] for row in _read(folder, name)] == ["a", "B", "E", "new"]


def test_row_whose_key_is_not_replaced_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.raises(InvariantError, match="not replaced"):
        replace(_target(folder, ("k",), {}, 9), _keys(("k",), {(1,)}), _rows([(2, "a", None)]))


def _is_touched(rows: list[Row], keys: set[tuple[Any, ...]], places: list[int]) -> bool:
    return any(tuple(row[place] for place in places) in keys for row in rows)


def _read(folder: str, name: str) -> list[Row]:
    return [(row["k"], row["t"], row["items"]) for row in pq.read_table(Path(folder) / name).to_pylist()]


def _rows(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], schema=_SCHEMA)


def _keys(names: tuple[str, ...], keys: AbstractSet[tuple[Any, ...]]) -> pa.Table:
    schema = pa.schema([_SCHEMA.field(name) for name in names])
    return pa.Table.from_pylist([dict(zip(names, key, strict=True)) for key in keys], schema=schema)


def _target(folder: str, key: tuple[str, ...], files: dict[str, FileRange], file_rows: int) -> Target:
    size = next((file.size / file.rows for file in files.values() if file.rows), 100.0)
    return Target(
        storage=fs.SubTreeFileSystem(folder, fs.LocalFileSystem()),
        schema=_SCHEMA,
        files=ordered(files),
        key=key,
        file_bytes=int(size * file_rows),
        indexed=32,
        small_bytes=SMALL_BYTES,
    )
