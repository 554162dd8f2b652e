"""Writes events with any DB-API cursor, in the open transaction of the application.

This module and what it imports use only the standard library. The writer never commits: events exist if and only if the
business rows of the transaction do. It checks every event before the first statement, so a refused event leaves the
transaction as it was.

An event is a row of the outbox table, or a logical message (``pg_logical_emit_message``). A message needs no table and
leaves nothing to prune, but only capture can read it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

from outbox import trace
from outbox.db_api import Cursor
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
_ROWS_MAX: Final = 500  # per statement: 5,500 parameters; the protocol allows 65,535


class Contracts(Protocol):
    """Checks payloads; implemented by `outbox.event_contracts.Contracts`."""

    def check(self, event: Event) -> None:
        """Raise ContractBroken or ContractUnknown."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes events. Thread-safe: it has no state. The cursor belongs to the caller.

    Attributes:
        names: names of the schema and table.
        contracts: checks payloads; None: no check.
        bytes_max: maximum size of an event.
        traced: add the caller's trace context to the headers, unless the event has its own.
        keep: if False, delete the row again in the same transaction. The table stays empty, and capture reads the
            event from the WAL.
        paramstyle: parameter style of the driver: ``format`` (psycopg, psycopg2, pg8000), ``qmark`` or ``numeric``.
    """

    names: Names = field(default_factory=Names)
    contracts: Contracts | None = None
    bytes_max: int = EVENT_BYTES_MAX
    traced: bool = True
    keep: bool = True
    paramstyle: Paramstyle = "format"

    def checked(self, event: Event) -> Event:
        """Check an event and return it with trace context. Raises the subclass of EventRefused that fits."""
        found = trace.current() if self.traced and "traceparent" not in event.headers else {}
        ready = replace(event, headers={**found, **event.headers}) if found else event
        check_size(ready, self.bytes_max)
        if self.contracts is not None:
            self.contracts.check(ready)
        return ready

    def write(self, cursor: Cursor, *events: Event) -> None:
        """Insert events in this order. Raises EventRefused before anything is sent, or errors of the driver.

        An id that already exists in the table is a unique violation of the driver; see docs/howto/outbox.md.
        """
        ready = [self.checked(event) for event in events]
        for first in range(0, len(ready), _ROWS_MAX):
            self._insert(cursor, ready[first : first + _ROWS_MAX])

    def emit(self, cursor: Cursor, *events: Event) -> None:
        """Write events as transactional logical messages, which a rollback removes. Raises as `write`."""
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
        """Return the placeholder of a value, with a cast so that the type does not depend on the driver."""
        if self.paramstyle == "format":
            return f"cast(%s as {kind})"
        return f"cast({'?' if self.paramstyle == 'qmark' else f':{number}'} as {kind})"


def row_of(event: Event, *, timed: bool = False) -> list[object]:
    """Return the values in the order of the columns; `timed`: including `created_at`."""
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
    """Return an Avro value in the wire format of Confluent's registry: a zero byte, the schema id, the value.

    https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
    """
    if not 0 < schema_id < 1 << 31:
        raise OutboxError("invalid schema id: expected an integer from 1 to 2147483647")
    return b"\0" + schema_id.to_bytes(4, "big") + schemaless
