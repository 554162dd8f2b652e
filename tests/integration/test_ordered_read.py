"""Ordered reads on real servers: the order of PostgreSQL itself, one event after the other, over kills and resumes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import uuid
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.client import ordered
from cdc.clock import SystemClock
from cdc.config.load import load
from cdc.cutindex.log_start import Beginning
from cdc.errors import CutNotReached, TopicMismatch, UsageError
from cdc.inspect.ordered_range import RangeFinder
from cdc.inspect.ordered_reader import OrderedReader
from cdc.inspect.resume_token import LogIdentity
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from tests.fixtures.capture.snapshot_waits import complete
from tests.fixtures.faults.workload import KEYS, ONE_ROW_EACH, SCHEMA, writing
from tests.fixtures.servers.commands import cdc, command
from tests.fixtures.servers.daemon import CaptureSite, capture_site
from tests.fixtures.servers.running_servers import fresh_database
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    from cdc.model.log_record import LogRecord
    from cdc.model.read_pace import ReadPace
    from tests.fixtures.capture.referee import Change
    from tests.fixtures.servers.running_servers import KafkaServer, PostgresServer

_COPIED: Final = 6_000  # rows that a snapshot reads beside the writers
_LARGE: Final = 2_000  # rows of one transaction, over many Kafka transactions
_WRITTEN: Final = 150
_HELD_MAX: Final = 300  # so that partitions are held back and read again

Step = tuple[str, str, str, int, int]
"""Table, operation, key, transaction id, ordinal."""


class WatchedReader(LogReader):
    """Counts how often partitions are held back and read again."""

    turns = 0

    def read(
        self,
        assignments: Mapping[tuple[str, int], int],
        until: Mapping[tuple[str, int], int] | None = None,
        *,
        timeout_s: float | None = None,
        pace: ReadPace | None = None,
    ) -> Generator[list[LogRecord], None, None]:
        """See `LogReader.read`."""
        before: set[tuple[str, int]] = set()
        for batch in super().read(assignments, until, timeout_s=timeout_s, pace=pace):
            yield batch
            if pace is not None:
                self.turns += bool(before - pace.held)
                before = set(pace.held)


class Site:
    """A finished log, its configuration, and what PostgreSQL says about it."""

    def __init__(self, capture: CaptureSite, config: Path, changes: Sequence[Change], middle: Lsn) -> None:
        self.capture = capture
        self.config = config
        self.changes = changes
        self.middle = middle


@pytest.fixture(scope="module")
def site(postgres: PostgresServer, kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Writers on five tables, a snapshot of rows that were there before, and a large transaction, in small batches."""
    name = f"t{uuid.uuid4().hex[:10]}"
    settings: dict[str, dict[str, Any]] = {
        "kafka": {"partitions": 3},
        "capture": {"batch_rows_max": 40},
        "snapshot": {"mode": "initial"},
    }
    with (
        fresh_database(postgres) as database,
        capture_site(name, database.dsn, kafka.bootstrap, tmp_path_factory.mktemp("ordered")) as capture,
    ):
        capture.sql(*SCHEMA, *ONE_ROW_EACH, f"insert into bulk (n) select g from generate_series(1, {_COPIED}) g")
        oracle = capture.oracle()
        daemon = capture.running(settings)
        with writing(capture.dsn, seed(), writers=3) as work:
            until(lambda: work.transactions > _WRITTEN, "the writers write")
            middle = capture.wal()
            capture.transaction(
                f"insert into bulk (n) select g from generate_series(1, {_LARGE}) g",
                "insert into old_row select g, g, true from generate_series(1000, 1200) g",
                "update old_row set id = id + 1000 where id between 1000 and 1100",
                "delete from bulk where n % 7 = 0 and id > 100",
            )
            until(lambda: work.transactions > 2 * _WRITTEN, "the writers write on")
        complete(capture, daemon, *KEYS)
        capture.settled(daemon)
        changes = oracle.changes(list(KEYS))
        daemon.stop()
        yield Site(capture, capture.write_config(settings), changes, middle)


def steps_of_source(changes: Sequence[Change]) -> list[Step]:
    """What each change must become, in the order of PostgreSQL: a changed key is a delete and a create."""
    steps: list[Step] = []
    for change in changes:
        columns = KEYS[change.table]
        old = {name: change.old[name] for name in columns} if change.old else {}
        new = {name: change.new[name] for name in columns} if change.new else {}
        moved = change.op == "UPDATE" and bool(old) and old != new
        if change.op == "DELETE" or moved:
            steps.append((change.table, "d", _key(old), change.xid, change.ordinal))
        if change.op != "DELETE":
            op = "u" if change.op == "UPDATE" and not moved else "c"
            steps.append((change.table, op, _key(new), change.xid, change.ordinal))
    return steps


def step_of(key: bytes, value: dict[str, Any]) -> Step:
    source = value["source"]
    found = {name: one if isinstance(one, str) else json.dumps(one) for name, one in json.loads(key).items()}
    table = f"{source['schema']}.{source['table']}"
    return table, value["op"], _key(found), source["txId"] or 0, source["ordinal"]


def _key(columns: dict[str, str | None] | dict[str, str]) -> str:
    return json.dumps(columns, sort_keys=True)


def read_in_parts(config: Path, dice: random.Random, parts_max: int) -> list[Step]:
    """Read everything, each time from the token of the last event."""
    found: list[Step] = []
    start = "beginning"
    while True:
        with ordered(config, start=start) as events:
            part = list(islice(events, dice.randrange(1, parts_max)))
        if not part:
            return found
        start = part[-1].token
        found += [step_of(one.record.key or b"", json.loads(one.record.value or b"")) for one in part]


def all_steps(config: Path) -> list[Step]:
    with ordered(config) as events:
        return [step_of(one.record.key or b"", json.loads(one.record.value or b"")) for one in events]


def test_stream_comes_in_the_order_of_postgresql_and_every_copied_row_once(site: Site) -> None:
    found = all_steps(site.config)

    # Rows of `wide` may be read again, when a large value was not visible in time.
    copied = [(table, key) for table, op, key, *_ in found if op == "r" and table == "public.bulk"]
    assert [step for step in found if step[1] != "r"] == steps_of_source(site.changes)
    assert len(copied) > _COPIED / 2
    assert len(set(copied)) == len(copied)


def test_positions_never_go_back_and_rows_of_snapshots_are_between_transactions(site: Site) -> None:
    with ordered(site.config) as events:
        positions = [(one.epoch, one.commit_lsn, one.ordinal, one.op) for one in events]

    assert [one[:3] for one in positions] == sorted(one[:3] for one in positions)
    assert all((op == "r") == (ordinal == 0) for _, _, ordinal, op in positions)


def test_read_with_little_memory_holds_partitions_back_and_gives_the_same(site: Site) -> None:
    config = load(site.config, os.environ)
    clock, log = SystemClock(), LogIdentity(site.capture.name, "")
    with LogReader(config.kafka) as index, WatchedReader(config.kafka) as data:
        finder = RangeFinder(index, site.capture.name, clock)
        topics = [site.capture.topic(table.partition(".")[2]) for table in KEYS]
        reading = finder.range(Beginning(), finder.target(None, 30), topics)
        reader = OrderedReader(index, data, log, reading, records_max=_HELD_MAX)
        found, most = [], 0
        for one in reader:
            found.append(step_of(one.record.key or b"", json.loads(one.record.value or b"")))
            most = max(most, reader.held_count)

    assert found == all_steps(site.config)
    assert most < _HELD_MAX + 2_000 * len(reading.starts)
    assert data.turns > 0


def test_read_in_many_parts_gives_the_same_events(site: Site) -> None:
    assert read_in_parts(site.config, random.Random(seed()), 4_000) == all_steps(site.config)


def test_until_an_lsn_is_everything_committed_before_it(site: Site) -> None:
    with ordered(site.config, until=str(site.middle)) as events:
        before = list(events)
        token = events.token
    with ordered(site.config, start=token) as events:
        after = list(events)
    with ordered(site.config, start=str(site.middle)) as events:
        from_there = [(one.commit_lsn, one.ordinal, one.record.topic_partition, one.record.offset) for one in events]

    assert all(one.commit_lsn < site.middle for one in before)
    assert all(one.commit_lsn >= site.middle for one in after)
    assert len(before) + len(after) == len(all_steps(site.config))
    assert from_there == [(one.commit_lsn, one.ordinal, one.record.topic_partition, one.record.offset) for one in after]


def test_command_killed_at_any_moment_resumes_behind_its_last_line(site: Site) -> None:
    dice = random.Random(seed())
    whole = cdc("tail", "-c", site.config, "--ordered", "--until", "now", "--json")
    assert whole.code == 0, whole.err
    lines: list[dict[str, Any]] = []
    start = "beginning"
    for _ in range(4):
        part = killed_part(site.config, start, dice.randrange(1, 1_500))
        assert part
        lines += part
        start = part[-1]["token"]

    rest = cdc("tail", "-c", site.config, "--ordered", "--until", "now", "--json", "--from", start)

    assert rest.code == 0, rest.err
    lines += [json.loads(line) for line in rest.out.splitlines()]
    assert [_place(line) for line in lines] == [_place(json.loads(line)) for line in whole.out.splitlines()]


def killed_part(config: Path, start: str, count: int) -> list[dict[str, Any]]:
    """The complete lines that the command had printed when it was killed after `count` of them or a few more."""
    arguments = command("tail", "-c", config, "--ordered", "--until", "now", "--json", "--from", start)
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        found = list(islice(process.stdout, count))
        process.kill()
        found += process.stdout.readlines()
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
    return [json.loads(line) for line in found if line.endswith(b"\n")]


def _place(line: dict[str, Any]) -> tuple[str, int, int]:
    return line["topic"], line["partition"], line["offset"]


def test_ctrl_c_ends_it_in_order_with_a_token_that_fits_the_output(site: Site) -> None:
    whole = cdc("tail", "-c", site.config, "--ordered", "--until", "now").out.splitlines()
    process = subprocess.Popen(
        command("tail", "-c", site.config, "--ordered", "--until", "now"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # `communicate` does not return what a buffer has
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=90)

    assert process.returncode == 0
    token = errors.decode().strip().removeprefix("token: ")
    after = cdc("tail", "-c", site.config, "--ordered", "--until", "now", "--from", token)
    assert after.out  # the pipe was full, so it was interrupted
    assert (first + rest).decode().splitlines() + after.out.splitlines() == whole


def test_count_and_tables_end_and_narrow_it(site: Site) -> None:
    arguments = ("tail", "-c", site.config, "--ordered", "--until", "now", "hot", "pair")
    everything = cdc(*arguments).out.splitlines()

    first = cdc(*arguments, "-n", "10")
    second = cdc(*arguments, "--from", first.err.strip().removeprefix("token: "))

    assert first.code == second.code == 0, first.err + second.err
    assert len(first.out.splitlines()) == 10
    assert first.out.splitlines() + second.out.splitlines() == everything
    assert {line.split("public.")[1].split()[0] for line in everything} == {"hot", "pair"}


def test_end_of_a_finished_read_resumes_to_nothing(site: Site) -> None:
    with ordered(site.config) as events:
        list(events)
        token = events.token
    with ordered(site.config, start=token) as events:
        assert list(events) == []
        assert events.token == token


def test_mistyped_input_says_what_is_expected(site: Site) -> None:
    for arguments, expected in (
        (("--ordered",), "--ordered needs --until"),
        (("--until", "now"), "--until is an option of --ordered"),
        (("--ordered", "--until", "soon"), "invalid end 'soon' of an ordered read"),
        (("--ordered", "--until", "now", "--from", "10m"), "expected beginning, an LSN (0/1B014F8), or a resume token"),
        (("--ordered", "--until", "now", "--from", "tp00000000.e30"), "invalid resume token: its checksum is wrong"),
        (("--ordered", "--until", "now", "ordrs"), "no captured table matches 'ordrs'"),
        (("--ordered", "--until", "now", "--outbox"), "cannot be combined with --outbox"),
    ):
        ran = cdc("tail", "-c", site.config, *arguments)

        assert ran.code == 2, ran.err
        assert expected in ran.err
        assert ran.out == ""


def test_cut_that_the_log_does_not_reach_is_waited_for_and_given_up(site: Site) -> None:
    with pytest.raises(CutNotReached, match=r"the log does not reach FFFF/0 after 1 s: it is complete up to"):
        ordered(site.config, until="FFFF/0", wait_s=1)


def test_token_of_another_pipeline_is_refused(site: Site, capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()
    capture.sql("insert into t values (1)")
    capture.settled(daemon)
    with ordered(site.config) as events:
        token = next(iter(events)).token

    with pytest.raises(UsageError, match="the resume token is of pipeline"):
        ordered(capture.write_config(), start=token)


def test_recreated_and_deleted_topics_are_named(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)", "create table other (id int primary key)")
    daemon = capture.running()
    capture.sql("insert into t values (1), (2), (3)", "insert into other values (1)")
    capture.settled(daemon)
    daemon.stop()
    config = capture.write_config()
    admin = AdminClient({"bootstrap.servers": capture.bootstrap, "log_level": 3})
    topic = capture.topic("t")
    admin.delete_topics([topic])[topic].result()
    until(lambda: topic not in admin.list_topics(timeout=60).topics, "the topic is gone")

    with pytest.raises(TopicMismatch, match=f"topic '{topic}' does not exist"):
        ordered(config)
    with ordered(config, tables=["other"]) as events:
        assert [one.key for one in events] == [{"id": 1}]

    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()
    until(lambda: topic in admin.list_topics(timeout=60).topics, "the topic is there again")
    with pytest.raises(TopicMismatch, match=f"topic '{topic}' was recreated"):
        ordered(config)


def test_topic_added_while_a_read_is_under_way_is_in_the_next_one(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()
    capture.sql("insert into t select generate_series(1, 50)")
    capture.settled(daemon)
    config = capture.write_config()

    with ordered(config) as events:
        first = [one.key["id"] for one in islice(events, 10)]
        capture.sql(
            "create table added (id int primary key)", "insert into added values (1)", "insert into t values (51)"
        )
        until(lambda: capture.topic("added") in capture.log().data_topics, "the new table is captured")
        first += [one.key["id"] for one in events]
        token = events.token
    capture.sql("insert into added values (2)")
    capture.settled(daemon)
    with ordered(config, start=token) as events:
        second = [(one.table, one.key["id"]) for one in events]

    assert first == list(range(1, 51))
    assert [one for one in second if one[0] == "public.t"] == [("public.t", 51)]
    assert ("public.added", 2) in second


def test_rows_alone_are_ordered_by_their_headers(capture: CaptureSite) -> None:
    flat: dict[str, dict[str, Any]] = {"encode": {"format": "flat"}, "kafka": {"partitions": 3}}
    capture.sql("create table a (id int primary key, n int)", "create table b (id int primary key, n int)")
    daemon = capture.running(flat)
    for number in range(20):
        capture.transaction(
            f"insert into a values ({number}, 0)", f"insert into b values ({number}, 1)", f"update a set n = {number}"
        )
    capture.sql("delete from a where id < 5")
    capture.settled(daemon)

    with ordered(capture.write_config(flat)) as events:
        found = [(one.table, one.op, one.key["id"]) for one in events]

    wanted = []
    for number in range(20):
        wanted += [("public.a", "c", number), ("public.b", "c", number)]
        wanted += [("public.a", "u", one) for one in range(number + 1)]
    assert [one for one in found if one[1] == "c"] == [one for one in wanted if one[1] == "c"]
    assert len(found) == len(wanted) + 5
    assert found[-5:] == [("public.a", "d", one) for one in range(5)]
