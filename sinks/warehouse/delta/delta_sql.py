"""Builds SQL and column types in the form that deltalake needs. Pure.

Its SQL parser (DataFusion) takes any name in double quotes, with quotes doubled, and keeps the case of quoted names
only. In a literal only the quote is special (tests/contract/test_lake_committer.py has the hostile names).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cdc.errors import SinkUnfit

TARGET: Final = "t"
SOURCE: Final = "s"
_LITERAL_LENGTH_MAX: Final = 256  # a key range only saves time, and a condition should stay short


def quoted(name: str) -> str:
    """Quote an identifier."""
    return '"' + name.replace('"', '""') + '"'


def in_target(name: str) -> str:
    """A column of the table."""
    return f"{TARGET}.{quoted(name)}"


def in_source(name: str) -> str:
    """A column of the batch."""
    return f"{SOURCE}.{quoted(name)}"


def taken(names: Sequence[str]) -> dict[str, str]:
    """Return the columns of the batch for an update or insert."""
    return {quoted(name): in_source(name) for name in names}


def key_match(key: Sequence[str], rows: pa.Table) -> str:
    """Match rows whose key is in the batch. Includes the batch's range of the first column, to skip files."""
    parts = [f"{in_target(name)} = {in_source(name)}" for name in key]
    between = _range(rows.column(key[0]))
    if between is not None:
        column = in_target(key[0])
        parts += [f"{column} >= {between[0]}", f"{column} <= {between[1]}"]
    return " and ".join(parts)


def _range(values: pa.ChunkedArray) -> tuple[str, str] | None:
    if len(values) == 0 or not (pa.types.is_integer(values.type) or values.type in (pa.string(), pa.date32())):
        return None
    ends = pc.min_max(values)
    try:
        low, high = ends["min"].as_py(), ends["max"].as_py()
    except (ValueError, OverflowError):
        return None  # a date outside of Python's range
    if low is None or high is None:
        return None
    literals = (_literal(low), _literal(high))
    return None if max(map(len, literals)) > _LITERAL_LENGTH_MAX else literals


def _literal(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"date '{value}'"


def plain(rows: pa.Table) -> pa.Table:
    """Return the same rows in the types that a table stores, every column and field nullable and without metadata.

    Raises SinkUnfit if a value would lose something (times finer than a microsecond).
    """
    try:
        return rows.cast(stored_schema(rows.schema))
    except pa.ArrowInvalid:
        # The cause contains the value.
        raise SinkUnfit("a row has a value that the lake cannot store", hint="times have microseconds") from None


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table in the same form, for comparison."""
    return pa.schema([pa.field(field.name, _stored(field.type)) for field in schema])


def _stored(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _stored(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if pa.types.is_map(kind):
        return pa.map_(_stored(kind.key_type), _stored(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _stored(part.type)) for part in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _stored(kind.value_type)))
    return kind
