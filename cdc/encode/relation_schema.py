"""Derives the schema of a relation from its Relation message: encodings, key, and schema id. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from cdc.encode.values import EncodeOptions, TypeEncoding, resolve
from cdc.errors import SourceRefused
from cdc.lsn import Lsn
from cdc.model.progress_record import AvroIds, KeyColumn, KeyForm, SchemaColumn, SchemaRecord, key_width
from cdc.model.relation import Relation
from cdc.model.type_facts import TypeFacts

_LATER_OPTIONS: Final = (
    *("time", "bytea", "interval", "json", "hstore", "format", "compatibility", "debezium"),
)  # in the order in which they were introduced


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Everything that a transcoder needs to know about a relation.

    Attributes:
        key: indexes of the key columns in key order; empty for a keyless table.
        encodings: one per column.
        schema_id: first 8 hex digits of SHA-256 over the canonical relation and the options.
        format: `encode.format`.
        registered: ids of its schemas in the registry, for Avro.
        compatibility: `encode.compatibility`.
    """

    relation: Relation
    key: tuple[int, ...]
    encodings: tuple[TypeEncoding, ...]
    schema_id: str
    format: str = "json"
    registered: AvroIds | None = None
    compatibility: str = "none"

    @property
    def key_form(self) -> KeyForm:
        """The key columns in key order."""
        columns = [(self.relation.columns[index], self.encodings[index]) for index in self.key]
        return tuple(
            KeyColumn(column.name, encoding.name, encoding.encoding, key_width(encoding.name, column.type_modifier))
            for column, encoding in columns
        )

    def record(self, topic: str, epoch: int, lsn: Lsn, left_out: Sequence[str] = ()) -> SchemaRecord:
        """Return the record that describes `schema_id` to consumers. `left_out`: columns that are not in the stream."""
        columns = tuple(
            SchemaColumn(
                name=column.name,
                type=encoding.name,
                type_oid=column.type_oid,
                type_modifier=column.type_modifier,
                encoding=encoding.encoding,
                key=index in self.key,
                kind="enum" if encoding.enum else "",
            )
            for index, (column, encoding) in enumerate(zip(self.relation.columns, self.encodings, strict=True))
        )
        return SchemaRecord(
            table=self.relation.table,
            topic=topic,
            schema_id=self.schema_id,
            epoch=epoch,
            lsn=lsn,
            replica_identity=self.relation.replica_identity.value,
            key=tuple(self.relation.columns[index].name for index in self.key),
            columns=columns,
            format=self.format,
            registered=self.registered,
            left_out=tuple(left_out),
        )


def table_schema(
    relation: Relation, key_columns: Sequence[str], types: Mapping[int, TypeFacts], options: EncodeOptions
) -> TableSchema:
    """Build the schema of a relation.

    Raises:
        SourceRefused: a key column is not in the relation (dropped meanwhile, or not published).
    """
    names = [column.name for column in relation.columns]
    missing = [name for name in key_columns if name not in names]
    if missing:
        raise SourceRefused(
            f"key column {missing[0]!r} of {relation.table} is not in the stream",
            hint="publish every key column: a column list must contain the replica identity",
            table=relation.table,
            column=missing[0],
        )
    key = tuple(names.index(name) for name in key_columns)
    encodings = tuple(resolve(column.type_oid, types, options, column.type_modifier) for column in relation.columns)
    return TableSchema(
        relation,
        key,
        encodings,
        _schema_id(relation, key, encodings, options),
        options.format,
        compatibility=options.compatibility,
    )


def _schema_id(
    relation: Relation, key: tuple[int, ...], encodings: Sequence[TypeEncoding], options: EncodeOptions
) -> str:
    """Compute the schema id. Newer options are appended only if they change the bytes, so older ids never change."""
    chosen = options.chosen()
    later: list[object] = [[name, chosen[name]] for name in _LATER_OPTIONS if name in chosen]
    forgotten = [index for index, encoding in enumerate(encodings) if not encoding.known]
    if forgotten:
        later.append(["forgotten", forgotten])
    canonical = msgspec.json.encode(
        [
            relation.namespace,
            relation.name,
            [[column.name, column.type_oid, column.type_modifier] for column in relation.columns],
            key,
            [options.numeric, options.int64],
            *later,
        ]
    )
    return hashlib.sha256(canonical).hexdigest()[:8]
