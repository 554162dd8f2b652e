"""The types in which tables store rows. Pure."""

from __future__ import annotations

import pyarrow as pa

from cdc.errors import SinkUnfit


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
