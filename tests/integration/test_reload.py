"""Running capture, or a sink, takes over new settings by `cdc reload` and SIGHUP, and goes on if they are not valid."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

from tests.fixtures.capture.topic_log import read_raw
from tests.fixtures.faults.secured import free_ports
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.supervised_run import supervised
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.sink_process import SinkProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections

_TOKEN = "s3cret-token"
_NEW_TOKEN = "an0ther-token"


def _rewritten(capture: CaptureSite, file: Path, sections: Sections) -> None:
    file.write_text(capture.write_config(sections).read_text())


def _actions(capture: CaptureSite, count: int) -> list[dict[str, Any]]:
    """Return the recorded actions when there are this many: they are written a moment after they happened."""
    topic = f"{capture.name}.__actions"
    until(lambda: len(read_raw(capture.bootstrap, topic)) >= count, f"{count} actions are recorded")
    return [json.loads(value or b"") for _, value in read_raw(capture.bootstrap, topic)]


def _hang_up(daemon: Daemon, event: str) -> dict[str, Any]:
    """Send SIGHUP, and return the event of this name that follows."""
    before = len(daemon.events(event))
    os.kill(daemon.pid, signal.SIGHUP)
    until(lambda: len(daemon.events(event)) > before, event)
    return daemon.events(event)[-1]


def test_reload_applies_what_can_change_and_names_what_needs_a_restart(capture: CaptureSite) -> None:
    http = {"listen": f"127.0.0.1:{free_ports(1)[0]}", "token": _TOKEN}
    source = {"wal_check_s": 0.2, "tables": ["public.t"]}
    capture.sql("create table t (id int primary key)", "insert into t values (1)")
    snapshot = {"mode": "initial", "workers": 1}
    daemon = capture.running({"http": http, "source": source, "snapshot": snapshot})
    file = capture.folder / "cdc-0.toml"
    before = cdc("config", "diff", "-c", file)

    _rewritten(
        capture,
        file,
        {
            "http": {**http, "token": _NEW_TOKEN},
            "source": {**source, "transaction_alarm_s": 0.1, "tables": ["public.t", "public.u"]},
            "snapshot": {**snapshot, "workers": 3},
        },
    )
    with_new_token = cdc("reload", "-c", file)
    differing = cdc("config", "diff", "--json", "-c", file)
    done = cdc("reload", "--json", "-c", file, environ={"TAILRACE_HTTP_TOKEN": _TOKEN})
    again = cdc("reload", "--json", "-c", file)
    left = cdc("config", "diff", "--json", "-c", file)
    with capture.connect() as session, session.transaction():
        session.execute("insert into t values (2)")
        until(lambda: daemon.events("long_transaction"), "the alarm under the new limit")

    assert (before.code, before.err) == (0, "")
    assert with_new_token.code == 2
    assert "former token" in with_new_token.err
    found = {one["key"]: one["reload"] for one in json.loads(differing.out)["differences"]}
    applied = ["http.token", "snapshot.workers", "source.transaction_alarm_s"]
    assert found == {**dict.fromkeys(applied, True), "source.tables": False}
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert (sorted(document["applied"]), document["restart"]) == (applied, ["source.tables"])
    assert json.loads(again.out)["applied"] == []
    assert [one["key"] for one in json.loads(left.out)["differences"]] == ["source.tables"]
    assert _TOKEN not in f"{done}{differing}{left}{daemon.log_text()}"
    assert _NEW_TOKEN not in f"{done}{differing}{left}{daemon.log_text()}"


def test_invalid_file_changes_nothing_and_capture_goes_on(capture: CaptureSite) -> None:
    http = {"listen": f"127.0.0.1:{free_ports(1)[0]}", "token": _TOKEN}
    capture.sql("create table t (id int primary key)")
    daemon = capture.running({"http": http})
    file = capture.folder / "cdc-0.toml"
    valid = file.read_text()

    file.write_text(valid + '\n[audit]\ninterval_s = "often"\n')
    wrong = _hang_up(daemon, "config_reload_failed")
    _actions(capture, 1)  # each is recorded before the next one begins
    file.write_text(valid)
    command = cdc("reload", "-c", file)
    file.unlink()
    missing = _hang_up(daemon, "config_reload_failed")
    _actions(capture, 3)
    file.write_text(valid + "\n[audit]\ninterval_s = 7.0\n")
    applied = _hang_up(daemon, "config_reloaded")
    capture.sql("insert into t values (1)")
    rows = capture.settled(daemon).topic(capture.topic("t"))

    assert "audit.interval_s" in wrong["message"]
    assert "not found" in missing["message"]
    assert (command.code, "nothing differs" in command.out) == (0, True)
    assert (applied["applied"], applied["restart"]) == (["audit.interval_s"], [])
    assert len(rows) == 1
    records = _actions(capture, 4)
    assert [(one["action"], one["via"], one["result"]) for one in records] == [
        ("config.reload", "signal", "refused"),
        ("config.reload", "http", "done"),
        ("config.reload", "signal", "refused"),
        ("config.reload", "signal", "done"),
    ]


def test_sink_takes_over_the_token_with_capture_and_survives_sighup(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    # The sink waits for its store, which is not there: it reloads in every state.
    sink = {"kind": "cache", "url": "redis://127.0.0.1:1/0"}
    with supervised(capture, {"sinks.fast": sink}, "reloads") as daemon:
        file = capture.folder / "cdc-0.toml"
        until(lambda: daemon.events("sink_waiting"), "the sink waits for its store")
        daemon.until_running()

        _rewritten(capture, file, {"http": {"token": _TOKEN}, "sinks.fast": {**sink, "parallel": 7}})
        os.kill(daemon.pid, signal.SIGHUP)
        until(lambda: len(daemon.events("config_reloaded")) == 2, "capture and the sink have reloaded")
        os.kill(daemon.sink_pids()[0], signal.SIGHUP)
        until(lambda: len(daemon.events("config_reloaded")) == 3, "the sink has reloaded again")

        found = [(one.get("sink"), one["applied"], one["restart"]) for one in daemon.events("config_reloaded")]
        # Two processes write the log: which of them is first does not matter.
        assert [one for one in found if one[0] is None] == [(None, ["http.token"], ["sinks.fast.parallel"])]
        assert [one for one in found if one[0] == "fast"] == [
            ("fast", ["http.token"], ["sinks.fast.parallel"]),
            ("fast", [], ["sinks.fast.parallel"]),
        ]
        assert len(daemon.sink_pids()) == 1, "it was not restarted"


def test_sink_that_runs_alone_reloads_over_http_with_the_token_and_records_it(capture: CaptureSite) -> None:
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    sink = {"kind": "cache", "url": "redis://127.0.0.1:1/0", "listen": listen}
    silent = {"kind": "cache", "url": "redis://127.0.0.1:1/1"}
    file = capture.write_config({"http": {"token": _TOKEN}, "sinks.fast": sink, "sinks.silent": silent})
    down = cdc("reload", "--sink", "fast", "-c", file)
    with SinkProcess(file, "fast") as process:
        until(lambda: "http_listening" in process.log_text(), "the sink serves HTTP")
        changed: Sections = {
            "http": {"token": _NEW_TOKEN},
            "sinks.fast": {**sink, "parallel": 7},
            "sinks.silent": silent,
        }
        _rewritten(capture, file, changed)

        wrong = cdc("reload", "--sink", "fast", "-c", file)
        done = cdc("reload", "--sink", "fast", "--json", "-c", file, environ={"TAILRACE_HTTP_TOKEN": _TOKEN})
        again = cdc("reload", "--sink", "fast", "-c", file)
        no_address = cdc("reload", "--sink", "silent", "-c", file)
        mistyped = cdc("reload", "--sink", "fats", "-c", file)

    assert (down.code, "sinks.fast.listen leads to its process" in down.err) == (1, True), down.err
    assert (wrong.code, "the process of sink 'fast' still has its former token" in wrong.err) == (2, True), wrong.err
    assert json.loads(done.out) == {"applied": ["http.token"], "restart": ["sinks.fast.parallel"], "recorded": True}
    assert (again.code, "restart of `cdc sink run fast`: sinks.fast.parallel" in again.err) == (0, True), again.err
    assert (no_address.code, "sinks.silent.listen is not set" in no_address.err) == (2, True), no_address.err
    assert (mistyped.code, "fast" in mistyped.err) == (2, True), mistyped.err
    records = _actions(capture, 2)
    reload = ("config.reload", "http", {"sink": "fast"}, "done")
    assert [(one["action"], one["via"], one["arguments"], one["result"]) for one in records] == [reload, reload]
    logged = [line for line in process.log_text().splitlines() if '"event":"config_reloaded"' in line.replace(" ", "")]
    assert [json.loads(line).get("sink") for line in logged] == ["fast", "fast"], process.log_text()
    assert _NEW_TOKEN not in f"{down}{wrong}{done}{again}{process.log_text()}"
