"""Statistics in a Delta log bound every value of the file, or are left out."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinks.warehouse.delta.file_statistics import stats_json

if TYPE_CHECKING:
    from pathlib import Path


def _stats(path: Path, rows: pa.Table, indexed: int = 32, groups: int = 2) -> dict[str, Any]:
    pq.write_table(rows, path / "f.parquet", row_group_size=groups, store_schema=False, store_decimal_as_integer=True)
    found: dict[str, Any] = json.loads(stats_json(pq.read_metadata(path / "f.parquet"), rows.schema, indexed))
    return found


def test_bounds_are_over_all_row_groups_and_nulls_are_counted(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "n": pa.array([3, None, -1, 2, None, None], pa.int64()),
            "t": ["b", "a", None, "c", "ü", "a"],
            "d": pa.array([dt.date(2026, 1, 2)] * 5 + [dt.date(1, 1, 1)]),
            "at": pa.array([dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC)] * 6, pa.timestamp("us", "UTC")),
            "local": pa.array([dt.datetime(2026, 1, 1)] * 6, pa.timestamp("us")),  # noqa: DTZ001
            "m": pa.array([Decimal("1.50")] * 5 + [Decimal("-2.25")], pa.decimal128(12, 2)),
            "ok": [True, False, None, True, True, True],
        }
    )

    found = _stats(tmp_path, rows)

    assert found["numRecords"] == 6
    assert found["nullCount"] == {"n": 3, "t": 1, "d": 0, "at": 0, "local": 0, "m": 0, "ok": 1}
    assert found["minValues"] == {
        "n": -1,
        "t": "a",
        "d": "0001-01-01",
        "m": -2.25,
        "ok": False,
        "at": "2026-01-01T00:00:00.000001Z",
        "local": "2026-01-01T00:00:00.000000",
    }
    assert (found["maxValues"]["n"], found["maxValues"]["t"], found["maxValues"]["d"]) == (3, "ü", "2026-01-02")


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1.5, float("nan")]),
        pa.array([b"a", b"b"]),
        pa.array([Decimal("99999999999999999.999")] * 2, pa.decimal128(20, 3)),
        pa.array([None, None], pa.int32()),
    ],
    ids=lambda values: str(values.type),
)
def test_what_json_does_not_say_exactly_has_no_bounds(tmp_path: Path, values: pa.Array) -> None:
    found = _stats(tmp_path, pa.table({"c": values}))

    assert found["minValues"] == found["maxValues"] == {}
    assert found["nullCount"] == {"c": values.null_count}


def test_long_texts_are_cut_to_bounds_that_still_hold(tmp_path: Path) -> None:
    found = _stats(tmp_path, pa.table({"t": ["x" * 500, "x" * 200]}))

    assert found["minValues"]["t"] <= "x" * 200
    assert found["maxValues"]["t"] >= "x" * 500
    assert len(found["maxValues"]["t"]) < 70


def test_columns_behind_the_indexed_ones_have_none(tmp_path: Path) -> None:
    found = _stats(tmp_path, pa.table({"a": [1], "b": [2]}), indexed=1)

    assert found["maxValues"] == {"a": 1}
