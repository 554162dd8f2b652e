"""The form of a table in the lake, and how one form becomes the next."""

from __future__ import annotations

import msgspec
import pytest

from cdc.errors import SinkUnfit
from cdc.model.progress_record import SchemaColumn
from sinks.warehouse.log.lake_columns import (
    Evolution,
    LakeTable,
    Source,
    adds_only,
    compose,
    evolve,
    form_of,
    lake_table,
    unknown_overrides,
)
from tests.fixtures.lake.lake_events import ID, column, schema


def _modifier(precision: int, scale: int) -> int:
    """Return the modifier as numerictypmodin computes it."""
    return ((precision << 16) | (scale & 0x7FF)) + 4


NO_STEP = Evolution((), (), key_changed=True)


def _table(*columns: SchemaColumn) -> LakeTable:
    return lake_table(schema(*columns))


@pytest.mark.parametrize(
    ("kind", "encoding", "modifier", "expected"),
    [
        ("int2", "integer", -1, "smallint"),
        ("int4", "integer", -1, "int"),
        ("int8", "integer", -1, "bigint"),
        ("int8", "integer_string", -1, "bigint"),
        ("a domain", "integer", -1, "bigint"),
        ("numeric", "decimal", _modifier(10, 2), "decimal(10,2)"),
        ("numeric", "decimal_number", _modifier(38, 38), "decimal(38,38)"),
        ("numeric", "decimal", _modifier(39, 2), "string"),
        ("numeric", "decimal", _modifier(2, 4), "decimal(4,4)"),
        ("numeric", "decimal", _modifier(3, -2), "decimal(5,0)"),
        ("numeric", "decimal", -1, "string"),
        ("a domain", "decimal", -1, "string"),
        ("float4", "float", -1, "float"),
        ("float8", "float", -1, "double"),
        ("a domain", "float", -1, "double"),
        ("date", "date", -1, "date"),
        ("timestamp", "timestamp", -1, "timestamp_ntz"),
        ("timestamptz", "timestamp_utc", -1, "timestamp"),
        ("bool", "boolean", -1, "boolean"),
        ("bytea", "hexadecimal", -1, "binary"),
        ("bytea", "base64", -1, "binary"),
        ("bytea", "base64url", -1, "binary"),
        ("date", "epoch_days", -1, "date"),
        ("timestamp", "epoch_micros", -1, "timestamp_ntz"),
        ("time", "day_micros", -1, "string"),
        ("interval", "interval_parts", -1, "string"),
        ("public.hstore", "hstore_json", -1, "string"),
        ("jsonb", "json_value", -1, "string"),
        ("jsonb", "json", -1, "string"),
        ("_int4", "array<integer>", -1, "string"),
        ("uuid", "uuid", -1, "string"),
        ("time", "time", -1, "string"),
        ("oid 4711", "text", -1, "string"),
    ],
)
def test_type_follows_encoding_and_type(kind: str, encoding: str, modifier: int, expected: str) -> None:
    table = _table(column("c", kind, encoding, modifier=modifier))

    assert table.columns[0].type == expected


def test_override_wins_in_whatever_spelling() -> None:
    record = schema(ID, column("total", "numeric", "decimal"), column("at", "date", "date"))

    table = lake_table(record, {"total": "Decimal( 38, 9 )", "at": "STRING", "gone": "string"})

    assert [found.type for found in table.columns] == ["int", "decimal(38,9)", "string"]
    assert unknown_overrides({"total": "", "gone": ""}, [table]) == ["gone"]


@pytest.mark.parametrize("kind", ["decimal", "decimal(39,2)", "decimal(3,4)", "varchar(3)", "map<string,int>", ""])
def test_override_that_is_no_type_is_refused(kind: str) -> None:
    with pytest.raises(SinkUnfit, match="'id' of public"):
        lake_table(schema(ID), {"id": kind})


def test_columns_that_differ_only_in_case_are_refused() -> None:
    with pytest.raises(SinkUnfit, match="'Id' and 'id'"):
        _table(column("Id"), column("id"))


@pytest.mark.parametrize(
    "name", ["_epoch", "_COMMIT_LSN", "_valid_to", "_deleted", "_offset", "_Partition", "_unchanged", "_open"]
)
def test_name_of_the_lake_is_refused(name: str) -> None:
    with pytest.raises(SinkUnfit, match="own columns"):
        _table(ID, column(name))


def test_same_columns_need_no_evolution() -> None:
    assert evolve(_table(ID, column("a")), _table(ID, column("a"))) is None


def test_added_column_is_null_in_old_rows() -> None:
    evolution = evolve(_table(ID, column("a")), _table(ID, column("a"), column("b")))

    assert evolution is not None
    assert evolution.sources == (Source("id"), Source("a"), Source(None))
    assert evolution.dropped == ()


def test_only_an_addition_leaves_old_rows_as_they_are() -> None:
    old = _table(ID, column("a"), column("n", "int4", "integer"))
    added = _table(ID, column("a"), column("n", "int4", "integer"), column("b"))
    others = {
        "dropped": _table(ID, column("a"), column("b")),
        "renamed": _table(ID, column("b"), column("n", "int4", "integer")),
        "retyped": _table(ID, column("a"), column("n", "int8", "integer"), column("b")),
        "another key": _table(ID, column("a", key=True), column("n", "int4", "integer"), column("b")),
    }

    assert adds_only(evolve(old, added) or NO_STEP, added)
    assert [name for name, new in others.items() if adds_only(evolve(old, new) or NO_STEP, new)] == []


def test_dropped_column_is_dropped() -> None:
    evolution = evolve(_table(ID, column("a"), column("b")), _table(ID, column("b")))

    assert evolution is not None
    assert evolution.sources == (Source("id"), Source("b"))
    assert evolution.dropped == ("a",)


def test_changed_type_is_cast() -> None:
    evolution = evolve(_table(ID), _table(column("id", "int8", "integer", key=True)))

    assert evolution is not None
    assert evolution.sources == (Source("id", cast=True),)
    assert not evolution.key_changed


def test_column_that_came_where_one_of_its_type_left_is_a_rename() -> None:
    evolution = evolve(_table(ID, column("a"), column("b")), _table(ID, column("c"), column("b")))

    assert evolution is not None
    assert evolution.sources == (Source("id"), Source("a"), Source("b"))
    assert evolution.dropped == ()


def test_rename_and_addition_are_distinguished() -> None:
    evolution = evolve(_table(ID, column("a"), column("b")), _table(ID, column("c"), column("b"), column("d")))

    assert evolution is not None
    assert evolution.sources == (Source("id"), Source("a"), Source("b"), Source(None))


def test_drop_and_addition_at_another_position_are_no_rename() -> None:
    evolution = evolve(_table(ID, column("a"), column("b")), _table(ID, column("b"), column("c")))

    assert evolution is not None
    assert evolution.sources == (Source("id"), Source("b"), Source(None))
    assert evolution.dropped == ("a",)


def test_drop_and_addition_of_another_type_are_no_rename() -> None:
    evolution = evolve(_table(ID, column("a")), _table(ID, column("b", "bool", "boolean")))

    assert evolution is not None
    assert evolution.sources == (Source("id"), Source(None))


def test_renamed_key_column_is_the_same_key() -> None:
    renamed = evolve(_table(ID), _table(column("number", "int4", "integer", key=True)))
    other = evolve(_table(ID, column("a")), _table(column("id", "int4", "integer"), column("a", key=True)))

    assert renamed is not None
    assert not renamed.key_changed
    assert other is not None
    assert other.key_changed


def test_two_steps_are_composed() -> None:
    first, second, third = (
        _table(ID, column("a"), column("x")),
        _table(ID, column("b"), column("x")),
        _table(ID, column("c"), column("y", "bool", "boolean")),
    )

    both = compose(evolve(first, second), second, evolve(second, third))

    assert both is not None
    assert both.sources == (Source("id"), Source("a"), Source(None))
    assert both.dropped == ("x",)
    assert compose(None, first, None) is None


def test_topic_in_another_format_is_refused_by_its_table() -> None:
    record = msgspec.structs.replace(schema(ID), format="flat")

    with pytest.raises(SinkUnfit, match=r"the topic of public\.orders is in the format 'flat'"):
        form_of(record, {})
