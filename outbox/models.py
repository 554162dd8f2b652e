"""The tables as SQLAlchemy sees them; `cdc migrate check` compares them with what the migrations made.

Payloads are of type json, not jsonb: what is published is what was written, to the byte.
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
    """A json column that takes and gives text: nothing is parsed, so nothing is changed."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Its name in DDL."""
        return "JSON"

    def bind_expression(self, bindvalue: Any) -> Any:
        """Text, said to be json."""
        from sqlalchemy import cast

        return cast(cast(bindvalue, Text), self)

    def column_expression(self, colexpr: Any) -> Any:
        """The text as it was written."""
        from sqlalchemy import cast

        return cast(colexpr, Text)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one schema, and the metadata they belong to."""

    metadata: MetaData
    outbox: Table
    inbox: Table
    heartbeat: Table
    event_store: Table
    snapshot: Table
    dead_letter: Table


def tables(names: Names | None = None, *, partitioned: bool = False) -> Tables:
    """The tables under these names; `partitioned`: the outbox by time of writing."""
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
    """Which events a consumer has dealt with; a row is written in the transaction of what the event did."""
    return Table(
        name,
        metadata,
        Column("consumer", Text, nullable=False),
        Column("event_id", Uuid, nullable=False),
        Column("received_at", TIMESTAMP(timezone=True), nullable=False, server_default=CLOCK),
        PrimaryKeyConstraint("consumer", "event_id", name=f"{name}_pkey"),
        # Rows come in the order of their time, so a few pages of it find what is old enough to go.
        Index(f"{name}_received_at", "received_at", postgresql_using="brin"),
    )


def _heartbeat(metadata: MetaData, name: str) -> Table:
    """A row for each capture that writes here so that its slot moves while nothing else changes."""
    return Table(
        name,
        metadata,
        Column("name", Text, nullable=False),
        Column("beat_at", TIMESTAMP(timezone=True), nullable=False, server_default=CLOCK),
        Column("beat_count", BigInteger, nullable=False, server_default=text("1")),
        PrimaryKeyConstraint("name", name=f"{name}_pkey"),
    )


def _event_store(metadata: MetaData, name: str) -> Table:
    """Events of event-sourced aggregates, for ever. `sequence` counts from 1 within an aggregate, without holes."""
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
    """States that were folded up to an event, so that loading begins there. May be deleted at any time."""
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
    """Records that a consumer could not deal with, and those of the same key behind them, in their order."""
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
        # By a hash: a key may be longer than an entry of an index takes.
        Index(f"{name}_key", "consumer", text("md5(key)"), "id"),
    )
