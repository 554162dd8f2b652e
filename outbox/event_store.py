"""An event store: events of an aggregate are appended at the version that a command has seen, and loaded in order.

What is appended is written to the outbox in the same statement's transaction, unless that is not wanted, so that the
topic has it, too. Imports neither the service nor a driver. Transactions are the caller's.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

from outbox.errors import ConcurrencyConflict, EventMissing, EventRefused
from outbox.event import Event
from outbox.writer import Writer

SEQUENCE: Final = "sequence"
"""Header of a published event: which one of its aggregate it is, from 1 on."""

_UNIQUE: Final = "23505"
_EVENTS_MAX: Final = 1_000  # of one append: a command that makes more of them is a mistake, or an import


class StoreCursor(Protocol):
    """What is needed of a DB-API cursor whose paramstyle is ``format``."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement wrote."""

    def execute(self, operation: Any, parameters: Any, /) -> Any:
        """Run a statement with parameters by position."""

    def fetchall(self) -> Sequence[Any]:
        """All rows of the last statement."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An event of the store; `payload` is parsed. `sequence` counts from 1 within its aggregate."""

    sequence: int
    id: uuid.UUID
    type: str
    version: int
    payload: Any
    headers: Mapping[str, str]
    created_at: datetime


class Snapshot(NamedTuple):
    """A state that was folded up to an event."""

    sequence: int
    state: Any


@dataclass(frozen=True, slots=True)
class EventStore:
    """Appends and loads. Thread-safe: it has no state.

    Attributes:
        writer: has names, contracts and limits, and writes to the outbox.
        published: False keeps events in the store alone.
    """

    writer: Writer = field(default_factory=Writer)
    published: bool = True

    def append(self, cursor: StoreCursor, expected: int, *events: Event) -> int:
        """Append events of one aggregate that has `expected` events; returns how many it has then.

        Raises ConcurrencyConflict when it has another number: nothing was appended. Its `actual` is None when somebody
        appends at the same moment; the transaction is over then, and has to be rolled back. Raises EventRefused before
        anything is sent.
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

    def version(self, cursor: StoreCursor, aggregate_type: str, aggregate_id: str) -> int:
        """How many events an aggregate has; 0 where it has none."""
        cursor.execute(
            f"select coalesce(max(sequence), 0) from {self._table} "  # noqa: S608 - quoted
            "where aggregate_type = %s and aggregate_id = %s",
            (aggregate_type, aggregate_id),
        )
        return int(cursor.fetchall()[0][0])

    def load(self, cursor: StoreCursor, aggregate_type: str, aggregate_id: str, *, after: int = 0) -> list[Stored]:
        """Its events after the first `after`, in order. Raises EventMissing when one of them is not there."""
        cursor.execute(
            "select sequence, id, type, version, cast(payload as text), headers, created_at "  # noqa: S608 - quoted
            f"from {self._table} where aggregate_type = %s and aggregate_id = %s and sequence > %s order by sequence",
            (aggregate_type, aggregate_id, after),
        )
        found = [_stored(row) for row in cursor.fetchall()]
        for number, event in enumerate(found, after + 1):
            if event.sequence != number:
                raise EventMissing(
                    f"event {number} of an aggregate of type {aggregate_type} is not in the store",
                    hint="rows were deleted by hand: restore them, the aggregate cannot be folded without them",
                    sequence=number,
                )
        return found

    def snapshot(
        self, cursor: StoreCursor, aggregate_type: str, aggregate_id: str, state_version: int
    ) -> Snapshot | None:
        """The state that was kept of an aggregate; None for none, and for one of another form of the state."""
        cursor.execute(
            "select sequence, cast(state as text) from "  # noqa: S608 - quoted
            f"{self.writer.names.qualified(self.writer.names.snapshot)} "
            "where aggregate_type = %s and aggregate_id = %s and state_version = %s",
            (aggregate_type, aggregate_id, state_version),
        )
        rows = cursor.fetchall()
        return Snapshot(int(rows[0][0]), json.loads(rows[0][1])) if rows else None

    def keep(
        self, cursor: StoreCursor, aggregate_type: str, aggregate_id: str, kept: Snapshot, state_version: int
    ) -> None:
        """Keep a state, unless there is a newer one of the same form."""
        table = self.writer.names.qualified(self.writer.names.snapshot)
        cursor.execute(
            f"insert into {table} as there (aggregate_type, aggregate_id, sequence, state_version, state) "  # noqa: S608
            "values (%s, %s, %s, %s, cast(%s as json)) on conflict (aggregate_type, aggregate_id) do update "
            "set sequence = excluded.sequence, state_version = excluded.state_version, state = excluded.state, "
            "created_at = clock_timestamp() where there.state_version <> excluded.state_version "
            "or there.sequence < excluded.sequence",
            (aggregate_type, aggregate_id, kept.sequence, state_version, json.dumps(kept.state)),
        )

    def _insert(self, cursor: StoreCursor, expected: int, events: Sequence[Event]) -> None:
        """Only at the expected version. Who appends at the same moment meets the primary key."""
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
        raise EventRefused(f"an append is of 1 to {_EVENTS_MAX:,} events, at version 0 or above")
    if len({(event.aggregate_type, event.aggregate_id) for event in events}) > 1:
        raise EventRefused("an append is of one aggregate: each has a version of its own")
    if any(event.payload is None for event in events):
        raise EventRefused("an event of the store has a payload in JSON: states are folded from it")


def _conflict(event: Event, expected: int, actual: int | None) -> ConcurrencyConflict:
    there = "somebody appends to it at the same moment" if actual is None else f"it has {actual} by now"
    return ConcurrencyConflict(
        f"an aggregate of type {event.aggregate_type} was to have {expected} events; {there}",
        expected=expected,
        actual=actual,
        hint="load it again, and decide anew: Aggregate.execute does",
        aggregate_type=event.aggregate_type,
    )


def _stored(row: Sequence[Any]) -> Stored:
    sequence, id_, type_, version, payload, headers, created_at = row
    told = json.loads(headers) if isinstance(headers, str | bytes) else headers
    of = id_ if isinstance(id_, uuid.UUID) else uuid.UUID(str(id_))
    return Stored(int(sequence), of, type_, version, json.loads(payload), told, created_at)
