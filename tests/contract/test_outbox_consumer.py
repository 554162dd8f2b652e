"""A consumer on a real database: effects once, in key order, with repeated deliveries and refused events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from cdc.cli.main import run
from outbox.consumer import Consumer, Patience
from outbox.dead_letters import DeadLetters
from outbox.delivery import Delivery
from outbox.errors import ConsumerStopped, EventRejected
from tests.fixtures.outbox.outbox_databases import MemorySource, ask, deploy
from tests.fixtures.servers.running_servers import Database


class Effects:
    """A handler that writes a row for each event, and fails where it is told to."""

    def __init__(self) -> None:
        self.failing: dict[str, list[Exception]] = {}
        self.tried = 0

    def fail(self, type_: str, *errors: Exception) -> None:
        self.failing[type_] = list(errors)

    def __call__(self, cursor: Any, delivery: Delivery) -> None:
        self.tried += 1
        cursor.execute("insert into effect (key, type) values (%s, %s)", (delivery.key.decode(), delivery.type))
        errors = self.failing.get(delivery.type)
        if errors:
            raise errors.pop(0)


class Bench:
    """One consumer, its topic and its database."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.source = MemorySource()
        self.effects = Effects()
        self.waits: list[float] = []
        self.sessions: list[psycopg.Connection[tuple[Any, ...]]] = []
        self.consumer = self.make()

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        self.sessions.append(psycopg.connect(self.dsn))
        return self.sessions[-1]

    def make(self, patience: Patience | None = None) -> Consumer:
        self.source.restart()
        return Consumer(
            "mailer", self.source, self.connect, self.effects, patience=patience,
            sleep=self.waits.append,
        )  # fmt: skip

    def step(self) -> None:
        self.consumer.step(0)
        self.consumer.settle()

    def done(self) -> list[tuple[str, str]]:
        return ask(self.dsn, "select key, type from effect order by id")

    def letters(self) -> list[tuple[str, str]]:
        with psycopg.connect(self.dsn) as connection:
            found = DeadLetters("mailer").letters(connection.cursor(), 100)
        return [(one.delivery.type, one.error) for one in found]

    def wish(self, wish: Any, **which: Any) -> int:
        with psycopg.connect(self.dsn) as connection:
            return DeadLetters("mailer").ask(connection.cursor(), wish, **which)


@pytest.fixture
def bench(database: Database) -> Iterator[Bench]:
    deploy(database.dsn)
    ask(database.dsn, "create table effect (id bigint generated always as identity, key text, type text)")
    made = Bench(database.dsn)
    yield made
    for session in made.sessions:
        session.close()


def test_event_that_is_delivered_or_written_again_has_its_effect_once(bench: Bench) -> None:
    first = bench.source.put("a", "One")
    bench.source.put("a", "Two", id="not-a-uuid")
    bench.step()
    bench.source.committed = 0
    bench.consumer = bench.make()
    bench.source.again(first)
    bench.source.again(bench.source.log[1])

    bench.step()

    assert bench.done() == [("a", "One"), ("a", "Two")]
    assert bench.source.committed == 4
    assert bench.letters() == []


def test_consumers_of_other_names_have_effects_of_their_own(bench: Bench) -> None:
    bench.source.put("a", "One")
    bench.step()
    bench.source.committed = 0
    bench.source.restart()

    Consumer("other", bench.source, bench.connect, bench.effects).step(0)

    assert bench.done() == [("a", "One")] * 2


def test_effect_that_fails_is_undone_and_tried_again(bench: Bench) -> None:
    bench.effects.fail("One", ValueError("x"), ValueError("x"))
    bench.source.put("a", "One")

    bench.step()

    assert bench.done() == [("a", "One")]
    assert bench.effects.tried == 3
    assert bench.waits == sorted(bench.waits)
    assert len(bench.waits) == 2


def test_refused_event_blocks_its_key_and_no_other_and_retry_keeps_the_order(bench: Bench) -> None:
    bench.effects.fail("One", EventRejected("no"), EventRejected("still no"))
    for key, type_ in (("a", "One"), ("b", "One-of-b"), ("a", "Two"), ("a", "Three")):
        bench.source.put(key, type_)

    bench.step()
    assert bench.done() == [("b", "One-of-b")]
    assert bench.letters() == [("One", "EventRejected"), ("Two", "blocked"), ("Three", "blocked")]
    assert bench.effects.tried == 2  # EventRejected is not tried again by itself

    assert bench.wish("retry") == 1
    bench.step()
    assert bench.letters()[0] == ("One", "EventRejected")
    assert ask(bench.dsn, "select count(*) from outbox.dead_letter where wish is not null") == [(0,)]

    bench.source.put("a", "Four")
    bench.wish("retry", key=b"a", topic=bench.source.place[0], error="EventRejected")
    bench.step()
    bench.source.put("a", "Five")
    bench.step()
    assert bench.done() == [("b", "One-of-b"), *(("a", name) for name in ("One", "Two", "Three", "Four", "Five"))]
    assert bench.letters() == []


def test_skipped_event_never_has_its_effect_and_those_behind_it_have_theirs(bench: Bench) -> None:
    bench.effects.fail("One", EventRejected("no"))
    one = bench.source.put("a", "One")
    bench.source.put("a", "Two")
    bench.step()
    bench.wish("skip")
    bench.step()
    bench.source.again(one)
    bench.source.put("a", "Three")

    bench.step()

    assert bench.done() == [("a", "Two"), ("a", "Three")]
    assert bench.letters() == []


def test_event_that_always_fails_is_parked_after_its_attempts_without_its_values(bench: Bench) -> None:
    bench.consumer = bench.make(Patience(attempts=3))
    bench.effects.fail("One", *[KeyError("secret")] * 3)
    bench.source.put("a", "One", payload='"secret"')

    bench.step()

    assert bench.letters() == [("One", "KeyError")]
    assert ask(bench.dsn, "select attempt_count, error from outbox.dead_letter") == [(3, "KeyError")]


def test_record_that_is_parked_is_not_parked_again(bench: Bench) -> None:
    bench.effects.fail("One", EventRejected("no"))
    bench.source.put("a", "One")
    bench.step()
    bench.source.committed = 0
    bench.consumer = bench.make()

    bench.step()

    assert bench.letters() == [("One", "EventRejected")]
    assert bench.source.committed == 1


def test_record_without_an_id_is_parked_and_can_be_skipped(bench: Bench) -> None:
    bench.source.put("a", "One", id="")
    bench.step()
    assert bench.letters() == [("One", "EventMissing")]

    bench.wish("skip")
    bench.step()

    assert bench.letters() == []


def test_session_that_is_cut_is_made_again_and_nothing_is_parked_for_it(bench: Bench) -> None:
    def cut(cursor: Any, delivery: Delivery) -> None:
        if delivery.type == "One" and not bench.waits:
            ask(bench.dsn, "select pg_terminate_backend(%s)", cursor.connection.info.backend_pid)
        bench.effects(cursor, delivery)

    bench.source.put("a", "One")
    bench.source.put("a", "Two")
    consumer = Consumer("mailer", bench.source, bench.connect, cut, sleep=bench.waits.append)

    consumer.step(0)

    assert bench.done() == [("a", "One"), ("a", "Two")]
    assert bench.letters() == []


def test_database_that_stays_away_ends_the_consumer_with_nothing_committed(bench: Bench) -> None:
    def away() -> Any:
        raise psycopg.OperationalError("away")

    bench.source.put("a", "One")
    clock = iter(range(0, 10_000, 60))
    consumer = Consumer(
        "mailer", bench.source, away, bench.effects, sleep=bench.waits.append, now_s=lambda: float(next(clock))
    )

    with pytest.raises(ConsumerStopped):
        consumer.run()

    assert bench.source.committed == 0
    assert bench.source.closed


def test_commands_show_retry_and_skip_dead_letters(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    def cdc(*arguments: str) -> Any:
        assert run(["inbox", *arguments, "--dsn", bench.dsn, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    bench.effects.fail("One", EventRejected("no"))
    bench.source.put("a", "One", payload='"secret"')
    bench.source.put("a", "Two")
    bench.step()

    assert cdc("list") == {
        "letters": [
            {
                "consumer": "mailer",
                "topic": "shop.events.order",
                "error": "EventRejected",
                "key_count": 1,
                "letter_count": 2,
            }
        ]
    }
    shown = cdc("show", "mailer")["letters"]
    assert [(one["type"], one["key"], one["error"]) for one in shown] == [
        ("One", "a", "EventRejected"),
        ("Two", "a", "blocked"),
    ]
    assert "secret" not in json.dumps(shown)
    assert cdc("retry", "mailer", "--error", "Other")["keys"] == 0
    assert cdc("retry", "mailer", "--key", "a")["keys"] == 1
    bench.step()
    assert bench.done() == [("a", "One"), ("a", "Two")]
    assert cdc("skip", "mailer", "--yes")["keys"] == 0
    assert cdc("list")["letters"] == []


def test_inbox_is_emptied_of_what_is_old(bench: Bench) -> None:
    from outbox.inbox import Inbox

    for number in range(3):
        bench.source.put(str(number))
    bench.step()
    ask(bench.dsn, "update outbox.inbox set received_at = received_at - interval '9 days' where ctid < '(0,3)'")

    with psycopg.connect(bench.dsn) as connection:
        assert Inbox("mailer").forget(connection.cursor(), older_than_days=8) == 2
