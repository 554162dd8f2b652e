"""What /metrics says while PostgreSQL is away, and in a process that has never reached it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.fixtures.faults.proxy import Proxy
from tests.fixtures.waiting import until
from tests.fixtures.web import ask, metric

if TYPE_CHECKING:
    from tests.fixtures.daemon import CaptureSite, Daemon

_GAUGES = ("cdc_lag_seconds", "cdc_slot_lost_in_seconds", "cdc_slot_safe_wal_bytes", "cdc_source_check_age_seconds")


def page(daemon: Daemon) -> str:
    """A scrape."""
    port = until(lambda: daemon.events("http_listening"), "it serves")[0]["port"]
    return ask("127.0.0.1", port, "/metrics")[2].decode()


def test_process_that_never_reached_postgresql_claims_no_lag_and_no_lost_slot(capture: CaptureSite) -> None:
    with Proxy(1) as nowhere:
        dsn = f"postgresql://postgres@127.0.0.1:{nowhere.port}/postgres"
        daemon = capture.daemon({"source": {"dsn": dsn}})
        daemon.until_state("WAITING")

        found = page(daemon)

    assert [name for name in _GAUGES if not math.isnan(metric(found, name))] == []
    assert metric(found, "cdc_build_info", pipeline=capture.name) == 1
    assert daemon.status()["lag_seconds"] is None


def test_lag_grows_while_postgresql_is_away_and_is_zero_again_behind_it(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    host, _, rest = capture.dsn.rpartition(":")
    port, _, database = rest.partition("/")
    with Proxy(int(port)) as proxy:
        source = {"dsn": f"{host}:{proxy.port}/{database}", "wal_check_s": 1}
        daemon = capture.running({"source": source})
        capture.sql("insert into t values (1)")
        capture.settled(daemon)
        until(lambda: metric(page(daemon), "cdc_lag_seconds") == 0, "it is level")
        calm = page(daemon)

        proxy.silence()
        until(lambda: metric(page(daemon), "cdc_lag_seconds") > 6, "the lag grows", within_s=60)
        until(lambda: metric(page(daemon), "cdc_source_check_age_seconds") > 3, "the check gets old", within_s=60)
        first = metric(page(daemon), "cdc_lag_seconds")
        until(lambda: metric(page(daemon), "cdc_lag_seconds") > first, "the lag grows further")

        proxy.clear()
        proxy.reset()
        until(lambda: metric(page(daemon), "cdc_lag_seconds") == 0, "it is level again", within_s=90)

    assert metric(calm, "cdc_slot_catalog_xmin_age_transactions") >= 0
    assert metric(calm, "cdc_source_check_age_seconds") < 60
