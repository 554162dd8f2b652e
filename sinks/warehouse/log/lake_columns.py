"""Defines the form of a captured table in the lake (names, types, key) and how an old form becomes a new one. Pure.

Types are Spark's, as DDL. They follow the encoding and the type in the schema record (docs/reference/types.md); a type
without an exact counterpart stays text. An override sets another type for a column whose values its own type cannot
hold: ``NaN`` in a numeric(10,2), ``infinity`` in a date.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cdc.errors import SinkUnfit
from cdc.model.progress_record import SchemaColumn, SchemaRecord
from sinks.state.topic_format import check_encodings

PRECISION_MAX: Final = 38  # of decimals in Spark, Arrow and Delta
MIRROR_COLUMNS: Final = ("_epoch", "_commit_lsn", "_ordinal", "_committed_at")
ARCHIVE_COLUMNS: Final = ("_op", "_unchanged", *MIRROR_COLUMNS, "_partition", "_offset")
HISTORY_COLUMNS: Final = (
    "_valid_from_lsn",
    "_valid_from_ordinal",
    "_valid_from",
    "_valid_to_lsn",
    "_valid_to",
    "_epoch",
    "_op",
)
_MARKS: Final = (
    "_deleted",
    "_closes",
    "_closes_lsn",
    "_closes_at",
    "_open",
    "_unchanged",
    "_partition",
    "_offset",
    "_unfit",
)
RESERVED: Final = frozenset({*MIRROR_COLUMNS, *HISTORY_COLUMNS, *_MARKS})
"""Names of columns that the lake adds; a table that has a column of such a name cannot be kept."""

_INTEGERS: Final = {"int2": "smallint", "int4": "int", "int8": "bigint"}
_BY_ENCODING: Final = {
    "boolean": "boolean",
    "date": "date",
    "epoch_days": "date",
    "timestamp": "timestamp_ntz",
    "epoch_micros": "timestamp_ntz",
    "timestamp_utc": "timestamp",
    "hexadecimal": "binary",
    "base64": "binary",
    "base64url": "binary",
    "integer_string": "bigint",
}
_PLAIN: Final = frozenset({"smallint", "int", "bigint", "float", "double", "boolean", "date", "timestamp"}) | {
    "timestamp_ntz",
    "binary",
    "string",
}
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_MODIFIER_HEADER: Final = 4  # VARHDRSZ, in every modifier of numeric: src/backend/utils/adt/numeric.c
_SCALE_BITS: Final = 0x7FF
_SCALE_SIGN: Final = 0x400


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """A column. `type` is Spark's DDL, `encoding` the form of its values in the log, `key` whether it is in the key."""

    name: str
    type: str
    encoding: str
    key: bool


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table in the form of one schema record.

    Attributes:
        table: ``schema.table``.
        key: names of the key columns in key order; empty for a table without a key.
        columns: in the order of the table.
    """

    table: str
    topic: str
    schema_id: str
    key: tuple[str, ...]
    columns: tuple[LakeColumn, ...]

    def column(self, name: str) -> LakeColumn | None:
        """Return the column of exactly this name."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a new column's values in rows of the old form.

    Attributes:
        name: the old column; None if there was none, so that the value is null.
        cast: whether the old column has another type.
    """

    name: str | None
    cast: bool = False


@dataclass(frozen=True, slots=True)
class Evolution:
    """The steps that turn rows of an old form into rows of the new one.

    Attributes:
        sources: one for each column of the new form, in its order.
        dropped: old columns whose values are discarded.
        key_changed: whether the key differs, so that rows must be identified again.
    """

    sources: tuple[Source, ...]
    dropped: tuple[str, ...]
    key_changed: bool


def lake_table(record: SchemaRecord, overrides: Mapping[str, str] | None = None) -> LakeTable:
    """Return the lake's form of a schema record; `overrides` is column name -> type.

    Raises:
        SinkUnfit: an override is not a type or names no column, a name is reserved, or two names differ only in case,
            which lake tables cannot distinguish.
    """
    wanted = dict(overrides or {})
    _check_names(record)
    columns = []
    for column in record.columns:
        override = wanted.pop(column.name, None)
        kind = _type(column) if override is None else _checked(override, record.table, column.name)
        columns.append(LakeColumn(column.name, kind, column.encoding, column.key))
    return LakeTable(record.table, record.topic, record.schema_id, record.key, tuple(columns))


def form_of(record: SchemaRecord, types: Mapping[str, Mapping[str, str]]) -> LakeTable:
    """Return the lake's form with the sink's overrides for the table, as far as this form has the columns."""
    if record.format != "json":
        raise SinkUnfit(
            f"the topic of {record.table} is in the format {record.format!r}; a lake reads Debezium's JSON envelope",
            hint='capture the table under another `name` with encode.format = "json"',
            table=record.table,
        )
    check_encodings(record)
    names = {column.name for column in record.columns}
    return lake_table(record, {name: kind for name, kind in types.get(record.table, {}).items() if name in names})


def unknown_overrides(overrides: Mapping[str, str], tables: Sequence[LakeTable]) -> list[str]:
    """Return names in `overrides` that no form of the table has: most likely misspelt."""
    known = {column.name for table in tables for column in table.columns}
    return sorted(set(overrides) - known)


def adds_only(step: Evolution, new: LakeTable) -> bool:
    """Whether rows of the old form are rows of the new form that lack some columns."""
    same = all(
        source.name in {None, column.name} and not source.cast
        for source, column in zip(step.sources, new.columns, strict=True)
    )
    return same and not step.dropped and not step.key_changed


def evolve(old: LakeTable, new: LakeTable) -> Evolution | None:
    """Return how the old form becomes the new one; None if their rows look the same.

    The stream does not report renames. A column that left and a column that came, with the same type at the same place,
    count as a rename. Places are counted among the columns that did not stay, between the same neighbours: ``alter
    table`` never moves a column, and an added column is the last one. So dropping the last column and adding another of
    its type looks like a rename and is treated as one.
    """
    old_names = {column.name for column in old.columns}
    new_names = {column.name for column in new.columns}
    renamed = _renamed(old, new)
    sources = []
    for column in new.columns:
        before = old.column(column.name if column.name in old_names else renamed.get(column.name, ""))
        sources.append(Source(None) if before is None else Source(before.name, cast=before.type != column.type))
    used = {source.name for source in sources}
    evolution = Evolution(
        tuple(sources),
        tuple(column.name for column in old.columns if column.name not in used),
        old.key != tuple(renamed.get(name, name) for name in new.key),
    )
    same = (
        [column.name for column in old.columns] == [column.name for column in new.columns]
        and old_names == new_names
        and not any(source.cast for source in sources)
        and not evolution.key_changed
    )
    return None if same else evolution


def compose(older: Evolution | None, old: LakeTable, newer: Evolution | None) -> Evolution | None:
    """Combine two steps into one; `old` is the form between them."""
    if older is None or newer is None:
        return older or newer
    places = {column.name: index for index, column in enumerate(old.columns)}
    sources = []
    for source in newer.sources:
        before = Source(None) if source.name is None else older.sources[places[source.name]]
        sources.append(replace(before, cast=before.name is not None and (before.cast or source.cast)))
    lost = {older.sources[places[name]].name for name in newer.dropped}
    return Evolution(
        tuple(sources),
        (*older.dropped, *sorted(name for name in lost if name is not None)),
        older.key_changed or newer.key_changed,
    )


def decimal_of(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type; None for any other type."""
    match = _DECIMAL.fullmatch(kind)
    return None if match is None else (int(match[1]), int(match[2]))


def _renamed(old: LakeTable, new: LakeTable) -> dict[str, str]:
    """Return new name -> old name. Columns that stayed divide the forms into stretches; places are compared in each."""
    stayed = {column.name for column in old.columns} & {column.name for column in new.columns}
    found: dict[str, str] = {}
    left, came = _stretches(old, stayed), _stretches(new, stayed)
    for place, columns in came.items():
        for before, column in zip(left.get(place, ()), columns, strict=False):
            if before.type == column.type and before.encoding == column.encoding:
                found[column.name] = before.name
    return found


def _stretches(table: LakeTable, stayed: set[str]) -> dict[str, list[LakeColumn]]:
    """Return the columns that did not stay, grouped by the column before them that did."""
    found: dict[str, list[LakeColumn]] = {}
    behind = ""
    for column in table.columns:
        if column.name in stayed:
            behind = column.name
        else:
            found.setdefault(behind, []).append(column)
    return found


def _type(column: SchemaColumn) -> str:
    if column.encoding == "integer":
        return _INTEGERS.get(column.type, "bigint")
    if column.encoding == "float":
        return "float" if column.type == "float4" else "double"
    if column.encoding in {"decimal", "decimal_number"}:
        return _decimal(column)
    return _BY_ENCODING.get(column.encoding, "string")


def _decimal(column: SchemaColumn) -> str:
    """Return a decimal for a numeric with a modifier; text without one, or where Spark has no counterpart.

    The stream has no modifier for a domain: the modifier of its base type is missing. So a domain over numeric is text.
    """
    if column.type != "numeric" or column.type_modifier < _MODIFIER_HEADER:
        return "string"
    modifier = column.type_modifier - _MODIFIER_HEADER
    precision = modifier >> 16
    scale = ((modifier & _SCALE_BITS) ^ _SCALE_SIGN) - _SCALE_SIGN  # negative since PostgreSQL 15
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)  # numeric(2,4) holds 0.0012
    return f"decimal({precision},{scale})" if precision <= PRECISION_MAX else "string"


def _checked(kind: str, table: str, column: str) -> str:
    """Return an override in normal spelling. Raises SinkUnfit."""
    text = " ".join(kind.lower().split())
    decimal = decimal_of(text)
    if text in _PLAIN:
        return text
    if decimal is not None and 1 <= decimal[0] <= PRECISION_MAX and decimal[1] <= decimal[0]:
        return f"decimal({decimal[0]},{decimal[1]})"
    raise SinkUnfit(
        f"invalid type {kind!r} for column {column!r} of {table}",
        hint=f"expected one of {', '.join(sorted(_PLAIN))}, or decimal(p,s) with p up to {PRECISION_MAX}",
        table=table,
        column=column,
    )


def _check_names(record: SchemaRecord) -> None:
    seen: dict[str, str] = {}
    for column in record.columns:
        lower = column.name.lower()
        if lower in RESERVED:
            raise SinkUnfit(
                f"{record.table} has a column {column.name!r}, which is a name of the lake's own columns",
                hint="rename the column, or exclude the table from the sink's `tables`",
                table=record.table,
                column=column.name,
            )
        if lower in seen:
            raise SinkUnfit(
                f"columns {seen[lower]!r} and {column.name!r} of {record.table} differ only in case",
                hint="lake tables do not distinguish them: rename one, or exclude the table from the sink's `tables`",
                table=record.table,
                columns=(seen[lower], column.name),
            )
        seen[lower] = column.name
