"""Freshness objectives of a real pipeline, whose sink another process runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.first_cause import listening, newest_config
from tests.fixtures.servers.http_probe import ask, metric
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.sink_process import SinkProcess

if TYPE_CHECKING:
    from cdc.local.valkey_server import Valkey
    from tests.fixtures.servers.daemon import CaptureSite


def test_sink_of_another_process_is_fresh_while_idle_and_not_while_it_is_frozen(
    capture: CaptureSite, valkey: Valkey
) -> None:
    capture.sql("create table t (id int primary key)", "insert into t values (1)")
    sink = {"kind": "cache", "url": valkey.url, "tables": ["public.t"]}
    daemon = capture.running(
        listening(
            {"sinks.fast": sink, "sinks.fast.objective": {"freshness_s": 5}, "capture.objective": {"freshness_s": 5}}
        )
    )
    capture.settled(daemon)
    port = daemon.events("http_listening")[0]["port"]

    def objective(name: str) -> dict[str, Any]:
        status = json.loads(ask("127.0.0.1", port, "/status")[2])
        found: dict[str, Any] = next(one for one in status["objectives"] if one["sink"] == name)
        return found

    with SinkProcess(capture.folder / "cdc-0.toml", "fast") as worker:
        until(lambda: objective("fast")["fresh"], "the idle sink is fresh", within_s=60)
        worker.freeze()
        until(lambda: not objective("fast")["fresh"], "the frozen sink is not fresh", within_s=60)
        shown = cdc("sink", "status", "fast", "-c", newest_config(capture))
        known = json.loads(cdc("sink", "status", "fast", "--json", "-c", newest_config(capture)).out)
        seen = json.loads(cdc("status", "--json", "-c", newest_config(capture)).out)
        log_is_fresh = until(lambda: objective("")["fresh"], "the log is fresh meanwhile")
        worker.thaw()
        until(lambda: objective("fast")["fresh"], "the sink is fresh again", within_s=60)
        objective_keys = objective("fast").keys()
    page = ask("127.0.0.1", port, "/metrics")[2].decode()
    assert daemon.stop() == 0

    assert log_is_fresh
    assert "objective 5.0 s in 99.9 % of the time" in shown.err, shown
    assert "of the error budget is left" in shown.err, shown
    assert not known["objective"]["fresh"]
    assert 0 < known["objective"]["missed_seconds"] <= seen["sinks"][0]["objective"]["missed_seconds"]
    assert known["objective"].keys() == objective_keys
    fresh_s, checked_s = (
        metric(page, f"cdc_objective_{word}_seconds_total", sink="fast") for word in ("fresh", "checked")
    )
    assert 0 < fresh_s < checked_s
    assert metric(page, "cdc_objective_target_ratio", sink="fast") == 0.999
