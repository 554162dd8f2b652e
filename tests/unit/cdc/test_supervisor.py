"""`cdc run --with-sinks`: restarts of sinks whose process has ended, without real processes."""

from __future__ import annotations

import os
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest
import structlog

from cdc.clock import SystemClock
from cdc.config.load import parse
from cdc.errors import UsageError
from cdc.model.sink_report import STUCK_S, SinkReport, encode
from cdc.run.app import run_capture
from cdc.run.child_process import ChildProcess, sink_command
from cdc.run.supervisor import (
    HEALTHY_S,
    OPERATOR_FIRST_S,
    REPAIR_S,
    REPORT_STALE_S,
    RESTART_FIRST_S,
    RESTART_MAX_S,
    AfterExit,
    Child,
    ChildView,
    Keeper,
    Supervisor,
    after_exit,
)
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from cdc.telemetry.readiness import follows_log
from cdc.telemetry.supervised_sinks import WithSinks
from tests.fixtures.servers.manual_clock import ManualClock

_DEADLINE_S = 10.0


class ScriptedChild:
    """Ends immediately with `code`, after `run_s` on the clock of its machine."""

    def __init__(self, machine: Machine, code: int) -> None:
        self.pid = 7
        self.report = machine.report
        self._machine = machine
        self._code = code

    def wait(self) -> int:
        self._machine.clock.now_s += self._machine.run_s
        if not self._machine.codes:
            self._machine.stop.set()
        return self._code

    def terminate(self) -> None:
        raise AssertionError("nobody asked it")

    kill = terminate


class Machine:
    """Starts children that end with `codes`; raises an OSError among them. `pauses_s` are the pauses between starts."""

    def __init__(self, *codes: int | OSError, run_s: float = 0.0, report: SinkReport | None = None) -> None:
        self.codes = list(codes)
        self.report = report
        self.run_s = run_s
        self.clock, self.stop = ManualClock(), threading.Event()
        self.started: list[str] = []
        self.pauses_s: list[float] = []
        self.keeper = Keeper("lake", self._launch, self, self.stop)

    def monotonic_s(self) -> float:
        return self.clock.monotonic_s()

    def wall_s(self) -> float:
        return self.clock.wall_s()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.pauses_s.append(seconds)
        return self.clock.wait(stop, seconds)

    def _launch(self, sink: str) -> Child:
        self.started.append(sink)
        code = self.codes.pop(0)
        if isinstance(code, OSError):
            raise code
        return ScriptedChild(self, code)


class LastingChild:
    """Runs until it is killed, or until SIGTERM if it is `obedient`."""

    def __init__(self, *, obedient: bool) -> None:
        self.pid = 7
        self.report: SinkReport | None = None
        self.asked = self.killed = 0
        self._obedient = obedient
        self._over = threading.Event()
        self.waited_for = threading.Event()

    def wait(self) -> int:
        self.waited_for.set()
        assert self._over.wait(_DEADLINE_S)
        return -9 if self.killed else 0

    def terminate(self) -> None:
        self.asked += 1
        if self._obedient:
            self._over.set()

    def kill(self) -> None:
        self.killed += 1
        self._over.set()


def ran(machine: Machine) -> list[str]:
    """Return the log events of a run."""
    with structlog.testing.capture_logs() as told:
        machine.keeper.run()
    return [str(event["event"]) for event in told]


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (0, AfterExit.STOPPED),
        (1, AfterExit.RESTART),
        (2, AfterExit.NEEDS_OPERATOR),
        (3, AfterExit.NEEDS_OPERATOR),
        (-9, AfterExit.RESTART),
        (-15, AfterExit.RESTART),
        (137, AfterExit.RESTART),
    ],
)
def test_exit_code_alone_says_what_becomes_of_a_sink(code: int, wanted: AfterExit) -> None:
    assert after_exit(code) is wanted


@pytest.mark.parametrize("code", [1, -9, -11])
def test_sink_that_failed_is_started_again(code: int) -> None:
    machine = Machine(code, code, code)

    events = ran(machine)

    assert machine.started == ["lake"] * 3
    assert events.count("sink_ended") == 2, "the third ends while all is stopped"


@pytest.mark.parametrize("code", [2, 3])
def test_sink_that_needs_an_operator_is_named_and_started_again_at_a_slow_pace(code: int) -> None:
    machine = Machine(*[code] * 8)

    with structlog.testing.capture_logs() as told:
        machine.keeper.run()

    events = [event for event in told if event["log_level"] == "error"]
    assert machine.started == ["lake"] * 8
    assert {(event["event"], event["sink"], event["exit_code"]) for event in events} == {
        ("sink_needs_operator", "lake", code)
    }
    assert machine.pauses_s[:5] == [OPERATOR_FIRST_S * factor for factor in (1, 2, 4, 8, 12)]
    assert set(machine.pauses_s[4:]) == {RESTART_MAX_S}


def test_pause_starts_over_after_an_operator_repaired_the_sink() -> None:
    machine = Machine(3, 3, 3, 1, 3, 0)

    ran(machine)

    assert [pause_s for pause_s in machine.pauses_s if pause_s >= OPERATOR_FIRST_S] == [
        OPERATOR_FIRST_S,
        2 * OPERATOR_FIRST_S,
        4 * OPERATOR_FIRST_S,
        OPERATOR_FIRST_S,
    ]


@pytest.mark.parametrize("state", ["STALE", "GAP"])
def test_sink_that_must_be_repaired_leaves_its_group_empty_for_the_repair(state: str) -> None:
    machine = Machine(3, 3, 3, report=SinkReport(at_ms=0, state=state, ended=True))

    ran(machine)

    assert set(machine.pauses_s) == {REPAIR_S}


def test_sink_that_another_process_replaced_is_left_to_that_one() -> None:
    machine = Machine(3, 3, report=SinkReport(at_ms=0, state="FENCED", ended=True))

    assert "sink_replaced" in ran(machine)
    assert machine.started == ["lake"]
    assert machine.keeper.view().state == "FENCED"


def test_sink_that_another_process_ended_stays_down_and_shows_it() -> None:
    machine = Machine(0, 0)

    assert "sink_left" in ran(machine)
    assert machine.started == ["lake"]
    assert (machine.keeper.view().state, follows_log(machine.keeper.view().state)) == ("STOPPED", False)


def view_of(report: SinkReport | None, *, after_s: float = 0.0) -> ChildView:
    """Return the view of a running process that sent `report` some time ago, on a stopped clock."""
    child, clock, stop = LastingChild(obedient=True), ManualClock(), threading.Event()
    child.report = report
    keeper = Keeper("lake", lambda _: child, clock, stop)
    thread = threading.Thread(target=keeper.run)
    thread.start()
    try:
        assert child.waited_for.wait(_DEADLINE_S)
        clock.now_s += after_s
        return keeper.view()
    finally:
        stop.set()
        child.terminate()
        thread.join(_DEADLINE_S)


_AT_MS = int(ManualClock().wall_s() * 1000)


@pytest.mark.parametrize(
    ("report", "after_s", "state"),
    [
        (None, 0.0, "STARTING"),
        (SinkReport(at_ms=_AT_MS, state="RUNNING"), 0.0, "RUNNING"),
        (SinkReport(at_ms=_AT_MS, state="WAITING", reason="store"), 0.0, "WAITING"),
        (SinkReport(at_ms=_AT_MS, state="RUNNING"), REPORT_STALE_S + 1, "UNKNOWN"),
        (SinkReport(at_ms=_AT_MS, state="RUNNING", turn_age_s=STUCK_S + 1), 0.0, "STUCK"),
    ],
)
def test_state_of_a_sink_comes_from_a_report_that_is_fresh(
    report: SinkReport | None, after_s: float, state: str
) -> None:
    view = view_of(report, after_s=after_s)

    assert (view.state, follows_log(view.state), view.pid) == (state, state == "RUNNING", 7)
    assert view.document()["report_age_seconds"] == (None if report is None else after_s)


def test_status_and_metrics_of_capture_show_its_sinks_and_readyz_by_option() -> None:
    metrics = Metrics()
    status = Status("shop", ManualClock(), metrics)
    status.works()
    views = [view_of(SinkReport(at_ms=_AT_MS, state="WAITING", reason="store", lag_records=9))]
    plain, strict = (
        WithSinks(status, metrics, lambda: views, pipeline="shop", ready_needs_sinks=asked) for asked in (False, True)
    )

    page = strict.render().decode()

    assert strict.snapshot()["sinks"]["lake"]["state"] == "WAITING"
    assert strict.snapshot()["sinks"]["lake"]["lag_records"] == 9
    assert 'cdc_supervised_sink_state{pipeline="shop",sink="lake",state="WAITING"} 1.0' in page
    assert 'cdc_supervised_sink_ready{pipeline="shop",sink="lake"} 0.0' in page
    assert 'cdc_supervised_sink_lag_records{pipeline="shop",sink="lake"} 9.0' in page
    assert "cdc_rows_total" in page
    assert (plain.ready, strict.ready) == (True, False)
    assert strict.state == "CATCHING_UP, sink lake WAITING"


def test_pauses_grow_with_some_chance_and_stay_bounded() -> None:
    machine = Machine(*[1] * 40)

    ran(machine)

    pauses_s = machine.pauses_s
    assert len(machine.started) == 40
    assert RESTART_FIRST_S / 2 <= pauses_s[0] <= RESTART_FIRST_S
    assert all(later > 0.9 * before for before, later in pairwise(pauses_s[:6])), "each window begins where one ended"
    assert all(RESTART_MAX_S / 2 <= pause_s <= RESTART_MAX_S for pause_s in pauses_s[10:])
    assert len(set(pauses_s[10:])) > 1


def test_failure_after_a_good_run_is_a_first_one_again() -> None:
    bad, good = Machine(*[1] * 8), Machine(*[1] * 8, run_s=HEALTHY_S)

    ran(bad)
    ran(good)

    assert bad.pauses_s[-1] > RESTART_FIRST_S
    assert good.pauses_s == []
    assert len(good.started) == 8


def test_sink_that_the_machine_has_no_room_for_is_tried_again() -> None:
    machine = Machine(OSError(11, "Resource temporarily unavailable"), 1)

    assert "sink_not_started" in ran(machine)
    assert len(machine.started) == 2
    assert len(machine.pauses_s) == 1


def test_stop_in_a_pause_starts_nothing_any_more() -> None:
    machine = Machine(1, 1, 1)
    wait = machine.wait

    def stopped(stop: threading.Event, seconds: float) -> bool:
        stop.set()
        return wait(stop, seconds)

    machine.wait = stopped  # type: ignore[method-assign]

    ran(machine)

    assert len(machine.started) == 1


def test_sink_is_asked_to_end_once_however_often_it_is_closed() -> None:
    """A second SIGTERM would end the sink in the middle of a cut."""
    child, stop = LastingChild(obedient=False), threading.Event()
    keeper = Keeper("lake", lambda _: child, SystemClock(), stop)
    thread = threading.Thread(target=keeper.run)
    thread.start()
    assert child.waited_for.wait(_DEADLINE_S)

    stop.set()
    keeper.terminate()
    keeper.terminate()
    keeper.kill()
    thread.join(_DEADLINE_S)

    assert (child.asked, child.killed) == (1, 1)


def test_all_sinks_are_asked_before_any_is_waited_for() -> None:
    children = {"a": LastingChild(obedient=False), "b": LastingChild(obedient=True)}
    with Supervisor(children, children.__getitem__, SystemClock(), end_deadline_s=0.05):
        for child in children.values():
            assert child.waited_for.wait(_DEADLINE_S)

    assert [(child.asked, child.killed) for child in children.values()] == [(1, 1), (1, 0)]


def test_sink_that_does_not_end_in_time_is_killed() -> None:
    child = LastingChild(obedient=False)
    with (
        structlog.testing.capture_logs() as told,
        Supervisor(["lake"], lambda _: child, SystemClock(), end_deadline_s=0.05),
    ):
        assert child.waited_for.wait(_DEADLINE_S)

    assert (child.asked, child.killed) == (1, 1)
    assert [event["sink"] for event in told if event["event"] == "sink_killed"] == ["lake"]


def test_without_a_sink_in_the_configuration_there_is_nothing_to_supervise() -> None:
    config = parse('name = "shop"\n[source]\ndsn = "dbname=shop"\n[kafka]\nbootstrap = "kafka:9092"\n', {})

    with pytest.raises(UsageError, match="needs a sink") as caught:
        run_capture(config, sinks=lambda _: LastingChild(obedient=True))

    assert "[sinks." in caught.value.hint


def test_child_logs_as_its_parent_and_ends_with_it() -> None:
    config = Path("some") / "cdc.toml"

    as_text, as_json = (sink_command("lake", config, json_logs=json) for json in (False, True))

    assert as_text == [sys.executable, "-m", "cdc", "sink", "run", "lake", "-c", str(config), "--until-eof"]
    assert as_json == [*as_text, "--json-logs"]
    assert sink_command("find", config, json_logs=False, instance="here")[-2:] == ["--instance", "here"]


def test_process_sees_the_end_of_its_input_when_its_parent_is_gone() -> None:
    """The parent's end of the pipe closes with the parent; here the test closes it."""
    process = ChildProcess(
        [sys.executable, "-c", "import sys; sys.exit(5 if sys.stdin.read() == '' else 1)"], os.environ, reports=False
    )
    assert process._process.stdin is not None

    process._process.stdin.close()

    assert process.wait() == 5


def test_process_reports_through_its_pipe() -> None:
    line = encode(SinkReport(at_ms=1, state="RUNNING")).decode()
    code = f"import os, sys; os.write(int(sys.argv[-1]), {line!r}.encode() + b'\\n')"

    process = ChildProcess([sys.executable, "-c", code], os.environ)

    assert process.wait() == 0
    assert process.report == SinkReport(at_ms=1, state="RUNNING")
