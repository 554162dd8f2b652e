"""`cdc run --with-sinks`: sinks never affect capture. Without Spark: these sinks fail before they need it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.http_probe import ask
from tests.fixtures.servers.supervised_run import is_gone, supervised
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    import pytest

    from tests.fixtures.servers.daemon import CaptureSite


def test_sink_that_needs_an_operator_goes_on_by_itself_when_it_is_repaired(capture: CaptureSite) -> None:
    """Its port is taken until the operator frees it; then its process stays, and waits for a store that never comes."""
    capture.sql("create table t (id int primary key)")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        section = {
            "kind": "cache",
            "url": "redis://127.0.0.1:9/0",
            "listen": f"127.0.0.1:{taken.getsockname()[1]}",
        }
        with supervised(capture, {"sinks.fast": section}, "needy") as daemon:
            (event, *_) = until(lambda: daemon.events("sink_needs_operator"), "it is named", within_s=60)
            (reason, *_) = daemon.events("sink_stopped")
            daemon.until_running()
            daemon.until_position(capture.sql("insert into t values (1)"))
            until(lambda: daemon.status()["sinks"]["fast"]["state"] == "MISCONFIGURED", "that is shown")
            taken.close()
            until(lambda: daemon.status()["sinks"]["fast"]["state"] == "WAITING", "it goes on", within_s=90)

            assert daemon.stop() == 0

    assert (event["sink"], event["exit_code"], event["again_in_s"]) == ("fast", 2, 5.0)
    assert (reason["sink"], reason["state"]) == ("fast", "MISCONFIGURED")
    assert "sinks.fast.listen" in reason["message"]


def test_sink_whose_process_fails_at_once_is_tried_again_with_pauses(capture: CaptureSite, tmp_path: Path) -> None:
    """A file stands where the lake's folder must be: what it waits for never comes, so its process is killed here."""
    capture.sql("create table t (id int primary key)")
    (tmp_path / "lake").write_text("in the way")
    section = {"kind": "warehouse", "path": str(tmp_path / "lake")}
    with supervised(capture, {"sinks.lake": section}, "failing") as daemon:
        (first,) = until(daemon.sink_pids, "it is started", within_s=60)
        until(lambda: daemon.events("sink_waiting"), "it waits by itself", within_s=60)
        os.kill(first, signal.SIGKILL)
        until(lambda: len(daemon.sink_pids()) == 2, "another one is started", within_s=60)
        second = daemon.sink_pids()[1]
        daemon.until_running()

        assert daemon.stop() == 0
        assert is_gone(second)

    (ended,) = daemon.events("sink_ended")
    (pause,) = daemon.events("sink_restarts")
    assert (ended["sink"], ended["signal"]) == ("lake", 9)
    assert 0.5 <= pause["after_s"] <= 1.0


def test_without_sinks_in_the_configuration_the_option_is_refused(capture: CaptureSite) -> None:
    ran = cdc("run", "--with-sinks", "-c", capture.write_config())

    (event,) = [json.loads(line) for line in ran.err.splitlines()]
    assert ran.code == 2
    assert event["event"] == "capture_stopped"
    assert "needs a sink" in event["message"]
    assert "[sinks.NAME]" in event["hint"]


def test_sink_that_is_not_configured_is_answered_with_those_that_are(capture: CaptureSite, tmp_path: Path) -> None:
    sections = {"sinks.lake": {"kind": "warehouse", "path": str(tmp_path / "lake")}}
    capture.sql("create table t (id int primary key)")
    daemon = capture.running(sections)
    port = daemon.events("http_listening")[0]["port"]

    ran = cdc("wait", "--sink", "pond", "--lsn", "0/1", "-c", capture.write_config(sections))
    code, body = _ask(port, "/sinks/pond/wait?lsn=0/1")

    assert (ran.code, code) == (2, 404)
    assert "lake" in ran.err
    assert "lake" in json.loads(body)["error"]


def _ask(port: int, path: str) -> tuple[int, str]:
    code, _, body = ask("127.0.0.1", port, path)
    return code, body.decode()


def test_processes_of_sinks_inherit_no_secret_that_they_do_not_need(
    capture: CaptureSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read from the kernel: what a process was started with, not what it says."""
    capture.sql("create table t (id int primary key)")
    password = str(conninfo_to_dict(capture.dsn).get("password", "hunter1"))
    for name, value in {
        "TAILRACE_SOURCE_DSN": make_conninfo(capture.dsn, password=password),
        "TAILRACE_SOURCE_PASSWORD": password,
        "TAILRACE_REGISTRY_OPTION_BASIC_AUTH_USER_INFO": "hunter3",
        "TAILRACE_SINK_LAKE_STORAGE_AWS_SECRET_ACCESS_KEY": "hunter4",
        "TAILRACE_SINK_FAST_OPTION_PASSWORD": "of the cache",
        "TAILRACE_KAFKA_OPTION_CLIENT_ID": "of the broker",
    }.items():
        monkeypatch.setenv(name, value)
    section = {"kind": "cache", "url": "redis://127.0.0.1:1/0"}
    with supervised(capture, {"sinks.fast": section}, "inherits") as daemon:
        (pid,) = until(daemon.sink_pids, "the sink is started", within_s=60)
        until(lambda: daemon.events("sink_waiting"), "the sink waits for its store", within_s=60)
        found = (Path("/proc") / str(pid) / "environ").read_bytes().decode()
        own = (Path("/proc") / str(daemon.process.pid) / "environ").read_bytes().decode()

    assert (own.count(password), own.count("hunter3"), own.count("hunter4")) == (2, 1, 1)
    assert not {password, "hunter3", "hunter4"} & set(re.split(r"[\0=' ]", found))
    assert "TAILRACE_SINK_FAST_OPTION_PASSWORD=of the cache" in found
    assert "TAILRACE_KAFKA_OPTION_CLIENT_ID=of the broker" in found
