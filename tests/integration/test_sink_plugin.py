"""A sink of another package: exactly the code and configuration of docs/contributing/add-a-sink.md."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.daemon import CaptureSite, Sections
from tests.fixtures.servers.supervised_run import supervised
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.plugin_package import install
from tests.fixtures.sinks.sink_process import SinkProcess

GUIDE: Final = Path(__file__).parents[2] / "docs/contributing/add-a-sink.md"


class Notes:
    """The sink of the guide, installed, and the file that it writes."""

    def __init__(self, folder: Path) -> None:
        text = GUIDE.read_text(encoding="utf-8")
        (module,) = _blocks(text, "python")
        (package,) = map(tomllib.loads, _blocks(text, 'toml title="pyproject.toml"'))
        (configuration,) = map(tomllib.loads, _blocks(text, "toml"))
        self.lines = [line for line in module.splitlines() if line.strip()]
        self.site = folder / "site"
        install(
            self.site,
            "tailrace-sqlite",
            {"tailrace_sqlite.py": module},
            package["project"]["entry-points"]["tailrace.sinks"],
        )
        self._file = folder / "notes.db"
        section: dict[str, Any] = configuration["sinks"]["notes"]
        assert [*section.pop("options")] == ["path"]
        self.sections: Sections = {
            "toast": {"mode": "omit"},  # rows that lack values come to the sink
            "sinks.notes": section,
            "sinks.notes.options": {"path": str(self._file)},
        }

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """Live rows of a table, by key."""
        with closing(sqlite3.connect(self._file)) as db:
            found = db.execute("select row from rows where topic = ? and row is not null order by key", (topic,))
            return [json.loads(row) for (row,) in found]


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    made = Notes(tmp_path)
    there = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(made.site), *([there] if there else [])]))
    return made


def test_the_sink_of_the_guide_follows_its_table_over_a_kill(capture: CaptureSite, notes: Notes) -> None:
    large = os.urandom(20_000).hex()
    capture.sql(
        "create table t (id int primary key, n int, v text)",
        "alter table t alter v set storage external",
    )
    path, topic = capture.folder / "cdc-0.toml", capture.topic("t")
    capture.running(notes.sections)
    with SinkProcess(path, "notes") as worker:
        lsn = capture.sql(f"insert into t values (1, 1, '{large}'), (2, 1, 'b'), (3, 1, 'c')")
        first = cdc("wait", "--sink", "notes", "--lsn", lsn, "--timeout", "60", "-c", path, timeout_s=90)
        before = notes.rows(topic)
        lsn = capture.sql("update t set n = 2 where id = 1", "delete from t where id = 2")
        worker.kill()
        worker.start()
        second = cdc("wait", "--sink", "notes", "--lsn", lsn, "--timeout", "90", "-c", path, timeout_s=120)
        after = notes.rows(topic)
        # The group counts the killed worker until its session ends.
        until(lambda: shown_of(path)["workers"] == 1, "one worker is left", within_s=90)
        status = cdc("sink", "status", "notes", "--json", "-c", path)

    assert (first.code, second.code, status.code) == (0, 0, 0), first.err + second.err + status.err + worker.log_text()
    assert before == [{"id": 1, "n": 1, "v": large}, {"id": 2, "n": 1, "v": "b"}, {"id": 3, "n": 1, "v": "c"}]
    assert after == [{"id": 1, "n": 2, "v": large}, {"id": 3, "n": 1, "v": "c"}]
    shown = json.loads(status.out)
    assert (shown["name"], shown["kind"], shown["workers"]) == ("notes", "sqlite", 1)
    assert len(notes.lines) == 40, "the guide says so"


def shown_of(path: Path) -> dict[str, Any]:
    """What `cdc sink status --json` shows of the sink."""
    shown: dict[str, Any] = json.loads(cdc("sink", "status", "notes", "--json", "-c", path).out)
    return shown


def test_sink_of_another_package_runs_with_capture_and_is_examined(capture: CaptureSite, notes: Notes) -> None:
    capture.sql("create table t (id int primary key)")
    path = capture.folder / "cdc-0.toml"
    with supervised(capture, notes.sections, "guide") as daemon:
        daemon.until_running()
        (pid,) = until(daemon.sink_pids, "the sink is started", within_s=60)
        lsn = capture.sql("insert into t values (1)")
        first = cdc("wait", "--sink", "notes", "--lsn", lsn, "--timeout", "60", "-c", path, timeout_s=90)
        os.kill(pid, signal.SIGKILL)
        lsn = capture.sql("insert into t values (2)")
        second = cdc("wait", "--sink", "notes", "--lsn", lsn, "--timeout", "90", "-c", path, timeout_s=120)
        rows = notes.rows(capture.topic("t"))
        doctor = cdc("doctor", "--json", "-c", path, timeout_s=120)
        verify = cdc("verify", "notes", "-c", path)

        assert daemon.stop() == 0

    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert rows == [{"id": 1}, {"id": 2}]
    findings = [each for each in json.loads(doctor.out)["findings"] if each["check"] == "sink_plugin"]
    assert [each["message"] for each in findings] == ["notes: kind 'sqlite' of tailrace-sqlite 1.0"]
    assert verify.code == 2
    assert "does not support comparison" in verify.err


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
