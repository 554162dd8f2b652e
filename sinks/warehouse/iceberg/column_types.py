"""Translates the columns of a Delta table to an Iceberg schema and a name mapping. Pure.

A column keeps its field id by name, for ever, also if it is dropped, returns or changes its type. This is what Delta
means by a name, and no version of a lake table has files of two types: a column whose type changes is written again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

Path: TypeAlias = tuple[str, ...]
"""A column or a part of one: names from the column inward, ``element``, ``key`` and ``value`` as in Parquet."""

_PLAIN: Final[Mapping[str, IcebergType]] = {
    "boolean": BooleanType(),
    "byte": IntegerType(),
    "short": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")


class FieldIds:
    """The field id of every column that a table ever had. New ones are numbered onward."""

    def __init__(self, mapping: NameMapping | None = None) -> None:
        self._ids: dict[Path, int] = {}
        self._read((), list(mapping or ()))

    @property
    def last(self) -> int:
        """The highest id; 0 if there is none."""
        return max(self._ids.values(), default=0)

    def of(self, path: Path) -> int:
        """Return the id of a column or part; a new one if it has none."""
        return self._ids.setdefault(path, self.last + 1)

    def mapping(self) -> NameMapping:
        """Return all names with their ids: the Parquet files have no ids."""
        return NameMapping(self._fields(()))

    def _read(self, path: Path, fields: Sequence[MappedField]) -> None:
        for field in fields:
            for name in field.names:
                if field.field_id is not None:
                    self._ids[(*path, name)] = field.field_id
                self._read((*path, name), field.fields)

    def _fields(self, path: Path) -> list[MappedField]:
        below = (one for one in self._ids if one[:-1] == path)
        return [
            MappedField.model_validate({"field-id": self._ids[one], "names": [one[-1]], "fields": self._fields(one)})
            for one in below
        ]


def schema_of(columns: Mapping[str, Any], ids: FieldIds, schema_id: int) -> Schema:
    """Return the Iceberg schema of a Delta schema in JSON. Raises ValueError for a type that Iceberg lacks."""
    return Schema(*_fields(columns, (), ids), schema_id=schema_id)


def _fields(columns: Mapping[str, Any], path: Path, ids: FieldIds) -> list[NestedField]:
    return [_field(column["name"], column["type"], path, ids) for column in columns["fields"]]


def _field(name: str, kind: Any, path: Path, ids: FieldIds) -> NestedField:
    own = (*path, name)
    # The columns' own ids come before those of their parts.
    number = ids.of(own)
    return NestedField(field_id=number, name=name, field_type=_type(kind, own, ids), required=False)


def _type(kind: Any, path: Path, ids: FieldIds) -> IcebergType:
    if isinstance(kind, str):
        return _plain(kind, path)
    if kind["type"] == "struct":
        return StructType(*_fields(kind, path, ids))
    if kind["type"] == "array":
        element = _field("element", kind["elementType"], path, ids)
        return ListType(element_id=element.field_id, element=element.field_type, element_required=False)
    if kind["type"] == "map":
        key, value = _field("key", kind["keyType"], path, ids), _field("value", kind["valueType"], path, ids)
        return MapType(
            key_id=key.field_id,
            key_type=key.field_type,
            value_id=value.field_id,
            value_type=value.field_type,
            value_required=False,
        )
    raise ValueError(f"column {'.'.join(path)} has the type {kind['type']}, which Iceberg lacks")


def _plain(kind: str, path: Path) -> IcebergType:
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None:
        return DecimalType(int(decimal[1]), int(decimal[2]))
    if kind not in _PLAIN:
        raise ValueError(f"column {'.'.join(path)} has the type {kind}, which Iceberg lacks")
    return _PLAIN[kind]
