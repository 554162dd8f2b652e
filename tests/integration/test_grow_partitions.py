"""The procedure of docs/howto/grow-partitions.md, by its own commands, on real servers and under writes."""

from __future__ import annotations

import json
import re
import shlex
import threading
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
from confluent_kafka.admin import AdminClient

from tests.fixtures.capture.topic_log import TopicLog
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.first_cause import listening
from tests.fixtures.servers.supervised_run import Supervised, supervised
from tests.fixtures.servers.valkey import client_of
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.local.valkey_server import Valkey
    from tests.fixtures.servers.daemon import CaptureSite, Sections

PAGE: Final = Path(__file__).parents[2] / "docs" / "howto" / "grow-partitions.md"
WIDE: Final = 7
KEYS: Final = 40


def commands() -> list[list[str]]:
    """Every `cdc` command of the page, in its order."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines() if line.startswith("cdc ")]


def test_pipeline_is_moved_to_more_partitions_by_the_commands_of_the_page(capture: CaptureSite, valkey: Valkey) -> None:
    capture.sql("create table t (id int primary key, n int not null)")
    capture.sql(f"insert into t select g, 0 from generate_series(1, {KEYS}) g")
    steps = commands()
    run = next(index for index, step in enumerate(steps) if step[0] == "run")
    drop = next(index for index, step in enumerate(steps) if step[:2] == ["slot", "drop"])
    with ExitStack() as running:
        first = running.enter_context(supervised(capture, with_cache(valkey, partitions=2), "first")).until_running()
        (capture.folder / "cdc-0.toml").rename(capture.folder / "cdc.toml")
        wide = running.enter_context(capture_site(f"{capture.name}_w", capture.dsn, capture.bootstrap, capture.folder))
        wide.write_config(with_cache(valkey, partitions=WIDE)).rename(capture.folder / "cdc-wide.toml")
        with counting(capture.dsn):
            done(steps[:run], capture.folder)
            daemon = running.enter_context(second(steps[run], wide)).until_running()
            done(steps[run + 1 : drop], capture.folder)
            assert first.stop() == 0, "step 4.1"
            old = capture.log()
            done(steps[drop:], capture.folder)
            count = updates(capture)
            until(lambda: updates(capture) > count + 100, "writers go on")
        assert daemon.wait_for("cache", capture.wal())[0] == 200
        new = wide.settled(daemon)
        assert cached(valkey, wide) == dict(capture.query("select id, n from t"))

    topic = f"{wide.name}.public.t"
    assert (
        len(AdminClient({"bootstrap.servers": capture.bootstrap}).list_topics(topic).topics[topic].partitions) == WIDE
    )
    assert {int(key.decode()[6:-1]): row["n"] for key, row in new.fold(topic).items()} == dict(
        capture.query("select id, n from t")
    )
    assert_each_change_once(old, capture.topic("t"), new, topic)
    assert capture.query("select from pg_replication_slots where slot_name = %s", capture.slot) == []


def with_cache(valkey: Valkey, *, partitions: int) -> Sections:
    cache = {"kind": "cache", "url": valkey.url, "tables": ["public.t"]}
    return listening(
        {"snapshot": {"mode": "initial"}, "kafka": {"partitions": partitions}, "sinks.cache": cache},
    )


def done(steps: list[list[str]], folder: Path) -> None:
    for step in steps:
        ran = cdc(*step, cwd=folder, timeout_s=240)
        assert ran.code == 0, (step, ran.out, ran.err)


@contextmanager
def second(step: list[str], site: CaptureSite) -> Iterator[Supervised]:
    """`cdc run` as the page shows it."""
    assert step == ["run", "--with-sinks", "-c", "cdc-wide.toml"]
    daemon = Supervised(site.folder / "cdc-wide.toml", site.folder / "wide.log")
    try:
        yield daemon
        assert daemon.stop() == 0
    finally:
        if daemon.alive:
            daemon.kill()


@contextmanager
def counting(dsn: str) -> Iterator[None]:
    """A writer that counts every row up by one, so that a lost or a doubled change shows."""
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(dsn, autocommit=True) as session:
            turn = 0
            while not stop.wait(0.01):
                turn += 1
                session.execute("update t set n = n + 1 where id = %s", (turn % KEYS + 1,))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def updates(site: CaptureSite) -> int:
    return int(site.query("select sum(n) from t")[0][0])


def cached(valkey: Valkey, site: CaptureSite) -> dict[int, int]:
    with client_of(valkey) as reader:
        found: list[Any] = [reader.get(f"{site.name}:cache:public.t:{number}") for number in range(1, KEYS + 1)]
    return {row["id"]: row["n"] for row in map(json.loads, found)}


def assert_each_change_once(old: TopicLog, old_topic: str, new: TopicLog, new_topic: str) -> None:
    """A consumer that moves by the rule of step 4 acts on every change of a row once, and in order."""
    seen: defaultdict[int, list[int]] = defaultdict(list)
    noted = (0, 0)
    for record in old.topic(old_topic):
        if record.source["snapshot"] == "false":
            noted = max(noted, (record.source["commit_lsn"], record.source["ordinal"]))
            seen[record.after["id"]].append(record.after["n"])
    assert noted > (0, 0)
    moved = 0
    for record in new.topic(new_topic):
        if record.source["snapshot"] == "false":
            if (record.source["commit_lsn"], record.source["ordinal"]) > noted:
                seen[record.after["id"]].append(record.after["n"])
            else:
                moved += 1
    assert moved, "the pipelines ran side by side"
    assert len(seen) == KEYS
    for numbers in seen.values():
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
