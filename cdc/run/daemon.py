"""Keeps capture or a sink running: restarts it after temporary errors, and stops in a named state after all others.

The error's class decides, see `cdc.run.retry_policy`. An incident is logged once when it begins and once when it ends,
with the number of attempts.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Final, Protocol

import tenacity

from cdc.clock import Clock
from cdc.errors import (
    OUT_OF_FILES,
    BrokerError,
    CaptureNotStarted,
    CredentialUnavailable,
    DecodeError,
    MachineExhausted,
    PoisonedStream,
    RegistryError,
    SinkError,
    SinkUnreachable,
    SlotHeld,
    SpoolFailed,
    TailraceError,
)
from cdc.model.change_records import StreamPosition
from cdc.model.run_state import State
from cdc.run.retry_policy import RetryPolicy
from cdc.telemetry import log
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics

_BACKOFF_FIRST_S: Final = 0.25
_BACKOFF_MAX_S: Final = 5.0  # short, because PostgreSQL frees a slot within wal_sender_timeout after its reader died
_HEALTHY_S: Final = 30.0  # a run of this length ends an incident
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EAGAIN})
_POISON_REPEATS: Final = 3  # bytes that failed to decode this often will always fail


class Capture(Protocol):
    """A started pipeline: `cdc.startup.protocol.RunningCapture`, a lake's driver or a runner of a sink."""

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set."""

    def close(self) -> None:
        """Release all resources."""


class Daemon:
    """Supervises one pipeline in the calling thread."""

    def __init__(
        self, start: Callable[[], Capture], status: Status, metrics: Metrics, clock: Clock, *, what: str = "capture"
    ) -> None:
        """Create a daemon. `what`, ``capture`` or ``sink``, is the first word of its log events.

        Capture has recovered as soon as it has started. A sink has recovered once a write succeeds or there is nothing
        to write; its observer then calls `Status.works`.
        """
        self._is_sink = what == "sink"
        self._retry_policy = RetryPolicy(clock, retries_fenced=self._is_sink)
        self._passing: TailraceError | None = None
        status.when_working(self._works)
        self._start = start
        self._what = what
        self._status = status
        self._metrics = metrics
        self._clock = clock
        self._incident: tuple[str, int] | None = None
        self._poison = 0
        self._poison_at: StreamPosition | None = None

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set. Raises an error that needs an operator, after logging it and entering its state."""
        try:
            while not stop.is_set():
                self._episode(stop)
        except TailraceError as error:
            state = State(error.state) if error.state else State.STOPPED
            self._status.enter(state, error=error)
            log.get().error(f"{self._what}_stopped", state=state.value, **log.error_fields(error))
            raise
        self._status.enter(State.STOPPED)
        log.get().info(f"{self._what}_finished")

    def _episode(self, stop: threading.Event) -> None:
        """Attempt with growing pauses, until a run lasts `_HEALTHY_S` or `stop` is set."""
        retrying = tenacity.Retrying(
            wait=tenacity.wait_random_exponential(multiplier=_BACKOFF_FIRST_S, max=_BACKOFF_MAX_S),
            retry=tenacity.retry_if_exception(self._passes),
            stop=tenacity.stop_when_event_set(stop),
            sleep=lambda seconds: self._pause(stop, seconds),
            reraise=True,
        )
        try:
            retrying(self._attempt, stop)
        except TailraceError as error:
            if not (stop.is_set() and self._passes(error)):
                raise

    def _passes(self, error: BaseException) -> bool:
        return isinstance(error, TailraceError) and (error.retry == "timed" or error is self._passing)

    def _attempt(self, stop: threading.Event) -> None:
        if stop.is_set():
            return
        began_s = self._clock.monotonic_s()
        try:
            self._run_once(stop)
        except DecodeError as error:
            self._count_poison(error, healthy=self._clock.monotonic_s() - began_s >= _HEALTHY_S)
            self._failed(error)
            raise
        except TailraceError as error:
            if error.retry == "timed":
                self._retry_policy.interrupted()
            elif self._retry_policy.allows(error):
                self._passing = error
            else:
                self._passing = None
                raise
            self._failed(error)
            if self._clock.monotonic_s() - began_s < _HEALTHY_S:
                raise

    def _run_once(self, stop: threading.Event) -> None:
        if self._incident is None:
            self._status.enter(State.STARTING)
        try:
            capture = self._start()
            try:
                self._retry_policy.worked()
                if not self._is_sink or self._incident is None:
                    self._status.works()
                capture.run(stop)
            finally:
                capture.close()
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            raise MachineExhausted(f"this machine is out of resources: {error.strerror}", hint=OUT_OF_FILES) from error

    def _count_poison(self, error: DecodeError, *, healthy: bool) -> None:
        """Raise PoisonedStream if decoding fails repeatedly at the same position."""
        at = self._status.position
        repeated = at == self._poison_at and not healthy
        self._poison = self._poison + 1 if repeated else 1
        self._poison_at = at
        if self._poison >= _POISON_REPEATS:
            raise PoisonedStream(
                f"decoding the stream failed {_POISON_REPEATS} times in a row: {error.message}",
                hint="nothing was acknowledged; report this with the version of the server",
                tag=error.tag,
            ) from error

    def _failed(self, error: TailraceError) -> None:
        reason = _reason(error)
        self._metrics.starts.labels(type(error).__name__).inc()
        self._status.enter(State.WAITING, reason, error)
        kind = type(error).__name__
        if self._incident is None or self._incident[0] != kind:
            self._incident = (kind, 1)
            log.get().warning(f"{self._what}_waiting", reason=reason, **log.error_fields(error))
        else:
            self._incident = (kind, self._incident[1] + 1)
            log.get().debug(f"{self._what}_still_waiting", attempts=self._incident[1], **log.error_fields(error))

    def _works(self) -> None:
        """End the incident, if there is one: work continues."""
        if self._incident is not None:
            log.get().info(f"{self._what}_recovered", after=self._incident[0], attempts=self._incident[1])
            self._incident = None

    def _pause(self, stop: threading.Event, seconds: float) -> None:
        self._clock.wait(stop, seconds)


def _reason(error: TailraceError) -> str:
    """Return the name of what the daemon waits for."""
    if isinstance(error, SlotHeld):
        return "slot"
    if isinstance(error, CaptureNotStarted):
        return "capture"
    if isinstance(error, BrokerError):
        return "broker"
    if isinstance(error, SpoolFailed):
        return "disk"
    if isinstance(error, MachineExhausted):
        return "machine"
    if isinstance(error, RegistryError):
        return "registry"
    if isinstance(error, CredentialUnavailable):
        return "credential"
    if isinstance(error, SinkUnreachable):
        return "store"
    return "lake" if isinstance(error, SinkError) else "source"
