"""Rows of a view as records: bytes, schema, key; and the differences between two versions of its table."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc.errors import ViewRefused
from sinks.search.mapping import form_of
from sinks.warehouse.lake.location import Location
from sinks.warehouse.views.version_comparison import compare
from sinks.warehouse.views.version_diff import Pin, Versions
from sinks.warehouse.views.view_records import check_changed_key, check_key, row_form


def _row(column: pa.Array) -> Any:
    table = pa.table({"id": pa.array([1]), "x": column})
    ((key, row),) = row_form("shop", "v", table.schema, ("id",)).rows(table)
    assert key == b'{"id":1}'
    return json.loads(row)["x"]


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        ([Decimal("1.50")], pa.decimal128(10, 2), "1.50"),
        ([Decimal("0E-10")], pa.decimal128(20, 10), "0.0000000000"),
        ([0.1], pa.float32(), 0.1),
        ([16777216.0], pa.float32(), 16777216),
        ([float("nan")], pa.float64(), "NaN"),
        ([float("-inf")], pa.float32(), "-Infinity"),
        ([b"\x00\xff"], pa.binary(), "\\x00ff"),
        ([date(2026, 1, 2)], pa.date32(), "2026-01-02"),
        ([datetime.fromisoformat("2026-01-02T03:04:05.5")], pa.timestamp("us"), "2026-01-02T03:04:05.5"),
        ([datetime(2026, 1, 2, 3, 4, 50, tzinfo=UTC)], pa.timestamp("us", "UTC"), "2026-01-02T03:04:50+00:00"),
        ([None], pa.decimal128(10, 2), None),
        ([[Decimal("1.0"), None]], pa.list_(pa.decimal128(3, 1)), ["1.0", None]),
        ([[("k", 1.5)]], pa.map_(pa.string(), pa.float64()), {"k": 1.5}),
        ([[("2026", None)]], pa.map_(pa.string(), pa.date32()), {"2026": None}),
        ([{"a": [{"b": Decimal("2.00")}], "c": None}],
         pa.struct({"a": pa.list_(pa.struct({"b": pa.decimal128(5, 2)})), "c": pa.date32()}),
         {"a": [{"b": "2.00"}], "c": None}),
    ],
)  # fmt: skip
def test_value_is_what_capture_makes_of_its_type(values: list[object], kind: pa.DataType, wanted: object) -> None:
    assert _row(pa.array(values, type=kind)) == wanted


def test_index_of_a_nested_view_finds_lines_by_their_own_fields() -> None:
    kind = pa.list_(pa.struct({"sku": pa.string(), "price": pa.decimal128(10, 2)}))
    schema = pa.schema(
        {"id": pa.int64(), "lines": kind, "tags": pa.list_(pa.string()), "to": pa.struct({"zip": pa.string()})}
    )

    record = row_form("shop", "v", schema, ("ID",)).record
    fields = form_of(record, {}, "string").fields

    assert (record.table, record.topic, record.key) == ("views.v", "shop.views.v", ("id",))
    assert fields["lines"]["type"] == "nested"
    assert fields["lines"]["properties"]["price"]["type"] == "double"
    assert fields["to"] == {"type": "object", "properties": {"zip": fields["tags"]}}


def test_schema_has_an_id_of_its_columns_and_key() -> None:
    schema = pa.schema({"id": pa.int64(), "n": pa.int32()})

    ids = {
        row_form("shop", "v", schema, ("id",)).record.schema_id,
        row_form("shop", "v", schema, ("id", "n")).record.schema_id,
        row_form("shop", "v", pa.schema({"id": pa.int64(), "n": pa.int64()}), ("id",)).record.schema_id,
    }

    assert len(ids) == 3


@pytest.mark.parametrize(
    ("rows", "key", "said"),
    [
        ({"id": [1, 1], "n": [1, 2]}, ("id",), "2 rows have 1 keys"),
        ({"id": [1, None], "n": [1, 2]}, ("id", "n"), "id is null in 1 rows"),
        ({"id": [1], "n": [1]}, ("no",), "has no column no"),
        ({"id": [1.5], "n": [1]}, ("id",), "does not identify rows"),
        ({"id": [[1]], "n": [1]}, ("id",), "does not identify rows"),
    ],
)
def test_key_that_is_none_is_refused_without_a_value(
    rows: dict[str, list[object]], key: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ViewRefused) as refused:
        check_key("v", pa.table(rows), key)

    assert said in refused.value.message


def test_time_that_python_cannot_have_leaves_the_view_behind() -> None:
    table = pa.table({"id": [1], "at": pa.array([1 << 60], type=pa.timestamp("us"))})

    with pytest.raises(ViewRefused, match="a value that a topic cannot have"):
        list(row_form("shop", "v", table.schema, ("id",)).rows(table))


def _lake(folder: Path, *versions: dict[str, list[object]]) -> Location:
    for rows in versions:
        write_deltalake(str(folder / "views/v/g1"), pa.table(rows), mode="overwrite", schema_mode="overwrite")
    return Location.of(folder)


def _differences(lake: Location, old: int | None, new: int) -> list[tuple[str, bytes, bytes | None]]:
    pins = [None if at is None else Pin("views/v/g1", at) for at in (old, new)]
    assert pins[1] is not None
    return [tuple(one) for one in Versions(lake, "shop", "v", ("id",), pins[0], pins[1]).differences()]  # type: ignore[misc]


def test_differences_are_what_is_new_changed_and_gone_and_nothing_else(tmp_path: Path) -> None:
    lake = _lake(tmp_path, {"id": [1, 2, 3], "n": ["a", "b", "c"]}, {"id": [4, 3, 1], "n": ["d", "x", "a"]})

    assert _differences(lake, None, 0) == [
        ("c", b'{"id":%d}' % n, b'{"id":%d,"n":"%c"}' % (n, 96 + n)) for n in (1, 2, 3)
    ]
    assert _differences(lake, 0, 1) == [
        ("c", b'{"id":4}', b'{"id":4,"n":"d"}'),
        ("u", b'{"id":3}', b'{"id":3,"n":"x"}'),
        ("d", b'{"id":2}', None),
    ]
    assert _differences(lake, 1, 1) == []


def test_file_that_both_versions_have_is_not_read(tmp_path: Path) -> None:
    lake = _lake(tmp_path, {"id": [1, 2], "n": ["a", "b"]})
    table = str(tmp_path / "views/v/g1")
    write_deltalake(table, pa.table({"id": [3], "n": ["c"]}), mode="append")
    (kept,) = DeltaTable(table, version=0).file_uris()
    Path(kept).write_bytes(b"not Parquet")

    assert _differences(lake, 0, 1) == [("c", b'{"id":3}', b'{"id":3,"n":"c"}')]


def test_comparison_counts_keys_in_the_columns_that_both_have(tmp_path: Path) -> None:
    lake = _lake(
        tmp_path,
        {"id": [1, 2, 3], "n": [1, 2, 3], "old": [0, 0, 0]},
        {"id": [2, 3, 4], "n": [2, 9, 4], "new": [1, 1, 1]},
    )
    old, new = Pin("views/v/g1", 0), Pin("views/v/g1", 1)

    found = compare(lake, "v", old, new, ("id",))
    assert (found.old_rows, found.new_rows, found.removed_columns, found.added_columns) == (3, 3, ("old",), ("new",))
    assert (found.changed, found.gone, found.new, found.same) == (1, 1, 1, False)
    assert found.examples == ('{"id":3}', '{"id":1}', '{"id":4}')
    keyless = compare(lake, "v", old, new, ())
    assert (keyless.changed, keyless.gone, keyless.new) == (0, 2, 2)
    assert compare(lake, "v", old, old, ("id",)).same


def test_key_of_changed_rows_is_held_against_the_rows_that_stay() -> None:
    before = pa.table({"id": [1, 2, 3], "of": ["a", "a", "b"]})
    keys = pa.table({"of": ["a"]})

    check_changed_key("v", keys, pa.table({"id": [2, 4], "of": ["a", "a"]}), ("id",), before)
    with pytest.raises(ViewRefused, match="3 rows have 2 keys"):
        check_changed_key("v", keys, pa.table({"id": [3, 4], "of": ["a", "a"]}), ("id",), before)
    with pytest.raises(ViewRefused, match="2 rows have 1 keys"):
        check_changed_key("v", keys, pa.table({"id": [4, 4], "of": ["a", "a"]}), ("id",), None)
