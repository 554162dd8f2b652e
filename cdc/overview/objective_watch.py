"""Measures every second whether the log and the sinks are as fresh as their objectives ask.

It runs in the process of capture, which alone knows how far the log is behind PostgreSQL. The sinks report their own
lag: through pipes if this process supervises them, else through Kafka.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, Self

from cdc.clock import Clock
from cdc.config.objective_settings import Objective
from cdc.config.settings import Config
from cdc.errors import TailraceError
from cdc.model.run_state import State
from cdc.model.sink_report import SinkReport
from cdc.telemetry import log
from cdc.telemetry.capture_status import Status
from cdc.telemetry.freshness import LogLag, Reading, behind_log_s, behind_source_s
from sinks.operate.report_follower import ReportFollower

_EVERY_S: Final = 1.0
_FOLLOW_S: Final = 2.0  # between reads of reports from Kafka
_END_S: Final = 1.0  # a thread that waits for Kafka ends with the process
_HELD: Final = "slot"
"""The reason for which a standby waits: another process captures, and counts."""


class Supervised(Protocol):
    """See `cdc.run.supervisor.ChildView`."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def pid(self) -> int | None: ...  # noqa: D102
    @property
    def report(self) -> SinkReport | None: ...  # noqa: D102
    @property
    def report_age_s(self) -> float | None: ...  # noqa: D102


Readings = Callable[[], Mapping[str, list[Reading]]]


def objectives_of(config: Config) -> dict[str, Objective]:
    """Return the objectives by sink; that of capture has an empty name."""
    found = {name: sink.objective for name, sink in config.sinks.items() if sink.objective is not None}
    return found if config.capture.objective is None else {"": config.capture.objective, **found}


class ObjectiveWatch:
    """A thread that counts. Use it as a context manager. Without objectives it does nothing."""

    def __init__(
        self, config: Config, status: Status, clock: Clock, supervised: Callable[[], Sequence[Supervised]] | None
    ) -> None:
        """`supervised` returns the sinks that this process supervises; None: other processes run them."""
        self._status = status
        self._clock = clock
        self._supervised = supervised
        self._objectives = objectives_of(config)
        self._log = LogLag()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, name="objectives", daemon=True)] if self._objectives else []
        self._followed: Mapping[str, list[SinkReport]] = {}
        self._sinks = sorted(name for name in self._objectives if name)
        if self._sinks and supervised is None:
            self._follower = ReportFollower(config, self._sinks, clock)
            self._threads.append(threading.Thread(target=self._follow, name="sink-reports", daemon=True))
        status.objectives.declare(self._objectives)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_END_S)

    def count(self, took_s: float) -> None:
        """Measure once, and count `took_s` seconds."""
        now_s, state = self._clock.monotonic_s(), self._status.state
        if state is State.WAITING and self._status.reason == _HELD:
            return
        log_s = self._status.behind_s()
        if log_s is not None:
            self._log.add(now_s, log_s)
        found: dict[str, float | None] = {"": log_s}
        readings = self._readings()
        for name in self._sinks:
            behind_s = None if log_s is None else behind_log_s(readings.get(name, []))
            found[name] = behind_source_s(now_s, behind_s, self._log)
        self._status.objectives.counted(now_s, took_s, found)

    def _readings(self) -> Mapping[str, list[Reading]]:
        if self._supervised is not None:
            return {
                view.name: [Reading(view.report, view.report_age_s)]
                for view in self._supervised()
                if view.pid is not None and view.report is not None and view.report_age_s is not None
            }
        now_ms = self._clock.wall_s() * 1000
        return {
            sink: [Reading(one, max(0.0, (now_ms - one.at_ms) / 1000)) for one in reports]
            for sink, reports in self._followed.items()
        }

    def _run(self) -> None:
        before_s = self._clock.monotonic_s()
        while not self._clock.wait(self._stop, _EVERY_S):
            now_s = self._clock.monotonic_s()
            self.count(now_s - before_s)
            before_s = now_s

    def _follow(self) -> None:
        """Read reports until the end. While Kafka does not answer, they age, and the objectives are missed."""
        failing = False
        while not self._stop.is_set():
            try:
                self._followed = self._follower.read()
            except TailraceError as error:
                if not failing:
                    log.get().warning("sink_reports_not_read", **log.error_fields(error))
                failing = True
                self._follower.close()
            else:
                failing = False
            self._clock.wait(self._stop, _FOLLOW_S)
        self._follower.close()
