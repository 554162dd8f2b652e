"""The event store on a real database: appends at an expected version, folded states, rebuilt read models."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from outbox.aggregate import Aggregate, Happened
from outbox.delivery import Delivery
from outbox.errors import CommandRefused, ConcurrencyConflict, EventMissing, EventRejected, PayloadTooLarge
from outbox.event import Event
from outbox.event_store import EventStore
from outbox.read_model import rebuild, rebuild_from_store
from outbox.upcast import Upcasters
from outbox.writer import Writer
from tests.fixtures.outbox.outbox_databases import MemorySource, ask, deploy
from tests.fixtures.servers.running_servers import Database
from tests.fixtures.servers.waiting import until
from tests.tidy.test_docs import blocks
from tests.tidy.tree import ROOT


def an_event(type_: str = "Added", payload: str = '{"n": 1}', id_: str = "1", **fields: Any) -> Event:
    return Event(aggregate_type="sum", aggregate_id=id_, type=type_, payload=payload, **fields)


def sums(**options: Any) -> Aggregate[int]:
    """An aggregate whose state is a number."""
    upcasters = Upcasters()
    upcasters.step("sum", "Added", 1)(lambda payload: {"amount": payload["n"]})
    made: Aggregate[int] = Aggregate("sum", int, upcasters=upcasters, **options)
    made.fold("Added")(lambda state, payload: state + payload["amount"])

    @made.command("add", {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}})
    def _(state: int, command: Any) -> list[Happened]:
        if state + command["n"] > 100:
            raise CommandRefused("it would be too much")
        return [Happened("Added", {"amount": command["n"]}, version=2)]

    return made


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    deploy(database.dsn)
    with psycopg.connect(database.dsn) as made:
        yield made


def test_append_at_another_version_than_expected_is_a_conflict_and_appends_nothing(
    database: Database, connection: psycopg.Connection[tuple[Any, ...]]
) -> None:
    store, cursor = EventStore(), connection.cursor()
    assert store.append(cursor, 0, an_event(), an_event()) == 2

    for expected in (0, 1, 3):
        with pytest.raises(ConcurrencyConflict) as caught:
            store.append(cursor, expected, an_event(), an_event())
        assert (caught.value.expected, caught.value.actual) == (expected, 2)
    connection.commit()

    assert [event.sequence for event in store.load(cursor, "sum", "1")] == [1, 2]
    assert ask(database.dsn, "select headers ->> 'sequence' from outbox.outbox order by id") == [("1",), ("2",)]


def test_of_two_that_append_at_the_same_moment_one_has_a_conflict(
    database: Database, connection: psycopg.Connection[tuple[Any, ...]]
) -> None:
    store = EventStore()
    found: list[object] = []

    def second() -> None:
        with psycopg.connect(database.dsn) as other:
            try:
                store.append(other.cursor(), 0, an_event())
            except ConcurrencyConflict as error:
                found.append(error.actual)
                other.rollback()

    store.append(connection.cursor(), 0, an_event())
    thread = threading.Thread(target=second)
    thread.start()
    waiting = "select count(*) from pg_locks where not granted and database = (select oid from pg_database where "
    waiting += "datname = current_database()) or (not granted and locktype = 'transactionid')"
    until(lambda: ask(database.dsn, waiting) != [(0,)], "the second one waits for the first")
    connection.commit()
    thread.join(90)

    assert found == [None]
    assert ask(database.dsn, "select count(*) from outbox.event_store") == [(1,)]


def test_rollback_leaves_neither_the_store_nor_the_outbox_with_the_event(
    database: Database, connection: psycopg.Connection[tuple[Any, ...]]
) -> None:
    EventStore().append(connection.cursor(), 0, an_event())
    connection.rollback()

    assert ask(database.dsn, "select (select count(*) from outbox.event_store), count(*) from outbox.outbox") == [
        (0, 0)
    ]


def test_refused_event_appends_nothing(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    store, cursor = EventStore(Writer(bytes_max=100)), connection.cursor()

    with pytest.raises(PayloadTooLarge):
        store.append(cursor, 0, an_event(), an_event(payload=f'"{"x" * 100}"'))

    assert store.version(cursor, "sum", "1") == 0


def test_state_is_the_fold_of_old_and_new_versions_with_and_without_snapshots(
    database: Database, connection: psycopg.Connection[tuple[Any, ...]]
) -> None:
    EventStore().append(connection.cursor(), 0, an_event(payload='{"n": 5}'))
    connection.commit()
    aggregate = sums(snapshot_every=3)

    for number in range(1, 8):
        aggregate.execute(connection, "1", "add", {"n": number})
    loaded = aggregate.load(connection.cursor(), "1")
    plain = sums(snapshot_every=0, state_version=2).load(connection.cursor(), "1")

    assert (loaded.state, loaded.sequence) == (plain.state, plain.sequence) == (33, 8)
    assert loaded.spared in {6, 7, 8}
    assert plain.spared == 0
    ask(database.dsn, "delete from outbox.snapshot")
    connection.rollback()
    assert aggregate.load(connection.cursor(), "1").state == 33


def test_command_is_validated_before_it_has_an_effect(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    aggregate = sums()

    with pytest.raises(CommandRefused, match="/n: type") as caught:
        aggregate.execute(connection, "1", "add", {"n": "secret"})
    assert "secret" not in str(caught.value)
    with pytest.raises(CommandRefused, match="too much"):
        aggregate.execute(connection, "1", "add", {"n": 101})

    assert aggregate.load(connection.cursor(), "1").sequence == 0


def test_commands_at_the_same_moment_are_decided_one_after_the_other(
    database: Database, connection: psycopg.Connection[tuple[Any, ...]]
) -> None:
    aggregate = sums(snapshot_every=2)
    outcomes: list[str] = []

    def work() -> None:
        with psycopg.connect(database.dsn) as mine:
            for _ in range(6):
                try:
                    aggregate.execute(mine, "1", "add", {"n": 10}, attempts=200)
                    outcomes.append("done")
                except CommandRefused:
                    outcomes.append("refused")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["done"] * 10 + ["refused"] * 8
    assert aggregate.load(connection.cursor(), "1").state == 100


def test_missing_event_and_event_without_a_fold_raise_event_missing(
    database: Database, connection: psycopg.Connection[tuple[Any, ...]]
) -> None:
    EventStore().append(connection.cursor(), 0, *[an_event() for _ in range(3)])
    EventStore().append(connection.cursor(), 0, an_event("Unheard", id_="2"))
    connection.execute("delete from outbox.event_store where sequence = 2")
    connection.commit()

    with pytest.raises(EventMissing, match="event 2"):
        sums().load(connection.cursor(), "1")
    with pytest.raises(EventMissing, match="no fold for Unheard"):
        sums().load(connection.cursor(), "2")


def project(cursor: Any, delivery: Delivery) -> None:
    if delivery.type == "Broken":
        raise EventRejected("no")
    cursor.execute(
        "insert into model (key, sequence) values (%s, %s)", (delivery.key.decode(), delivery.headers["sequence"])
    )


def test_read_model_is_rebuilt_from_the_topic_and_from_the_store(
    database: Database, connection: psycopg.Connection[tuple[Any, ...]]
) -> None:
    ask(database.dsn, "create table model (id bigint generated always as identity, key text, sequence int)")
    source = MemorySource()
    for id_ in ("a", "b"):
        events = [an_event(id_=id_) for _ in range(3)]
        EventStore().append(connection.cursor(), 0, *events)
        for number in range(1, 4):
            source.put(id_, sequence=str(number))
    connection.commit()
    expected = [(id_, number) for id_ in ("a", "b") for number in (1, 2, 3)]

    for generation in (1, 2):
        source.committed = 0
        source.restart()
        assert rebuild("m", generation, lambda _: source, lambda: psycopg.connect(database.dsn), project) == 6
        assert ask(database.dsn, "select key, sequence from model order by id") == expected
        ask(database.dsn, "truncate model")
    assert rebuild_from_store("sum", lambda: psycopg.connect(database.dsn), project) == 6
    assert ask(database.dsn, "select key, sequence from model order by id") == expected


def test_read_model_that_lacks_an_event_is_not_finished(
    database: Database, connection: psycopg.Connection[tuple[Any, ...]]
) -> None:
    ask(database.dsn, "create table model (id bigint generated always as identity, key text, sequence int)")
    source = MemorySource()
    source.put("a", "Broken")

    with pytest.raises(EventMissing, match="dead letters"):
        rebuild("m", 1, lambda _: source, lambda: psycopg.connect(database.dsn), project)


def test_example_of_the_page_runs_two_users_ask_for_one_seat(
    database: Database, connection: psycopg.Connection[tuple[Any, ...]]
) -> None:
    programs = blocks(ROOT / "docs" / "howto" / "event-sourcing.md", "python")
    assert len(programs) == 3
    named: dict[str, Any] = {"__name__": "example"}
    for program in programs:
        lines = [f"dsn = {database.dsn!r}" if line.startswith("dsn =") else line for line in program.splitlines()]
        exec(compile("\n".join(lines), "event-sourcing.md", "exec", dont_inherit=True), named)

    assert sorted(named["outcomes"]) == ["booked", "refused"]
    types = ask(database.dsn, "select type, headers ->> 'sequence' from outbox.outbox order by id")
    assert types == [("Scheduled", "1"), ("Booked", "2")]
