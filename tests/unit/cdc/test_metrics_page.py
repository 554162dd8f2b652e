"""The /metrics page: unknown values are NaN, and build, pipeline and process are named."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from cdc import __version__
from cdc.lsn import Lsn
from cdc.model.change_records import BatchStats, StreamPosition
from cdc.model.wal_reading import OpenTransaction, WalReading
from cdc.telemetry.capture_status import Status
from cdc.telemetry.exposition import Rendered, Reported, report_broken_threads
from cdc.telemetry.lake_status import LakeStatus
from cdc.telemetry.metrics import LakeMetrics, Metrics
from cdc.telemetry.runner_metrics import RunnerMetrics
from cdc.telemetry.runner_status import RunnerStatus
from cdc.web.http_server import WebServer
from tests.fixtures.servers.http_probe import ask, metric
from tests.fixtures.servers.manual_clock import ManualClock

_KNOWN = {"cdc_state", "cdc_build_info"}
_CLOCK = ManualClock()


def _capture() -> tuple[Status, Metrics]:
    metrics = Metrics("shop")
    return Status("shop", ManualClock(), metrics), metrics


def _lake() -> tuple[Reported, Rendered]:
    daemon, shared = _capture()
    metrics = LakeMetrics(shared, "lake")
    return LakeStatus(daemon, metrics, _CLOCK), metrics


def _cache() -> tuple[Reported, Rendered]:
    daemon, shared = _capture()
    metrics = RunnerMetrics(shared, "cache")
    return RunnerStatus(daemon, metrics, _CLOCK), metrics


def scraped(status: Reported, metrics: Rendered) -> str:
    """Return the page, read over a socket."""
    server = WebServer("127.0.0.1:0", status, metrics)
    try:
        return ask("127.0.0.1", server.port, "/metrics")[2].decode()
    finally:
        server.close()


@pytest.mark.parametrize("made", [_capture, _lake, _cache])
def test_fresh_process_shows_every_gauge_that_it_does_not_know_as_nan(made: object) -> None:
    assert callable(made)
    page = scraped(*made())

    gauges = {
        f"{sample.name}{sample.labels}": sample.value
        for family in text_string_to_metric_families(page)
        if family.type == "gauge" and family.name.startswith("cdc_") and family.name not in _KNOWN
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    assert len(gauges) >= 4
    assert {name: value for name, value in gauges.items() if not math.isnan(value)} == {}


@pytest.mark.parametrize("made", [_capture, _lake, _cache])
def test_page_names_pipeline_build_and_process(made: object) -> None:
    assert callable(made)
    page = scraped(*made())

    assert metric(page, "cdc_build_info", pipeline="shop", version=__version__) == 1
    assert metric(page, "process_resident_memory_bytes") > 1 << 20
    assert metric(page, "process_open_fds") > 0
    ours = [
        sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if not sample.name.startswith("process_")
    ]
    assert {sample.labels.get("pipeline") for sample in ours} == {"shop"}


def test_samples_of_a_sink_name_it() -> None:
    assert math.isnan(metric(scraped(*_cache()), "cdc_sink_lag_seconds", sink="cache", pipeline="shop"))
    assert math.isnan(metric(scraped(*_lake()), "cdc_sink_behind_bytes", sink="lake", pipeline="shop"))


def test_lag_and_age_of_the_last_check_grow_between_two_scrapes_of_a_source_that_is_away() -> None:
    metrics, clock = Metrics("shop"), ManualClock()
    status = Status("shop", clock, metrics)
    status.published(BatchStats(1, 1, 1, int((clock.wall_s() - 900) * 1e6)), StreamPosition(Lsn(2)), 0.1)
    status.caught_up()
    status.wal_seen(_reading(), alarm_bytes=1 << 30, transaction_alarm_s=60)
    found = []

    for _ in range(2):
        clock.now_s += 100
        page = scraped(status, metrics)
        found.append((metric(page, "cdc_lag_seconds"), metric(page, "cdc_source_check_age_seconds")))

    assert found == [(100, 100), (200, 200)]


def test_what_one_check_cannot_tell_is_nan_and_null() -> None:
    status, metrics = _capture()

    status.wal_seen(_reading(), alarm_bytes=1 << 30, transaction_alarm_s=60)
    page, document = scraped(status, metrics), status.snapshot()

    assert metric(page, "cdc_slot_catalog_xmin_age_transactions") == 42
    assert metric(page, "cdc_slot_wal_alarm_state", left_percent="50") == 0
    assert math.isnan(metric(page, "cdc_slot_inactive_seconds")), "nobody reads it, and 16 does not say since when"
    assert math.isnan(metric(page, "cdc_source_oldest_transaction_seconds")), "the role may not see its age"
    assert document["wal"]["oldest_transaction"]["age_seconds"] is None
    assert document["slot"]["wal_bytes_per_second"] is None
    assert document["slot"]["confirmed_lsn"] is None


def test_status_of_a_fresh_process_has_null_for_what_it_does_not_know() -> None:
    found = {**_capture()[0].snapshot(), **_lake()[0].snapshot(), **_cache()[0].snapshot()}

    unknown = ("position", "next_ordinal", "lag_seconds", "source_check_age_seconds", "last_commit_seconds",
               "last_batch_rows", "slot", "wal", "cut", "behind_bytes", "last_cut_records", "last_cut_seconds",
               "partitions", "lag_records", "signals")  # fmt: skip
    assert [key for key in unknown if found[key] is not None] == []


def test_thread_that_breaks_is_logged_and_counted() -> None:
    before = _failures()

    with _excepthook(), structlog.testing.capture_logs() as logged:
        thread = threading.Thread(target=_broken, name="snapshot-2")
        thread.start()
        thread.join()

    assert _failures() == before + 1
    assert [(event["event"], event["thread"]) for event in logged] == [("thread_failed", "snapshot-2")]
    assert "secret" not in str(logged)


def _broken() -> None:
    raise KeyError("secret")


def _failures() -> float:
    page = scraped(*_capture())
    try:
        return metric(page, "cdc_thread_failures_total", thread="snapshot")
    except ValueError:
        return 0.0


@contextmanager
def _excepthook() -> Iterator[None]:
    before = threading.excepthook
    report_broken_threads()
    try:
        yield
    finally:
        threading.excepthook = before


def _reading() -> WalReading:
    return WalReading(
        slot="cdc_shop",
        current_lsn=Lsn(200),
        confirmed_lsn=Lsn(0),
        restart_lsn=Lsn(90),
        wal_status="reserved",
        invalidation="",
        kept_bytes=110,
        safe_bytes=None,
        keep_limit_bytes=None,
        catalog_xmin_age=42,
        oldest=OpenTransaction(7, "", "psql", 0.0),
    )
