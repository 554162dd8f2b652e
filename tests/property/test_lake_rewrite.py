"""A hand-written merge equals a dict, keeps files separate by key, and states correct ranges (files on disk)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from sinks.warehouse.delta.key_ranges import FileRange
from sinks.warehouse.delta.merge import rewrite
from sinks.warehouse.delta.table_files import SMALL_BYTES, Target
from tests.fixtures.lake.delta_log import apply, ordered

_KEYS: Final = {
    "int": (pa.int32(), st.integers(-6, 12)),
    "text": (pa.string(), st.text("ab\U0001f388é", max_size=3)),
    "long": (pa.string(), st.integers(0, 9).map(lambda number: "x" * 70 + str(number))),
    "bytes": (pa.binary(), st.binary(max_size=1)),
}
_ROW_BYTES: Final = 16  # what the test takes a row for: small files of a few rows


@st.composite
def workloads(draw: st.DrawFn) -> tuple[pa.DataType, list[dict[Any, int | None]], int]:
    """Type of the key, batches (None deletes), rows a file."""
    kind, keys = _KEYS[draw(st.sampled_from(sorted(_KEYS)))]
    changes = st.dictionaries(keys, st.one_of(st.none(), st.integers(0, 9)), max_size=8)
    return kind, draw(st.lists(changes, min_size=1, max_size=6)), draw(st.integers(1, 4))


@given(workloads())
def test_rows_are_those_of_a_dict_and_stated_ranges_hold_all_of_them(
    workload: tuple[pa.DataType, list[dict[Any, int | None]], int],
) -> None:
    kind, batches, file_rows = workload
    with tempfile.TemporaryDirectory() as folder:
        files: dict[str, FileRange] = {}
        model: dict[Any, int] = {}
        for changes in batches:
            before, old = dict(files), dict(model)
            merged = rewrite(_target(folder, kind, files, file_rows), _batch(kind, changes))
            apply(merged.actions, files, "k", kind)
            model = {key: value for key, value in {**model, **changes}.items() if value is not None}

            if model.keys() == old.keys():
                assert merged.columns == frozenset({"v"} if model != old else ())
            else:
                assert merged.columns is None

            found = {name: pq.read_table(Path(folder) / name) for name in files}
            rows = [row for table in found.values() for row in table.to_pylist()]
            assert {row["k"]: row["v"] for row in rows} == model
            assert len(rows) == len(model)
            for name, table in found.items():
                keys, file = table["k"].to_pylist(), files[name]
                assert keys == sorted(keys)
                assert file.rows == len(keys) > 0
                assert file.low is None or file.low <= keys[0] <= keys[-1] <= file.high
            assert all(_has_one_of(folder, name, changes) for name in before.keys() - files.keys())


def test_file_without_a_key_of_the_batch_stays_and_new_keys_behind_the_end_make_a_file() -> None:
    kind = pa.int32()
    with tempfile.TemporaryDirectory() as folder:
        files: dict[str, FileRange] = {}
        apply(
            rewrite(_target(folder, kind, files, 4), _batch(kind, dict.fromkeys(range(0, 20, 2), 0))).actions,
            files,
            "k",
            kind,
        )
        large = {name: FileRange(name, 1 << 30, file.rows, file.low, file.high) for name, file in files.items()}
        first = min(large.values(), key=lambda file: file.low)

        files = dict(large)
        target = Target(**{**_fields(_target(folder, kind, files, 4)), "file_bytes": 1 << 30})
        apply(rewrite(target, _batch(kind, {0: 1, 1: 1, 99: 1, 7: None})).actions, files, "k", kind)

        assert large.keys() - files.keys() == {first.path}
        fresh = [pq.read_table(Path(folder) / name)["k"].to_pylist() for name in sorted(files.keys() - large.keys())]
        assert sorted(fresh) == [sorted([0, 1, *range(2, first.high + 1, 2)]), [99]]


def _has_one_of(folder: str, name: str, changes: dict[Any, int | None]) -> bool:
    """A file is written again for one of its rows, or as a small one for rows that come anew."""
    low, *_, high = [*pq.read_table(Path(folder) / name)["k"].to_pylist()] * 2
    return any(low <= key <= high for key in changes) or any(value is not None for value in changes.values())


def _target(folder: str, kind: pa.DataType, files: dict[str, FileRange], file_rows: int) -> Target:
    size = next((file.size / file.rows for file in files.values() if file.rows), 100.0)
    return Target(
        storage=fs.SubTreeFileSystem(folder, fs.LocalFileSystem()),
        schema=pa.schema([("k", kind), ("v", pa.int64())]),
        files=ordered(files),
        key=("k",),
        file_bytes=int(size * file_rows),
        indexed=32,
        small_bytes=SMALL_BYTES,
    )


def _fields(target: Target) -> dict[str, Any]:
    return {name: getattr(target, name) for name in ("storage", "schema", "files", "key", "indexed", "small_bytes")}


def _batch(kind: pa.DataType, changes: dict[Any, int | None]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(list(changes), kind),
            "v": pa.array(list(changes.values()), pa.int64()),
            "_deleted": pa.array([value is None for value in changes.values()], pa.bool_()),
        }
    )
