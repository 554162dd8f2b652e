"""/status, /readyz and metrics of a running lake sink."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable

import pytest

from cdc.errors import LakeUnready, SinkBehind, ViewRefused
from cdc.lsn import Lsn
from cdc.model.run_state import State
from cdc.model.wait_reason import reason_text
from cdc.telemetry.capture_status import Status
from cdc.telemetry.lake_status import LakeStatus, PublishedCut
from cdc.telemetry.metrics import LakeMetrics, Metrics
from sinks.warehouse.lake.cut_position import CutPosition
from sinks.warehouse.lake.manifest import Manifest, ViewState
from sinks.warehouse.lake_observer import published_cut
from tests.fixtures.servers.manual_clock import ManualClock
from tests.tidy.tree import ROOT, text_of

_CATCHING_UP_S = 30.0
_SHARED = ("cdc_otel_", "cdc_sink_", "cdc_state", "cdc_starts", "cdc_build_info", "cdc_thread_failures", "process_")


class Watched:
    """A status with its clock and metrics."""

    def __init__(self) -> None:
        self.clock, shared = ManualClock(), Metrics()
        self.daemon = Status("shop.lake", self.clock, shared, catching_up_s=_CATCHING_UP_S)
        self.metrics = LakeMetrics(shared)
        self.status = LakeStatus(self.daemon, self.metrics, self.clock)
        self._shared = shared

    def cut(self, number: int, lsn: int, **behind: str) -> PublishedCut:
        us = int(self.clock.wall_s() * 1e6)
        return PublishedCut(number=number, end_lsn=Lsn(lsn), published_us=us, views_behind=behind)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    def restarted(self, reason: str) -> None:
        self._shared.starts.labels(reason).inc()


def test_sink_is_ready_once_it_runs_and_readers_find_a_cut() -> None:
    watched = Watched()
    ready: list[bool] = []
    steps: tuple[Callable[[], object], ...] = (
        lambda: watched.status.opened(None),
        lambda: watched.daemon.enter(State.RUNNING),
        lambda: watched.status.published(watched.cut(1, 100), records=5, took_s=1.0),
        lambda: watched.daemon.enter(State.WAITING, "broker"),
        lambda: watched.daemon.enter(State.RUNNING),
        lambda: watched.daemon.enter(State.GAP),
    )
    for step in steps:
        step()
        ready.append(watched.status.ready)

    assert ready == [False, False, True, False, True, False]


def test_sink_that_finds_a_cut_at_its_start_is_ready_without_a_new_one() -> None:
    watched = Watched()
    watched.daemon.enter(State.RUNNING)

    watched.status.opened(watched.cut(7, 100))

    assert watched.status.ready
    assert watched.metric("cdc_sink_cut_number") == 7
    assert watched.metric("cdc_sink_cuts_total") == 0, "this process has published none"


def test_published_cuts_are_counted_and_shown() -> None:
    watched = Watched()

    watched.status.published(watched.cut(1, 0x100), records=5, took_s=0.5)
    watched.status.published(watched.cut(2, 0x200), records=7, took_s=1.5)

    document = watched.status.snapshot()
    assert (document["cut"], document["lsn"]) == (2, "0/200")
    assert (document["cuts"], document["records"]) == (2, 12)
    assert (document["last_cut_records"], document["last_cut_seconds"]) == (7, 1.5)
    assert watched.metric("cdc_sink_position_lsn") == 0x200
    assert watched.metric("cdc_sink_records_total") == 12
    assert watched.metric("cdc_sink_cuts_total") == 2
    assert watched.metric("cdc_sink_cut_seconds_sum") == 2.0


def test_lake_that_waits_for_a_repair_says_for_which_tables_until_its_next_cut() -> None:
    """Also at lower LSNs than its cut has, where it is not behind by LSN."""
    watched = Watched()
    watched.status.opened(watched.cut(7, 200))
    watched.status.looked(Lsn(200))

    watched.status.waits(SinkBehind("Missing: public.t"))
    watched.status.looked(Lsn(100))

    document = watched.status.snapshot()
    assert (document["state"], document["reason"]) == ("WAITING", "repair")
    assert document["error"]["message"] == "Missing: public.t"
    assert reason_text("repair") != "repair"
    watched.status.published(watched.cut(8, 100), records=1, took_s=1.0)
    assert watched.status.snapshot()["state"] == "RUNNING"


def test_status_and_metric_show_whether_iceberg_readers_miss_something() -> None:
    watched = Watched()
    off, unknown = watched.status.snapshot(), watched.metric("cdc_sink_iceberg_behind")

    watched.status.iceberg(3, "Iceberg is at cut 3: the disk is full")

    assert (off["iceberg_cut"], off["iceberg_behind"]) == (None, "")
    assert math.isnan(unknown or 0)
    document = watched.status.snapshot()
    assert (document["iceberg_cut"], document["iceberg_behind"]) == (3, "Iceberg is at cut 3: the disk is full")
    assert watched.metric("cdc_sink_iceberg_behind") == 1
    watched.status.iceberg(4, "")
    assert watched.metric("cdc_sink_iceberg_behind") == 0


def test_age_of_the_newest_cut_grows_until_the_next_one() -> None:
    watched = Watched()
    before = watched.metric("cdc_sink_cut_age_seconds")
    watched.status.published(watched.cut(1, 100), records=1, took_s=1.0)
    watched.clock.now_s += 12

    assert before is not None
    assert math.isnan(before)
    assert watched.metric("cdc_sink_cut_age_seconds") == pytest.approx(12)
    assert watched.status.snapshot()["cut_age_seconds"] == 12
    watched.status.published(watched.cut(2, 200), records=1, took_s=1.0)
    assert watched.metric("cdc_sink_cut_age_seconds") == pytest.approx(0)


def test_hanging_driver_is_visible_by_the_age_of_its_last_read() -> None:
    watched = Watched()
    assert watched.status.snapshot()["look_age_seconds"] is None

    watched.status.looked(Lsn(100))
    watched.clock.now_s += 600

    assert watched.status.snapshot()["look_age_seconds"] == 600
    assert watched.metric("cdc_sink_look_age_seconds") == 600


def test_sink_is_behind_by_what_the_log_has_more() -> None:
    watched = Watched()
    watched.status.opened(watched.cut(1, 100))

    watched.status.looked(Lsn(350))
    behind = watched.metric("cdc_sink_behind_bytes")
    watched.status.published(watched.cut(2, 350), records=1, took_s=1.0)

    assert behind == 250
    assert watched.metric("cdc_sink_behind_bytes") == 0


def test_state_is_catching_up_until_the_sink_was_level_with_the_log() -> None:
    watched = Watched()
    states: list[str] = []
    watched.daemon.enter(State.RUNNING)
    steps: tuple[Callable[[], object], ...] = (
        lambda: watched.status.looked(Lsn(300)),
        lambda: watched.status.published(watched.cut(1, 200), records=1, took_s=1.0),
        lambda: watched.status.published(watched.cut(2, 300), records=1, took_s=1.0),
        lambda: watched.clock.wait(threading.Event(), _CATCHING_UP_S + 1),
        lambda: watched.status.looked(Lsn(300)),
    )
    for step in steps:
        step()
        states.append(watched.status.state.value)

    assert states == ["CATCHING_UP", "CATCHING_UP", "RUNNING", "CATCHING_UP", "RUNNING"]


def test_views_that_stay_behind_are_named_with_why() -> None:
    def manifest(**views: str) -> Manifest:
        states = {
            name: ViewState(version=0, generation=1, reason=reason, cut=1, sql_sha="") for name, reason in views.items()
        }
        return Manifest(
            cut=3,
            name="shop",
            position=CutPosition(1, 9, 9, 1, {}, {}, 0),
            tables={},
            views=states,
            committed_at_us=1,
        )

    watched = Watched()
    refused = {name: ViewRefused(f"{name}.sql: no query", hint="write one") for name in ("good", "never")}
    told = published_cut(manifest(good="", late="t is incomplete"), refused)
    watched.status.published(told, records=0, took_s=0.1)

    assert watched.status.snapshot()["views_behind"] == {
        "late": "t is incomplete",
        "never": "never.sql: no query; write one",
    }
    assert watched.metric("cdc_sink_views_behind") == 2


def test_state_error_and_restarts_are_those_of_the_daemon() -> None:
    watched = Watched()
    watched.daemon.enter(State.WAITING, "lake", LakeUnready("another process keeps the lake"))
    watched.restarted("LakeUnready")

    document = watched.status.snapshot()
    assert (document["name"], document["state"], document["reason"]) == ("shop.lake", "WAITING", "lake")
    assert document["error"]["error"] == "LakeUnready"
    assert watched.metric("cdc_state", state="WAITING") == 1
    assert watched.metric("cdc_starts_total", reason="LakeUnready") == 1


def test_page_of_a_sink_has_no_metrics_of_capture() -> None:
    names = re.findall(r"^# TYPE (\w+) ", Watched().metrics.render().decode(), re.MULTILINE)

    assert [name for name in names if not name.startswith(_SHARED)] == []


def test_every_key_of_a_sinks_status_is_explained() -> None:
    text = text_of(ROOT / "docs" / "reference" / "http.md")

    assert [key for key in Watched().status.snapshot() if f"`{key}`" not in text] == []


def test_every_metric_of_a_sink_is_in_the_reference() -> None:
    text = text_of(ROOT / "docs" / "reference" / "metrics.md")
    names = re.findall(r"^# TYPE (cdc_\w+) ", Watched().metrics.render().decode(), re.MULTILINE)

    assert len(names) > 8
    assert [name for name in names if f"`{name}`" not in text and not name.endswith("_created")] == []
