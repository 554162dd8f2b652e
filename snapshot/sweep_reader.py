"""The thread that reads topics for sweeps: which keys are candidates (`snapshot.sweep`).

It asks the source nothing: candidates are handed to the merger, some at a time, and workers look for them. What it
cannot mend is kept as `failure`, which ends capture by the error's own policy; a sweep is begun anew after that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final, Protocol

from cdc.capture.no_snapshots import IDLE_WAIT_S
from cdc.clock import Clock
from cdc.errors import InvariantError, TailraceError
from cdc.telemetry import log
from snapshot.handover import HandOver
from snapshot.sweep import Bounds, Sweep

_LOOK_S: Final = 0.05
_CLOSE_S: Final = 2.0  # it may wait for a broker that is away, and changes nothing any more


class CandidateReader(Protocol):
    """Who knows the topics; `cdc.publish.live_keys.StaleKeys` does, by the name of a topic."""

    def __call__(
        self,
        table: str,
        marks: tuple[int, ...],
        ends: Bounds,
        streamed: Callable[[], set[bytes] | None],
        among: frozenset[bytes] | None,
    ) -> AbstractContextManager[Iterator[tuple[list[bytes], int]]]:
        """See `cdc.publish.live_keys.StaleKeys.of`."""


class SweepThread:
    """Sweeps what the desk's merger has to be swept, until closed. Nothing raises here; see `check`."""

    def __init__(self, desk: HandOver, stale: CandidateReader, clock: Clock) -> None:
        self._desk = desk
        self._stale = stale
        self._clock = clock
        self._stop = threading.Event()
        self._failure: TailraceError | None = None
        self._thread = threading.Thread(target=self._guarded, name="snapshot-sweep", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def check(self) -> None:
        """Raise what the thread could not mend."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """End the thread, within a moment."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_S)

    def _guarded(self) -> None:
        try:
            while not self._clock.wait(self._stop, _LOOK_S if self._desk.active else IDLE_WAIT_S):
                with self._desk.merging() as merger:
                    due = merger.sweeps.due()
                for table, sweep in due.items():
                    self._sweep(table, sweep)
        except TailraceError as error:
            self._failure = error
        except Exception as error:
            self._failure = InvariantError(f"the thread of sweeps broke: {error!r}")
            raise

    def _sweep(self, table: str, sweep: Sweep) -> None:
        def streamed() -> set[bytes] | None:
            with self._desk.merging() as merger:
                return None if self._stop.is_set() or not merger.sweeps.going_on(table, sweep) else sweep.take_noted()

        assert sweep.until is not None
        count = 0
        with self._stale(table, sweep.marks, sweep.until, streamed, sweep.among) as pages:
            for keys, left in pages:
                count += len(keys)
                with self._desk.merging():
                    sweep.offer(keys, left)
                if not self._wait_until_judged(table, sweep):
                    break
        if self._stop.is_set():
            return
        with self._desk.merging() as merger:
            if sweep.lost:
                merger.sweeps.begin_again(table, sweep)
            else:
                merger.sweeps.end(table, sweep)
        if sweep.done:
            log.get().info("snapshot_swept", table=table, keys_looked_for=count)

    def _wait_until_judged(self, table: str, sweep: Sweep) -> bool:
        """Wait until workers have looked for what was offered; False when the rest need not be offered."""
        while not self._clock.wait(self._stop, _LOOK_S):
            with self._desk.merging() as merger:
                if not merger.sweeps.going_on(table, sweep):
                    return False
                if not sweep.keys and not sweep.busy:
                    return True
        return False
