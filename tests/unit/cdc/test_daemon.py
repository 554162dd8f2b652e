"""The daemon: it retries temporary errors, and stops in a named state if an operator must act."""

from __future__ import annotations

import errno
import threading

import pytest
import structlog

from cdc.errors import (
    BrokerUnreachable,
    CaptureNotStarted,
    DecodeError,
    InvariantError,
    OutcomeUnknown,
    ProducerFenced,
    RegistryRefused,
    RegistryUnreachable,
    RowRefused,
    SinkUnreachable,
    SlotHeld,
    SourceDiverged,
    SourceGap,
    SourceUnreachable,
    TailraceError,
    TopicMissing,
)
from cdc.run.daemon import Daemon
from cdc.run.retry_policy import MISSING_S
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from tests.fixtures.servers.manual_clock import ManualClock


class Supervised:
    """A daemon over scripted captures. Each entry is the error that `run` raises, or None to run until stopped."""

    def __init__(self, *runs: TailraceError | OSError | None, run_s: float = 0.0, what: str = "capture") -> None:
        self.clock, self.metrics, self.stop = ManualClock(), Metrics(), threading.Event()
        self.status = Status("shop", self.clock, self.metrics)
        self.states: list[tuple[str, str]] = []
        self.closed = self.started = 0
        self.waits_s: list[float] = []
        self.stops_while_waiting = False
        self._runs = list(runs)
        self._run_s = run_s
        self.daemon = Daemon(self._start, self.status, self.metrics, self, what=what)

    def run(self) -> int:
        """Run the daemon and return the exit code."""
        try:
            self.daemon.run(self.stop)
        except TailraceError as error:
            return error.exit_code
        return 0

    def monotonic_s(self) -> float:
        return self.clock.monotonic_s()

    def wall_s(self) -> float:
        return self.clock.wall_s()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.states.append((self.status.state.value, str(self.status.snapshot()["reason"])))
        self.waits_s.append(seconds)
        if self.stops_while_waiting:
            stop.set()
        return self.clock.wait(stop, seconds)

    def _start(self) -> _Run:
        self.started += 1
        return _Run(self, self._runs.pop(0))

    def ran(self) -> None:
        self.clock.now_s += self._run_s


class _Run:
    def __init__(self, of: Supervised, error: TailraceError | OSError | None) -> None:
        self._of = of
        self._error = error

    def run(self, stop: threading.Event) -> None:
        self._of.ran()
        if self._error is not None:
            raise self._error
        stop.set()

    def close(self) -> None:
        self._of.closed += 1


def test_machine_that_is_out_of_files_is_waited_for_and_other_errors_of_it_are_not() -> None:
    supervised = Supervised(OSError(errno.EMFILE, "Too many open files"), None)

    assert supervised.run() == 0
    assert supervised.states == [("WAITING", "machine")]
    with pytest.raises(FileNotFoundError):
        Supervised(FileNotFoundError(errno.ENOENT, "No such file")).run()


def test_missing_topic_is_waited_for_and_ends_capture_only_when_it_stays_missing() -> None:
    passes, stays = (
        Supervised(TopicMissing("x"), TopicMissing("x"), None),
        Supervised(*[TopicMissing("x")] * 99, run_s=1.0),
    )

    assert passes.run() == 0
    assert passes.states == [("WAITING", "broker")] * 2
    assert stays.run() == TopicMissing.exit_code
    assert stays.status.state.value == "MISCONFIGURED"
    assert stays.clock.now_s - 1000.0 >= MISSING_S


def test_sink_has_recovered_only_when_it_says_that_it_works() -> None:
    sink = Supervised(SinkUnreachable("x"), SinkUnreachable("x"), SinkUnreachable("x"), None, what="sink")

    with structlog.testing.capture_logs() as logged:
        assert sink.run() == 0
        assert sink.states == [("WAITING", "store")] * 3
        said = [one["event"] for one in logged if one["log_level"] != "debug"]
        assert said == ["sink_waiting", "sink_finished"]
        sink.status.works()

    assert logged[-1]["event"] == "sink_recovered"
    assert logged[-1]["attempts"] == 3


def test_stop_ends_with_success() -> None:
    supervised = Supervised(None)

    assert supervised.run() == 0
    assert supervised.status.state.value == "STOPPED"
    assert supervised.closed == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SourceUnreachable("x"), "source"),
        (SlotHeld("x"), "slot"),
        (BrokerUnreachable("x"), "broker"),
        (OutcomeUnknown("x"), "broker"),
        (RegistryUnreachable("x"), "registry"),
        (DecodeError("I", 0), "source"),
    ],
)
def test_what_time_can_mend_is_tried_again_and_says_what_it_waits_for(error: TailraceError, reason: str) -> None:
    supervised = Supervised(error, error, None)

    assert supervised.run() == 0
    assert supervised.states == [("WAITING", reason)] * 2
    assert (supervised.started, supervised.closed) == (3, 3)
    assert supervised.metrics.registry.get_sample_value("cdc_starts_total", {"reason": type(error).__name__}) == 2


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (SourceGap("lost", hint="h", command="c"), "GAP", 3),
        (SourceDiverged("other"), "DIVERGED", 3),
        (ProducerFenced("newer"), "FENCED", 3),
        (RowRefused("large"), "MISCONFIGURED", 3),
        (RegistryRefused("not compatible"), "MISCONFIGURED", 3),
        (InvariantError("bug"), "STOPPED", 1),
    ],
)
def test_what_a_person_must_mend_stops_in_its_state(error: TailraceError, state: str, code: int) -> None:
    supervised = Supervised(error)

    assert supervised.run() == code
    document = supervised.status.snapshot()
    assert document["state"] == state
    assert document["error"] == {
        "error": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "command": error.command,
    }
    assert supervised.started == 1
    assert supervised.closed == 1


def test_pauses_grow_and_stay_bounded() -> None:
    supervised = Supervised(*[SourceUnreachable("x")] * 60, None)

    assert supervised.run() == 0
    assert len(supervised.waits_s) == 60
    assert max(supervised.waits_s) <= 5.0
    assert max(supervised.waits_s[:2]) <= 1.0


def test_stop_while_waiting_ends_with_success() -> None:
    supervised = Supervised(SourceUnreachable("x"), SourceUnreachable("x"))
    supervised.stops_while_waiting = True

    assert supervised.run() == 0
    assert supervised.started == 1


def test_same_bytes_that_never_decode_stop_capture() -> None:
    supervised = Supervised(*[DecodeError("I", 7, need=4)] * 3)

    assert supervised.run() == 3
    assert supervised.status.snapshot()["state"] == "MISCONFIGURED"
    assert "3 times" in str(supervised.status.snapshot()["error"])


def test_decode_errors_far_apart_are_not_poison() -> None:
    supervised = Supervised(*[DecodeError("I", 7, need=4)] * 5, None, run_s=3600.0)

    assert supervised.run() == 0
    assert supervised.started == 6


def test_fixed_error_disappears_from_the_status() -> None:
    supervised = Supervised(SourceUnreachable("x"), None)

    supervised.run()

    assert supervised.status.snapshot()["error"] is None


def test_sink_waits_for_capture_that_has_not_started_for_as_long_as_that_lasts() -> None:
    sink = Supervised(*[CaptureNotStarted("x")] * 99, None, run_s=1.0, what="sink")

    assert sink.run() == 0
    assert sink.states == [("WAITING", "capture")] * 99
    assert sink.clock.now_s - 1000.0 > MISSING_S
