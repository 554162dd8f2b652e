"""Runs child processes, of sinks beside capture or of several pipelines, and restarts those that end.

No child stops another one. A child that failed is restarted after a growing pause. A sink that needs an operator is
restarted at a slower pace, because only a start can find out whether the operator has acted. A pipeline that needs an
operator is started again only when it is asked for, as a `cdc run` of its own would be. A child is not restarted if it
was stopped in order from outside, or if another process replaced it (FENCED): a restart would take the work back.

The exit code and the reports that a child sends through a pipe (`cdc.model.sink_report`) distinguish these cases. No
child outlives this process: the standard input of each child is a pipe, and the child stops in order when it closes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, Self, TypeAlias

import tenacity

from cdc.clock import Clock
from cdc.errors import EXIT_OK, EXIT_OPERATOR, EXIT_USAGE
from cdc.model.run_state import State
from cdc.model.sink_report import UNKNOWN, SinkReport, needs_operator
from cdc.telemetry import log

END_DEADLINE_S: Final = 60.0
"""From SIGTERM to SIGKILL. A sink first finishes its current cut; an unfinished cut is repeated, nothing is lost."""

RESTART_FIRST_S: Final = 1.0
RESTART_MAX_S: Final = 60.0
"""Longest pause between restarts. A start of a lake costs seconds of two cores, so a failing sink must not loop."""

OPERATOR_FIRST_S: Final = 5.0
"""First pause before the restart of a sink that needs an operator; it grows to RESTART_MAX_S."""

REPAIR_S: Final = 600.0
"""Pause before the restart of a sink in STALE or GAP. Its repair needs a consumer group without members, and a started
worker remains a member for 45 s (`session.timeout.ms`), even if it ends at once."""

HEALTHY_S: Final = 60.0
"""A run of this length resets the restart pauses."""

REPORT_STALE_S: Final = 15.0
"""After this time without a report, the state of a running process is UNKNOWN: it may be frozen."""

_ASKED_EVERY_S: Final = 0.5
_KILLED_S: Final = 10.0  # after SIGKILL, only the kernel still has to act


class Child(Protocol):
    """A child process. Every method is thread-safe."""

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def report(self) -> SinkReport | None:
        """The newest report of the process; None before the first one."""

    def wait(self) -> int:
        """Block until the process ends. Returns its exit code, or the negative number of the signal that ended it."""

    def terminate(self) -> None:
        """Send SIGTERM. Does nothing if the process has ended."""

    def kill(self) -> None:
        """Send SIGKILL. Does nothing if the process has ended."""


Launch: TypeAlias = Callable[[str], Child]
"""Starts the process of a sink. Raises OSError if the machine cannot start a process."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What the children are.

    Attributes:
        word: first word of log events, and the field that names the child.
        command: shows the state of the child `{}`.
        comes_back: a child that needs an operator is restarted at a slow pace; else it is started when asked for.
        needs: what to do for a child that needs an operator.
        again: how a child that was stopped from outside starts again.
    """

    word: str
    command: str
    comes_back: bool
    needs: str
    again: str


SINK: Final = Kind(
    "sink",
    "cdc sink status {}",
    comes_back=True,
    needs="capture continues; repair what the sink reports, then the sink restarts by itself",
    again="restart `cdc run` to start it again",
)
PIPELINE: Final = Kind(
    "pipeline",
    "cdc status --pipeline {}",
    comes_back=False,
    needs="the other pipelines continue; repair what the pipeline reports, then send SIGHUP to start it",
    again="send SIGHUP to start it again",
)


class AfterExit(Enum):
    """What to do with a child whose process has ended."""

    RESTART = "it failed: restart it"
    NEEDS_OPERATOR = "an operator must act: restart it at a slow pace"
    REPLACED = "another process replaced it: do not restart it"
    STOPPED = "it was stopped from outside: do not restart it"


def after_exit(exit_code: int, report: SinkReport | None = None) -> AfterExit:
    """Decide by the exit code of `cdc sink run` or `cdc run` and its last report."""
    if exit_code == EXIT_OK:
        return AfterExit.STOPPED
    if exit_code not in {EXIT_OPERATOR, EXIT_USAGE}:
        return AfterExit.RESTART
    return AfterExit.REPLACED if report is not None and report.state == State.FENCED else AfterExit.NEEDS_OPERATOR


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildView:
    """The current state of a child.

    Attributes:
        state: state of the process; UNKNOWN if it runs without a recent report, STUCK if its loop makes no progress.
        pid: process id; None while no process runs.
        restarts: number of starts after the first one.
        report: the newest report, also of a process that has ended.
        report_age_s: age of the report in seconds; None without a report.
        exit_code: exit code of the process that ended last.
        next_start_s: seconds until the restart; None if the process runs or is not restarted.
    """

    name: str
    state: str
    pid: int | None
    restarts: int
    report: SinkReport | None
    report_age_s: float | None
    exit_code: int | None
    next_start_s: float | None

    def document(self) -> dict[str, Any]:
        """Return the JSON object of /status. Its keys are part of the public interface."""
        report = self.report
        return {
            "state": self.state,
            "reason": report.reason if report else "",
            "pid": self.pid,
            "restarts": self.restarts,
            "lag_records": report.lag_records if report else None,
            "lag_seconds": report.lag_seconds if report else None,
            "records": report.records if report else None,
            "behind_bytes": report.behind_bytes if report else None,
            "behind_seconds": report.behind_s if report else None,
            "cut": report.cut if report else None,
            "report_age_seconds": None if self.report_age_s is None else round(self.report_age_s, 1),
            "exit_code": self.exit_code,
            "next_start_seconds": None if self.next_start_s is None else round(self.next_start_s, 1),
            "error": report.error if report else None,
        }


class Keeper:
    """Keeps one child running, in the thread that calls `run`. Call the other methods from any thread."""

    def __init__(self, name: str, launch: Launch, clock: Clock, stop: threading.Event, kind: Kind = SINK) -> None:
        self.name = name
        self._kind = kind
        self._asked = threading.Event()
        self._launch = launch
        self._clock = clock
        self._stop = stop
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._report: SinkReport | None = None
        self._terminated = False
        self._down = False
        self._starts = 0
        self._exit_code: int | None = None
        self._next_s: float | None = None
        self._operator_failures = 0

    def run(self) -> None:
        """Start and restart the process until `stop` is set or no restart is due. The process is gone on return."""
        while not self._stop.is_set():
            self._episode()
            if self._down and self._kind.comes_back:
                return
            while self._down and not self._clock.wait(self._stop, _ASKED_EVERY_S):
                if self._asked.is_set():
                    self._down = False

    @property
    def exit_code(self) -> int | None:
        """The exit code of a child that ended and is not restarted by itself; None for any other."""
        return self._exit_code if self._down else None

    def start_again(self) -> None:
        """Start a child that ended and is not restarted by itself. Does nothing for any other."""
        if self._down:
            self._asked.set()

    def terminate(self) -> None:
        """Send SIGTERM once; a second one would end the process at once. Set `stop` before."""
        with self._lock:
            if self._child is not None and not self._terminated:
                self._terminated = True
                self._child.terminate()

    def kill(self) -> None:
        """Send SIGKILL. Set `stop` before."""
        with self._lock:
            if self._child is not None:
                self._child.kill()

    def view(self) -> ChildView:
        """Return the current state. Thread-safe."""
        with self._lock:
            child, now_s = self._child, self._clock.monotonic_s()
            report = (child.report if child is not None else None) or self._report
            age_s = None if report is None else max(0.0, self._clock.wall_s() - report.at_ms / 1000)
            next_s = None if self._next_s is None or child is not None else max(0.0, self._next_s - now_s)
            return ChildView(
                name=self.name,
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
        """Start with growing pauses, until a run lasts HEALTHY_S or no restart is due."""
        half = {"multiplier": RESTART_FIRST_S / 2, "max": RESTART_MAX_S / 2}
        retrying = tenacity.Retrying(
            # Half of a pause is fixed and half is random, so that sinks that fail together do not restart together.
            wait=tenacity.wait_exponential(**half) + tenacity.wait_random_exponential(**half),
            retry=tenacity.retry_if_result(bool),
            stop=tenacity.stop_when_event_set(self._stop),
            before_sleep=self._log_pause,
            sleep=self._pause,
            retry_error_callback=_stopped,
        )
        retrying(self._failed)

    def _failed(self) -> bool:
        """Run the process once. Returns whether to pause before the next run."""
        began_s = self._clock.monotonic_s()
        self._asked.clear()
        code = self._run_once()
        if code is None:
            return True
        if self._stop.is_set():
            return False
        what = after_exit(code, self._report)
        if what is not AfterExit.NEEDS_OPERATOR:
            self._operator_failures = 0
        if what is AfterExit.RESTART:
            self._log("warning", "ended", **_exit_fields(code))
            return self._clock.monotonic_s() - began_s < HEALTHY_S
        if what is AfterExit.NEEDS_OPERATOR and self._kind.comes_back:
            self._wait_for_operator(code)
            return False
        command, word = self._kind.command.format(self.name), self._kind.word
        if what is AfterExit.NEEDS_OPERATOR:
            self._log("error", "needs_operator", exit_code=code, hint=self._kind.needs, command=command)
        elif what is AfterExit.REPLACED:
            hint = f"another process runs this {word}, so it is not restarted here; stop that process, or remove the "
            self._log(
                "error", "replaced", exit_code=code, hint=f"{hint}{word} from this configuration", command=command
            )
        else:
            self._log("warning", "left", hint=f"a signal stopped it; {self._kind.again}")
        self._down = True
        return False

    def _log(self, level: str, event: str, **fields: object) -> None:
        say = getattr(log.get(), level)
        say(f"{self._kind.word}_{event}", **{self._kind.word: self.name}, **fields)

    def _wait_for_operator(self, code: int) -> None:
        """Pause, then restart: the operator may have repaired a right, a setting, a topic or the space of a store."""
        self._operator_failures += 1
        pause_s = min(RESTART_MAX_S, OPERATOR_FIRST_S * 2.0 ** min(self._operator_failures - 1, 10))
        if self._report is not None and self._report.state in {State.STALE, State.GAP}:
            pause_s = REPAIR_S
        self._log(
            "error",
            "needs_operator",
            exit_code=code,
            failures=self._operator_failures,
            again_in_s=pause_s,
            hint=self._kind.needs,
            command=self._kind.command.format(self.name),
        )
        self._pause(pause_s)

    def _run_once(self) -> int | None:
        """Start the process and return its exit code when it ends; None if it could not be started."""
        with self._lock:
            if self._stop.is_set():
                return EXIT_OK
            try:
                child = self._child = self._launch(self.name)
                self._starts += 1
            except OSError as error:
                self._log("warning", "not_started", reason=error.strerror)
                return None
        self._log("info", "started", pid=child.pid)
        code = child.wait()
        with self._lock:
            self._child, self._report, self._exit_code = None, child.report, code
        return code

    def _log_pause(self, state: tenacity.RetryCallState) -> None:
        seconds = state.next_action.sleep if state.next_action else 0.0
        self._log("info", "restarts", failures=state.attempt_number, after_s=round(seconds, 1))

    def _pause(self, seconds: float) -> None:
        self._next_s = self._clock.monotonic_s() + seconds
        self._clock.wait(self._stop, seconds)


class Supervisor:
    """Keeps all children running. Call `start` once; `close` is thread-safe and repeatable."""

    def __init__(
        self,
        names: Iterable[str],
        launch: Launch,
        clock: Clock,
        *,
        kind: Kind = SINK,
        end_deadline_s: float = END_DEADLINE_S,
    ) -> None:
        self._clock = clock
        self._stop = threading.Event()
        self._end_deadline_s = end_deadline_s
        self._word = kind.word
        self._keepers = [Keeper(name, launch, clock, self._stop, kind) for name in sorted(names)]
        self._threads = [
            threading.Thread(target=keeper.run, name=f"{kind.word}-{keeper.name}", daemon=True)
            for keeper in self._keepers
        ]

    def start(self) -> None:
        """Start every child. Returns immediately."""
        for thread in self._threads:
            thread.start()

    def views(self) -> list[ChildView]:
        """Return the current state of each child."""
        return [keeper.view() for keeper in self._keepers]

    def start_again(self) -> None:
        """Start the children that ended and are not restarted by themselves."""
        for keeper in self._keepers:
            keeper.start_again()

    def exit_codes(self) -> list[int] | None:
        """Return the exit codes once no child runs and none is restarted by itself; None before."""
        codes = [keeper.exit_code for keeper in self._keepers]
        return None if None in codes else [code for code in codes if code is not None]

    def close(self) -> None:
        """Stop every child with SIGTERM, and with SIGKILL at the deadline."""
        self._stop.set()
        for keeper in self._keepers:
            keeper.terminate()
        ends_s = self._clock.monotonic_s() + self._end_deadline_s
        for keeper, thread in zip(self._keepers, self._threads, strict=True):
            thread.join(max(0.0, ends_s - self._clock.monotonic_s()))
            if thread.is_alive():
                fields = {self._word: keeper.name}
                log.get().warning(f"{self._word}_killed", after_s=self._end_deadline_s, **fields)
                keeper.kill()
                thread.join(_KILLED_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stopped(_: tenacity.RetryCallState) -> None:
    """Return when `stop` is set during a pause."""


def _exit_fields(code: int) -> dict[str, int]:
    return {"signal": -code} if code < 0 else {"exit_code": code}
