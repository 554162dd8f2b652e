"""Runs every sink of one machine beside capture, each in a process of its own (DESIGN section 2).

What a child's end means is read from its exit code alone. A sink never stops capture: one that failed is started
again after a growing pause, one that needs a person stays down and is named. No child outlives us: each has a pipe
of ours as its standard input and stops in order when that ends, also when we were killed.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final, Protocol, Self, TypeAlias

import tenacity

from cdc.clock import Clock
from cdc.errors import EXIT_OK, EXIT_OPERATOR, EXIT_USAGE
from cdc.telemetry import log

END_DEADLINE_S: Final = 60.0
"""From SIGTERM to SIGKILL: a cut under way is finished first. A cut that is not is done again, nothing is lost."""

RESTART_FIRST_S: Final = 1.0
RESTART_MAX_S: Final = 60.0
"""A start costs a JVM, some seconds of two cores: what fails at once must not eat the machine."""

HEALTHY_S: Final = 60.0
"""A run this long was a good one: its end is the first failure again."""

_KILLED_S: Final = 10.0  # after SIGKILL only the kernel is left to act


class Child(Protocol):
    """A process of ours. Each method may be called from any thread."""

    @property
    def pid(self) -> int:
        """Its number."""

    def wait(self) -> int:
        """Block until it has ended; its exit code, or the negative number of the signal that ended it."""

    def terminate(self) -> None:
        """Ask it to end in order; nothing when it has ended."""

    def kill(self) -> None:
        """End it now; nothing when it has ended."""


Launch: TypeAlias = Callable[[str], Child]
"""Starts the process of a sink. Raises OSError when the machine has no room for one."""


class Verdict(Enum):
    """What becomes of a sink whose process has ended."""

    AGAIN = "it failed: start it again"
    PERSON = "starting it again would not help: a person must act"
    DONE = "it was asked to end, and not by us"


def verdict(exit_code: int) -> Verdict:
    """From the exit code of `cdc sink run`."""
    if exit_code == EXIT_OK:
        return Verdict.DONE
    return Verdict.PERSON if exit_code in {EXIT_OPERATOR, EXIT_USAGE} else Verdict.AGAIN


class Keeper:
    """Keeps one sink running, in the thread that calls `run`; the other methods are for other threads."""

    def __init__(self, sink: str, launch: Launch, clock: Clock, stop: threading.Event) -> None:
        self.sink = sink
        self._launch = launch
        self._clock = clock
        self._stop = stop
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._asked = False
        self._down = False

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
        match verdict(code):
            case Verdict.AGAIN:
                log.get().warning("sink_ended", sink=self.sink, **_how(code))
                return self._clock.monotonic_s() - began_s < HEALTHY_S
            case Verdict.PERSON:
                log.get().error(
                    "sink_needs_operator",
                    sink=self.sink,
                    exit_code=code,
                    hint="capture goes on; mend what the sink said, then start all anew or run it alone",
                    command=f"cdc sink run {self.sink}",
                )
            case Verdict.DONE:
                log.get().warning("sink_left", sink=self.sink, hint="it was ended by somebody else and stays down")
        self._down = True
        return False

    def _ended(self) -> int | None:
        """Start the process and wait for its end; None when it could not be started."""
        with self._lock:
            if self._stop.is_set():
                return EXIT_OK
            try:
                child = self._child = self._launch(self.sink)
            except OSError as error:
                log.get().warning("sink_not_started", sink=self.sink, reason=error.strerror)
                return None
        log.get().info("sink_started", sink=self.sink, pid=child.pid)
        code = child.wait()
        with self._lock:
            self._child = None
        return code

    def _tell_pause(self, state: tenacity.RetryCallState) -> None:
        seconds = state.next_action.sleep if state.next_action else 0.0
        log.get().info("sink_restarts", sink=self.sink, failures=state.attempt_number, after_s=round(seconds, 1))

    def _pause(self, seconds: float) -> None:
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

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        # A group of its own: Ctrl-C in a terminal is for us, and the child is told by us. A second one for it would
        # end it in the middle of a cut.
        self._process = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, process_group=0)

    @property
    def pid(self) -> int:
        """See `Child`."""
        return self._process.pid

    def wait(self) -> int:
        """See `Child`."""
        code = self._process.wait()
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
