"""From a relation the stream shows to everything its rows need: key, encodings, topic, transcoder, schema record.

An edge: it asks the catalog and may make a topic, so the pipeline calls it when a Relation message is new, never per
row. What the Relation itself says (columns, types, identity) decides; the catalog only adds the names of types that
are not built in, and the primary key of a table whose identity is FULL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from cdc.config.settings import Config
from cdc.encode.schema import TableSchema, table_schema
from cdc.encode.transcoder import TranscodeOptions, Transcoder
from cdc.encode.values import EncodeOptions, unknown_types
from cdc.errors import SourceRefused
from cdc.lsn import Lsn
from cdc.model.event import TopicBuffer
from cdc.model.hole import Holes
from cdc.model.names import data_topic
from cdc.model.patterns import chosen, matches
from cdc.model.progress import KeyColumn, KeyForm, SchemaRecord
from cdc.model.relation import Column, Relation, ReplicaIdentity
from cdc.model.types import TypeFacts
from cdc.replication.table import SourceTable


class Catalog(Protocol):
    """What the catalog is asked for; see `cdc.replication.catalog`."""

    def key_columns(self, oid: int, wanted: Sequence[str]) -> tuple[str, ...]:
        """Columns of the key, in key order; empty when there is none, or not over those that are `wanted`."""

    def ancestors(self, oid: int) -> Sequence[str]:
        """``schema.table`` of every table this one is a partition of, directly or not."""

    def types(self, oids: Sequence[int]) -> dict[int, TypeFacts]:
        """What pg_type has of these."""


@dataclass(frozen=True, slots=True)
class Planned:
    """See `cdc.contracts.PlannedRelation`."""

    buffer: TopicBuffer
    transcoder: Transcoder
    schemas: Sequence[SchemaRecord]


OpenTopic = Callable[[str, bool], int]
"""Make or check a data topic (name, compacted) and get ready to write to it; returns its partition count."""


class TablePlanner:
    """See `cdc.contracts.RelationPlanner`. One per start; remembers which schema records are in the log."""

    def __init__(
        self,
        config: Config,
        database: str,
        catalog: Catalog,
        open_topic: OpenTopic,
        *,
        epoch: int,
        keys: Mapping[str, KeyForm],
        holes: Holes,
    ) -> None:
        """`keys` are the keys that the topics have so far, by table; `holes` is where values are missed."""
        self._config = config
        self._keys = dict(keys)
        self._catalog = catalog
        self._open_topic = open_topic
        self._epoch = epoch
        self._encode = EncodeOptions(**msgspec.structs.asdict(config.encode))
        self._transcode = TranscodeOptions(config.name, database, config.capture.row_bytes_max, config.capture.oversize)
        self._holes = holes
        self._buffers: dict[str, TopicBuffer] = {}
        self._written: set[tuple[str, str]] = set()

    def plan(self, relation: Relation, at: Lsn) -> Planned | None:
        """See `cdc.contracts.RelationPlanner.plan`."""
        selected = self._config.source.tables
        if not matches(relation.table, selected):
            return None
        if any(matches(ancestor, selected) for ancestor in self._catalog.ancestors(relation.oid)):
            return None  # a partition: its rows arrive as rows of the root
        schema = self._schema(relation)
        topic = data_topic(self._config.name, relation.namespace, relation.name)
        buffer = self._buffers.get(topic)
        if buffer is None:
            compacted = bool(schema.key)
            buffer = TopicBuffer(topic, self._open_topic(topic, compacted), compacted=compacted)
            self._buffers[topic] = buffer
        reselect = chosen(relation.table, self._config.toast.tables, self._config.toast.mode) == "reselect"
        transcoder = Transcoder(schema, buffer, self._transcode, self._holes if reselect else None)
        return Planned(buffer, transcoder, self._new(schema, topic, at))

    def introduce(
        self, tables: Sequence[SourceTable], published: Mapping[int, Collection[str]], at: Lsn
    ) -> list[SchemaRecord]:
        """Schema records of tables as the catalog has them at a start, before any row of them is seen.

        `published` are the columns of each table, by its oid, that the publication has.
        """
        records = []
        for table in tables:
            schema = self._schema(_relation_of(table, published.get(table.oid)), table.key)
            records += self._new(schema, data_topic(self._config.name, table.namespace, table.name), at)
        return records

    def _new(self, schema: TableSchema, topic: str, at: Lsn) -> list[SchemaRecord]:
        known = (schema.relation.table, schema.schema_id)
        if known in self._written:
            return []
        self._written.add(known)
        return [schema.record(topic, self._epoch, at)]

    def _schema(self, relation: Relation, key: Sequence[str] | None = None) -> TableSchema:
        if key is None:
            key = self._key(relation)
        if not key and not matches(relation.table, self._config.source.keyless):
            raise SourceRefused(
                f"{relation.table} has no usable key: its rows could not be told apart in a compacted topic",
                hint="add a primary key, or set REPLICA IDENTITY USING INDEX, or list it in source.keyless, "
                f'or leave it out with "!{relation.table}" in source.tables',
                command="cdc doctor",
                table=relation.table,
            )
        key = tuple(_in_column_order(relation, key))
        types = self._types({column.type_oid for column in relation.columns})
        schema = table_schema(relation, key, types, self._encode)
        self._same_key(relation.table, schema.key_form)
        return schema

    def _same_key(self, table: str, key: KeyForm) -> None:
        """Rows under a former key would stay in the compacted topic for ever, as its truth."""
        former = self._keys.get(table, key)
        names, before = ([column.name for column in form] for form in (key, former))
        if before != names:
            raise SourceRefused(
                f"the key of {table} is ({', '.join(names)}) now; its topic has rows under ({', '.join(before)})",
                hint="take the former key back, or leave the table out; under another `name` capture starts anew",
                table=table,
            )
        for column, old in zip(key, former, strict=True):
            if column.written_as(old):
                continue
            by_option = column.type == old.type and column.width == old.width
            shown = (column.encoding, old.encoding) if by_option else (_typed(column), _typed(old))
            raise SourceRefused(
                f"key column {column.name!r} of {table} would be written as {shown[0]} now; its topic has rows under "
                f"keys written as {shown[1]}",
                hint=f"take the former {'value in [encode]' if by_option else 'type'} back; under another `name` "
                "capture starts anew",
                table=table,
                column=column.name,
            )
        self._keys[table] = key

    def _key(self, relation: Relation) -> Sequence[str]:
        """The identity the stream names; with FULL, which names every column, what is configured or the primary key."""
        wanted = self._config.source.keys.get(relation.table, ())
        if relation.replica_identity is ReplicaIdentity.NOTHING:
            return ()
        if relation.replica_identity is ReplicaIdentity.FULL:
            return self._catalog.key_columns(relation.oid, wanted)
        shown = [column.name for column in relation.columns if column.identity]
        return shown if not wanted or set(wanted) == set(shown) else ()

    def _types(self, oids: set[int]) -> dict[int, TypeFacts]:
        """Facts of all types that are not built in, and of those they stand on, level by level."""
        found: dict[int, TypeFacts] = {}
        wanted = unknown_types(oids)
        while wanted:
            facts = self._catalog.types(sorted(wanted))
            found |= facts
            below = {oid for fact in facts.values() for oid in (fact.base_oid, fact.element_oid) if oid}
            wanted = unknown_types(below) - found.keys()
        return found


def _typed(column: KeyColumn) -> str:
    return f"{column.encoding} of {column.type}{f'({column.width})' if column.width > 0 else ''}"


def _in_column_order(relation: Relation, key: Sequence[str]) -> list[str]:
    """Key columns as the relation orders them, so that the key's bytes need nothing but the stream."""
    names = set(key)
    ordered = [column.name for column in relation.columns if column.name in names]
    return ordered + sorted(names.difference(ordered))


def _relation_of(table: SourceTable, published: Collection[str] | None) -> Relation:
    """The Relation message the stream would send for a table as it is now."""
    full = table.replica_identity is ReplicaIdentity.FULL
    columns = tuple(
        Column(column.name, column.type_oid, column.type_modifier, full or column.name in table.key)
        for column in table.columns
        if (not column.generated if published is None else column.name in published)
    )
    return Relation(table.oid, table.namespace, table.name, table.replica_identity, columns)
