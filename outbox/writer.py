"""Writes events with any DB-API cursor, in the transaction that the application has open.

Imports neither the service nor a driver nor SQLAlchemy. The writer never commits: events are there when the business
rows beside them are, and a rollback leaves nothing of either. Every check comes before the first statement, so a
refused event leaves the transaction as it was.

Two places: the table, and a logical message (``pg_logical_emit_message``), which needs no table at all and leaves
nothing to prune, but can be seen by nobody but capture.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from outbox import trace
from outbox.errors import OutboxError
from outbox.event import EVENT_BYTES_MAX, MESSAGE_PREFIX, Event, check_size, to_message
from outbox.table_names import Names

Paramstyle = Literal["format", "qmark", "numeric"]

_COLUMNS: Final = (
    ("id", "uuid"),
    ("aggregate_type", "text"),
    ("aggregate_id", "text"),
    ("type", "text"),
    ("version", "int"),
    ("payload", "json"),
    ("payload_bytes", "bytea"),
    ("content_type", "text"),
    ("headers", "jsonb"),
    ("ordering_key", "text"),
)
_ROWS_MAX: Final = 500  # in one statement: 5,500 parameters of the 65,535 that the protocol has


class Cursor(Protocol):
    """What is needed of a DB-API cursor; a psycopg connection has it, too."""

    def execute(self, operation: Any, parameters: Any, /) -> Any:
        """Run a statement with parameters by position."""


class Contracts(Protocol):
    """Who checks payloads: `outbox.event_contracts.Contracts`."""

    def check(self, event: Event) -> None:
        """Raise ContractBroken or ContractUnknown."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes events. Thread-safe: it has no state; the cursor belongs to the caller.

    Attributes:
        names: schema and table.
        contracts: what payloads are checked against; None: nothing.
        bytes_max: how large an event may be.
        traced: take the trace context of the caller into headers, unless the event has its own.
        keep: False deletes the row again in the same transaction: the table stays empty, and capture has the event
            from the WAL all the same.
        paramstyle: of the driver: ``format`` (psycopg, psycopg2, pg8000), ``qmark``, ``numeric``.
    """

    names: Names = field(default_factory=Names)
    contracts: Contracts | None = None
    bytes_max: int = EVENT_BYTES_MAX
    traced: bool = True
    keep: bool = True
    paramstyle: Paramstyle = "format"

    def checked(self, event: Event) -> Event:
        """The event as it is to be written, with trace context. Raises EventRefused by cause."""
        found = trace.current() if self.traced and "traceparent" not in event.headers else {}
        ready = replace(event, headers={**found, **event.headers}) if found else event
        check_size(ready, self.bytes_max)
        if self.contracts is not None:
            self.contracts.check(ready)
        return ready

    def write(self, cursor: Cursor, *events: Event) -> None:
        """Insert events, in this order. Raises EventRefused before anything is sent, and what the driver raises.

        An id that is in the table already is the driver's unique violation; see docs/howto/outbox.md.
        """
        ready = [self.checked(event) for event in events]
        for first in range(0, len(ready), _ROWS_MAX):
            self._insert(cursor, ready[first : first + _ROWS_MAX])

    def emit(self, cursor: Cursor, *events: Event) -> None:
        """As `write`, by logical messages: transactional, so that a rollback leaves nothing."""
        ready = [self.checked(event) for event in events]
        prefix, text = self._place("text", 1), self._place("text", 2)
        statement = f"select pg_catalog.pg_logical_emit_message(true, {prefix}, {text})"
        for event in ready:
            cursor.execute(statement, (MESSAGE_PREFIX, to_message(event)))

    def _insert(self, cursor: Cursor, events: Sequence[Event]) -> None:
        timed = any(event.created_at is not None for event in events)
        columns = [*_COLUMNS, ("created_at", "timestamptz")] if timed else list(_COLUMNS)
        table = self.names.qualified(self.names.outbox)
        rows, values, number = [], [], 0
        for event in events:
            places = []
            for name, kind in columns:
                number += 1
                place = self._place(kind, number)
                places.append(f"coalesce({place}, clock_timestamp())" if name == "created_at" else place)
            rows.append(f"({', '.join(places)})")
            values += row_of(event, timed=timed)
        named = ", ".join(name for name, _ in columns)
        cursor.execute(f"insert into {table} ({named}) values {', '.join(rows)}", tuple(values))  # noqa: S608 - quoted
        if not self.keep:
            ids = ", ".join(self._place("uuid", number) for number in range(1, len(events) + 1))
            statement = f"delete from {table} where id in ({ids})"  # noqa: S608 - quoted
            cursor.execute(statement, tuple(str(event.id) for event in events))

    def _place(self, kind: str, number: int) -> str:
        """Where a value goes; the cast says what it is, whatever a driver makes of its type."""
        if self.paramstyle == "format":
            return f"cast(%s as {kind})"
        return f"cast({'?' if self.paramstyle == 'qmark' else f':{number}'} as {kind})"


def row_of(event: Event, *, timed: bool = False) -> list[object]:
    """Values of the columns, in the order of the table; `timed`: with `created_at`."""
    row: list[object] = [
        str(event.id),
        event.aggregate_type,
        event.aggregate_id,
        event.type,
        event.version,
        event.payload,
        event.payload_bytes,
        event.content_type,
        json.dumps(dict(event.headers), ensure_ascii=False),
        event.ordering_key,
    ]
    return [*row, event.created_at] if timed else row


def avro(schemaless: bytes, schema_id: int) -> bytes:
    """Avro of one value in the frame of Confluent's registry: a zero byte, the schema's id, the value.

    https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
    """
    if not 0 < schema_id < 1 << 31:
        raise OutboxError("a registry's schema id is a whole number from 1 to 2147483647")
    return b"\0" + schema_id.to_bytes(4, "big") + schemaless
