"""`cdc run --with-sinks`: the state that commands and endpoints show of a running, waiting, frozen or dead sink."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from cdc.client import Waiter
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.freezing import freeze, thaw
from tests.fixtures.servers.http_probe import metric
from tests.fixtures.servers.supervised_run import Supervised, is_gone, supervised
from tests.fixtures.servers.waiting import holds_for, until
from tests.fixtures.sinks.sink_process import SinkProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Sections
    from tests.fixtures.servers.valkey import MakeValkey

_DEAD_WITHIN_S = 120.0  # a report counts for 45 s


def of(daemon: Supervised, sink: str = "fast") -> dict[str, Any]:
    """What capture says of its sink."""
    found: dict[str, Any] = daemon.status().get("sinks", {}).get(sink, {})
    return found


def until_state(daemon: Supervised, state: str) -> None:
    until(lambda: of(daemon).get("state") == state, f"the sink is {state}", within_s=90.0)


def recoveries(daemon: Supervised) -> list[dict[str, Any]]:
    """What was logged of sinks that work again; a first start may have waited for its tables."""
    return [one for one in daemon.events() if one["event"] in {"sink_recovered", "sink_goes_on"}]


def shown(config: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and document of `cdc sink status`."""
    done = cdc("sink", "status", "fast", "-c", config, "--json")
    return done.code, json.loads(done.out)


@pytest.mark.timeout(600)
def test_sink_is_shown_as_it_is_while_it_works_waits_is_frozen_and_is_dead(
    capture: CaptureSite, make_valkey: MakeValkey
) -> None:
    valkey = make_valkey()
    sections: Sections = {
        "sinks.fast": {"kind": "cache", "url": valkey.url},
        "http": {"ready_needs_sinks": True},
        "snapshot": {"mode": "initial"},
    }
    capture.sql("create table t (id int primary key)", "insert into t values (1)")
    with supervised(capture, sections, "health") as daemon:
        config = capture.write_config(sections)
        until_state(daemon, "RUNNING")
        until(lambda: shown(config)[1].get("state") == "RUNNING", "its workers report into the topic", within_s=60.0)
        assert shown(config)[0] == 0
        assert cdc("status", "-c", config).code == 0
        assert daemon.ask("/readyz")[0] == 200
        assert metric(daemon.ask("/metrics")[1], "cdc_supervised_sink_ready", pipeline=capture.name, sink="fast") == 1

        before = recoveries(daemon)
        valkey.kill()
        capture.sql("insert into t values (2)")
        until_state(daemon, "WAITING")
        assert of(daemon)["reason"] == "store"
        holds_for(lambda: of(daemon).get("state") == "WAITING", "it does not flicker", seconds=12.0)
        assert recoveries(daemon) == before, "the store has been away all the while"
        code, body = daemon.ask("/readyz")
        assert (code, "sink fast WAITING" in body) == (503, True)
        valkey.start()
        until_state(daemon, "RUNNING")

        (pid,) = daemon.sink_pids()
        freeze(pid)
        until_state(daemon, "UNKNOWN")
        assert daemon.ask("/readyz")[0] == 503
        thaw(pid)
        until_state(daemon, "RUNNING")

        os.kill(pid, signal.SIGKILL)
        until(lambda: of(daemon).get("restarts") == 1, "it is started again", within_s=60.0)
        until_state(daemon, "RUNNING")

        daemon.kill()
        for one in daemon.sink_pids():
            if not is_gone(one):
                os.kill(one, signal.SIGKILL)
        until(lambda: shown(config)[0] == 1, "nobody vouches for it any more", within_s=_DEAD_WITHIN_S, every_s=2.0)
        assert (shown(config)[1]["state"], shown(config)[1]["workers"]) == ("STOPPED", 0)
        assert "STOPPED" in cdc("sink", "status", "-c", config).out
        assert cdc("status", "-c", config).code == 1


@pytest.mark.timeout(300)
def test_sink_whose_tables_match_nothing_is_an_error_that_says_what_was_meant(
    capture: CaptureSite, make_valkey: MakeValkey
) -> None:
    section = {"kind": "cache", "url": make_valkey().url, "tables": ["public.custmers"]}
    capture.sql("create table customers (id int primary key)")
    with supervised(capture, {"sinks.fast": section}, "typo") as daemon:
        until(lambda: daemon.events("sink_needs_operator"), "it is named", within_s=90.0)
        daemon.until_running()
        found = until(lambda: of(daemon) if of(daemon).get("error") else {}, "its error is shown", within_s=90.0)
        shown_code = cdc("sink", "status", "fast", "-c", capture.write_config({"sinks.fast": section})).code

    assert found["state"] == "MISCONFIGURED"
    assert "did you mean public.customers?" in found["error"]["message"]
    assert shown_code == 3


@pytest.mark.timeout(300)
def test_sink_that_is_started_before_capture_waits_for_it_and_begins_by_itself(
    capture: CaptureSite, make_valkey: MakeValkey
) -> None:
    sections: Sections = {
        "sinks.fast": {"kind": "cache", "url": make_valkey().url},
        "snapshot": {"mode": "initial"},
    }
    capture.sql("create table t (id int primary key)", "insert into t values (1)")
    config = capture.write_config(sections)
    log = config.with_name(f"{config.stem}-fast.log")
    with SinkProcess(config, "fast") as sink, Waiter(config) as waiter:
        until(lambda: "CaptureNotStarted" in log.read_text(), "it says what it waits for", within_s=60.0)
        status = cdc("sink", "status", "fast", "-c", config)
        assert sink.alive
        daemon = capture.running(sections)
        daemon.until_position(capture.sql("insert into t values (2)"))
        waiter.wait("fast", str(capture.wal()), timeout_s=120)
        assert sink.alive
    assert f"capture of pipeline '{capture.name}' has not started yet" in status.err
    assert status.code == 1
