"""A consumer of events that is killed again and again: every effect once, in the order of its key."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg

from cdc.config.settings import Kafka
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.facts import TopicSpec
from cdc.kafka.writer import RecordWriter
from outbox.consumer import Consumer
from outbox.delivery import Delivery
from outbox.event import Event
from outbox.kafkasource import KafkaSource
from tests.fixtures.outboxes import ask, deploy, header_list
from tests.fixtures.seed import seed
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers import Database, KafkaServer

EVENTS: Final = int(os.environ.get("TAILRACE_CONSUMER_EVENTS", "600"))
KEYS: Final = 20
KILLS: Final = int(os.environ.get("TAILRACE_CONSUMER_KILLS", "2"))
_PROGRAM: Final = "from tests.faults.test_outbox_consumer_kill import consume; consume()"


def consume() -> None:
    """The process that is killed: an effect is a row, and now and then a handler fails."""
    dsn, bootstrap, topic = (os.environ[name] for name in ("DSN", "BOOTSTRAP", "TOPIC"))
    chance = random.Random(os.getpid())

    def handler(cursor: psycopg.Cursor[tuple[int]], delivery: Delivery) -> None:
        cursor.execute(
            "insert into effect (key, number) values (%s, %s)", (delivery.key.decode(), int(delivery.headers["n"]))
        )
        if chance.random() < 0.01:
            raise ValueError

    # With an instance id the next process has the partitions at once, and not when the session of this one is over.
    source = KafkaSource(bootstrap, f"{topic}.mailer", [topic], instance="one")
    Consumer("mailer", source, lambda: psycopg.connect(dsn), handler, sleep=lambda _: None).run(0.1)


def test_killed_consumer_has_every_effect_once_and_in_the_order_of_its_key(
    database: Database, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    deploy(database.dsn)
    ask(database.dsn, "create table effect (id bigint generated always as identity, key text, number int)")
    topic = f"{topic_prefix}.events.order"
    settings = Kafka(bootstrap=kafka.bootstrap, replication_factor=1, allow_unreplicated=True)
    TopicAdmin(settings).create([TopicSpec(topic=topic, partition_count=2, replication_factor=1)])
    written = write(settings, topic)
    environ = {**os.environ, "DSN": database.dsn, "BOOTSTRAP": kafka.bootstrap, "TOPIC": topic}
    chance = random.Random(seed())

    def done() -> int:
        return int(ask(database.dsn, "select count(*) from effect")[0][0])

    def reached(process: subprocess.Popen[bytes], goal: int) -> bool:
        return done() >= goal or process.poll() is not None

    for number in range(KILLS + 1):
        with (tmp_path / f"consumer-{number}.log").open("wb") as log:
            process = subprocess.Popen([sys.executable, "-c", _PROGRAM], env=environ, stdout=log, stderr=log)
            try:
                before = done()
                goal = (
                    EVENTS if number == KILLS else min(EVENTS - 1, before + chance.randrange(EVENTS // 20, EVENTS // 3))
                )
                until(partial(reached, process, goal), "effects", within_s=240)
                assert process.poll() is None, (tmp_path / f"consumer-{number}.log").read_text()
                time.sleep(chance.random() * 0.05)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()

    rows = ask(database.dsn, "select key, number from effect order by id")
    assert len(rows) == EVENTS
    assert {key: [number for of, number in rows if of == key] for key in written} == written
    assert ask(database.dsn, "select count(*) from outbox.dead_letter") == [(0,)]


def write(settings: Kafka, topic: str) -> dict[str, list[int]]:
    """Events as the router writes them, some of them twice; key -> their numbers in order."""
    expected: dict[str, list[int]] = {}
    records = []
    for number in range(EVENTS):
        key = str(number % KEYS)
        expected.setdefault(key, []).append(number)
        event = Event(aggregate_type="order", aggregate_id=key, type="T", payload="{}", headers={"n": str(number)})
        record = (topic, int(key) % 2, key.encode(), b"{}", header_list(event))
        records += [record] * (2 if number % 50 == 0 else 1)
    writer = RecordWriter(settings, client_id="test")
    writer.write(records)
    writer.close()
    return expected
