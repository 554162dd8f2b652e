"""Converts the text of a value, in one of the log's encodings, to the lake's type (docs/reference/types.md).

Whichever encoding an operator chose for a type (`[encode]`), the lake's column is the same. A value that the type
cannot hold becomes null, which `sinks.warehouse.log.span_batch` reports as unfit. So every expression here keeps nulls
and values apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as fn
from pyspark.sql.types import DataType, StringType, VariantType

from sinks.warehouse.log.lake_columns import LakeColumn, LakeTable, decimal_of

_DATES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_BC: Final = " BC"  # Spark would ignore it and read the rest as a date AD
_FIRST_DAY: Final = -719_162  # 0001-01-01, in days since 1970-01-01; earlier ones are BC
_DAY_US: Final = 86_400_000_000
_EXACT: Final = ("decimal_number", "json_value")


def reading(tables: Sequence[LakeTable], name: str) -> DataType:
    """Return the type that a column is read as: text, which preserves the value.

    A JSON number that is no integer passes through a double on its way to text, which is right for floats. Numerics
    that are written as numbers, and JSON, are read as variants, which are exact up to 38 digits. Reading integers and
    booleans as such would not be faster (3.2 to 3.9 s for 300,000 rows either way, 2026-11-22).
    """
    columns = [column for table in tables for column in table.columns if column.name == name]
    exact = any(encoding in column.encoding for column in columns for encoding in _EXACT)
    return VariantType() if exact else StringType()


def as_text(read: Column, tables: Sequence[LakeTable], name: str, schema_id: Column) -> Column:
    """Return what `reading` read as text: the content of a string, the text of JSON."""
    columns = {table.schema_id: column for table in tables if (column := table.column(name)) is not None}
    nested = [one for one, column in columns.items() if column.encoding == "json_value"]
    text = read.cast("string")
    if not nested:
        return text
    json = fn.when(~fn.is_variant_null(read), fn.to_json(read))
    return json if len(nested) == len(columns) else fn.when(schema_id.isin(nested), json).otherwise(text)


def cast(
    text: Column,
    column: LakeColumn,
    encodings: Mapping[str, Sequence[str]],
    schema_id: Column,
    rewritten: Column | None,
) -> Column:
    """Return the value in the column's type; null if the type cannot hold it.

    A value is decoded by the encoding in its own row's schema, not by that of the newest one: after an operator changes
    `[encode]`, one span has rows of both encodings.

    Args:
        text: text of the value.
        column: the column in the newest form.
        encodings: encoding that the rows' forms have for the column -> ids of those forms.
        schema_id: of the row.
        rewritten: whether the row has an older form, so that PostgreSQL rounded its value when it took the newest.
    """
    value = _value(text, column.type, column.encoding, rewritten)
    for encoding, forms in encodings.items():
        if encoding != column.encoding:
            older = _value(text, column.type, encoding, rewritten)
            value = fn.when(schema_id.isin(list(forms)), older).otherwise(value)
    return value


def _value(text: Column, kind: str, encoding: str, rewritten: Column | None) -> Column:
    decimal = decimal_of(kind)
    if kind == "string":
        return _clock(text) if encoding == "day_micros" else text
    if kind == "binary":
        return _binary(text, encoding)
    if kind in _DATES:
        return _moment(text, encoding).try_cast(kind)
    if decimal is None:
        return text.try_cast(kind)
    # A cast rounds silently, and an override can name a smaller scale than the values have.
    point = fn.instr(text, ".")
    digits = fn.when(point == 0, 0).otherwise(fn.length(fn.rtrim(text, fn.lit("0"))) - point)
    fits = digits <= decimal[1]
    return fn.when(fits if rewritten is None else fits | rewritten, text.try_cast(kind))


def _binary(text: Column, encoding: str) -> Column:
    if encoding == "hexadecimal":
        return fn.unhex(fn.substr(text, fn.lit(3)))
    if encoding == "base64":
        return fn.try_to_binary(text, fn.lit("base64"))
    if encoding == "base64url":
        return fn.try_to_binary(fn.translate(text, "-_", "+/"), fn.lit("base64"))
    return text.cast("binary")


def _moment(text: Column, encoding: str) -> Column:
    """Return a date, a timestamp, or the text of one; null for a BC date and for a value that is no number."""
    if encoding == "epoch_days":
        days = text.try_cast("int")
        return fn.when(days >= _FIRST_DAY, fn.date_from_unix_date(days))
    if encoding == "epoch_micros":
        micros = text.try_cast("bigint")
        return fn.when(micros >= _FIRST_DAY * _DAY_US, fn.timestamp_micros(micros))
    return fn.when(~fn.endswith(text, fn.lit(_BC)), text)


def _clock(text: Column) -> Column:
    """Convert microseconds since midnight to the text that PostgreSQL prints; 24:00:00 is a valid time."""
    micros = text.cast("bigint")
    seconds = fn.floor(micros / 1_000_000).cast("bigint")
    whole = fn.format_string("%02d:%02d:%02d", fn.floor(seconds / 3600), fn.floor(seconds / 60) % 60, seconds % 60)
    fraction = fn.rtrim(fn.format_string(".%06d", micros % 1_000_000), fn.lit("0"))
    return fn.when(text.isNotNull(), fn.concat(whole, fn.when(fraction != ".", fraction).otherwise("")))
