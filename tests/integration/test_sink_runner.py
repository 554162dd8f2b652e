"""From a database through capture into a store in memory: `cdc sink run`, and what commands show of it."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc.clock import SystemClock
from cdc.config.load import load
from cdc.cutindex.log_start import AtLsn
from cdc.errors import TailraceError, UsageError
from sinks.compose import Replay, replayed, start_applied
from sinks.operate.sink_view import SinkViewer
from sinks.state.report_sender import heartbeats
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.memory_target import MemoryTarget
from tests.fixtures.sinks.sink_logs import live
from tests.fixtures.sinks.sink_rig import Told

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cdc.config.settings import Config
    from cdc.lsn import Lsn
    from tests.fixtures.servers.daemon import CaptureSite

SECTIONS: Final[dict[str, dict[str, Any]]] = {
    "snapshot": {"mode": "initial"},
    "sinks.s": {"kind": "search", "url": "http://127.0.0.1:9", "tables": ["public.*", "!public.left_out"]},
}


@dataclass
class Running:
    """A sink in a thread."""

    config: Config
    target: MemoryTarget
    told: Told

    def reached(self, name: str = "s") -> Lsn | None:
        viewer = SinkViewer(self.config, SystemClock())
        try:
            return viewer.applied(name, self.config.sinks["s"]).lsn  # type: ignore[arg-type]
        finally:
            viewer.close()

    def until(self, lsn: Lsn) -> None:
        until(lambda: (at := self.reached()) is not None and at >= lsn, f"the sink is at {lsn}", every_s=0.2)


@contextmanager
def sink(config: Config, name: str = "s", replay: Replay | None = None) -> Iterator[Running]:
    """Run it until the end of the block. `config` stays the one of the file."""
    changed, name = replayed(config, name, replay)
    target, told, stop = MemoryTarget(), Told(), threading.Event()
    errors: list[TailraceError] = []

    def run() -> None:
        try:
            runner = start_applied(
                changed, name, SystemClock(), observer=told, replay=replay, target=target, watch_s=0.5
            )
            try:
                with heartbeats(changed, name, lambda: {"state": "RUNNING"}, SystemClock()):
                    runner.run(stop)
            finally:
                runner.close()
        except TailraceError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield Running(config, target, told)
    finally:
        stop.set()
        thread.join(60)
    assert errors == []


def table(capture: CaptureSite, name: str) -> dict[str, Any]:
    """Rows as the database has them, by the key of their topic; a column that was added is not in rows of before."""
    found = capture.query(f"select jsonb_strip_nulls(to_jsonb(t))::text from {name} t")
    rows = [json.loads(text) for (text,) in found]
    return {json.dumps({"id": row["id"]}, separators=(",", ":")): row for row in rows}


def stored(capture: CaptureSite, running: Running, name: str) -> dict[str, Any]:
    rows = live(running.target.stored_keys(capture.topic(name)))
    return {
        (key or b"").decode(): {column: value for column, value in row.items() if value is not None}
        for key, row in rows.items()
    }


def until_equal(capture: CaptureSite, running: Running, name: str) -> None:
    """Rows from before are read beside the stream, so an LSN says nothing of them."""
    try:
        until(lambda: stored(capture, running, name) == table(capture, name), "the store has the table")
    finally:
        assert stored(capture, running, name) == table(capture, name)


def configured(capture: CaptureSite) -> Config:
    return load(path(capture), {})


def path(capture: CaptureSite) -> Path:
    return capture.folder / f"cdc-{len(capture.daemons) - 1}.toml"


def test_store_follows_rows_deletes_truncates_key_changes_and_new_tables(capture: CaptureSite) -> None:
    capture.sql(
        "create table items (id int primary key, v text)",
        "create table left_out (id int primary key)",
        "insert into items select n, 'before' from generate_series(1, 50) n",
    )
    daemon = capture.running(SECTIONS)
    with sink(configured(capture)) as running:
        lsn = capture.sql(
            "insert into items select n, 'new' from generate_series(51, 80) n",
            "update items set v = 'changed' where id % 3 = 0",
            "delete from items where id % 5 = 0",
            "update items set id = 1000 where id = 1",
            "insert into left_out values (1)",
        )
        running.until(lsn)
        until_equal(capture, running, "items")
        assert {topic.table for topic in running.target.topics} == {"public.items"}

        capture.sql("alter table items add column more int", "insert into items values (2000, 'wide', 7)")
        until_equal(capture, running, "items")
        assert len({schema.schema_id for schema in running.target.schemas}) == 2

        running.until(capture.sql("truncate items", "insert into items values (1, 'after', 2)"))
        until_equal(capture, running, "items")

        capture.sql("create table later (id int primary key)")
        capture.sql("insert into later values (1), (2)")
        daemon.stop()
        capture.running(SECTIONS)
        until_equal(capture, running, "later")


def test_replay_into_another_target_leaves_the_first_as_it_is(capture: CaptureSite) -> None:
    capture.sql("create table items (id int primary key, v text)")
    capture.running(SECTIONS)
    early = capture.sql("insert into items values (1, 'early'), (2, 'early')")
    config = configured(capture)
    with sink(config) as running:
        running.until(early)
        late = capture.sql("insert into items values (3, 'late')", "update items set v = 'late' where id = 2")
        running.until(late)
        applied = running.told.records
        with sink(config, replay=Replay(AtLsn(early), "again")) as again:
            until(lambda: again.told.records >= 2, "the replay has what came late")
            until(lambda: again.told.levels, "it is level")
        first = stored(capture, running, "items")

    assert stored(capture, again, "items") == {key: row for key, row in first.items() if row["v"] == "late"}
    assert first == table(capture, "items")
    assert running.told.records == applied
    with pytest.raises(UsageError, match="is already a sink in the configuration"):
        replayed(config, "s", Replay(AtLsn(early), "s"))


def test_commands_see_a_sink_pause_it_and_have_it_go_on(capture: CaptureSite) -> None:
    capture.sql("create table items (id int primary key, v text)", "insert into items values (1, 'one')")
    capture.running(SECTIONS)
    file = path(capture)
    (before,) = json.loads(cdc("sink", "list", "-c", file, "--json").out)["sinks"]
    with sink(configured(capture)) as running:
        lsn = capture.sql("insert into items values (2, 'two')")
        running.until(lsn)
        status = json.loads(cdc("sink", "status", "s", "-c", file, "--json").out)
        paused = json.loads(cdc("sink", "pause", "s", "-c", file, "--json").out)
        capture.sql("insert into items values (3, 'three')")
        asleep = json.loads(cdc("sink", "status", "s", "-c", file, "--json").out)
        resumed = cdc("sink", "resume", "s", "-c", file)
        assert resumed.code == 0, resumed
        until(lambda: running.told.waiting == "", "it says that it goes on")
        until_equal(capture, running, "items")
        shown = cdc("sink", "status", "-c", file)

    assert (before["kind"], before["state"], before["members"], before["lsn"]) == ("search", "STOPPED", 0, None)
    assert (status["state"], status["workers"], status["members"], status["lag_records"]) == ("RUNNING", 1, 1, 0)
    assert paused == {"sink": "s", "paused": True, "workers": 1}
    assert asleep["state"] == "PAUSED"
    assert resumed.code == 0
    assert "RUNNING" in shown.out
    assert cdc("sink", "pause", "nobody", "-c", file).code == 2
