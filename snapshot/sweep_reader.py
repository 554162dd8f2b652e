"""The thread that reads topics for sweeps and offers candidate keys to the merger (`snapshot.sweep`).

It does not query the source: it passes candidates to the merger in pages, and the reader threads look them up. Its
errors end capture through `check`; the next start begins the sweep again.
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

_POLL_S: Final = 0.05
_CLOSE_S: Final = 2.0  # it may wait for a broker; it no longer changes anything


class CandidateReader(Protocol):
    """Reads the candidate keys of a table's topic; implemented with `cdc.publish.live_keys.StaleKeys`."""

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
    """Runs the sweeps of the merger until closed. The thread raises nothing; see `check`."""

    def __init__(self, handover: HandOver, candidates: CandidateReader, clock: Clock) -> None:
        self._handover = handover
        self._candidates = candidates
        self._clock = clock
        self._stop = threading.Event()
        self._failure: TailraceError | None = None
        self._thread = threading.Thread(target=self._guarded, name="snapshot-sweep", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def check(self) -> None:
        """Raise the error that ended the thread."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop the thread; wait for it at most two seconds."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_S)

    def _guarded(self) -> None:
        try:
            while not self._clock.wait(self._stop, _POLL_S if self._handover.active else IDLE_WAIT_S):
                with self._handover.merging() as merger:
                    due = merger.sweeps.due()
                for table, sweep in due.items():
                    self._sweep(table, sweep)
        except TailraceError as error:
            self._failure = error
        except Exception as error:
            self._failure = InvariantError(f"the sweep thread failed: {error!r}")
            raise

    def _sweep(self, table: str, sweep: Sweep) -> None:
        def streamed() -> set[bytes] | None:
            with self._handover.merging() as merger:
                return None if self._stop.is_set() or not merger.sweeps.going_on(table, sweep) else sweep.take_noted()

        assert sweep.until is not None
        count = 0
        with self._candidates(table, sweep.marks, sweep.until, streamed, sweep.among) as pages:
            for keys, left in pages:
                count += len(keys)
                with self._handover.merging():
                    sweep.offer(keys, left)
                if not self._wait_until_judged(table, sweep):
                    break
        if self._stop.is_set():
            return
        with self._handover.merging() as merger:
            if sweep.lost:
                merger.sweeps.begin_again(table, sweep)
            else:
                merger.sweeps.end(table, sweep)
        if sweep.done:
            log.get().info("snapshot_swept", table=table, keys_looked_for=count)

    def _wait_until_judged(self, table: str, sweep: Sweep) -> bool:
        """Wait until the reader threads have looked up the offered keys; return False if the sweep is over."""
        while not self._clock.wait(self._stop, _POLL_S):
            with self._handover.merging() as merger:
                if not merger.sweeps.going_on(table, sweep):
                    return False
                if not sweep.keys and not sweep.busy:
                    return True
        return False
