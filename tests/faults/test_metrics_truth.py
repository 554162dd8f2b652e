"""Metrics while PostgreSQL is unavailable, and in a process that has never reached it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.fixtures.faults.proxy import Proxy
from tests.fixtures.servers.http_probe import ask, metric
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Daemon

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
        own = proxy.port
        daemon = capture.running({"source": {"dsn": f"{host}:{own}/{database}", "wal_check_s": 1}})
        capture.sql("insert into t values (1)")
        capture.settled(daemon)
        until(lambda: metric(page(daemon), "cdc_lag_seconds") == 0, "it is level")
        until(lambda: metric(page(daemon), "cdc_slot_catalog_xmin_age_transactions") >= 0, "the slot was checked")
        calm = page(daemon)

    found = until(lambda: _behind(page(daemon), 6), "lag and age of the check grow", within_s=60)
    assert found is not None
    furthest = max(found)
    until(lambda: _behind(page(daemon), furthest), "they grow further", within_s=60)
    with Proxy(int(port), port=own):
        until(lambda: metric(page(daemon), "cdc_lag_seconds") == 0, "it is level again", within_s=90)

    assert metric(calm, "cdc_slot_catalog_xmin_age_transactions") >= 0
    assert metric(calm, "cdc_source_check_age_seconds") < 60


def _behind(found: str, beyond_s: float) -> tuple[float, float] | None:
    """Lag and age of the last check, once both are larger."""
    both = metric(found, "cdc_lag_seconds"), metric(found, "cdc_source_check_age_seconds")
    return both if min(both) > beyond_s else None
