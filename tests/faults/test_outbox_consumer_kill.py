"""Consumers of events are killed, frozen and added: each effect happens once, in the order of its key."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from cdc.config.settings import Kafka
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.cluster_facts import TopicSpec
from cdc.kafka.durable_writer import RecordWriter
from outbox.consumer import Consumer
from outbox.delivery import Delivery
from outbox.event import Event
from outbox.kafka_source import KafkaSource
from tests.fixtures.outbox.outbox_databases import ask, deploy, header_list
from tests.fixtures.servers.freezing import freeze, thaw
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.running_servers import Database, KafkaServer

EVENTS: Final = int(os.environ.get("TAILRACE_CONSUMER_EVENTS", "600"))
KEYS: Final = 20
PARTITIONS: Final = 4
SESSION_S: Final = 6.0  # the least that brokers take
KILLS: Final = int(os.environ.get("TAILRACE_CONSUMER_KILLS", "2"))
_PROGRAM: Final = "from tests.faults.test_outbox_consumer_kill import consume; consume()"


def consume() -> None:
    """The process that is killed: an effect is a row, and now and then a handler fails."""
    dsn, bootstrap, topic, instance = (os.environ[name] for name in ("DSN", "BOOTSTRAP", "TOPIC", "INSTANCE"))
    chance = random.Random(os.getpid())

    def handler(cursor: psycopg.Cursor[tuple[int]], delivery: Delivery) -> None:
        cursor.execute(
            "insert into effect (key, number, pid) values (%s, %s, %s)",
            (delivery.key.decode(), int(delivery.headers["n"]), os.getpid()),
        )
        if chance.random() < 0.01:
            raise ValueError

    options = {"session.timeout.ms": str(int(1000 * SESSION_S)), "heartbeat.interval.ms": "500"}
    source = KafkaSource(bootstrap, f"{topic}.mailer", [topic], instance=instance, options=options)
    Consumer("mailer", source, lambda: psycopg.connect(dsn), handler, sleep=lambda _: None).run(0.1)


@dataclass(frozen=True)
class Site:
    """A database, a topic full of events, and what must come of them: key -> numbers in order."""

    dsn: str
    bootstrap: str
    topic: str
    folder: Path
    written: dict[str, list[int]] = field(default_factory=dict)

    @property
    def settings(self) -> Kafka:
        return Kafka(bootstrap=self.bootstrap, replication_factor=1, allow_unreplicated=True)

    def write(self, numbers: range) -> None:
        """Events as the router writes them, some of them twice."""
        records = []
        for number in numbers:
            key = str(number % KEYS)
            self.written.setdefault(key, []).append(number)
            event = Event(aggregate_type="order", aggregate_id=key, type="T", payload="{}", headers={"n": str(number)})
            record = (self.topic, int(key) % PARTITIONS, key.encode(), b"{}", header_list(event))
            records += [record] * (2 if number % 50 == 0 else 1)
        writer = RecordWriter(self.settings, client_id="test")
        writer.write(records)
        writer.close()

    def start(self, name: str, *, instance: str = "") -> subprocess.Popen[bytes]:
        """A member of the consumer."""
        environ = {"DSN": self.dsn, "BOOTSTRAP": self.bootstrap, "TOPIC": self.topic, "INSTANCE": instance}
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-c", _PROGRAM], env={**os.environ, **environ}, stdout=log, stderr=log
            )

    def done(self) -> int:
        return int(ask(self.dsn, "select count(*) from effect")[0][0])

    def log_text(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def check(self) -> None:
        rows = ask(self.dsn, "select key, number from effect order by id")
        assert len(rows) == EVENTS
        assert {key: [number for of, number in rows if of == key] for key in self.written} == self.written
        assert ask(self.dsn, "select count(*) from outbox.dead_letter") == [(0,)]


@pytest.fixture
def site(database: Database, kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Site:
    deploy(database.dsn)
    # A number for each row as it becomes visible: of one key there is one writer at a time.
    ask(database.dsn, "create table effect (id bigint generated always as identity, key text, number int, pid int)")
    topic = f"{topic_prefix}.events.order"
    made = Site(database.dsn, kafka.bootstrap, topic, tmp_path)
    TopicAdmin(made.settings).create([TopicSpec(topic=topic, partition_count=PARTITIONS, replication_factor=1)])
    return made


def test_killed_consumer_has_every_effect_once_and_in_the_order_of_its_key(site: Site) -> None:
    chance = random.Random(seed())
    site.write(range(EVENTS))

    def reached(process: subprocess.Popen[bytes], goal: int) -> bool:
        return site.done() >= goal or process.poll() is not None

    for number in range(KILLS + 1):
        # With an instance id the next process has the partitions at once, and not when the session of this one is over.
        process = site.start(f"consumer-{number}", instance="one")
        try:
            before = site.done()
            goal = EVENTS if number == KILLS else min(EVENTS - 1, before + chance.randrange(EVENTS // 20, EVENTS // 3))
            until(partial(reached, process, goal), "effects", within_s=240)
            assert process.poll() is None, site.log_text(f"consumer-{number}")
            time.sleep(chance.random() * 0.05)  # the moment is what the test is about
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    site.check()


def partitions_held(site: Site, group: str) -> list[int]:
    """How many partitions each member has now."""
    client = AdminClient({"bootstrap.servers": site.settings.bootstrap})
    found = client.describe_consumer_groups([group])[group].result(60)
    return [len(member.assignment.topic_partitions) for member in found.members]


def test_members_that_come_freeze_past_their_session_and_go_share_keys_and_double_nothing(site: Site) -> None:
    """The frozen one may hold a transaction: who has its partition by then waits for it, and does not overtake it."""
    with ExitStack() as running:

        def member(name: str) -> subprocess.Popen[bytes]:
            process = site.start(name)
            running.callback(process.wait)
            running.callback(process.kill)
            return process

        first, second, third = range(EVENTS // 3), range(EVENTS // 3, EVENTS // 2), range(EVENTS // 2, EVENTS)
        one = member("one")
        site.write(first)
        until(lambda: site.done() > 0, "one works", within_s=90)
        two = member("two")
        group = f"{site.topic}.mailer"
        until(lambda: len(held := partitions_held(site, group)) == 2 and all(held), "both have partitions", within_s=90)
        site.write(second)
        workers = "select count(distinct pid) from effect"
        until(lambda: ask(site.dsn, workers) == [(2,)], "they share the keys", within_s=90)
        freeze(one.pid)
        site.write(third)
        until(lambda: partitions_held(site, group) == [PARTITIONS], "its partitions are the other's", within_s=90)
        thaw(one.pid)
        three = member("three")
        until(lambda: site.done() >= EVENTS, "every event has its effect", within_s=240)
        assert [process.poll() for process in (one, two, three)] == [None] * 3, site.log_text("one")

    site.check()
