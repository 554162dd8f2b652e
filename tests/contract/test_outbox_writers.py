"""Every way to write an event, on a real PostgreSQL: the same row, in the application's transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pg8000.dbapi
import psycopg
import psycopg2
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from cdc.config.secret import Secret
from cdc.replication.connect import connect
from cdc.wire.pgoutput import Insert, LogicalMessage, decode
from outbox.errors import PayloadTooLarge
from outbox.event import Event, read_message
from outbox.migrate import Migrator
from outbox.revisions import Settings
from outbox.session import SessionWriter
from outbox.writer import Writer
from tests.fixtures.servers.running_servers import Database


def an_event(number: int = 1, **fields: Any) -> Event:
    return Event(**{
        "aggregate_type": "order", "aggregate_id": str(number), "type": "OrderPlaced", "payload": f'{{"n":  {number}}}',
        **fields,
    })  # fmt: skip


class Transaction(Protocol):
    """A transaction of an application, in which it writes business rows and events."""

    def business(self) -> None: ...
    def write(self, *events: Event) -> None: ...


class WithCursor:
    """By a driver with DB-API cursors."""

    def __init__(self, connection: Any, writer: Writer) -> None:
        self.cursor, self.writer = connection.cursor(), writer

    def business(self) -> None:
        self.cursor.execute("insert into business default values")

    def write(self, *events: Event) -> None:
        self.writer.write(self.cursor, *events)


class WithCore:
    """By a Core connection."""

    def __init__(self, session: Session, writer: Writer) -> None:
        self.connection, self.writer = session.connection(), SessionWriter(writer)

    def business(self) -> None:
        self.connection.execute(text("insert into business default values"))

    def write(self, *events: Event) -> None:
        self.writer.write(self.connection, *events)


class WithSession:
    """By an ORM session, at its flush."""

    def __init__(self, session: Session, writer: Writer) -> None:
        self.session, self.writer = session, SessionWriter(writer)

    def business(self) -> None:
        self.session.execute(text("insert into business default values"))

    def write(self, *events: Event) -> None:
        self.writer.add(self.session, *events)


Begin = Callable[..., Any]


@contextmanager
def by_cursor(dsn: str, engine: Engine, writer: Writer) -> Iterator[Transaction]:
    with psycopg.connect(dsn) as connection:
        yield WithCursor(connection, writer)


@contextmanager
def by_psycopg2(dsn: str, engine: Engine, writer: Writer) -> Iterator[Transaction]:
    with closing(psycopg2.connect(dsn)) as connection, connection:
        yield WithCursor(connection, writer)


@contextmanager
def by_pg8000(dsn: str, engine: Engine, writer: Writer) -> Iterator[Transaction]:
    place = conninfo_to_dict(dsn)
    connection = pg8000.dbapi.connect(
        str(place["user"]), host=str(place["host"]), port=int(str(place["port"])), database=str(place["dbname"]),
        password=place.get("password"),
    )  # fmt: skip
    with closing(connection):
        try:
            yield WithCursor(connection, writer)
        except BaseException:
            connection.rollback()
            raise
        connection.commit()


@contextmanager
def by_core(dsn: str, engine: Engine, writer: Writer) -> Iterator[Transaction]:
    with Session(engine) as session, session.begin():
        yield WithCore(session, writer)


@contextmanager
def by_session(dsn: str, engine: Engine, writer: Writer) -> Iterator[Transaction]:
    with Session(engine) as session, session.begin():
        yield WithSession(session, writer)


WAYS: list[Begin] = [by_cursor, by_psycopg2, by_pg8000, by_core, by_session]


def deploy(dsn: str, *, partitioned: bool = False) -> None:
    def session() -> psycopg.Connection[tuple[Any, ...]]:
        made = connect(Secret(dsn))
        made.autocommit = False
        return made

    Migrator(session, Settings(partitioned=partitioned)).up()


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    deploy(database.dsn)
    ask(database.dsn, "create table business (id bigint generated always as identity)")
    made = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database.dsn), poolclass=NullPool)
    yield made
    made.dispose()


def ask(dsn: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def rows(dsn: str) -> list[Event]:
    """What lies in the table, in the order in which it was written."""
    found = ask(
        dsn,
        "select id, aggregate_type, aggregate_id, type, version, payload::text, payload_bytes, content_type, headers, "
        "ordering_key, created_at from outbox.outbox order by ctid",
    )
    names = Event.__dataclass_fields__
    order = ("id", "aggregate_type", "aggregate_id", "type", "version", "payload", "payload_bytes", "content_type",
             "headers", "ordering_key", "created_at")  # fmt: skip
    assert set(order) == set(names)
    return [Event(**dict(zip(order, row, strict=True))) for row in found]


@contextmanager
def stream(database: Database) -> Iterator[Callable[[], list[object]]]:
    """A slot, and what comes out of it: decoded messages of pgoutput."""
    ask(database.dsn, "create publication p for all tables")
    ask(database.dsn, f"select pg_create_logical_replication_slot('{database.name}', 'pgoutput')")
    options = "'proto_version', '1', 'publication_names', 'p', 'messages', 'true'"
    statement = f"select data from pg_logical_slot_get_binary_changes('{database.name}', null, null, {options})"
    yield lambda: [decode(bytes(row[0])) for row in ask(database.dsn, statement)]


@pytest.mark.parametrize("begin", WAYS)
def test_event_lies_in_the_table_as_it_was_given_beside_the_business_row(
    database: Database, engine: Engine, begin: Begin
) -> None:
    given = [
        an_event(1, headers={"é": '"\\', "b": ""}, ordering_key="k", version=3),
        an_event(2, payload=None, payload_bytes=b"\0\xff", content_type="application/avro"),
        an_event(3, payload='{"total": 1.00, "total": 2e5}'),
        an_event(4, payload=None),
        an_event(5, payload="null"),
    ]

    with begin(database.dsn, engine, Writer()) as transaction:
        transaction.business()
        transaction.write(*given)

    found = rows(database.dsn)
    assert [replaced(event) for event in found] == [replaced(event) for event in given]
    assert abs(found[0].created_at - datetime.now(UTC)) < timedelta(minutes=5)  # type: ignore[operator]
    assert ask(database.dsn, "select count(*) from business") == [(1,)]


def replaced(event: Event) -> dict[str, object]:
    return {name: getattr(event, name) for name in Event.__dataclass_fields__ if name != "created_at"}


@pytest.mark.parametrize("begin", WAYS)
def test_rollback_leaves_neither_the_business_row_nor_the_event(
    database: Database, engine: Engine, begin: Begin
) -> None:
    def application() -> None:
        with begin(database.dsn, engine, Writer()) as transaction:
            transaction.business()
            transaction.write(an_event(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        application()

    assert rows(database.dsn) == []
    assert ask(database.dsn, "select count(*) from business") == [(0,)]


@pytest.mark.parametrize("begin", WAYS)
def test_refused_event_leaves_the_transaction_as_it_was(database: Database, engine: Engine, begin: Begin) -> None:
    with begin(database.dsn, engine, Writer(bytes_max=200)) as transaction:
        transaction.business()
        with pytest.raises(PayloadTooLarge):
            transaction.write(an_event(1), an_event(2, payload='"' + "x" * 200 + '"'))
        transaction.write(an_event(3))

    assert [event.aggregate_id for event in rows(database.dsn)] == ["3"]
    assert ask(database.dsn, "select count(*) from business") == [(1,)]


@pytest.mark.parametrize("begin", WAYS)
def test_events_of_a_transaction_keep_their_order_in_the_stream(
    database: Database, engine: Engine, begin: Begin
) -> None:
    given = [an_event(number) for number in range(700)]
    with stream(database) as read:
        with begin(database.dsn, engine, Writer()) as transaction:
            transaction.write(*given[:600])
            transaction.write(*given[600:])
        inserted = [message.new[0] for message in read() if isinstance(message, Insert)]

    assert inserted == [str(event.id).encode() for event in given]


@pytest.mark.parametrize("begin", WAYS)
def test_event_that_is_not_kept_is_in_the_stream_and_not_in_the_table(
    database: Database, engine: Engine, begin: Begin
) -> None:
    with stream(database) as read:
        with begin(database.dsn, engine, Writer(keep=False)) as transaction:
            transaction.write(an_event(1), an_event(2))
            transaction.write(an_event(3))
        names = [type(message).__name__ for message in read()]

    assert rows(database.dsn) == []
    assert (names.count("Insert"), names.count("Delete")) == (3, 3)


def test_logical_message_is_streamed_when_it_is_committed_and_only_then(database: Database) -> None:
    event = an_event(1, payload='{"a":  1.0}')
    with stream(database) as read, psycopg.connect(database.dsn) as connection:
        Writer().emit(connection.cursor(), an_event(0))
        connection.rollback()
        Writer().emit(connection.cursor(), event)
        connection.commit()
        messages = [message for message in read() if isinstance(message, LogicalMessage)]

    assert [read_message(bytes(message.content)) for message in messages] == [event]
    assert messages[0].prefix == "outbox"


def test_given_time_is_kept_and_the_rest_have_the_database_s(database: Database, engine: Engine) -> None:
    given = datetime(2020, 2, 3, tzinfo=UTC)
    for begin in WAYS:
        with begin(database.dsn, engine, Writer()) as transaction:
            transaction.write(an_event(1, created_at=given), an_event(2))

    found = rows(database.dsn)
    assert [event.created_at == given for event in found] == [True, False] * len(WAYS)


def test_id_that_is_there_already_fails_its_transaction(database: Database, engine: Engine) -> None:
    event = an_event(1)
    with psycopg.connect(database.dsn) as connection:
        Writer().write(connection.cursor(), event)

    def again() -> None:
        with psycopg.connect(database.dsn) as connection:
            connection.execute("insert into business default values")
            Writer().write(connection.cursor(), event)

    with pytest.raises(psycopg.errors.UniqueViolation):
        again()

    assert len(rows(database.dsn)) == 1
    assert ask(database.dsn, "select count(*) from business") == [(0,)]


def test_id_that_is_in_a_partition_already_is_written_again_for_the_inbox_to_drop(database: Database) -> None:
    deploy(database.dsn, partitioned=True)
    event = an_event(1)
    for _ in range(2):
        with psycopg.connect(database.dsn) as connection:
            Writer().write(connection.cursor(), event)

    assert [found.id for found in rows(database.dsn)] == [event.id, event.id]
    assert json.loads(rows(database.dsn)[0].payload or "") == {"n": 1}
