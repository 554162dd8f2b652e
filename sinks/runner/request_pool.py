"""Runs requests to a store in a fixed number of threads; the runner's own thread collects the outcomes.

Knows nothing of keys or partitions. Calls no other method of a store than `Target.apply`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from cdc.errors import InvariantError, TailraceError
from sinks.contract import Change, Outcome
from sinks.runner.key_queues import KeyQueue


class Applying(Protocol):
    """The part of a `Target` that the threads call."""

    def apply(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        """See `sinks.contract.Target`."""


class Answer(NamedTuple):
    """The result of a request: one outcome per key, or an error for all."""

    queues: Sequence[KeyQueue]
    outcomes: Sequence[Outcome]
    error: TailraceError | None


class Pool:
    """`parallel` threads. One thread submits requests and collects answers."""

    def __init__(self, target: Applying, parallel: int, *, name: str) -> None:
        self._target = target
        self._parallel = parallel
        self._asked: queue.SimpleQueue[tuple[Sequence[KeyQueue], Sequence[Change]] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._busy = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{index}", daemon=True) for index in range(parallel)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def busy(self) -> int:
        """Requests whose answers were not collected yet."""
        return self._busy

    @property
    def free(self) -> bool:
        """Whether a thread is free."""
        return self._busy < self._parallel

    def submit(self, queues: Sequence[KeyQueue], changes: Sequence[Change]) -> None:
        """Pass a request to a thread."""
        self._busy += 1
        self._asked.put((queues, changes))

    def collect(self, wait_s: float = 0.0) -> list[Answer]:
        """Return the available answers; wait up to `wait_s` for the first while a request is under way."""
        found: list[Answer] = []
        while self._busy:
            try:
                found.append(self._answers.get(timeout=wait_s) if wait_s and not found else self._answers.get_nowait())
            except queue.Empty:
                break
            self._busy -= 1
        return found

    def close(self) -> None:
        """End the threads after their current requests. May be called twice."""
        for _ in self._threads:
            self._asked.put(None)
        self._threads = []

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            queues, changes = asked
            outcomes: Sequence[Outcome] = ()
            error: TailraceError | None = None
            try:
                outcomes = self._target.apply(changes)
                if len(outcomes) != len(changes):
                    error = InvariantError(f"a store returned {len(outcomes)} outcomes for {len(changes)} changes")
            except TailraceError as raised:
                error = raised
            except Exception as raised:  # noqa: BLE001 - a thread must not end without an answer; the runner raises it
                error = InvariantError(f"a store raised {type(raised).__name__}")
                error.__cause__ = raised
            self._answers.put(Answer(queues, outcomes, error))
