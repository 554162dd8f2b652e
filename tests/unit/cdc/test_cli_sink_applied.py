"""`cdc sink` for search and cache: accepted options, and the functions they call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cdc.cli import main
from cdc.cli.sink_command import replay_of
from cdc.config.config_file import ConfigFile
from cdc.cutindex.log_start import AtLsn, Beginning
from cdc.errors import UsageError
from cdc.lsn import Lsn
from cdc.run import app
from sinks.compose import Replay
from sinks.state.pause_records import PAUSE_KEY, WorkerPause, pause_of, pause_value, paused_key, paused_members
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.sinks.sink_rig import MemoryState

CONFIG = """
name = "shop"
[source]
dsn = "postgresql://db/shop"
[kafka]
bootstrap = "broker:9092"
[sinks.lake]
kind = "warehouse"
path = "lake"
[sinks.cache]
kind = "cache"
url = "redis://localhost/0"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "cdc.toml"
    path.write_text(CONFIG)
    return str(path)


def run(*arguments: str) -> int:
    return main.run(list(arguments))


def test_place_of_a_replay_comes_with_a_name_of_its_own() -> None:
    assert replay_of(None, None) is None
    assert replay_of("0/1B014F8", "try_2") == Replay(AtLsn(Lsn.parse("0/1B014F8")), "try_2")
    assert replay_of("beginning", "v2") == Replay(Beginning(), "v2")


@pytest.mark.parametrize(
    ("start", "name", "says"),
    [
        ("beginning", None, "must be given together"),
        (None, "v2", "must be given together"),
        ("yesterday", "v2", "invalid --from"),
        ("beginning", "V 2", "lower-case"),
    ],
)
def test_replay_that_is_not_one_is_refused(start: str | None, name: str | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        replay_of(start, name)


def test_pause_applies_to_workers_that_join_later_and_is_confirmed_by_name() -> None:
    state = MemoryState()
    early = WorkerPause(state, ManualClock())
    assert early.look() is None
    state.put([(PAUSE_KEY, pause_value("p1"))])
    assert early.look() == WorkerPause(MemoryCopy(state), ManualClock()).look() == "p1"

    early.report_paused("member-1")
    assert paused_members(state.load().items(), "p1") == {"member-1"}
    assert paused_members(state.load().items(), "p2") == set()
    early.report_running()
    assert paused_members(state.load().items(), "p1") == set()


def test_rejoined_worker_is_paused_under_its_new_name_only() -> None:
    state = MemoryState()
    worker = WorkerPause(state, ManualClock())
    state.put([(PAUSE_KEY, pause_value("p1"))])
    worker.look()

    worker.report_paused("member-1")
    worker.report_paused("member-2")
    assert paused_members(state.load().items(), "p1") == {"member-2"}
    worker.report_running()
    assert paused_members(state.load().items(), "p1") == set()


def test_pause_for_a_time_is_over_by_itself_unless_it_is_renewed() -> None:
    state, clock = MemoryState(), ManualClock()
    worker = WorkerPause(state, clock)
    until = int(clock.wall_s() * 1000) + 30_000
    state.put([(PAUSE_KEY, pause_value("p1", until))])
    assert worker.look() == "p1"

    clock.now_s += 20
    state.put([(PAUSE_KEY, pause_value("p1", until + 20_000))])
    clock.now_s += 20
    assert worker.look() == "p1"
    clock.now_s += 20
    assert worker.look() is None


def test_what_others_keep_in_the_state_topic_is_none_of_ours() -> None:
    entries = [(b'{"topic":"t","partition":0,"key":"k"}', b"1"), (b"[1]", b"{}"), (paused_key("m"), b'{"pause":"p1"}')]

    assert paused_members(entries, "p1") == {"m"}
    assert [pause_of(value) for value in (None, b"", b"[]", b'{"pause":"x"}')] == [None, None, None, "x"]


class MemoryCopy(MemoryState):
    """The same entries, read by another process."""

    def __init__(self, other: MemoryState) -> None:
        super().__init__()
        self.entries = list(other.entries)


def test_sink_is_run_by_its_kind(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []

    def note(_: object, name: str, *__: object, **given: object) -> None:
        ran.append((name, given))

    monkeypatch.setattr(app, "run_applied", note)
    monkeypatch.setattr(app, "run_sink", note)

    assert run("sink", "run", "cache", "-c", file, "--instance", "web-3") == 0
    assert run("sink", "run", "lake", "-c", file) == 0
    assert ran == [
        (
            "cache",
            {
                "until_eof": False,
                "replay": None,
                "instance": "web-3",
                "report_fd": None,
                "file": ConfigFile(Path(file), os.environ),
            },
        ),
        ("lake", {"master": None, "until_eof": False, "report_fd": None, "file": ConfigFile(Path(file), os.environ)}),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        ("run", "cache", "--master", "local[2]"),
        ("run", "lake", "--from", "beginning", "--as", "v2"),
        ("run", "nobody"),
        ("pause", "lake"),
        ("resume", "nobody"),
    ],
)
def test_what_is_for_another_kind_is_a_usage_error(file: str, wrong: tuple[str, ...]) -> None:
    assert run("sink", *wrong, "-c", file) == 2


def test_reload_names_the_setting_of_a_sink_without_a_port(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(file).read_text()
    Path(file).write_text(text.replace("[sinks.cache]\n", '[sinks.cache]\nlisten = "127.0.0.1:0"\n'))

    assert run("reload", "--sink", "cache", "-c", file) == 2
    assert "sinks.cache.listen has no port" in capsys.readouterr().err
