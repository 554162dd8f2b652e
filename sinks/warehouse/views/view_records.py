"""Converts rows of a view to records of a topic: schema, key, value. Pure; Arrow in, bytes out.

A value has the form that capture gives to the same type (`cdc.encode.values`): numeric is a string, timestamps are
ISO 8601. A struct, and an array of structs, is a nested document (``json_value``). The schema record has its fields,
from which a search index gets its mapping. Equal rows give equal bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import structs

from cdc.encode.envelope import ROW_TAIL, literal, source_head
from cdc.errors import ViewRefused
from cdc.model.progress_record import SchemaColumn, SchemaRecord
from cdc.model.topic_names import VIEWS, view_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sinks.warehouse.lake.manifest import Manifest

_Convert: TypeAlias = Callable[[Any], Any] | None
"""Converts an Arrow value for JSON; None if no conversion is needed. Never called for null."""

# Name, oid and oid of the array of it, as pg_type has them, and the encoding.
_SCALARS: Final[dict[str, tuple[str, int, int, str]]] = {
    "bool": ("bool", 16, 1000, "boolean"),
    "int8": ("int2", 21, 1005, "integer"),
    "int16": ("int2", 21, 1005, "integer"),
    "int32": ("int4", 23, 1007, "integer"),
    "int64": ("int8", 20, 1016, "integer"),
    "float": ("float4", 700, 1021, "float"),
    "double": ("float8", 701, 1022, "float"),
    "string": ("text", 25, 1009, "text"),
    "binary": ("bytea", 17, 1001, "hexadecimal"),
    "date32[day]": ("date", 1082, 1182, "date"),
    "timestamp[us]": ("timestamp", 1114, 1115, "timestamp"),
    "timestamp[us, tz=UTC]": ("timestamptz", 1184, 1185, "timestamp_utc"),
}
_NUMERIC: Final = ("numeric", 1700, 1231, "decimal")
_JSONB: Final = 3802
_CHUNK_ROWS: Final = 8_192
_json: Final = msgspec.json.Encoder().encode


class Difference(NamedTuple):
    """A key that changed.

    Attributes:
        row: as JSON; None if it is gone.
    """

    op: Literal["c", "u", "d"]
    key: bytes
    row: bytes | None


@dataclass(frozen=True, slots=True)
class RowForm:
    """The form of the rows of one version of a view.

    Attributes:
        record: the schema record for consumers, with `lsn` and `epoch` 0.
        key: names of the key columns in key order.
        converts: one converter per column, in table order.
        head: beginning of `source`, up to the values of the cut.
    """

    record: SchemaRecord
    key: tuple[str, ...]
    converts: tuple[tuple[str, _Convert], ...]
    head: bytes

    def rows(self, table: pa.Table) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and row of each row, as JSON. Raises ViewRefused for a value that a topic cannot have."""
        for batch in table.to_batches(max_chunksize=_CHUNK_ROWS):
            yield from self._rows(batch)

    def _rows(self, batch: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
        try:
            columns = [(name, _converted(batch.column(name).to_pylist(), convert)) for name, convert in self.converts]
        except (ValueError, OverflowError) as error:
            # Only the class: the message contains the value.
            raise ViewRefused(
                f"view {self.record.table} has a value that a topic cannot have: {type(error).__name__}",
                hint="a topic holds dates and times of the years 1 to 9999; cast others to text",
                view=self.record.table,
            ) from None
        names = [name for name, _ in columns]
        by_name = dict(columns)
        keys = list(zip(*(by_name[name] for name in self.key), strict=True)) or [()] * batch.num_rows
        rows = zip(*by_name.values(), strict=True)
        return [
            (_json(dict(zip(self.key, key, strict=True))), _json(dict(zip(names, row, strict=True))))
            for key, row in zip(keys, rows, strict=True)
        ]


class Envelope:
    """Debezium's envelope around a difference. Its position is the end of the cut and an ordinal there."""

    def __init__(self, form: RowForm, manifest: Manifest) -> None:
        lsn, at_us = manifest.end_lsn, manifest.committed_at_us
        self._source = literal(form.head) + (
            b'"snapshot":"false","ts_ms":%d,"ts_us":%d,"txId":null,"epoch":%d,"commit_lsn":%d,"sequence":"[\\"%d\\",\\"'
            % (at_us // 1000, at_us, manifest.position.epoch, lsn, lsn)
        )
        self._source += ROW_TAIL.replace(b"%d", b"%d" % lsn, 2)
        self._tail = b'"ts_ms":%d,"transaction":null}' % (at_us // 1000)

    def of(self, difference: Difference, ordinal: int) -> bytes:
        """Return the value of a record; a delete has its key as `before`."""
        before = difference.key if difference.row is None else b"null"
        after = b"null" if difference.row is None else difference.row
        op = difference.op.encode()
        source = self._source % ordinal
        return b'{"before":%b,"after":%b,"source":%b,"op":"%b",%b' % (before, after, source, op, self._tail)


def row_form(name: str, view: str, schema: pa.Schema, key: Sequence[str]) -> RowForm:
    """Return the form of a view's table; `name` is the pipeline's. Raises ViewRefused if the key is missing."""
    found = key_columns(view, schema, key)
    columns, converts = [], []
    for field in schema:
        column, convert = _column(field)
        columns.append(structs.replace(column, key=field.name in found))
        converts.append((field.name, convert))
    kept = tuple(columns)
    canonical = _json([VIEWS, view, kept, found])
    schema_id = hashlib.sha256(canonical).hexdigest()[:8]
    record = SchemaRecord(
        table=f"{VIEWS}.{view}",
        topic=view_topic(name, view),
        schema_id=schema_id,
        epoch=0,
        lsn=0,
        replica_identity="d",
        key=found,
        columns=kept,
    )
    return RowForm(record, found, tuple(converts), source_head(name, "", (VIEWS, view), schema_id))


def key_columns(view: str, schema: pa.Schema, key: Sequence[str]) -> tuple[str, ...]:
    """Return the key columns as the result spells them. Raises ViewRefused."""
    by_case = {field.name.lower(): field for field in schema}
    missing = [name for name in key if name.lower() not in by_case]
    if missing:
        raise ViewRefused(
            f"view {view} has no column {', '.join(missing)}, which its key names",
            hint=f"its columns are {', '.join(schema.names)}",
            view=view,
        )
    fields = [by_case[name.lower()] for name in key]
    nested = [field.name for field in fields if pa.types.is_nested(field.type) or pa.types.is_floating(field.type)]
    if nested:
        raise ViewRefused(
            f"the key of view {view} contains {', '.join(nested)}, whose type does not identify rows exactly",
            hint="use integers, decimals, texts, dates and times in a key",
            view=view,
        )
    return tuple(field.name for field in fields)


def check_key(view: str, rows: pa.Table, key: Sequence[str]) -> None:
    """Raises ViewRefused if the key has nulls or duplicates; the message counts rows and shows no value."""
    names = key_columns(view, rows.schema, key)
    distinct = rows.select(list(names)).group_by(list(names)).aggregate([]).num_rows
    check_counts(view, {name: rows.column(name).null_count for name in names}, rows.num_rows, distinct)


def check_counts(view: str, nulls: Mapping[str, int], rows: int, distinct: int) -> None:
    """As `check_key`, from counts: nulls by column of the key, rows, and distinct keys."""
    names = ", ".join(nulls)
    empty = [name for name, count in nulls.items() if count]
    if empty:
        raise ViewRefused(
            f"view {view} cannot have the key {names}: {', '.join(empty)} is null in {max(nulls.values()):,} rows",
            hint="filter out these rows, or use a column that is never null",
            view=view,
        )
    if distinct != rows:
        raise ViewRefused(
            f"view {view} cannot have the key {names}: {rows:,} rows have {distinct:,} keys",
            hint="add the column that distinguishes such rows, or group by the key",
            view=view,
        )


def check_changed_key(view: str, keys: pa.Table, rows: pa.Table, key: Sequence[str], before: pa.Table | None) -> None:
    """As `check_key`, for a view of which only the rows of some `keys` are written.

    Args:
        view: its name.
        keys: keys whose rows are replaced, under names of the view's columns.
        rows: the new rows.
        key: of the view.
        before: columns of both from all previous rows; None if `keys` are part of the key, because then rows with
            other `keys` have another key.
    """
    check_key(view, rows, key)
    names = key_columns(view, rows.schema, key)
    if before is None or any(column.null_count for column in keys.columns):
        return
    left = before.join(keys, keys=keys.column_names, join_type="left anti").select(list(names))
    check_key(view, pa.concat_tables([left, rows.select(list(names)).cast(left.schema)]), key)


def _column(field: pa.Field) -> tuple[SchemaColumn, _Convert]:
    name, kind = field.name, field.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element, convert = _column(kind.value_field)
        each = None if convert is None else _of_each(convert)
        if pa.types.is_nested(kind.value_type):
            many = "record[]" if element.fields and not element.type.endswith("[]") else "jsonb"
            return _document(name, many, element.fields if many == "record[]" else ()), each
        oid = _scalar(kind.value_type)[2]
        return SchemaColumn(
            name=name,
            type=f"{element.type}[]",
            type_oid=oid,
            type_modifier=element.type_modifier,
            encoding=f"array<{element.encoding}>",
            key=False,
        ), each
    if pa.types.is_struct(kind):
        fields = [_column(kind.field(index)) for index in range(kind.num_fields)]
        members = tuple((column.name, convert) for column, convert in fields if convert is not None)
        return _document(name, "record", tuple(column for column, _ in fields)), _of_members(members)
    if pa.types.is_map(kind):
        _, of_key = _column(kind.key_field)
        _, of_item = _column(kind.item_field)
        return _document(name, "jsonb", ()), _of_map(of_key, of_item)
    type_name, oid, _, encoding = _scalar(kind)
    modifier = (kind.precision << 16 | kind.scale) + 4 if pa.types.is_decimal(kind) else -1
    return SchemaColumn(
        name=name, type=type_name, type_oid=oid, type_modifier=modifier, encoding=encoding, key=False
    ), _convert(encoding, type_name)


def _document(name: str, kind: str, fields: tuple[SchemaColumn, ...]) -> SchemaColumn:
    return SchemaColumn(
        name=name, type=kind, type_oid=_JSONB, type_modifier=-1, encoding="json_value", key=False, fields=fields
    )


def _scalar(kind: pa.DataType) -> tuple[str, int, int, str]:
    if pa.types.is_decimal(kind):
        return _NUMERIC
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _SCALARS["string"]
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return _SCALARS["binary"]
    found = _SCALARS.get(str(kind))
    if found is None:
        raise ViewRefused(f"a topic cannot have values of type {kind}", hint="cast the column")
    return found


def _convert(encoding: str, type_name: str) -> _Convert:
    if type_name == "float4":
        return _short
    return _BY_ENCODING.get(encoding)


def _decimal(value: Decimal) -> str:
    return format(value, "f")


def _float(value: float) -> float | str:
    """JSON has no form for NaN and infinities; PostgreSQL's words are used."""
    return value if isfinite(value) else "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _short(value: float) -> float | str:
    """Return the fewest digits that identify a float4."""
    if not isfinite(value):
        return _float(value)
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        if struct.unpack("f", struct.pack("f", short))[0] == value:
            return short
    return float(f"{value:.9g}")


def _hexadecimal(value: bytes) -> str:
    return "\\x" + value.hex()


def _date(value: date) -> str:
    return value.isoformat()


def _timestamp(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat()
    return text.rstrip("0") if "." in text else text


def _timestamp_utc(value: datetime) -> str:
    return _timestamp(value) + "+00:00"


_BY_ENCODING: Final[dict[str, Callable[[Any], Any]]] = {
    "decimal": _decimal,
    "float": _float,
    "hexadecimal": _hexadecimal,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_utc": _timestamp_utc,
}


def _of_each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def converted(values: list[Any]) -> list[Any]:
        return [None if value is None else convert(value) for value in values]

    return converted


def _of_members(members: Sequence[tuple[str, Callable[[Any], Any]]]) -> _Convert:
    def converted(value: dict[str, Any]) -> dict[str, Any]:
        return value | {name: convert(value[name]) for name, convert in members if value[name] is not None}

    return converted if members else None


def _of_map(of_key: _Convert, of_item: _Convert) -> Callable[[Any], Any]:
    def converted(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        keyed = ((key if of_key is None else of_key(key), item) for key, item in pairs)
        return {
            key if isinstance(key, str) else _json(key).decode(): item
            if of_item is None or item is None
            else of_item(item)
            for key, item in keyed
        }

    return converted


def _converted(values: list[Any], convert: _Convert) -> list[Any]:
    if convert is None:
        return values
    return [None if value is None else convert(value) for value in values]
