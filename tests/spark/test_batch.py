"""From envelopes to typed rows: every value as in PostgreSQL, or an error that names the column."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from cdc.errors import SinkUnfit
from cdc.model.progress_record import SchemaColumn, SchemaRecord
from sinks.warehouse.log.lake_columns import LakeTable, lake_table
from sinks.warehouse.log.span_batch import check, parse, survey
from tests.fixtures.lake.lake_events import COMMIT_US, ID, Events, column, rows_of, schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODIFIER_10_2 = ((10 << 16) | 2) + 4

VALUES: Final[list[tuple[SchemaColumn, bytes, object]]] = [
    (column("v", "int2", "integer"), b"-32768", -32768),
    (column("v", "int8", "integer"), b"9223372036854775807", 2**63 - 1),
    (column("v", "int8", "integer"), b"123456789012345678", 123456789012345678),
    (column("v", "int8", "integer_string"), b'"9007199254740993"', 9007199254740993),
    (column("v", "float8", "float"), b"1e308", 1e308),
    (column("v", "float8", "float"), b"0.1", 0.1),
    (column("v", "float8", "float"), b"1.7976931348623157e+308", 1.7976931348623157e308),
    (column("v", "float8", "float"), b"5e-324", 5e-324),
    (column("v", "float8", "float"), b'"Infinity"', math.inf),
    (column("v", "float8", "float"), b'"-Infinity"', -math.inf),
    (column("v", "float4", "float"), b"1e-45", 1.401298464324817e-45),
    (column("v", "bool", "boolean"), b"true", True),
    (column("v", "bool", "boolean"), b"null", None),
    (column("v", "numeric", "decimal", modifier=MODIFIER_10_2), b'"12345678.90"', Decimal("12345678.90")),
    (column("v", "numeric", "decimal_number", modifier=MODIFIER_10_2), b"12345678.90", Decimal("12345678.90")),
    (column("v", "numeric", "decimal"), b'"1.2300"', "1.2300"),
    (column("v", "numeric", "decimal"), b'"NaN"', "NaN"),
    (column("v", "numeric", "decimal_number"), b"12345678901234567890.123456789", "12345678901234567890.123456789"),
    (column("v", "numeric", "decimal_number"), b'"NaN"', "NaN"),
    (column("v", "bytea", "hexadecimal"), b'"\\\\x00ff"', b"\x00\xff"),
    (column("v", "bytea", "hexadecimal"), b'"\\\\x"', b""),
    (column("v", "date", "date"), b'"1500-02-28"', dt.date(1500, 2, 28)),
    (column("v", "date", "date"), b'"0001-01-01"', dt.date(1, 1, 1)),
    (
        column("v", "timestamp", "timestamp"),
        b'"2026-11-21T16:52:38.25"',
        dt.datetime(2026, 11, 21, 16, 52, 38, 250000),  # noqa: DTZ001
    ),
    (
        column("v", "timestamptz", "timestamp_utc"),
        b'"1883-11-21T16:52:38.123456+00:00"',
        dt.datetime(1883, 11, 21, 16, 52, 38, 123456, dt.UTC),
    ),
    (column("v", "bytea", "base64"), b'"+/8="', b"\xfb\xff"),
    (column("v", "bytea", "base64"), b'""', b""),
    (column("v", "bytea", "base64url"), b'"-_8="', b"\xfb\xff"),
    (column("v", "date", "epoch_days"), b"20778", dt.date(2026, 11, 21)),
    (column("v", "date", "epoch_days"), b"-719162", dt.date(1, 1, 1)),
    (column("v", "timestamp", "epoch_micros"), b"1795279958250000", dt.datetime(2026, 11, 21, 16, 52, 38, 250000)),  # noqa: DTZ001
    (column("v", "timestamp", "epoch_micros"), b"-62135596800000000", dt.datetime(1, 1, 1)),  # noqa: DTZ001
    (column("v", "time", "day_micros"), b"60758250000", "16:52:38.25"),
    (column("v", "time", "day_micros"), b"86400000000", "24:00:00"),
    (column("v", "time", "day_micros"), b"1", "00:00:00.000001"),
    (column("v", "time", "day_micros"), b"null", None),
    (column("v", "interval", "interval_parts"), b'{"months":14,"days":-3}', '{"months":14,"days":-3}'),
    (column("v", "hstore", "hstore_json"), b'{"a":"1","b":null}', '{"a":"1","b":null}'),
    (column("v", "jsonb", "json_value"), b'{"a": null}', '{"a":null}'),
    (column("v", "jsonb", "json_value"), b'[12345678901234567890.10, "1"]', '[12345678901234567890.1,"1"]'),
    (column("v", "jsonb", "json_value"), b'"text"', '"text"'),
    (column("v", "jsonb", "json_value"), b"true", "true"),
    (column("v", "jsonb", "json_value"), b"null", None),
    (column("v", "_jsonb", "array<json_value>"), b'[{"a":1.5},null]', '[{"a":1.5},null]'),
    (column("v", "jsonb", "json"), b'"{\\"a\\": null}"', '{"a": null}'),
    (column("v", "_int4", "array<integer>"), b'[1,[2,null],"x"]', '[1,[2,null],"x"]'),
    (column("v", "_numeric", "array<decimal>"), b'["1.10","NaN"]', '["1.10","NaN"]'),
    (column("v", "_numeric", "array<decimal_number>"), b"[12345678901234567890.5]", "[12345678901234567890.5]"),
    (column("v"), b'"quo\\"te \\\\ \\u0001 \\u2603 \xf0\x9f\x90\x98"', 'quo"te \\ \x01 ☃ 🐘'),
    (column("v"), b'"null"', "null"),
    (column("v"), b'""', ""),
]

UNFIT: Final[list[tuple[SchemaColumn, bytes, str | None]]] = [
    (column("v", "numeric", "decimal", modifier=MODIFIER_10_2), b'"NaN"', None),
    (column("v", "numeric", "decimal"), b'"123.45"', "decimal(4,2)"),
    (column("v", "numeric", "decimal"), b'"1.234"', "decimal(10,2)"),
    (column("v", "date", "date"), b'"infinity"', None),
    (column("v", "date", "date"), b'"0044-03-15 BC"', None),
    (column("v", "timestamp", "timestamp"), b'"-infinity"', None),
    (column("v", "date", "epoch_days"), b'"infinity"', None),
    (column("v", "date", "epoch_days"), b"-719163", None),
    (column("v", "timestamp", "epoch_micros"), b'"-infinity"', None),
    (column("v", "timestamp", "epoch_micros"), b"-62135596800000001", None),
    (column("v", "timestamp", "epoch_micros"), b'"294276-12-31T23:59:59"', None),
    (column("v", "bytea", "base64"), b'"***"', None),
    (column("v", "timestamp", "timestamp"), b'"0044-03-15T00:00:00 BC"', None),
    (column("v", "timestamptz", "timestamp_utc"), b'"0044-03-15T00:00:00+00:00 BC"', None),
    (column("v", "timestamptz", "timestamp_utc"), b'"294276-12-31T23:59:59+00:00"', None),
    (column("v", "int8", "integer"), b"2147483648", "int"),
    (column("v"), b'"1.5"', "int"),
]

NAMES: Final = (
    *("dot.ted", 'quo"te', "back`tick", "UPPER", "two words", "op", "after", "before", "source", "offset", "_op2"),
    *("row", "key", "a0", "o1", "t0", "c0", "j", "ünï", "event", "k0", "v0"),
)


def _rows(spark: SparkSession, events: Events, *tables: LakeTable) -> list[dict[str, Any]]:
    changes = parse(events.frame(spark), tables).persist()
    try:
        check(changes, tables[-1])
        return [row for row in rows_of(changes, "_partition", "_offset") if row["_op"]]
    finally:
        changes.unpersist()


def _one(spark: SparkSession, of: SchemaColumn, value: bytes, override: str | None = None) -> object:
    """Return the result for a JSON value."""
    record = schema(ID, of)
    events = Events(record)
    events.put("c", b'{"id":1,"%b":%b}' % (of.name.encode(), value))
    (row,) = _rows(spark, events, lake_table(record, {of.name: override} if override else {}))
    return row["row"][of.name]


def test_row_and_position(spark: SparkSession) -> None:
    record = schema(ID, column("name"))
    events = Events(record)
    events.put("c", {"id": 1, "name": "Ann"})
    events.put("u", {"id": 1, "name": None}, partition=2)

    first, second = _rows(spark, events, lake_table(record))

    assert first["row"] == {"id": 1, "name": "Ann"}
    assert {name: value for name, value in first.items() if name != "row"} == {
        "_op": "c",
        "_unchanged": None,
        "_epoch": 1,
        "_commit_lsn": 1100,
        "_ordinal": 1,
        "_committed_at": dt.datetime.fromtimestamp((COMMIT_US + 1100) // 1_000_000, dt.UTC)
        + dt.timedelta(microseconds=(COMMIT_US + 1100) % 1_000_000),
        "_partition": 0,
        "_offset": 0,
        "_unfit": 0,
    }
    assert (second["row"], second["_op"], second["_partition"]) == ({"id": 1, "name": None}, "u", 2)


def test_delete_has_the_key(spark: SparkSession) -> None:
    record = schema(ID, column("name"), column("part", "int8", "integer", key=True))
    events = Events(record)
    events.put("d", {"id": 7, "part": 12345678901234567})

    (row,) = _rows(spark, events, lake_table(record))

    assert (row["_op"], row["row"]) == ("d", {"id": 7, "name": None, "part": 12345678901234567})


def test_rows_of_former_choices_are_read_as_they_were_written(spark: SparkSession) -> None:
    """An operator changed `[encode]`: rows of both forms are in one span, and give the same values."""

    def form(schema_id: str, *encodings: str) -> SchemaRecord:
        kinds = zip(("bytea", "date", "timestamp", "time", "jsonb"), encodings, strict=True)
        return schema(ID, *[column(kind, kind, encoding) for kind, encoding in kinds], schema_id=schema_id)

    old = form("00000001", "hexadecimal", "date", "timestamp", "time", "json")
    new = form("00000002", "base64", "epoch_days", "epoch_micros", "day_micros", "json_value")
    events = Events(old)
    events.put(
        "c",
        b'{"id":1,"bytea":"\\\\xfbff","date":"2026-11-21","timestamp":"2026-11-21T16:52:38.25","time":"16:52:38.25",'
        b'"jsonb":"\\"1\\""}',
    )
    events.record = new
    events.put("c", b'{"id":2,"bytea":"+/8=","date":20778,"timestamp":1795279958250000,"time":60758250000,"jsonb":"1"}')

    first, second = _rows(spark, events, lake_table(old), lake_table(new))

    assert {**first["row"], "id": 2} == second["row"]
    assert second["row"] == {
        "id": 2,
        "bytea": b"\xfb\xff",
        "date": dt.date(2026, 11, 21),
        "timestamp": dt.datetime(2026, 11, 21, 16, 52, 38, 250000),  # noqa: DTZ001
        "time": "16:52:38.25",
        "jsonb": '"1"',
    }


def test_tombstone_has_its_place_only(spark: SparkSession) -> None:
    record = schema(ID, column("n", "int4", "integer"))
    events = Events(record)
    events.record_of(b'{"id":7}', None, partition=3)

    (row,) = rows_of(parse(events.frame(spark), [lake_table(record)]), "_offset")

    assert (row["_partition"], row["_offset"], row["_unfit"]) == (3, 0, 0)
    assert (row["_op"], row["_commit_lsn"], row["row"]) == (None, None, {"id": None, "n": None})


def test_delete_without_a_key_has_the_old_row(spark: SparkSession) -> None:
    record = schema(column("a"), column("b", "int4", "integer"))
    events = Events(record)
    events.put("c", {"a": "x", "b": 1})
    events.put("d", {"a": "x", "b": 1})

    rows = _rows(spark, events, lake_table(record))

    assert [(row["_op"], row["row"]) for row in rows] == [("c", {"a": "x", "b": 1}), ("d", {"a": "x", "b": 1})]


@pytest.fixture(scope="module")
def row(spark: SparkSession) -> dict[str, Any]:
    """All of `VALUES` in one row, in columns v0, v1, ..."""
    columns = [msgspec.structs.replace(of, name=f"v{index}") for index, (of, _, _) in enumerate(VALUES)]
    record = schema(ID, *columns)
    events = Events(record)
    texts = b"".join(b',"v%d":%b' % (index, value) for index, (_, value, _) in enumerate(VALUES))
    events.put("c", b'{"id":1%b}' % texts)
    return dict(_rows(spark, events, lake_table(record))[0]["row"])


@pytest.mark.parametrize("index", range(len(VALUES)), ids=[f"{of.type}-{value!r}" for of, value, _ in VALUES])
def test_value_is_what_postgresql_has(row: dict[str, Any], index: int) -> None:
    expected = VALUES[index][2]

    assert row[f"v{index}"] == expected
    assert type(row[f"v{index}"]) is type(expected)


def test_nan_is_a_float(spark: SparkSession) -> None:
    found = _one(spark, column("v", "float8", "float"), b'"NaN"')

    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize(("of", "value", "override"), UNFIT)
def test_value_its_type_cannot_hold_is_refused_by_name(
    spark: SparkSession, of: SchemaColumn, value: bytes, override: str | None
) -> None:
    with pytest.raises(SinkUnfit) as refused:
        _one(spark, of, value, override)

    assert "column 'v' of public.orders" in refused.value.message
    assert '"public.orders" = { "v" = "string" }' in refused.value.command
    assert value.decode().strip('"') not in str(refused.value)


def test_what_is_refused_can_be_kept_as_text(spark: SparkSession) -> None:
    columns = [msgspec.structs.replace(of, name=f"v{index}") for index, (of, _, _) in enumerate(UNFIT)]
    record = schema(ID, *columns)
    events = Events(record)
    events.put(
        "c", b'{"id":1%b}' % b"".join(b',"v%d":%b' % (index, value) for index, (_, value, _) in enumerate(UNFIT))
    )

    (row,) = _rows(spark, events, lake_table(record, {of.name: "string" for of in columns}))

    assert list(row["row"].values()) == [1, *[value.decode().strip('"') for _, value, _ in UNFIT]]


def test_decimal_without_need_of_its_zeros_fits(spark: SparkSession) -> None:
    assert _one(spark, column("v", "numeric", "decimal"), b'"1.2300"', "decimal(10,2)") == Decimal("1.23")
    assert _one(spark, column("v", "numeric", "decimal"), b'"1200"', "decimal(10,2)") == Decimal("1200.00")


def test_year_beyond_9999(spark: SparkSession) -> None:
    record = schema(ID, column("v", "date", "date"))
    events = Events(record)
    events.put("c", {"id": 1, "v": "20000-01-01"})

    changes = parse(events.frame(spark), [lake_table(record)])

    assert check(changes, lake_table(record)) == frozenset()
    assert changes.selectExpr("cast(row.v as string) as v").collect()[0].v == "+20000-01-01"


def test_any_name_of_a_column(spark: SparkSession) -> None:
    record = schema(*[column(name, key=name in NAMES[:3]) for name in NAMES])
    events = Events(record)
    events.put("c", {name: f"of {name}" for name in NAMES})
    events.put("d", {name: f"of {name}" for name in NAMES[:3]})

    created, deleted = _rows(spark, events, lake_table(record))

    assert created["row"] == {name: f"of {name}" for name in NAMES}
    assert deleted["row"] == {name: f"of {name}" if name in NAMES[:3] else None for name in NAMES}


def test_rows_of_all_forms_take_the_newest(spark: SparkSession) -> None:
    forms = [
        schema(ID, column("Note"), column("n", "numeric", "decimal"), schema_id="00000001"),
        schema(ID, column("note"), column("n", "numeric", "decimal"), schema_id="00000002"),
        schema(ID, column("note"), column("n", "int4", "integer"), column("new"), schema_id="00000003"),
    ]
    events = Events(forms[0])
    events.put("c", {"id": 1, "Note": "a", "n": "1"}, unchanged=["Note"])
    events.record = forms[1]
    events.put("c", {"id": 2, "note": "b", "n": "2"}, unchanged=["note"])
    events.record = forms[2]
    events.put("c", {"id": 3, "note": "c", "n": 3, "new": "d"})

    rows = _rows(spark, events, *map(lake_table, forms))

    assert [row["row"] for row in rows] == [
        {"id": 1, "note": "a", "n": 1, "new": None},
        {"id": 2, "note": "b", "n": 2, "new": None},
        {"id": 3, "note": "c", "n": 3, "new": "d"},
    ]
    assert [row["_unchanged"] for row in rows] == [["note"], ["note"], None]


def test_older_form_is_rounded_as_postgresql_did(spark: SparkSession) -> None:
    forms = [
        schema(ID, column("v", "numeric", "decimal", modifier=((10 << 16) | 4) + 4), schema_id="00000001"),
        schema(ID, column("v", "numeric", "decimal", modifier=MODIFIER_10_2), schema_id="00000002"),
    ]
    events = Events(forms[0])
    events.put("c", {"id": 1, "v": "1.2350"})

    (row,) = _rows(spark, events, *map(lake_table, forms))

    assert row["row"]["v"] == Decimal("1.24")


def test_columns_to_be_filled_are_named(spark: SparkSession) -> None:
    record = schema(ID, column("a"), column("b"), column("c"))
    events = Events(record)
    events.put("u", {"id": 1, "b": "x"}, unchanged=["a"])
    events.put("u", {"id": 2, "a": "x", "b": "y"}, reselected=["b", "gone"])
    table = lake_table(record)

    changes = parse(events.frame(spark), [table])

    assert check(changes, table) == {"a", "b"}


@pytest.mark.parametrize(("part", "damaged"), [(b'"after":{"id":1}', b'"after":5'), (b'"ordinal":1', b'"ordinal":[]')])
def test_event_with_a_damaged_part_is_refused(spark: SparkSession, part: bytes, damaged: bytes) -> None:
    record = schema(ID)
    whole, events = Events(record), Events(record)
    whole.put("c", {"id": 1})
    value = whole.rows[0][4] or b""
    assert value.count(part) == 1
    events.record_of(b'{"id":1}', value.replace(part, damaged))
    table = lake_table(record)

    with pytest.raises(SinkUnfit, match=r"not an event of a known schema"):
        check(parse(events.frame(spark), [table]), table)


@pytest.mark.parametrize("value", [b"no json", b"{}", b'{"op":"c","after":{"id":1},"source":{"schema_id":"ffffffff"}}'])
def test_foreign_record_is_refused(spark: SparkSession, value: bytes) -> None:
    record = schema(ID)
    events = Events(record)
    events.record_of(b'{"id":1}', value)
    table = lake_table(record)

    with pytest.raises(SinkUnfit, match=r"not an event of a known schema") as refused:
        check(parse(events.frame(spark), [table]), table)

    assert refused.value.facts["topic"] == "shop.public.orders"


def test_survey_counts_and_finds_the_newest_schema(spark: SparkSession) -> None:
    old, new = schema(ID, column('"schema_id":"x'), schema_id="00000002"), schema(ID, schema_id="00000001")
    events = Events(old)
    events.put("c", {"id": 1, '"schema_id":"x': '"schema_id":"y"'})
    events.record = new
    events.put("c", {"id": 2}, partition=1)
    events.put("d", {"id": 2}, partition=1)

    found = survey(events.frame(spark))

    assert found.records == {("shop.public.orders", 0): 1, ("shop.public.orders", 1): 3}
    assert found.schemas == {"shop.public.orders": ("00000002", "00000001")}


def test_topics_do_not_mix(spark: SparkSession) -> None:
    orders, lines = Events(schema(ID)), Events(schema(ID, table="public.lines"))
    orders.put("c", {"id": 1})
    lines.put("c", {"id": 2})
    raw = orders.frame(spark).union(lines.frame(spark))

    rows = rows_of(parse(raw, [lake_table(lines.record)]), "_offset")

    assert [row["row"] for row in rows] == [{"id": 2}]
