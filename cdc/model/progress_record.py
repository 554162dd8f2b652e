"""The records of ``<name>.__progress``, ``<name>.__cuts`` and ``<name>.__schema``, as msgspec structs.

JSON with a fixed field order. `version` increases when a reader of the old form would misread the new one; a reader
refuses unknown versions.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

import msgspec

Rolling = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
"""A rolling hash: 64 bits in hexadecimal, because JSON numbers lose 64-bit precision in many readers."""

PROGRESS_VERSION = 1
CUT_VERSION = 1
SCHEMA_VERSION = 1
CUTS_WINDOW = 4096
"""Offsets of the cut index read at a time. At least every 1,000th cut is a full map.

Before each cut lies an empty record, which adds the partition to the Kafka transaction in good time; behind it, its
marker.
"""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The source and the topics that the positions belong to.

    It is a separate record, written when it changes: with 2,000 tables it has 500 KB, and progress is written with
    every Kafka transaction.

    Attributes:
        system_identifier: of the cluster (IDENTIFY_SYSTEM), text because it is an unsigned 64-bit number.
        timeline: of the WAL that capture reads.
        database_oid: pg_database.oid.
        publication_oid: pg_publication.oid; a different one means that the publication was recreated.
        partitions: partition count of each data topic.
        topic_ids: Kafka's id of each topic; a different one means that the topic was recreated.
        tables: pg_class.oid of each captured table by name, and the oid of its pg_publication_rel row.
    """

    version: int = PROGRESS_VERSION
    system_identifier: str
    timeline: int
    database: str
    database_oid: int
    slot: str
    publication: str
    publication_oid: int
    server_version: int
    partitions: dict[str, int]
    topic_ids: dict[str, str]
    tables: dict[str, tuple[int, int]] = {}


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The restart position, written in the same Kafka transaction as the events that it covers.

    LSNs are integers. `end_lsn`, `commit_lsn` and `next_ordinal`: see `cdc.model.change_records.StreamPosition`.
    `pending_visibility`: while tables are read, ids of streamed transactions that no snapshot has seen yet.
    """

    version: int = PROGRESS_VERSION
    epoch: int
    end_lsn: int
    commit_lsn: int = 0
    next_ordinal: int = 0
    verified_lsn: int = 0
    pending_visibility: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """One Kafka transaction in the cut index.

    Attributes:
        commit_lsn: of the last source transaction in the log, or of the one that is spread.
        tables: ``schema.table`` -> complete or snapshotting, in full maps and when it changed.
        changed: ``topic-partition`` -> [next offset, cumulative record count, rolling hash]. The next offset is
            the one after the last record of this or an earlier transaction; counts include tombstones; the hash is
            `cdc.publish.ledger.roll` over all records of the partition since its count began.
        full: `changed` has every partition, also those that this transaction did not change, and those of tables that
            are no longer captured, until their topic is deleted. A count that is left out would start again when its
            table returns, and no reader could distinguish that from continuing. Earlier versions left them out; their
            counts continued in the same run, and started again in a later one.
        since_lsn: with `full`, where the counts began (0: with the log).
    """

    version: int = CUT_VERSION
    epoch: int
    end_lsn: int
    commit_lsn: int = 0
    next_ordinal: int = 0
    verified_lsn: int = 0
    full: bool = False
    since_lsn: int = 0
    tables: dict[str, str] = {}
    changed: dict[str, tuple[int, int, Rolling]]


class SchemaColumn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A column: PostgreSQL's type by name, oid and modifier, and its encoding in JSON.

    `fields` are those of a nested document in a published view; its `type` is ``record``, or ``record[]`` for an array.
    `kind` is ``enum`` for an enum; records of older releases lack it.
    """

    name: str
    type: str
    type_oid: int
    type_modifier: int
    encoding: str
    key: bool
    fields: tuple[SchemaColumn, ...] = ()
    kind: str = ""


class KeyColumn(NamedTuple):
    """A key column: its type by name, and its encoding in JSON.

    `width` is the part of the type modifier that affects the encoding: the scale of numeric, the length of bpchar and
    bit; -1 if unlimited, 0 for other types.
    """

    name: str
    type: str
    encoding: str
    width: int = 0

    def written_as(self, other: KeyColumn) -> bool:
        """Return whether every value has the same JSON in both."""
        if self.encoding != other.encoding:
            return False
        if self.encoding in _ONE_TEXT or {self.type, other.type} <= _TEXTS:
            return True
        return (self.type, self.width) == (other.type, other.width)


_ONE_TEXT = frozenset(
    {"boolean", "integer", "integer_string", "uuid", "date", "epoch_days", "timestamp", "timestamp_utc", "epoch_micros"}
)
"""Encodings that do not depend on the type: int4 and int8, or a domain over them, have the same JSON."""
_TEXTS = frozenset({"text", "varchar"})


def key_width(type_name: str, modifier: int) -> int:
    """Return `KeyColumn.width` for a type modifier."""
    if type_name == "numeric":
        # https://www.postgresql.org/docs/18/datatype-numeric.html: 4 + (precision << 16 | scale in 11 bits, signed).
        scale = (modifier - 4) & 0x7FF
        return -1 if modifier < 0 else scale - 0x800 if scale & 0x400 else scale
    return modifier if type_name in {"bpchar", "bit"} else 0


KeyForm: TypeAlias = tuple[KeyColumn, ...]
"""The form of a table's keys; empty for a table without a key."""


class AvroSchemas(NamedTuple):
    """The schemas of a topic's keys and values as JSON texts; `key` is None for a table without a key."""

    key: str | None
    value: str


class AvroIds(NamedTuple):
    """The ids of these schemas in the registry."""

    key: int | None
    value: int


class TopicForm(NamedTuple):
    """The properties of a data topic's records that must not change.

    `key_id` is the registry's id of the key schema in Avro, which is part of the key bytes.
    """

    key: KeyForm
    format: str = "json"
    key_id: int | None = None


class SchemaKey(msgspec.Struct, frozen=True):
    """Key of a schema record."""

    table: str
    schema_id: str


class SchemaRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The schema that `source.schema_id` of a row refers to; it is in the log no later than the first such row.

    `lsn` is where it was first needed, or where capture started. `format` is `encode.format` of the rows, left out for
    ``json``. `registered` has the registry's ids of key and value schema, in Avro. `left_out` has the generated columns
    that the table had at that time and that PostgreSQL does not send. `version` is left out for 1.
    """

    table: str
    topic: str
    schema_id: str
    epoch: int
    lsn: int
    replica_identity: str
    key: tuple[str, ...]
    columns: tuple[SchemaColumn, ...]
    format: str = "json"
    registered: AvroIds | None = None
    left_out: tuple[str, ...] = ()
    version: int = 1

    @property
    def key_form(self) -> KeyForm:
        """The key columns, in the order of the table."""
        return tuple(
            KeyColumn(column.name, column.type, column.encoding, key_width(column.type, column.type_modifier))
            for column in self.columns
            if column.key
        )

    @property
    def form(self) -> TopicForm:
        """The properties that later records of the topic must share."""
        return TopicForm(self.key_form, self.format, self.registered.key if self.registered else None)
