"""Runs every sink of one machine beside capture, each in a process of its own (DESIGN section 2).

A sink never stops capture, and a sink that ended is started again: after a growing pause when it failed, at a slower
pace when an operator must act, because only another start can find out that the operator has acted. Two ends are for
good: another process ended the sink in order, or took its place (FENCED), and a start would take it back.

The exit code tells these apart, and the reports that a sink sends through a pipe (`cdc.model.sink_report`). No child
outlives this process: each has a pipe as its standard input, and stops in order when that ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeAlias

import tenacity

from cdc.clock import Clock
from cdc.errors import EXIT_OK, EXIT_OPERATOR, EXIT_USAGE
from cdc.model.run_state import State
from cdc.model.sink_report import UNKNOWN, SinkReport, decode, needs_operator
from cdc.telemetry import log

END_DEADLINE_S: Final = 60.0
"""From SIGTERM to SIGKILL: a cut under way is finished first. A cut that is not is done again, nothing is lost."""

RESTART_FIRST_S: Final = 1.0
RESTART_MAX_S: Final = 60.0
"""A start costs a JVM, some seconds of two cores: what fails at once must not eat the machine."""

OPERATOR_FIRST_S: Final = 5.0
"""Pause before a sink that needs an operator is started again; it grows to RESTART_MAX_S."""

REPAIR_S: Final = 600.0
"""Pause of a sink that is STALE or GAP. Its repair needs a consumer group without members, and a worker that starts is
a member for 45 s (`session.timeout.ms`), also when it ends at once."""

HEALTHY_S: Final = 60.0
"""A run this long was a good one: its end is the first failure again."""

REPORT_STALE_S: Final = 15.0
"""Without a report for this long, nothing is known of a process that runs: it may be frozen."""

_LAST_REPORT_S: Final = 2.0  # for what a process that has ended left in its pipe
_KILLED_S: Final = 10.0  # after SIGKILL only the kernel is left to act


class Child(Protocol):
    """A process of ours. Each method may be called from any thread."""

    @property
    def pid(self) -> int:
        """Its number."""

    @property
    def report(self) -> SinkReport | None:
        """The newest report that it sent; None: none yet."""

    def wait(self) -> int:
        """Block until it has ended; its exit code, or the negative number of the signal that ended it."""

    def terminate(self) -> None:
        """Ask it to end in order; nothing when it has ended."""

    def kill(self) -> None:
        """End it now; nothing when it has ended."""


Launch: TypeAlias = Callable[[str], Child]
"""Starts the process of a sink. Raises OSError when the machine has no room for one."""


class AfterExit(Enum):
    """What becomes of a sink whose process has ended."""

    AGAIN = "it failed: start it again"
    PERSON = "an operator must act: start it again at a slow pace"
    REPLACED = "another process took its place: leave it to that one"
    DONE = "another process asked it to end"


def after_exit(exit_code: int, report: SinkReport | None = None) -> AfterExit:
    """From the exit code of `cdc sink run` and its last report."""
    if exit_code == EXIT_OK:
        return AfterExit.DONE
    if exit_code not in {EXIT_OPERATOR, EXIT_USAGE}:
        return AfterExit.AGAIN
    return AfterExit.REPLACED if report is not None and report.state == State.FENCED else AfterExit.PERSON


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkView:
    """What is known of a sink now.

    Attributes:
        state: of its process; UNKNOWN when that runs and has not reported lately, STUCK when its loop stands still.
        pid: None while no process runs.
        restarts: starts after the first one.
        report: the newest one, also of a process that has ended.
        report_age_s: None: there is no report.
        exit_code: of the process that ended last.
        next_start_s: until it is started again; None: it runs, or stays down.
    """

    sink: str
    state: str
    pid: int | None
    restarts: int
    report: SinkReport | None
    report_age_s: float | None
    exit_code: int | None
    next_start_s: float | None

    def document(self) -> dict[str, Any]:
        """For /status. Keys are part of the interface."""
        report = self.report
        return {
            "state": self.state,
            "reason": report.reason if report else "",
            "pid": self.pid,
            "restarts": self.restarts,
            "lag_records": report.lag_records if report else None,
            "lag_seconds": report.lag_seconds if report else None,
            "report_age_seconds": None if self.report_age_s is None else round(self.report_age_s, 1),
            "exit_code": self.exit_code,
            "next_start_seconds": None if self.next_start_s is None else round(self.next_start_s, 1),
            "error": report.error if report else None,
        }


class Keeper:
    """Keeps one sink running, in the thread that calls `run`; the other methods are for other threads."""

    def __init__(self, sink: str, launch: Launch, clock: Clock, stop: threading.Event) -> None:
        self.sink = sink
        self._launch = launch
        self._clock = clock
        self._stop = stop
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._report: SinkReport | None = None
        self._asked = False
        self._down = False
        self._starts = 0
        self._exit_code: int | None = None
        self._next_s: float | None = None
        self._operator_failures = 0

    def run(self) -> None:
        """Start it again and again, until it stays down or `stop`; its process is gone on return."""
        while not (self._down or self._stop.is_set()):
            self._episode()

    def terminate(self) -> None:
        """Ask the process to end, once: a second SIGTERM would end it without order. Set `stop` before."""
        with self._lock:
            if self._child is not None and not self._asked:
                self._asked = True
                self._child.terminate()

    def kill(self) -> None:
        """End the process now. Set `stop` before."""
        with self._lock:
            if self._child is not None:
                self._child.kill()

    def view(self) -> SinkView:
        """What is known now. From any thread."""
        with self._lock:
            child, now_s = self._child, self._clock.monotonic_s()
            report = (child.report if child is not None else None) or self._report
            age_s = None if report is None else max(0.0, self._clock.wall_s() - report.at_ms / 1000)
            next_s = None if self._next_s is None or child is not None else max(0.0, self._next_s - now_s)
            return SinkView(
                sink=self.sink,
                state=self._state(child, age_s),
                pid=None if child is None else child.pid,
                restarts=max(0, self._starts - 1),
                report=report,
                report_age_s=age_s,
                exit_code=self._exit_code,
                next_start_s=next_s,
            )

    def _state(self, child: Child | None, age_s: float | None) -> str:
        if child is None:
            last = self._report.state if self._report is not None and self._report.ended else ""
            if self._exit_code in {EXIT_OPERATOR, EXIT_USAGE}:
                return last if needs_operator(last) else State.MISCONFIGURED.value
            return State.STOPPED.value if self._down or self._exit_code is None else State.WAITING.value
        if child.report is None:
            return State.STARTING.value
        return UNKNOWN if age_s is not None and age_s > REPORT_STALE_S else child.report.shown

    def _episode(self) -> None:
        """Starts with growing pauses, until a run was a good one or there is no other."""
        half = {"multiplier": RESTART_FIRST_S / 2, "max": RESTART_MAX_S / 2}
        retrying = tenacity.Retrying(
            # Half of a pause is certain and half is chance, so that sinks which fail together part.
            wait=tenacity.wait_exponential(**half) + tenacity.wait_random_exponential(**half),
            retry=tenacity.retry_if_result(bool),
            stop=tenacity.stop_when_event_set(self._stop),
            before_sleep=self._tell_pause,
            sleep=self._pause,
            retry_error_callback=_leave_it,
        )
        retrying(self._failed)

    def _failed(self) -> bool:
        """Run the process once; whether a pause is due before the next one."""
        began_s = self._clock.monotonic_s()
        code = self._ended()
        if code is None:
            return True
        if self._stop.is_set():
            return False
        what = after_exit(code, self._report)
        if what is not AfterExit.PERSON:
            self._operator_failures = 0
        match what:
            case AfterExit.AGAIN:
                log.get().warning("sink_ended", sink=self.sink, **_how(code))
                return self._clock.monotonic_s() - began_s < HEALTHY_S
            case AfterExit.PERSON:
                self._wait_for_operator(code)
                return False
            case AfterExit.REPLACED:
                log.get().error(
                    "sink_replaced",
                    sink=self.sink,
                    exit_code=code,
                    hint="another process runs this sink, so it is not started again here; end that process, or take "
                    "the sink out of this configuration",
                    command=f"cdc sink status {self.sink}",
                )
            case AfterExit.DONE:
                log.get().warning(
                    "sink_left", sink=self.sink, hint="a signal ended it; start `cdc run` again to have it back"
                )
        self._down = True
        return False

    def _wait_for_operator(self, code: int) -> None:
        """Pause. What was wrong may be put right from outside: a right, a setting, a topic, room in a store."""
        self._operator_failures += 1
        pause_s = min(RESTART_MAX_S, OPERATOR_FIRST_S * 2.0 ** min(self._operator_failures - 1, 10))
        if self._report is not None and self._report.state in {State.STALE, State.GAP}:
            pause_s = REPAIR_S
        log.get().error(
            "sink_needs_operator",
            sink=self.sink,
            exit_code=code,
            failures=self._operator_failures,
            again_in_s=pause_s,
            hint="capture goes on; repair what the sink reports, and it goes on by itself",
            command=f"cdc sink status {self.sink}",
        )
        self._pause(pause_s)

    def _ended(self) -> int | None:
        """Start the process and wait for its end; None when it could not be started."""
        with self._lock:
            if self._stop.is_set():
                return EXIT_OK
            try:
                child = self._child = self._launch(self.sink)
                self._starts += 1
            except OSError as error:
                log.get().warning("sink_not_started", sink=self.sink, reason=error.strerror)
                return None
        log.get().info("sink_started", sink=self.sink, pid=child.pid)
        code = child.wait()
        with self._lock:
            self._child, self._report, self._exit_code = None, child.report, code
        return code

    def _tell_pause(self, state: tenacity.RetryCallState) -> None:
        seconds = state.next_action.sleep if state.next_action else 0.0
        log.get().info("sink_restarts", sink=self.sink, failures=state.attempt_number, after_s=round(seconds, 1))

    def _pause(self, seconds: float) -> None:
        self._next_s = self._clock.monotonic_s() + seconds
        self._clock.wait(self._stop, seconds)


class Supervisor:
    """All sinks of a configuration. `start` once; `close` may be called again, and from any thread."""

    def __init__(
        self, sinks: Iterable[str], launch: Launch, clock: Clock, *, end_deadline_s: float = END_DEADLINE_S
    ) -> None:
        self._clock = clock
        self._stop = threading.Event()
        self._end_deadline_s = end_deadline_s
        self._keepers = [Keeper(sink, launch, clock, self._stop) for sink in sorted(sinks)]
        self._threads = [
            threading.Thread(target=keeper.run, name=f"sink-{keeper.sink}", daemon=True) for keeper in self._keepers
        ]

    def start(self) -> None:
        """Start every sink; returns at once."""
        for thread in self._threads:
            thread.start()

    def views(self) -> list[SinkView]:
        """What is known of each sink now."""
        return [keeper.view() for keeper in self._keepers]

    def close(self) -> None:
        """End every sink: in order, by force at the deadline."""
        self._stop.set()
        for keeper in self._keepers:
            keeper.terminate()
        ends_s = self._clock.monotonic_s() + self._end_deadline_s
        for keeper, thread in zip(self._keepers, self._threads, strict=True):
            thread.join(max(0.0, ends_s - self._clock.monotonic_s()))
            if thread.is_alive():
                log.get().warning("sink_killed", sink=keeper.sink, after_s=self._end_deadline_s)
                keeper.kill()
                thread.join(_KILLED_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SinkProcess:
    """`cdc sink run` as a child; see `Child`."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], *, reports: bool = True) -> None:
        """Start it. `reports`: the command takes ``--report-fd``."""
        # A group of its own: Ctrl-C in a terminal is for us, and we signal the child. A second signal would end it in
        # the middle of a cut.
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*command, *([] if not reports else ["--report-fd", str(writing)])],
                env=environ,
                stdin=subprocess.PIPE,
                process_group=0,
                pass_fds=(writing,),
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._report: SinkReport | None = None
        self._reader = threading.Thread(target=self._read, args=(reading,), name="sink-reports", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """See `Child`."""
        return self._process.pid

    @property
    def report(self) -> SinkReport | None:
        """See `Child`."""
        return self._report

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb") as lines:
            for line in lines:
                self._report = decode(line) or self._report

    def wait(self) -> int:
        """See `Child`."""
        code = self._process.wait()
        self._reader.join(_LAST_REPORT_S)
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        return code

    def terminate(self) -> None:
        """See `Child`."""
        self._process.terminate()

    def kill(self) -> None:
        """See `Child`."""
        self._process.kill()


def sink_command(sink: str, config: Path, *, json_logs: bool, instance: str = "") -> list[str]:
    """How the process of a sink is started. Under the same `instance` its partitions wait for the next one.

    Without it a group hears of a process that was killed only when its session ends, after 45 s.
    """
    command = [sys.executable, "-m", "cdc", "sink", "run", sink, "-c", str(config), "--until-eof"]
    command += ["--instance", instance] if instance else []
    return [*command, "--json-logs"] if json_logs else command


def _leave_it(_: tenacity.RetryCallState) -> None:
    """Stopped while a pause was due."""


def _how(code: int) -> dict[str, int]:
    return {"signal": -code} if code < 0 else {"exit_code": code}
