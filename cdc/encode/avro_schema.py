"""Builds the Avro schemas of a relation's keys and values for the registry. Pure.

A key schema has only names and types, nothing that an `ALTER` may change: its id is part of the bytes of every key, so
a new id would change every key. Names that are invalid in Avro are escaped injectively, with the original as property.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from cdc.encode.avro_binary import AvroJson
from cdc.encode.avro_types import AvroType, avro_type
from cdc.encode.relation_schema import TableSchema
from cdc.model.progress_record import AvroSchemas

# Matches text that looks like an escape, an invalid byte, and a leading digit.
_ESCAPED: Final = re.compile(rb"_(?=x[0-9a-f]{2})|[^A-Za-z0-9_]|^[0-9]")


def avro_name(name: str) -> str:
    """Return a PostgreSQL name as an Avro name: invalid bytes of its UTF-8 become ``_x`` and two hex digits."""
    return _ESCAPED.sub(lambda match: b"_x%02x" % match[0][0], name.encode()).decode()


def schemas_of(schema: TableSchema, name: str) -> AvroSchemas:
    """Return the schemas to register for a table; `name` is that of the pipeline."""
    relation, types = schema.relation, tuple(map(avro_type, schema.encodings))
    namespace = f"{name}.{avro_name(relation.namespace)}.{avro_name(relation.name)}"
    key = _text(_key(schema, types, namespace)) if schema.key else None
    return AvroSchemas(key, _text(_envelope(schema, types, namespace)))


def key_parts(types: tuple[AvroType, ...], schema: TableSchema) -> list[AvroJson]:
    """Return the schema of each key column, in key order."""
    return [_plain(types[index]) for index in schema.key]


def _key(schema: TableSchema, types: tuple[AvroType, ...], namespace: str) -> AvroJson:
    fields: list[AvroJson] = [
        _named(schema.relation.columns[index].name) | {"type": _plain(types[index])} for index in schema.key
    ]
    return _record("Key", fields, namespace)


def _plain(kind: AvroType) -> AvroJson:
    """A key column is never null."""
    return kind.branches[0] if len(kind.branches) == 1 else list(kind.branches)


def _envelope(schema: TableSchema, types: tuple[AvroType, ...], namespace: str) -> AvroJson:
    row = _record("Value", _columns(schema, types))
    source = _record("Source", [*_fields(_SOURCE), *map(_list, _LISTS)])
    transaction = _record("Transaction", _fields(_TRANSACTION))
    fields: list[AvroJson] = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "transaction", "type": ["null", transaction], "default": None},
    ]
    return _record("Envelope", fields, namespace)


def _columns(schema: TableSchema, types: tuple[AvroType, ...]) -> list[AvroJson]:
    """Allow null in every column: the stream does not tell NOT NULL, and a deleted row may have only its key."""
    return [
        _named(column.name)
        | {
            "type": ["null", *kind.branches],
            "default": None,
            "encoding": encoding.encoding,
            "postgresql_type": encoding.name,
        }
        for column, encoding, kind in zip(schema.relation.columns, schema.encodings, types, strict=True)
    ]


def _named(name: str) -> dict[str, AvroJson]:
    escaped = avro_name(name)
    return {"name": escaped} if escaped == name else {"name": escaped, "postgresql_name": name}


def _record(name: str, fields: list[AvroJson], namespace: str = "") -> AvroJson:
    return {"type": "record", "name": name, **({"namespace": namespace} if namespace else {}), "fields": fields}


def _fields(types: Mapping[str, AvroJson]) -> list[AvroJson]:
    return [{"name": name, "type": kind} for name, kind in types.items()]


def _list(name: str) -> AvroJson:
    return {"name": name, "type": {"type": "array", "items": "string"}, "default": []}


def _text(schema: AvroJson) -> str:
    return msgspec.json.encode(_defined_once(schema, set())).decode()


def _defined_once(schema: AvroJson, seen: set[str]) -> AvroJson:
    """Replace repeated records by their name: Avro allows one definition."""
    if isinstance(schema, list):
        return [_defined_once(part, seen) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    if schema.get("type") == "record":
        name = str(schema["name"])
        if name in seen:
            return name
        seen.add(name)
    return {key: _defined_once(part, seen) if key in _NESTED else part for key, part in schema.items()}


_NESTED: Final = frozenset({"type", "items", "fields", "values"})
_SOURCE: Final[dict[str, AvroJson]] = {
    **dict.fromkeys(("version", "connector", "name", "db", "schema", "table", "schema_id", "snapshot"), "string"),
    **dict.fromkeys(("ts_ms", "ts_us"), "long"),
    "txId": ["null", "long"],
    **dict.fromkeys(("epoch", "commit_lsn"), "long"),
    "sequence": "string",
    "lsn": "long",
    "ordinal": "long",
}
_LISTS: Final = ("unchanged", "reselected")
_TRANSACTION: Final[dict[str, AvroJson]] = {"id": "string", "total_order": "long", "data_collection_order": "long"}
