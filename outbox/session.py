"""Writes events with SQLAlchemy: through a Core connection, or through an ORM session when it flushes.

An event that is added to a session is an ordinary object of the session: it is inserted at the flush, in the same
transaction as the other rows, and a rollback removes it with them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, delete, insert
from sqlalchemy import event as hooks
from sqlalchemy.orm import Session, UOWTransaction, registry

from outbox.event import Event
from outbox.models import Tables, tables
from outbox.table_names import Names
from outbox.writer import Writer


class OutboxRow:
    """An event as an object of a session; created by `SessionWriter.add`."""

    id: uuid.UUID
    aggregate_type: str
    aggregate_id: str
    type: str
    version: int
    payload: str | None
    payload_bytes: bytes | None
    content_type: str
    headers: Mapping[str, str]
    ordering_key: str | None
    created_at: datetime

    def __init__(self, event: Event) -> None:
        for name, value in columns_of(event).items():
            setattr(self, name, value)


class SessionWriter:
    """Writes events with SQLAlchemy, after the checks of `outbox.writer.Writer`. Thread-safe; a session is not."""

    def __init__(self, writer: Writer | None = None) -> None:
        """`writer` has the table names, contracts and limits."""
        self.writer = writer or Writer()
        self._tables = tables(self.writer.names)

    def add(self, session: Session, *events: Event) -> None:
        """Add events to the session, which writes them at its next flush in this order. Raises EventRefused at once."""
        mapped = _mapped(self.writer.names)
        ready = [self.writer.checked(event) for event in events]
        session.add_all([mapped(event) for event in ready])
        if not self.writer.keep and not hooks.contains(session, "after_flush", _delete_again):
            hooks.listen(session, "after_flush", _delete_again)

    def write(self, connection: Connection | Session, *events: Event) -> None:
        """Insert events now. Raises EventRefused before anything is sent, or errors of SQLAlchemy."""
        ready = [self.writer.checked(event) for event in events]
        table = self._tables.outbox
        if any(event.created_at is not None for event in ready):
            # A statement has one set of columns, and events must keep their order: use a statement for each.
            for event in ready:
                connection.execute(insert(table), [columns_of(event)])
        elif ready:
            connection.execute(insert(table), [columns_of(event) for event in ready])
        if not self.writer.keep and ready:
            connection.execute(delete(table).where(table.c.id.in_([event.id for event in ready])))


def columns_of(event: Event) -> dict[str, object]:
    """Return the values by column; without `created_at` if the database's clock sets it."""
    values: dict[str, object] = {
        "id": event.id,
        "aggregate_type": event.aggregate_type,
        "aggregate_id": event.aggregate_id,
        "type": event.type,
        "version": event.version,
        "payload": event.payload,
        "payload_bytes": event.payload_bytes,
        "content_type": event.content_type,
        "headers": dict(event.headers),
        "ordering_key": event.ordering_key,
    }
    return values if event.created_at is None else {**values, "created_at": event.created_at}


@cache
def _mapped(names: Names) -> type[OutboxRow]:
    """Return the class that is mapped to the outbox with these names. Cached, because SQLAlchemy keeps it forever."""
    found: Tables = tables(names)
    mapped: type[OutboxRow] = type("OutboxRow", (OutboxRow,), {"__doc__": OutboxRow.__doc__})
    # Do not fetch server defaults: inserts without RETURNING can be batched.
    registry().map_imperatively(mapped, found.outbox, eager_defaults=False)
    return mapped


def _delete_again(session: Session, _: UOWTransaction) -> None:
    """Delete the rows that this flush has inserted; capture reads them from the WAL."""
    for written in session.new:
        if isinstance(written, OutboxRow):
            mapped: Any = type(written)
            session.connection().execute(delete(mapped.__table__).where(mapped.__table__.c.id == written.id))
