"""Alerts on real pages of /metrics: a healthy pipeline causes none, and a bad state or value causes its own.

The scenarios of `test_alert_rules.py` have series that a person wrote; these come from the code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cdc.lsn import Lsn
from cdc.model.run_state import State
from cdc.model.sink_report import STUCK
from cdc.model.wal_reading import WalReading
from cdc.run.supervisor import ChildView
from cdc.telemetry.alert_rule import CAPTURE_JOB, SINKS_JOB
from cdc.telemetry.alerts import ALERTS
from cdc.telemetry.capture_status import Status
from cdc.telemetry.exposition import Rendered
from cdc.telemetry.lake_status import LakeStatus, PublishedCut
from cdc.telemetry.metrics import LakeMetrics, Metrics
from cdc.telemetry.runner_metrics import RunnerMetrics
from cdc.telemetry.runner_status import Lag, RunnerStatus
from cdc.telemetry.supervised_sinks import WithSinks
from tests.contract.test_alert_rules import FOLDER, ran
from tests.fixtures.servers.manual_clock import ManualClock

_MINUTES: Final = 90


@dataclass
class Pipeline:
    """Capture with one supervised sink (cache), a lake and a search sink, all healthy."""

    clock: ManualClock = field(default_factory=ManualClock)
    sink_state: str = "RUNNING"

    def __post_init__(self) -> None:
        self.capture_metrics, lake_daemon, search_daemon = Metrics("shop"), Metrics("shop"), Metrics("shop")
        self.capture = Status("shop", self.clock, self.capture_metrics)
        self.capture.works()
        self.capture.caught_up()
        self.capture.wal_seen(_reading(), alarm_bytes=1 << 30, transaction_alarm_s=60)
        self.lake_metrics = LakeMetrics(lake_daemon, "lake")
        self.lake_daemon = Status("shop.lake", self.clock, lake_daemon)
        self.lake = LakeStatus(self.lake_daemon, self.lake_metrics, self.clock)
        self.publish({})
        self.search_metrics = RunnerMetrics(search_daemon, "search")
        self.search_daemon = Status("shop.search", self.clock, search_daemon)
        self.search = RunnerStatus(self.search_daemon, self.search_metrics, self.clock)
        self.search.goes_on()
        self.search.level()
        self.search.committed({("shop.public.t", 0): 7}, Lag(0, 0.0, 500_000.0))

    def publish(self, views_behind: Mapping[str, str]) -> None:
        at_us = int(self.clock.wall_s() * 1e6)
        self.lake.looked(Lsn(100))
        cut = PublishedCut(number=1, end_lsn=Lsn(100), published_us=at_us, views_behind=views_behind)
        self.lake.published(cut, records=1, took_s=1.0)

    def series(self) -> dict[str, str]:
        """Return all samples of the three pages as constant series of promtool."""
        view = ChildView(
            name="cache",
            state=self.sink_state,
            pid=7,
            restarts=0,
            report=None,
            report_age_s=1.0,
            exit_code=None,
            next_start_s=None,
        )
        capture = WithSinks(
            self.capture, self.capture_metrics, lambda: [view], pipeline="shop", ready_needs_sinks=False
        )
        pages: list[tuple[Rendered, str]] = [
            (capture, CAPTURE_JOB),
            (self.lake_metrics, SINKS_JOB),
            (self.search_metrics, SINKS_JOB),
        ]
        found = {}
        for number, (page, job) in enumerate(pages):
            found[f'up{{job="{job}",pipeline="shop",instance="{number}"}}'] = "1 " * _MINUTES
            for family in text_string_to_metric_families(page.render().decode()):
                for sample in family.samples:
                    labels = {**sample.labels, "job": job, "instance": str(number)}
                    written = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
                    value = repr(sample.value).replace("nan", "NaN").replace("inf", "Inf")
                    found[f"{sample.name}{{{written}}}"] = f"{value} " * _MINUTES
        return found


def _reading(*, lost: bool = False) -> WalReading:
    return WalReading(
        slot="cdc_shop",
        current_lsn=Lsn(200),
        confirmed_lsn=Lsn(190),
        restart_lsn=Lsn(90),
        wal_status="lost" if lost else "reserved",
        invalidation="wal_removed" if lost else "",
        kept_bytes=110,
        safe_bytes=None if lost else 1 << 30,
        keep_limit_bytes=1 << 30,
        catalog_xmin_age=42,
    )


def _nothing(_: Pipeline) -> None:
    """A healthy pipeline."""


def _starts(pipeline: Pipeline) -> None:
    pipeline.capture_metrics = Metrics("shop")
    pipeline.capture = Status("shop", pipeline.clock, pipeline.capture_metrics)


def _waits(pipeline: Pipeline) -> None:
    pipeline.capture.enter(State.WAITING, "source")


def _has_a_gap(pipeline: Pipeline) -> None:
    pipeline.capture.enter(State.GAP)


def _lost_its_slot(pipeline: Pipeline) -> None:
    pipeline.clock.now_s += 60  # until then, the slot counts as seen by the stream
    pipeline.capture.wal_seen(_reading(lost=True), alarm_bytes=1 << 30, transaction_alarm_s=60)


def _supervised_sink_is_stuck(pipeline: Pipeline) -> None:
    pipeline.sink_state = STUCK


def _supervised_sink_is_stale(pipeline: Pipeline) -> None:
    pipeline.sink_state = State.STALE


def _search_waits(pipeline: Pipeline) -> None:
    pipeline.search.waits("store", None)


def _search_is_fenced(pipeline: Pipeline) -> None:
    pipeline.search_daemon.enter(State.FENCED)


def _search_is_far_behind(pipeline: Pipeline) -> None:
    pipeline.search.committed({("shop.public.t", 0): 7}, Lag(9, 400_000.0, 100_000.0))


def _lake_is_behind(pipeline: Pipeline) -> None:
    pipeline.lake.looked(Lsn(1 << 32))


def _view_is_broken(pipeline: Pipeline) -> None:
    pipeline.publish({"by_kind": "column kind does not exist"})


@pytest.mark.parametrize(
    ("happens", "alerts"),
    [
        (_nothing, set[str]()),
        (_starts, {"TailraceCaptureWaits", "TailraceSourceCheckOld"}),
        (_waits, {"TailraceCaptureWaits"}),
        (_has_a_gap, {"TailraceCaptureWaits", "TailraceCaptureNeedsOperator"}),
        (_lost_its_slot, {"TailraceSlotLost", "TailraceSlotWalHalf", "TailraceSlotWalLow"}),
        (_supervised_sink_is_stuck, {"TailraceSinkStuck"}),
        (_supervised_sink_is_stale, {"TailraceSinkNeedsOperator"}),
        (_search_waits, {"TailraceSinkNotReady"}),
        (_search_is_fenced, {"TailraceSinkNeedsOperator"}),
        (_search_is_far_behind, {"TailraceSinkBehind", "TailraceSinkRetention"}),
        (_lake_is_behind, {"TailraceLakeBehind"}),
        (_view_is_broken, {"TailraceViewsBehind"}),
    ],
)
def test_pages_of_a_pipeline_cause_only_the_alerts_of_what_happens(
    happens: Callable[[Pipeline], None], alerts: set[str], tmp_path: Path
) -> None:
    pipeline = Pipeline()

    happens(pipeline)

    assert firing(pipeline, tmp_path) == alerts


def firing(pipeline: Pipeline, folder: Path) -> set[str]:
    """Return the alerts that the pages cause. promtool expects none, and reports each that fires."""
    checks = [{"eval_time": f"{_MINUTES - 1}m", "alertname": alert.name, "exp_alerts": []} for alert in ALERTS]
    series = [{"series": name, "values": values} for name, values in pipeline.series().items()]
    case = {"interval": "1m", "input_series": series, "alert_rule_test": checks}
    file = folder / "pages.yaml"
    document = {"rule_files": [str(FOLDER / "alerts.yaml")], "evaluation_interval": "1m", "tests": [case]}
    file.write_text(json.dumps(document), encoding="utf-8")

    code, output = ran("test", "rules", file)

    found = set(re.findall(r"alertname: (\w+), time", output))
    assert code == (1 if found else 0), output
    return found
