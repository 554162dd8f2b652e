"""Prepares a relation that the stream shows: key, encodings, topic, transcoder and schema record.

It queries the catalog and may create a topic, so the pipeline calls it for a new Relation message, never per row. The
Relation message decides about columns, types and identity, because the catalog may already describe a newer table. The
catalog only adds the names of types that are not built in, and the primary key of a table whose identity is FULL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from cdc.config.settings import Config
from cdc.contracts import SchemaRegistry
from cdc.encode.avro_schema import schemas_of
from cdc.encode.formats import transcoder_for
from cdc.encode.relation_schema import TableSchema, table_schema
from cdc.encode.row_records import RowRecords, TranscodeOptions
from cdc.encode.values import EncodeOptions, unknown_types
from cdc.errors import RegistryRefused, SourceRefused, TopicMismatch
from cdc.lsn import Lsn
from cdc.model.change_records import TopicBuffer
from cdc.model.incomplete_record import IncompleteRecords
from cdc.model.left_out import LeftOut, Reason, no_topic
from cdc.model.progress_record import AvroIds, KeyColumn, KeyForm, SchemaRecord, TopicForm
from cdc.model.relation import Relation, ReplicaIdentity
from cdc.model.topic_names import data_topic
from cdc.model.type_facts import TypeFacts
from cdc.patterns import chosen, matches
from cdc.replication.table_shape import SourceTable


class Catalog(Protocol):
    """The catalog queries that are needed; see `cdc.replication.catalog_queries`."""

    def key_columns(self, oid: int, wanted: Sequence[str]) -> tuple[str, ...]:
        """Return the key columns in key order; empty if there is no key, or none over the `wanted` columns."""

    def ancestors(self, oid: int) -> Sequence[str]:
        """Return ``schema.table`` of every table that this one is a partition of, directly or not."""

    def generated_columns(self, oid: int) -> Sequence[str]:
        """Return the names of the table's generated columns as it is now."""

    def types(self, oids: Sequence[int]) -> dict[int, TypeFacts]:
        """Return the facts of these types from pg_type."""


@dataclass(frozen=True, slots=True)
class Planned:
    """See `cdc.contracts.PlannedRelation`."""

    buffer: TopicBuffer
    transcoder: RowRecords
    schemas: Sequence[SchemaRecord]


class _Unfit(Exception):
    """A relation that cannot be written to its topic. The text is read after the name of the table."""

    def __init__(self, reason: Reason, problem: str, statement: str) -> None:
        super().__init__(problem)
        self.reason: Reason = reason
        self.statement = statement


OpenTopic = Callable[[str, bool], int]
"""Create or check a data topic (name, compacted) and prepare writing to it. Returns its partition count."""


class TablePlanner:
    """Implements `cdc.contracts.RelationPlanner`. One per start. Remembers which schema records the log has.

    Attributes:
        left_out: tables whose relations cannot be written to their topics, by name. Their rows are skipped.
        leave: called with the name of a table before its rows are skipped for the first time.
    """

    def __init__(
        self,
        config: Config,
        database: str,
        catalog: Catalog,
        open_topic: OpenTopic,
        *,
        epoch: int,
        forms: Mapping[str, TopicForm],
        holes: IncompleteRecords,
        registry: SchemaRegistry | None = None,
    ) -> None:
        """`forms` are the formats of the topics so far, by table; `holes` collects incomplete records.

        `registry` knows the Avro schemas; only that format needs it.
        """
        self._config = config
        self._forms = dict(forms)
        self._catalog = catalog
        self._open_topic = open_topic
        self._epoch = epoch
        self._registry = registry
        debezium = tuple(sorted(config.encode.debezium.items()))
        self._encode = EncodeOptions(**{**msgspec.structs.asdict(config.encode), "debezium": debezium})
        self._transcode = TranscodeOptions(config.name, database, config.capture.row_bytes_max, config.capture.oversize)
        self._holes = holes
        self.left_out: dict[str, LeftOut] = {}
        self.leave: Callable[[str], None] = lambda _: None
        self._buffers: dict[str, TopicBuffer] = {}
        self._written: set[tuple[str, str]] = set()

    @property
    def topic_keys(self) -> dict[str, list[str]]:
        """By table, the key columns of the records in its topic. From any thread."""
        return {table: [column.name for column in form.key] for table, form in dict(self._forms).items() if form.key}

    @property
    def form_count(self) -> int:
        """The number of tables in `topic_keys` and of keyless ones. The keys of a topic never change."""
        return len(self._forms)

    def plan(self, relation: Relation, at: Lsn) -> Planned | None:
        """See `cdc.contracts.RelationPlanner.plan`."""
        selected = self._config.source.tables
        if not matches(relation.table, selected):
            return None
        if any(matches(ancestor, selected) for ancestor in self._catalog.ancestors(relation.oid)):
            return None  # a partition: its rows arrive as rows of the root
        schema = self._fit(relation, relation.oid)
        if schema is None:
            return None
        topic = data_topic(self._config.name, relation.namespace, relation.name)
        buffer = self._buffers.get(topic)
        if buffer is None:
            compacted = bool(schema.key)
            count = self.open(relation.table, relation.oid, topic, compacted=compacted)
            if count is None:
                return None
            buffer = TopicBuffer(topic, count, compacted=compacted)
            self._buffers[topic] = buffer
        reselect = chosen(relation.table, self._config.toast.tables, self._config.toast.mode) == "reselect"
        transcoder = transcoder_for(schema, buffer, self._transcode, self._holes if reselect else None)
        return Planned(buffer, transcoder, self._new(schema, topic, at))

    def open(self, table: str, oid: int, topic: str, *, compacted: bool) -> int | None:
        """Open the topic of a table and return its partition count. None if it cannot be written to; see `left_out`.

        A topic that was opened at the start stays open.
        """
        try:
            return self._open_topic(topic, compacted)
        except TopicMismatch as error:
            self._leave_out(no_topic(table, oid, error))
            return None

    def introduce(
        self, tables: Sequence[SourceTable], published: Mapping[int, Collection[str]], at: Lsn
    ) -> list[SchemaRecord]:
        """Return schema records for tables as the catalog has them at a start, before any row of them is read.

        `published` are the published columns of each table, by its oid. Tables that cannot be written to their topics
        are in `left_out` afterwards.
        """
        records = []
        for table in tables:
            schema = self._fit(table.relation(published.get(table.oid)), table.oid, table.key)
            if schema is not None:
                generated = [column.name for column in table.columns if column.generated]
                topic = data_topic(self._config.name, table.namespace, table.name)
                records += self._new(schema, topic, at, generated)
        return records

    def _fit(self, relation: Relation, oid: int, key: Sequence[str] | None = None) -> TableSchema | None:
        """Return how rows of a relation are written. None, and an entry in `left_out`, if its key does not allow it."""
        try:
            schema = self._schema(relation, key)
        except _Unfit as found:
            by = "the owner of the table"
            self._leave_out(LeftOut(relation.table, oid, found.reason, str(found), found.statement, by))
            return None
        self.left_out.pop(relation.table, None)
        return schema

    def _leave_out(self, found: LeftOut) -> None:
        known = found.table in self.left_out
        self.left_out[found.table] = found
        if not known:
            self.leave(found.table)

    def _new(
        self, schema: TableSchema, topic: str, at: Lsn, generated: Sequence[str] | None = None
    ) -> list[SchemaRecord]:
        """Return the schema record, unless the log has it. Without `generated`, the catalog is asked for them."""
        known = (schema.relation.table, schema.schema_id)
        if known in self._written:
            return []
        self._written.add(known)
        shown = {column.name for column in schema.relation.columns}
        if generated is None:
            generated = self._catalog.generated_columns(schema.relation.oid)
        left_out = [name for name in generated if name not in shown]
        return [schema.record(topic, self._epoch, at, left_out)]

    def _schema(self, relation: Relation, key: Sequence[str] | None = None) -> TableSchema:
        if key is None:
            key = self._key(relation)
        if not key and not matches(relation.table, self._config.source.keyless):
            raise _Unfit(
                "no_key",
                "it has no usable key, which a compacted topic needs to tell its rows apart",
                "-- add a primary key, or set REPLICA IDENTITY USING INDEX, or list it in source.keyless",
            )
        key = tuple(_in_column_order(relation, key))
        hidden = set(key).difference(column.name for column in relation.columns)
        if hidden:
            raise _Unfit(
                "not_published",
                f"its key column {min(hidden)!r} is not in the stream",
                "-- publish every key column: a column list must contain the replica identity",
            )
        types = self._types({column.type_oid for column in relation.columns})
        schema = table_schema(relation, key, types, self._encode)
        form = TopicForm(schema.key_form, schema.format)
        former = self._forms.get(relation.table, form)
        self._same_form(relation.table, form, former)
        if schema.format == "avro":
            schema = replace(schema, registered=self._registered(schema, former.key_id))
        self._forms[relation.table] = form._replace(key_id=schema.registered.key if schema.registered else None)
        return schema

    def _registered(self, schema: TableSchema, former: int | None) -> AvroIds:
        """Register the schemas before anything is written with them, and check that the key's id is the recorded one.

        This happens when a relation is planned, at the start or for a new shape, never for a row. The id is in every
        key's bytes. Under another id every key of the compacted topic would be a new one.
        """
        relation = schema.relation
        assert self._registry is not None, "the configuration was checked"
        topic = data_topic(self._config.name, relation.namespace, relation.name)
        ids = self._registry.register(topic, schemas_of(schema, self._config.name), relation.table)
        if former is not None and ids.key != former:
            raise RegistryRefused(
                f"the registry has schema id {ids.key} for the keys of {relation.table}, but the topic has id {former}",
                hint="the registry was emptied or replaced, or a key column has another type: undo that change. Under "
                "another `name` capture starts from scratch",
                table=relation.table,
            )
        return ids

    def _same_form(self, table: str, form: TopicForm, before: TopicForm) -> None:
        """Refuse a new format or key: old rows would stay in the compacted topic for ever, as its truth."""
        if form.format != before.format:
            raise SourceRefused(
                f"the topic of {table} has records in the format {before.format!r}; "
                f"encode.format is {form.format!r} now",
                hint="restore the former format. Under another `name` capture starts from scratch",
                command=f'[encode] format = "{before.format}"',
                table=table,
            )
        self._same_key(table, form.key, before.key)

    def _same_key(self, table: str, key: KeyForm, former: KeyForm) -> None:
        """Compare names, and encodings where the type is the same."""
        names, before = ([column.name for column in form] for form in (key, former))
        if before != names:
            raise _Unfit(
                "key_changed",
                f"its key is ({', '.join(names)}) now, and its topic has rows under ({', '.join(before)})",
                "-- restore its former key, or leave it out of source.tables",
            )
        for column, old in zip(key, former, strict=True):
            if column.written_as(old):
                continue
            by_option = column.type == old.type and column.width == old.width
            if not by_option:
                raise _Unfit(
                    "key_changed",
                    f"key column {column.name!r} would be written as {_typed(column)} now, and its topic has rows "
                    f"under keys written as {_typed(old)}",
                    f"-- restore the former type of column {column.name!r}, or leave the table out of source.tables",
                )
            raise SourceRefused(
                f"key column {column.name!r} of {table} would be written as {column.encoding} now; its topic has rows "
                f"under keys written as {old.encoding}",
                hint="restore the former value in [encode]. Under another `name` capture starts from scratch",
                table=table,
                column=column.name,
            )

    def _key(self, relation: Relation) -> Sequence[str]:
        """Return the identity that the stream shows; with FULL, the configured or primary key."""
        wanted = self._config.source.keys.get(relation.table, ())
        if relation.replica_identity is ReplicaIdentity.NOTHING:
            return ()
        if relation.replica_identity is ReplicaIdentity.FULL:
            return self._catalog.key_columns(relation.oid, wanted)
        shown = [column.name for column in relation.columns if column.identity]
        return shown if not wanted or set(wanted) == set(shown) else ()

    def _types(self, oids: set[int]) -> dict[int, TypeFacts]:
        """Return the facts of all types that are not built in, and of the types they are based on, level by level."""
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
    """Return the key columns in the relation's order, so that the key's bytes depend on the stream alone."""
    names = set(key)
    ordered = [column.name for column in relation.columns if column.name in names]
    return ordered + sorted(names.difference(ordered))
