"""An event store in PostgreSQL: appends events of an aggregate at an expected version, and loads them in order.

By default an append also writes to the outbox in the same transaction, so that the topic has the events, too. This
module imports neither the service nor a driver. The caller owns the transaction.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from outbox.db_api import RowsCursor
from outbox.errors import ConcurrencyConflict, EventMissing, EventRefused
from outbox.event import Event
from outbox.writer import Writer

SEQUENCE: Final = "sequence"
"""Header of a published event: its number within the aggregate, starting at 1."""

_UNIQUE: Final = "23505"
_EVENTS_MAX: Final = 1_000  # per append; a command with more events is probably a mistake


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored event. `payload` is parsed; `sequence` counts from 1 within the aggregate."""

    sequence: int
    id: uuid.UUID
    type: str
    version: int
    payload: Any
    headers: Mapping[str, str]
    created_at: datetime


class Snapshot(NamedTuple):
    """The state of an aggregate after the event with this sequence number."""

    sequence: int
    state: Any


@dataclass(frozen=True, slots=True)
class EventStore:
    """Appends and loads events. Thread-safe: it has no state.

    Attributes:
        writer: has table names, contracts and limits, and writes to the outbox.
        published: if False, events are only stored and not written to the outbox.
    """

    writer: Writer = field(default_factory=Writer)
    published: bool = True

    def append(self, cursor: RowsCursor, expected: int, *events: Event) -> int:
        """Append events to an aggregate that has `expected` events; return how many it has afterwards.

        Raises:
            ConcurrencyConflict: the aggregate has another number of events, and nothing was appended. If `actual` is
                None, another transaction appended at the same moment, and this one must be rolled back.
            EventRefused: an event is invalid; nothing was sent to the database.
        """
        if not events:
            return expected
        ready = [
            self.writer.checked(replace(event, headers={**event.headers, SEQUENCE: str(expected + number)}))
            for number, event in enumerate(events, 1)
        ]
        _check(ready, expected)
        try:
            self._insert(cursor, expected, ready)
        except Exception as error:
            if str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "") != _UNIQUE:
                raise
            raise _conflict(ready[0], expected, None) from error
        if cursor.rowcount != len(ready):
            raise _conflict(ready[0], expected, self.version(cursor, ready[0].aggregate_type, ready[0].aggregate_id))
        if self.published:
            self.writer.write(cursor, *ready)
        return expected + len(ready)

    def version(self, cursor: RowsCursor, aggregate_type: str, aggregate_id: str) -> int:
        """Return how many events an aggregate has."""
        cursor.execute(
            f"select coalesce(max(sequence), 0) from {self._table} "  # noqa: S608 - quoted
            "where aggregate_type = %s and aggregate_id = %s",
            (aggregate_type, aggregate_id),
        )
        return int(cursor.fetchall()[0][0])

    def load(self, cursor: RowsCursor, aggregate_type: str, aggregate_id: str, *, after: int = 0) -> list[Stored]:
        """Return the events after the first `after`, in order. Raises EventMissing if one is missing."""
        cursor.execute(
            "select sequence, id, type, version, cast(payload as text), headers, created_at "  # noqa: S608 - quoted
            f"from {self._table} where aggregate_type = %s and aggregate_id = %s and sequence > %s order by sequence",
            (aggregate_type, aggregate_id, after),
        )
        found = [_stored(row) for row in cursor.fetchall()]
        for number, event in enumerate(found, after + 1):
            if event.sequence != number:
                raise EventMissing(
                    f"event {number} of an aggregate of type {aggregate_type} is missing in the store",
                    hint="rows were deleted: restore them, the aggregate cannot be folded without them",
                    sequence=number,
                )
        return found

    def snapshot(
        self, cursor: RowsCursor, aggregate_type: str, aggregate_id: str, state_version: int
    ) -> Snapshot | None:
        """Return the saved state of an aggregate; None if there is none with this `state_version`."""
        cursor.execute(
            "select sequence, cast(state as text) from "  # noqa: S608 - quoted
            f"{self.writer.names.qualified(self.writer.names.snapshot)} "
            "where aggregate_type = %s and aggregate_id = %s and state_version = %s",
            (aggregate_type, aggregate_id, state_version),
        )
        rows = cursor.fetchall()
        return Snapshot(int(rows[0][0]), json.loads(rows[0][1])) if rows else None

    def keep(
        self, cursor: RowsCursor, aggregate_type: str, aggregate_id: str, kept: Snapshot, state_version: int
    ) -> None:
        """Save a state, unless a newer one with the same `state_version` exists."""
        table = self.writer.names.qualified(self.writer.names.snapshot)
        cursor.execute(
            f"insert into {table} as there (aggregate_type, aggregate_id, sequence, state_version, state) "  # noqa: S608
            "values (%s, %s, %s, %s, cast(%s as json)) on conflict (aggregate_type, aggregate_id) do update "
            "set sequence = excluded.sequence, state_version = excluded.state_version, state = excluded.state, "
            "created_at = clock_timestamp() where there.state_version <> excluded.state_version "
            "or there.sequence < excluded.sequence",
            (aggregate_type, aggregate_id, kept.sequence, state_version, json.dumps(kept.state)),
        )

    def _insert(self, cursor: RowsCursor, expected: int, events: Sequence[Event]) -> None:
        """Insert the events if the aggregate has the expected version.

        Keep both checks. Without the condition in the statement, an append with too high an expectation would leave a
        gap. Without the primary key, two appends at the same moment would both succeed.
        """
        row = (
            "(cast(%s as text), cast(%s as text), cast(%s as bigint), cast(%s as uuid), cast(%s as text), "
            "cast(%s as int), cast(%s as json), cast(%s as jsonb))"
        )
        values: list[object] = []
        for number, event in enumerate(events, expected + 1):
            values += [
                event.aggregate_type, event.aggregate_id, number, str(event.id), event.type, event.version,
                event.payload, json.dumps(dict(event.headers), ensure_ascii=False),
            ]  # fmt: skip
        first = events[0]
        cursor.execute(
            f"insert into {self._table} "  # noqa: S608 - quoted
            "(aggregate_type, aggregate_id, sequence, id, type, version, payload, headers) "
            f"select * from (values {', '.join([row] * len(events))}) as new where (select coalesce(max(sequence), 0) "
            f"from {self._table} where aggregate_type = %s and aggregate_id = %s) = %s",
            (*values, first.aggregate_type, first.aggregate_id, expected),
        )

    @property
    def _table(self) -> str:
        return self.writer.names.qualified(self.writer.names.event_store)


def _check(events: Sequence[Event], expected: int) -> None:
    if expected < 0 or len(events) > _EVENTS_MAX:
        raise EventRefused(f"expected 1 to {_EVENTS_MAX:,} events and a version of at least 0")
    if len({(event.aggregate_type, event.aggregate_id) for event in events}) > 1:
        raise EventRefused("one append has events of several aggregates; append them separately")
    if any(event.payload is None for event in events):
        raise EventRefused("an event without a JSON payload cannot be stored")


def _conflict(event: Event, expected: int, actual: int | None) -> ConcurrencyConflict:
    found = "another transaction is appending to it" if actual is None else f"it has {actual}"
    return ConcurrencyConflict(
        f"conflict on an aggregate of type {event.aggregate_type}: expected {expected} events; {found}",
        expected=expected,
        actual=actual,
        hint="load it again and decide again, as Aggregate.execute does",
        aggregate_type=event.aggregate_type,
    )


def _stored(row: Sequence[Any]) -> Stored:
    sequence, id_, type_, version, payload, headers, created_at = row
    parsed = json.loads(headers) if isinstance(headers, str | bytes) else headers
    of = id_ if isinstance(id_, uuid.UUID) else uuid.UUID(str(id_))
    return Stored(int(sequence), of, type_, version, json.loads(payload), parsed, created_at)
