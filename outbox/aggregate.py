"""Aggregates whose state is the fold of their events: load, decide, append. Over `outbox.event_store`.

A command is validated before anything comes of it: its shape by a JSON Schema, then against the state by a function
that returns events or raises CommandRefused. Two commands at the same moment cannot both be right: the second one meets
a ConcurrencyConflict, is decided anew on the state that the first one left, and is refused or goes on from there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from outbox.errors import CommandRefused, ConcurrencyConflict, EventMissing
from outbox.event import Event, json_text
from outbox.event_store import EventStore, Snapshot, StoreCursor
from outbox.upcast import Upcasters

S = TypeVar("S")

_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.05  # at most, times the number of the attempt


class Connection(Protocol):
    """What is needed of a DB-API connection, not in autocommit."""

    def cursor(self) -> Any:
        """A cursor of its transaction."""

    def commit(self) -> None:
        """End the transaction."""

    def rollback(self) -> None:
        """Undo it."""


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """An aggregate as it is: its state, how many events it has, and how many of them a snapshot spared."""

    state: S
    sequence: int
    spared: int


@dataclass(frozen=True, slots=True)
class Happened:
    """An event that a command leads to: its type, its payload as a value, and the version of its contract."""

    type: str
    payload: Any
    version: int = 1


Fold = Callable[[Any, Any], Any]
Decide = Callable[[Any, Any], Sequence[Happened]]


class Aggregate(Generic[S]):
    """A kind of aggregate. Folds and commands are declared once, at import; then any thread may use it."""

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
        """One kind.

        Args:
            type_: the aggregate type of its events.
            initial: the state before the first event.
            store: where events are.
            upcasters: for events of old versions: folds see the newest only.
            snapshot_every: events after which a state is kept; 0: never.
            state_version: of the form of the state; another one makes kept states worthless, so they are passed over.
            dump: the state as a value that JSON has.
            restore: the state of such a value.
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
        """Declare what an event makes of the state: ``(state, payload) -> state``. Pure, and never refuses."""

        def declare(function: Fold) -> Fold:
            self._folds[event_type] = function
            return function

        return declare

    def command(self, name: str, schema: Mapping[str, Any] | None = None) -> Callable[[Decide], Decide]:
        """Declare what a command leads to: ``(state, command) -> events``; raises CommandRefused. Pure."""
        validate = _validation(name, schema)

        def declare(function: Decide) -> Decide:
            self._commands[name] = (function, validate)
            return function

        return declare

    def load(self, cursor: StoreCursor, aggregate_id: str) -> Loaded[S]:
        """The state now: a snapshot, if there is one, and what came after. Raises EventMissing."""
        kept = self._store.snapshot(cursor, self.type, aggregate_id, self._state_version)
        state, spared = (self._initial(), 0) if kept is None else (self._restore(kept.state), kept.sequence)
        sequence = spared
        for event in self._store.load(cursor, self.type, aggregate_id, after=spared):
            state = self.apply(state, event.type, event.version, event.payload)
            sequence = event.sequence
        return Loaded(state, sequence, spared)

    def apply(self, state: S, event_type: str, version: int, payload: Any) -> S:
        """The state after one event, of whatever version. Raises EventMissing for a type that has no fold."""
        fold = self._folds.get(event_type)
        if fold is None:
            raise EventMissing(f"aggregate {self.type} has no fold for {event_type}", type=event_type)
        folded: S = fold(state, self._upcasters.cast(self.type, event_type, version, payload))
        return folded

    def handle(self, cursor: StoreCursor, aggregate_id: str, name: str, command: Any) -> Loaded[S]:
        """Load, decide, append, in the caller's transaction; returns the aggregate after it.

        Raises CommandRefused, ConcurrencyConflict, and EventRefused for an event that breaks its contract.
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
        """`handle` in a transaction of its own, decided anew after a conflict. Raises CommandRefused, or the last one.

        The connection must not be in a transaction, nor in autocommit.
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
                sleep(random.uniform(0, _PAUSE_S * attempt))  # noqa: S311 - only spreads who tries again
            except BaseException:
                with suppress(Exception):  # a session that broke cannot be rolled back; its own error is the news
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
            raise CommandRefused(f"command {name} is not what it must be at {path or 'its top'}: {rule}", path=path)

    return validate
