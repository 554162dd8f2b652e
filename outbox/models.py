"""SQLAlchemy models of the tables; `cdc migrate check` compares them with the migrated database.

Payloads have type json, not jsonb, so that the text is published byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP
from sqlalchemy.types import BigInteger, UserDefinedType

from outbox.table_names import Names

CLOCK: Final = text("clock_timestamp()")


class JsonText(UserDefinedType[str]):
    """A json column that is written and read as text, so that no parser changes it."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Return the type's name in DDL."""
        return "JSON"

    def bind_expression(self, bindvalue: Any) -> Any:
        """Cast the text to json."""
        from sqlalchemy import cast

        return cast(cast(bindvalue, Text), self)

    def column_expression(self, colexpr: Any) -> Any:
        """Read the column as text."""
        from sqlalchemy import cast

        return cast(colexpr, Text)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one schema, and their metadata."""

    metadata: MetaData
    outbox: Table
    inbox: Table
    heartbeat: Table
    event_store: Table
    snapshot: Table
    dead_letter: Table


def tables(names: Names | None = None, *, partitioned: bool = False) -> Tables:
    """Return the tables under these names; `partitioned`: with an outbox partitioned by `created_at`."""
    given = names or Names()
    metadata = MetaData(schema=given.schema)
    return Tables(
        metadata,
        _outbox(metadata, given.outbox, partitioned=partitioned),
        _inbox(metadata, given.inbox),
        _heartbeat(metadata, given.heartbeat),
        _event_store(metadata, given.event_store),
        _snapshot(metadata, given.snapshot),
        _dead_letter(metadata, given.dead_letter),
    )


def _outbox(metadata: MetaData, name: str, *, partitioned: bool) -> Table:
    key = ("id", "created_at") if partitioned else ("id",)
    return Table(
        name,
        metadata,
        Column("id", Uuid, nullable=False),
        Column("aggregate_type", Text, nullable=False),
        Column("aggregate_id", Text, nullable=False),
        Column("type", Text, nullable=False),
        Column("version", Integer, nullable=False, server_default=text("1")),
        Column("payload", JsonText, nullable=True),
        Column("payload_bytes", LargeBinary, nullable=True),
        Column("content_type", Text, nullable=False, server_default=text("'application/json'")),
        Column("headers", JSONB, nullable=False, server_default=text("'{}'")),
        Column("ordering_key", Text, nullable=True),
        Column("created_at", TIMESTAMP(timezone=True), nullable=False, server_default=CLOCK),
        PrimaryKeyConstraint(*key, name=f"{name}_pkey"),
        CheckConstraint("payload is null or payload_bytes is null", name=f"{name}_one_payload"),
        postgresql_partition_by="range (created_at)" if partitioned else None,
    )


def _inbox(metadata: MetaData, name: str) -> Table:
    """Ids of the events that a consumer has processed, each written in the transaction of the event's effect."""
    return Table(
        name,
        metadata,
        Column("consumer", Text, nullable=False),
        Column("event_id", Uuid, nullable=False),
        Column("received_at", TIMESTAMP(timezone=True), nullable=False, server_default=CLOCK),
        PrimaryKeyConstraint("consumer", "event_id", name=f"{name}_pkey"),
        # Rows arrive in the order of their time, so a BRIN index finds the old ones with a few pages.
        Index(f"{name}_received_at", "received_at", postgresql_using="brin"),
    )


def _heartbeat(metadata: MetaData, name: str) -> Table:
    """One row per pipeline that writes a heartbeat, so that its slot advances while nothing else changes."""
    return Table(
        name,
        metadata,
        Column("name", Text, nullable=False),
        Column("beat_at", TIMESTAMP(timezone=True), nullable=False, server_default=CLOCK),
        Column("beat_count", BigInteger, nullable=False, server_default=text("1")),
        PrimaryKeyConstraint("name", name=f"{name}_pkey"),
    )


def _event_store(metadata: MetaData, name: str) -> Table:
    """Events of event-sourced aggregates, kept forever. `sequence` counts from 1 within an aggregate, without gaps."""
    return Table(
        name,
        metadata,
        Column("position", BigInteger, Identity(always=True), nullable=False),
        Column("aggregate_type", Text, nullable=False),
        Column("aggregate_id", Text, nullable=False),
        Column("sequence", BigInteger, nullable=False),
        Column("id", Uuid, nullable=False),
        Column("type", Text, nullable=False),
        Column("version", Integer, nullable=False, server_default=text("1")),
        Column("payload", JsonText, nullable=False),
        Column("headers", JSONB, nullable=False, server_default=text("'{}'")),
        Column("created_at", TIMESTAMP(timezone=True), nullable=False, server_default=CLOCK),
        PrimaryKeyConstraint("aggregate_type", "aggregate_id", "sequence", name=f"{name}_pkey"),
        UniqueConstraint("id", name=f"{name}_id_key"),
        UniqueConstraint("position", name=f"{name}_position_key"),
        CheckConstraint("sequence > 0", name=f"{name}_sequence_from_one"),
    )


def _snapshot(metadata: MetaData, name: str) -> Table:
    """Saved states of aggregates, so that loading starts there. Rows may be deleted at any time."""
    return Table(
        name,
        metadata,
        Column("aggregate_type", Text, nullable=False),
        Column("aggregate_id", Text, nullable=False),
        Column("sequence", BigInteger, nullable=False),
        Column("state_version", Integer, nullable=False, server_default=text("1")),
        Column("state", JsonText, nullable=False),
        Column("created_at", TIMESTAMP(timezone=True), nullable=False, server_default=CLOCK),
        PrimaryKeyConstraint("aggregate_type", "aggregate_id", name=f"{name}_pkey"),
    )


def _dead_letter(metadata: MetaData, name: str) -> Table:
    """Records that a consumer could not process, and later ones of the same key behind them, in order."""
    return Table(
        name,
        metadata,
        Column("id", BigInteger, Identity(always=True), nullable=False),
        Column("consumer", Text, nullable=False),
        Column("topic", Text, nullable=False),
        Column("partition", Integer, nullable=False),
        Column("record_offset", BigInteger, nullable=False),
        Column("key", LargeBinary, nullable=False),
        Column("value", LargeBinary, nullable=True),
        Column("headers", JSONB, nullable=False),
        Column("error", Text, nullable=False),
        Column("attempt_count", Integer, nullable=False, server_default=text("0")),
        Column("parked_at", TIMESTAMP(timezone=True), nullable=False, server_default=CLOCK),
        Column("wish", Text, nullable=True),
        PrimaryKeyConstraint("id", name=f"{name}_pkey"),
        UniqueConstraint("consumer", "topic", "partition", "record_offset", name=f"{name}_record_key"),
        CheckConstraint("wish in ('retry', 'skip')", name=f"{name}_wish_known"),
        # Index a hash: a key may be longer than an index entry can be.
        Index(f"{name}_key", "consumer", text("md5(key)"), "id"),
    )
