"""Event-sourced aggregates: load the state from events, decide a command, append new events.

A JSON Schema validates the shape of a command. Then a function decides it on the current state: it returns events or
raises CommandRefused. If two commands run at the same moment, the store accepts only one append. The other command gets
a ConcurrencyConflict and must be decided again on the new state.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from outbox.db_api import Connection, RowsCursor
from outbox.errors import CommandRefused, ConcurrencyConflict, EventMissing
from outbox.event import Event, json_text
from outbox.event_store import EventStore, Snapshot
from outbox.upcast import Upcasters

S = TypeVar("S")

_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.05  # maximum pause, multiplied by the number of the attempt


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """A loaded aggregate.

    Attributes:
        state: the fold of all its events.
        sequence: how many events it has.
        spared: how many of them were not read because a snapshot already included them.
    """

    state: S
    sequence: int
    spared: int


@dataclass(frozen=True, slots=True)
class Happened:
    """An event that a command returns: its type, its payload as a value, and the version of its contract."""

    type: str
    payload: Any
    version: int = 1


Fold = Callable[[Any, Any], Any]
Decide = Callable[[Any, Any], Sequence[Happened]]


class Aggregate(Generic[S]):
    """One type of aggregate. Declare its folds and commands once, at import; then any thread may use it."""

    def __init__(
        self,
        type_: str,
        initial: Callable[[], S],
        store: EventStore | None = None,
        *,
        upcasters: Upcasters | None = None,
        snapshot_every: int = 100,
        state_version: int = 1,
        dump: Callable[[S], Any] = lambda state: state,
        restore: Callable[[Any], S] = lambda kept: kept,
    ) -> None:
        """Declare a type of aggregate.

        Args:
            type_: the aggregate type of its events.
            initial: returns the state before the first event.
            store: the event store.
            upcasters: convert events of old versions, so that folds handle only the newest.
            snapshot_every: save the state every so many events; 0: never.
            state_version: version of the state's format. Saved states of another version are ignored.
            dump: converts the state to a value that JSON can represent.
            restore: converts such a value back to the state.
        """
        self.type = type_
        self._initial = initial
        self._store = store or EventStore()
        self._upcasters = upcasters or Upcasters()
        self._snapshot_every = snapshot_every
        self._state_version = state_version
        self._dump, self._restore = dump, restore
        self._folds: dict[str, Fold] = {}
        self._commands: dict[str, tuple[Decide, Callable[[Any], None]]] = {}

    def fold(self, event_type: str) -> Callable[[Fold], Fold]:
        """Declare the fold of an event type: a pure function ``(state, payload) -> state`` that never refuses."""

        def declare(function: Fold) -> Fold:
            self._folds[event_type] = function
            return function

        return declare

    def command(self, name: str, schema: Mapping[str, Any] | None = None) -> Callable[[Decide], Decide]:
        """Declare a command: a pure function ``(state, command) -> events``, which may raise CommandRefused."""
        validate = _validation(name, schema)

        def declare(function: Decide) -> Decide:
            self._commands[name] = (function, validate)
            return function

        return declare

    def load(self, cursor: RowsCursor, aggregate_id: str) -> Loaded[S]:
        """Load the current state from the newest snapshot and the events after it. Raises EventMissing."""
        kept = self._store.snapshot(cursor, self.type, aggregate_id, self._state_version)
        state, spared = (self._initial(), 0) if kept is None else (self._restore(kept.state), kept.sequence)
        sequence = spared
        for event in self._store.load(cursor, self.type, aggregate_id, after=spared):
            state = self.apply(state, event.type, event.version, event.payload)
            sequence = event.sequence
        return Loaded(state, sequence, spared)

    def apply(self, state: S, event_type: str, version: int, payload: Any) -> S:
        """Return the state after one event of any version. Raises EventMissing if the type has no fold."""
        fold = self._folds.get(event_type)
        if fold is None:
            raise EventMissing(f"aggregate {self.type} has no fold for {event_type}", type=event_type)
        folded: S = fold(state, self._upcasters.cast(self.type, event_type, version, payload))
        return folded

    def handle(self, cursor: RowsCursor, aggregate_id: str, name: str, command: Any) -> Loaded[S]:
        """Load, decide and append in the caller's transaction; return the aggregate with its new events.

        Raises CommandRefused, ConcurrencyConflict, or EventRefused for an event that breaks its contract.
        """
        decide, validate = self._commands[name]
        validate(command)
        before = self.load(cursor, aggregate_id)
        happened = decide(before.state, command)
        events = [
            Event(
                aggregate_type=self.type,
                aggregate_id=aggregate_id,
                type=one.type,
                version=one.version,
                payload=json_text(one.payload),
            )
            for one in happened
        ]
        state = before.state
        for one in happened:
            state = self.apply(state, one.type, one.version, one.payload)
        sequence = self._store.append(cursor, before.sequence, *events)
        if self._snapshot_every and sequence - before.spared >= self._snapshot_every:
            kept = Snapshot(sequence, self._dump(state))
            self._store.keep(cursor, self.type, aggregate_id, kept, self._state_version)
        return Loaded(state, sequence, before.spared)

    def execute(
        self,
        connection: Connection,
        aggregate_id: str,
        name: str,
        command: Any,
        *,
        attempts: int = _ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Loaded[S]:
        """Run `handle` in a transaction of its own, and again after a ConcurrencyConflict.

        Raises CommandRefused, or the last ConcurrencyConflict after `attempts` attempts. The connection must be neither
        in a transaction nor in autocommit mode.
        """
        for attempt in range(1, attempts + 1):
            try:
                loaded = self.handle(connection.cursor(), aggregate_id, name, command)
                connection.commit()
                return loaded
            except ConcurrencyConflict:
                connection.rollback()
                if attempt == attempts:
                    raise
                sleep(random.uniform(0, _PAUSE_S * attempt))  # noqa: S311 - only spreads the retries
            except BaseException:
                with suppress(Exception):  # a broken session cannot be rolled back; the original error matters
                    connection.rollback()
                raise
        raise AssertionError("at least one attempt")


def _validation(name: str, schema: Mapping[str, Any] | None) -> Callable[[Any], None]:
    if schema is None:
        return lambda _: None
    from outbox.json_schema import Validator, strict

    validator = Validator(strict(dict(schema)), f"the schema of command {name}")

    def validate(command: Any) -> None:
        for path, rule in validator.breaches(command, most=1):
            raise CommandRefused(f"command {name} breaks its schema at {path or 'its top level'}: {rule}", path=path)

    return validate
