"""Freshness objectives: what counts as fresh, from the reports of sinks and the lag of capture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from cdc.config.load import parse
from cdc.config.objective_settings import Objective
from cdc.errors import ConfigError
from cdc.lsn import Lsn
from cdc.model.change_records import BatchStats, StreamPosition
from cdc.model.run_state import State
from cdc.model.sink_report import SinkReport
from cdc.overview.attention import attention_of
from cdc.overview.objective_watch import ObjectiveWatch
from cdc.telemetry.capture_status import Status
from cdc.telemetry.freshness import LogLag, Reading, behind_log_s, behind_source_s
from cdc.telemetry.lake_status import LakeStatus, PublishedCut
from cdc.telemetry.metrics import LakeMetrics, Metrics
from cdc.telemetry.objective_status import WINDOW_S
from tests.fixtures.capture.smallest_config import SMALLEST
from tests.fixtures.servers.manual_clock import ManualClock

_TOML = (
    SMALLEST
    + """
[capture.objective]
freshness_s = 5
[sinks.cache]
kind = "cache"
url = "redis://localhost"
objective = {freshness_s = 10, target = 0.99}
"""
)


def _report(state: str = "RUNNING", **facts: Any) -> SinkReport:
    return SinkReport(at_ms=0, state=state, **facts)


@dataclass
class _View:
    """A supervised sink."""

    name: str = "cache"
    pid: int | None = 7
    report: SinkReport | None = None
    report_age_s: float | None = 1.0


class _Capture:
    """Capture with one objective of its own and one of its sink, counted second by second."""

    def __init__(self) -> None:
        self.clock, self.metrics, self.view = ManualClock(), Metrics("shop"), _View()
        self.status = Status("shop", self.clock, self.metrics)
        self.view.report = _report(lag_seconds=0.0, lag_records=0)
        self.watch = ObjectiveWatch(parse(_TOML, {}), self.status, self.clock, lambda: [self.view])
        self.status.works()
        self.status.caught_up()

    def seconds(self, count: int, *, idle: bool = True) -> None:
        for _ in range(count):
            self.clock.now_s += 1
            if idle:
                self.status.caught_up()
            self.watch.count(1.0)

    def fresh(self, sink: str) -> float | None:
        return self.metrics.registry.get_sample_value("cdc_objective_fresh_seconds_total", {"sink": sink})

    def checked(self, sink: str) -> float | None:
        return self.metrics.registry.get_sample_value("cdc_objective_checked_seconds_total", {"sink": sink})


def test_idle_sink_is_fresh() -> None:
    capture = _Capture()

    capture.seconds(100)

    assert (capture.fresh("cache"), capture.checked("cache")) == (100, 100)
    assert (capture.fresh(""), capture.checked("")) == (100, 100)


def test_time_in_which_a_sink_is_down_counts_as_missed() -> None:
    capture = _Capture()
    capture.seconds(100)

    capture.view.pid = None
    capture.seconds(50)

    assert (capture.fresh("cache"), capture.checked("cache")) == (100, 150)
    assert capture.fresh("") == 150, "the log has no part in it"


def test_report_that_grows_old_ends_freshness_though_it_says_that_the_sink_is_level() -> None:
    capture = _Capture()

    for age_s in range(20):
        capture.view.report_age_s = float(age_s)
        capture.seconds(1)

    assert capture.fresh("cache") == 11  # 0 to 10 s


def test_source_that_does_not_answer_makes_log_and_sink_miss_their_objectives() -> None:
    capture = _Capture()
    capture.seconds(10)

    capture.seconds(30, idle=False)

    assert capture.fresh("") == 10 + 5
    assert capture.fresh("cache") == 10 + 10


def test_standby_counts_nothing() -> None:
    capture = _Capture()

    capture.status.enter(State.WAITING, "slot")
    capture.seconds(60)

    assert (capture.fresh("cache"), capture.checked("cache")) == (0, 0)


def test_process_that_has_not_read_anything_is_not_fresh() -> None:
    clock, metrics = ManualClock(), Metrics("shop")
    status = Status("shop", clock, metrics)
    watch = ObjectiveWatch(parse(_TOML, {}), status, clock, list)

    watch.count(1.0)

    assert [one["fresh"] for one in status.objectives.document] == [False, False]
    assert [one["freshness_seconds"] for one in status.objectives.document] == [None, None]


def test_lag_of_capture_at_publication_is_part_of_the_freshness() -> None:
    """Capture was 600 s behind when it published what the sink has not applied; by now it is level."""
    log = LogLag()
    log.add(1000, 600.0)
    log.add(1001, 0.0)

    assert behind_source_s(1005, 5.0, log) == 605
    assert behind_source_s(1005, 2.0, log) == 2
    assert behind_source_s(1005, None, log) is None


@pytest.mark.parametrize(
    ("reports", "behind_s"),
    [
        ([], None),
        ([_report(lag_seconds=3.0, lag_records=9)], 4.0),
        ([_report(lag_seconds=3.0, lag_records=9, turn_age_s=8.0)], 12.0),
        ([_report("CATCHING_UP", lag_seconds=0.0, lag_records=0)], None),
        ([_report("CATCHING_UP", lag_seconds=0.0, lag_records=5)], 1.0),
        ([_report("STARTING")], None),
        ([_report("WAITING", lag_seconds=70.0)], 71.0),
        ([_report(behind_s=2.0)], 3.0),
        ([_report(lag_seconds=1.0), _report(lag_seconds=5.0)], 6.0),
        ([_report(lag_seconds=1.0), _report()], None),
    ],
)
def test_lag_behind_the_log_is_an_upper_bound_over_all_workers(
    reports: list[SinkReport], behind_s: float | None
) -> None:
    assert behind_log_s([Reading(report, 1.0) for report in reports]) == behind_s


def test_lake_is_behind_since_its_newest_cut_held_the_whole_log() -> None:
    clock, daemon = ManualClock(), Metrics("shop")
    lake = LakeStatus(Status("shop.lake", clock, daemon), LakeMetrics(daemon, "lake"), clock)

    def after(seconds: float) -> float | None:
        clock.now_s += seconds
        found: float | None = lake.snapshot()["behind_seconds"]
        return found

    lake.opened(PublishedCut(number=1, end_lsn=Lsn(100), published_us=0))
    before = after(0)
    lake.looked(Lsn(100))
    idle = after(2)
    lake.looked(Lsn(200))
    cutting = after(5)
    lake.published(PublishedCut(number=2, end_lsn=Lsn(200), published_us=0), records=1, took_s=5)
    cut = after(0)
    lake.looked(Lsn(200), at_end=False)
    far = after(4)

    assert (before, idle, cutting, cut, far) == (None, 2.0, 7.0, 5.0, 9.0)


def test_lag_counts_from_the_last_commit_even_while_capture_is_busy() -> None:
    capture = _Capture()
    capture.seconds(1)
    for _ in range(30):  # it never reaches the end of the stream, but publishes what is two seconds old
        capture.clock.now_s += 1
        commit_us = int((capture.clock.wall_s() - 2) * 1e6)
        capture.status.published(BatchStats(1, 1, 1, commit_us), StreamPosition(Lsn(110)), 0.01)
        capture.watch.count(1.0)

    assert capture.fresh("") == 31


def test_objective_that_burns_its_budget_needs_attention_until_it_is_met_again() -> None:
    capture = _Capture()

    def listed() -> list[str]:
        return [one.what for one in attention_of(capture.status.snapshot(), [], {})]

    capture.seconds(600)
    before = listed()
    capture.view.pid = None
    capture.seconds(300)  # of an hour: 8 %, at a target of 99 % nearly 9 times the rate
    slowly = listed()
    capture.seconds(300)
    fast = listed()
    capture.view.pid = 7
    capture.seconds(360)

    assert (before, slowly, fast, listed()) == ([], [], ["freshness of cache"], [])


def test_budget_left_is_a_share_of_the_whole_window() -> None:
    capture = _Capture()
    capture.view.pid = None

    capture.seconds(6048)

    (_, cache) = capture.status.objectives.document
    assert cache["missed_seconds"] == 6048
    assert cache["budget_left"] == pytest.approx(1 - 6048 / (0.01 * WINDOW_S)) == 0.75


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("objective = {freshness_s = 1}", "objective.freshness_s: Expected"),
        ("objective = {freshness_s = 60, target = 0.9}", "objective.target: Expected"),
        ("objective = {target = 0.99}", "objective.freshness_s is missing"),
        ("objective = {freshness = 60}", "objective.freshness"),
        ("objective = {freshness_s = 60}\ninterval_s = 60", "a cut begins only every 60 s"),
    ],
)
def test_wrong_objective_is_refused_with_its_key(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(f'{_TOML}[sinks.lake]\nkind = "warehouse"\npath = "lake"\n{line}\n', {})

    assert says in str(refused.value)


def test_target_has_a_default() -> None:
    assert Objective(freshness_s=10).target == 0.999
