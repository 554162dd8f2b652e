"""The world of one simulated history: a clock, random choices, and crash points at every call of an edge.

`edge` wraps the methods of an object's Protocol, found by reflection, so a new method has crash points at once. Each
point has a label, ``Producer.commit/before`` or ``/after``. An action that is armed there runs when a process passes.
"""

from __future__ import annotations

import inspect
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal, Protocol

from cdc.capture.table_planner import Catalog
from cdc.clock import Clock
from cdc.contracts import ReplicationStream
from cdc.errors import BrokerUnreachable, OutcomeUnknown, SourceUnreachable, TailraceError
from cdc.lsn import Lsn
from cdc.progress.restore import TopicReader
from cdc.publish.publisher import Producer
from cdc.publish.topic_setup import TopicDirectory
from cdc.replication.key_read import ReadRequest, ReadResult
from cdc.replication.slot import SlotFacts
from cdc.startup.slot_setup import SourceServer
from tests.fixtures.servers.manual_clock import ManualClock


class Looks(Protocol):
    """The connection of `cdc.replication.catalog_watch.CatalogWatch`."""

    def execute(self, statement: str, names: object = None) -> Any:
        """Run one statement."""


class KeyReads(Protocol):
    """`cdc.replication.reselect.Read`, which is a function."""

    def read(self, asks: list[ReadRequest], xids: frozenset[int]) -> list[ReadResult]:
        """Read rows by their keys."""


class Opens(Protocol):
    """START_REPLICATION; `cdc.startup.claim_log.StartConnections.stream`, which is a function."""

    def open(self, at: Lsn, slot: SlotFacts) -> Any:
        """Open the stream of the slot at a position."""


EDGES: Final[tuple[type, ...]] = (
    ReplicationStream,
    Producer,
    TopicReader,
    TopicDirectory,
    SourceServer,
    Catalog,
    Clock,
    Opens,
    Looks,
    KeyReads,
)
"""Every contract with a server or with time behind it. A process may die before and after each call."""

Side = Literal["before", "after"]


class Crash(BaseException):
    """kill -9: the process does nothing more, not even `finally` and `except`."""


class Violation(BaseException):
    """An obligation of docs/internals/faults.md does not hold. Not an Exception, so that no handler swallows it."""

    def __init__(self, obligation: str, what: str) -> None:
        super().__init__(obligation, what)
        self.obligation = obligation
        self.what = what

    def __str__(self) -> str:
        return f"{self.obligation}: {self.what}"


class Process(Protocol):
    """A process that passes points."""

    dead: bool

    def die(self) -> None:
        """Be killed; the machine closes everything that it had open."""


@dataclass(slots=True)
class Armed:
    """An action at a point, after it was passed a number of times more."""

    act: Callable[[Process, str], None]
    left: int = 0


@dataclass(slots=True)
class World:
    """One history. All chance comes from `dice`.

    Attributes:
        passed: how often each point was passed.
        crashed: how often a process was killed there.
        seen: how often each kind of fault happened.
        meanwhile: called every now and then between two calls of a process: the rest of the world goes on.
        trace: every point that was passed, if the caller wants a trace.
        script: actions by the number of the point, counted over the whole history.
    """

    dice: random.Random
    clock: ManualClock = field(default_factory=ManualClock)
    passed: Counter[str] = field(default_factory=Counter)
    crashed: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    armed: dict[str, Armed] = field(default_factory=dict)
    script: dict[int, Callable[[Process, str], None]] = field(default_factory=dict)
    points: int = 0
    meanwhile: Callable[[], None] = lambda: None
    violation: Violation | None = None
    trace: list[str] | None = None

    def violate(self, obligation: str, what: str) -> None:
        """Record a violation and raise it."""
        self.violation = self.violation or Violation(obligation, what)
        raise self.violation

    def arm(self, label: str, act: Callable[[Process, str], None]) -> None:
        """Arm an action for the next, second or third time that a process passes a point."""
        self.armed[label] = Armed(act, self.dice.choice((0, 0, 1, 2)))

    def pass_(self, process: Process, label: str) -> None:
        """Pass a point, and run the action that is armed there."""
        if process.dead:
            raise Crash
        self.points += 1
        self.passed[label] += 1
        if self.trace is not None:
            self.trace.append(label)
        if self.points % 23 == 0:
            self.meanwhile()
        act = self.script.pop(self.points, None)
        if act is not None:
            act(process, label)
        armed = self.armed.get(label)
        if armed is not None:
            armed.left -= 1
            if armed.left < 0:
                del self.armed[label]
                armed.act(process, label)
        if process.dead:
            raise Crash

    def kill(self, process: Process, label: str) -> None:
        """Kill the process here."""
        self.crashed[label] += 1
        process.die()

    def fail(self, process: Process, label: str) -> None:
        """Let the call fail: ``before`` it does anything, or ``after``, so that only the answer is lost."""
        self.seen[f"{label.partition('/')[2]} a failed call"] += 1
        raise failure_of(label)


def failure_of(label: str) -> TailraceError:
    """Return the error that a caller gets from a broken connection."""
    call = label.partition("/")[0]
    kind = call.partition(".")[0]
    if call == "Producer.commit":
        return OutcomeUnknown("no answer to the commit")
    if kind in {"Producer", "TopicReader", "TopicDirectory"}:
        return BrokerUnreachable(f"no answer to {call}")
    return SourceUnreachable(f"no answer to {call}")


def methods(contract: type) -> list[str]:
    """Return the public methods of a Protocol, inherited ones included."""
    return sorted(name for name, _ in inspect.getmembers(contract, inspect.isfunction) if not name.startswith("_"))


def labels(*, failing: bool = False) -> list[str]:
    """Return every point; with `failing`, only those of calls that can fail."""
    calls = [f"{contract.__name__}.{name}" for contract in EDGES for name in methods(contract)]
    return [f"{call}/{side}" for call in calls if not (failing and never_fails(call)) for side in ("before", "after")]


def never_fails(call: str) -> bool:
    """Whether a call cannot fail: reading the clock, and closing a producer, which waits for nothing."""
    return call.startswith("Clock.") or call == "Producer.close"


def edge(contract: type, target: object, world: World, process: Process) -> Any:
    """Wrap `target` for a process, with a point before and after each call."""
    return _wrapper(contract)(target, world, process)


class _Edge:
    """Pass attributes that are not methods through."""

    def __init__(self, target: object, world: World, process: Process) -> None:
        self._target, self._world, self._process = target, world, process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


@cache
def _wrapper(contract: type) -> type[_Edge]:
    calls = {name: _call(name, f"{contract.__name__}.{name}") for name in methods(contract)}
    return type(f"{contract.__name__}Edge", (_Edge,), calls)


def _call(name: str, label: str) -> Callable[..., Any]:
    before, after = f"{label}/before", f"{label}/after"

    def call(self: _Edge, *arguments: Any, **named: Any) -> Any:
        self._world.pass_(self._process, before)
        result = getattr(self._target, name)(*arguments, **named)
        if isinstance(result, Iterator):
            result = iter(list(result))
        self._world.pass_(self._process, after)
        return result

    return call
