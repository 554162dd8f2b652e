"""The migrations of the outbox on real servers: the newest PostgreSQL and the oldest that is captured."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.cli.main import run
from cdc.config.secret import Secret
from cdc.local.postgres_programs import OLDER_MAJORS
from cdc.replication.connect import connect
from outbox.errors import MigrationRefused
from outbox.event import Event
from outbox.migrate import Migrator
from outbox.revisions import Settings, revisions
from outbox.table_names import Names
from tests.fixtures.servers.running_servers import MAJOR, Database, MakeStack, fresh_database
from tests.fixtures.servers.waiting import until

ALL = [one.id for one in revisions()]


def migrator(dsn: str, *, sleep: Callable[[float], None] = time.sleep, **settings: Any) -> Migrator:
    def session() -> psycopg.Connection[tuple[Any, ...]]:
        made = connect(Secret(dsn))
        made.autocommit = False
        return made

    return Migrator(session, Settings(**settings), sleep=sleep)


def ask(dsn: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def insert(connection: psycopg.Connection[tuple[Any, ...]], number: int) -> None:
    event = Event(aggregate_type="a", aggregate_id=str(number), type="T", payload="{}")
    connection.execute(
        "insert into outbox.outbox (id, aggregate_type, aggregate_id, type, payload) values (%s, %s, %s, %s, %s)",
        (event.id, event.aggregate_type, event.aggregate_id, event.type, event.payload),
    )


@pytest.fixture
def oldest(make_stack: MakeStack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database of the oldest major that is captured."""
    monkeypatch.setenv(MAJOR, OLDER_MAJORS[0])
    with fresh_database(make_stack("postgres").postgres) as made:
        yield made


def up_and_down(dsn: str, *, partitioned: bool) -> None:
    deployed = migrator(dsn, partitioned=partitioned)

    assert [one.id for one in deployed.up()] == ALL
    assert deployed.check() == []
    assert deployed.up() == []
    state = deployed.state()
    assert (state.current, state.partitioned, state.pending) == (ALL[-1], partitioned, ())
    with psycopg.connect(dsn) as connection:
        insert(connection, 1)
    assert [one.id for one in deployed.down("0001")] == ALL[:0:-1]
    assert [one.id for one in deployed.up()] == ALL[1:]
    assert deployed.check() == []
    with pytest.raises(MigrationRefused, match="has rows"):
        deployed.down("base")
    assert ask(dsn, "select count(*) from outbox.outbox") == [(1,)]
    assert [one.id for one in deployed.down("base", with_data=True)] == ALL[::-1]
    assert ask(dsn, "select relname from pg_class where relnamespace = 'outbox'::regnamespace") == []


@pytest.mark.parametrize("partitioned", [False, True])
def test_migrations_go_up_and_down_and_the_models_agree(database: Database, partitioned: bool) -> None:
    up_and_down(database.dsn, partitioned=partitioned)


def test_migrations_go_up_and_down_on_the_oldest_major(oldest: Database) -> None:
    up_and_down(oldest.dsn, partitioned=False)
    up_and_down(oldest.dsn, partitioned=True)
    assert ask(oldest.dsn, "show server_version")[0][0].startswith(f"{OLDER_MAJORS[0]}.")


class Writers:
    """Applications that write business rows and events all the time, and note the longest that one had to wait."""

    def __init__(self, dsn: str) -> None:
        self.dsn, self.written, self.longest_s = dsn, 0, 0.0
        self.errors: list[BaseException] = []
        self._over = threading.Event()

    def write(self, first: int) -> None:
        try:
            with psycopg.connect(self.dsn) as connection:
                while not self._over.is_set():
                    begun = time.monotonic()
                    connection.execute("insert into public.business (what) values ('x')")
                    insert(connection, first)
                    connection.commit()
                    self.longest_s = max(self.longest_s, time.monotonic() - begun)
                    self.written += 1
        except BaseException as error:  # noqa: BLE001 - the test is told
            self.errors.append(error)

    @contextmanager
    def running(self, count: int) -> Iterator[None]:
        threads = [threading.Thread(target=self.write, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()


def test_migration_runs_on_a_database_with_existing_data_without_blocking_writers(database: Database) -> None:
    ask(database.dsn, "create table public.business (id bigint generated always as identity, what text)")
    ask(database.dsn, "insert into public.business (what) select 'x' from generate_series(1, 50000)")
    deployed = migrator(database.dsn, lock_timeout_ms=200, sleep=lambda _: time.sleep(0.1))
    deployed.up()
    with psycopg.connect(database.dsn) as connection:
        for number in range(500):
            insert(connection, number)
    writers = Writers(database.dsn)

    with writers.running(2), psycopg.connect(database.dsn) as slow:
        until(lambda: writers.written > 10, "they write")
        insert(slow, 0)  # a transaction that stays open and holds the table's lock
        moving = threading.Thread(target=deployed.partition)
        moving.start()
        blocked = "select count(*) from pg_locks where not granted and mode = 'AccessExclusiveLock'"
        until(lambda: ask(database.dsn, blocked) == [(1,)], "the migration waits for its lock")
        until(lambda: ask(database.dsn, blocked) == [(0,)], "it gives up for a while", within_s=90)
        before = writers.written
        until(lambda: writers.written > before + 10, "the writers go on while the transaction is open")
        slow.commit()
        moving.join(60)
        assert not moving.is_alive()
        before = writers.written
        until(lambda: writers.written > before + 10, "they write to the new table")

    assert writers.errors == []
    assert writers.longest_s < 20  # 0.2 s behind an attempt, on a machine that does much else
    assert deployed.state().partitioned is True
    assert deployed.check() == []
    kept = "select (select count(*) from outbox.outbox) + (select count(*) from outbox.outbox_before)"
    assert ask(database.dsn, kept) == [(writers.written + 501,)]
    assert ask(database.dsn, "select count(*) from outbox.outbox_default") == [(0,)]


def test_exchanged_outbox_keeps_its_rights_and_its_publication(database: Database) -> None:
    role = f"app_{database.name}"
    ask(database.dsn, f"create role {role}")
    try:
        ask(database.dsn, "create publication p with (publish_via_partition_root = true)")
        deployed = migrator(database.dsn, publication="p")
        deployed.up()
        ask(database.dsn, f"grant insert on outbox.outbox to {role}")

        assert deployed.partition() == "outbox_before"

        tables = ask(database.dsn, "select tablename from pg_publication_tables order by 1")
        assert tables == [("heartbeat",), ("outbox",)]
        assert ask(database.dsn, f"select has_table_privilege('{role}', 'outbox.outbox', 'insert')") == [(True,)]
        assert deployed.check() == []
        with pytest.raises(MigrationRefused, match="already partitioned"):
            deployed.partition()
    finally:
        ask(database.dsn, "drop owned by " + role)
        ask(database.dsn, "drop role " + role)


def test_outbox_with_a_trigger_is_not_exchanged(database: Database) -> None:
    deployed = migrator(database.dsn)
    deployed.up()
    ask(database.dsn, "create function f() returns trigger language plpgsql as 'begin return new; end'")
    ask(database.dsn, "create trigger t before insert on outbox.outbox for each row execute function f()")

    with pytest.raises(MigrationRefused, match="a trigger"):
        deployed.partition()

    assert deployed.state().partitioned is False


def test_role_that_owns_only_its_schema_can_migrate(database: Database) -> None:
    role = f"owner_{database.name}"
    ask(database.dsn, f"create role {role} login")
    try:
        dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role)
        with pytest.raises(MigrationRefused, match="must own the schema"):
            migrator(dsn).up()
        ask(database.dsn, f"create schema outbox authorization {role}")

        migrator(dsn, partitioned=True).up()

        assert migrator(dsn).check() == []
        migrator(dsn).down("base")
    finally:
        ask(database.dsn, "drop owned by " + role)
        ask(database.dsn, "drop role " + role)


def test_two_migrations_do_not_run_at_once(database: Database) -> None:
    deployed = migrator(database.dsn, attempts=3, sleep=lambda _: None)
    with psycopg.connect(database.dsn) as other:
        other.execute("select pg_advisory_lock(%s, hashtext('outbox'))", (0x7461696C,))

        with pytest.raises(MigrationRefused, match="another migration"):
            deployed.up()

    assert deployed.up()


def test_tables_that_no_migration_made_are_left_alone(database: Database) -> None:
    ask(database.dsn, "create schema outbox; create table outbox.inbox (a int)")

    with pytest.raises(MigrationRefused, match="inbox, which no migration created"):
        migrator(database.dsn).up()

    assert ask(database.dsn, "select relname from pg_class where relnamespace = 'outbox'::regnamespace") == [("inbox",)]


def test_schema_of_a_newer_release_is_left_alone(database: Database) -> None:
    migrator(database.dsn).up()
    ask(database.dsn, "update outbox.tailrace_migration set version_num = '9999'")

    for call in (migrator(database.dsn).up, migrator(database.dsn).state, migrator(database.dsn).check):
        with pytest.raises(MigrationRefused, match="9999"):
            call()


def test_check_reports_manual_changes(database: Database) -> None:
    migrator(database.dsn).up()
    ask(database.dsn, "alter table outbox.outbox add column extra int, alter column headers drop default")
    ask(database.dsn, "alter table outbox.outbox drop constraint outbox_one_payload")
    ask(database.dsn, "alter table outbox.inbox drop constraint inbox_pkey")
    ask(database.dsn, "alter table outbox.snapshot alter column state type jsonb")

    told = "\n".join(migrator(database.dsn).check())

    for word in ("extra", "headers", "outbox_one_payload", "primary key of inbox", "state"):
        assert word in told


@pytest.mark.parametrize("partitioned", [False, True])
def test_script_for_a_dba_is_what_up_does(database: Database, partitioned: bool) -> None:
    names = Names(schema="Event box")
    deployed = migrator(database.dsn, names=names, partitioned=partitioned)

    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(deployed.sql(since="base").encode())

    assert deployed.state().pending == ()
    assert deployed.check() == []
    assert deployed.up() == []
    assert "0004" in deployed.sql(since="0003")
    assert "0003_" not in deployed.sql(since="0003")


def test_commands_deploy_the_outbox_that_the_configuration_routes(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cdc.toml"
    path.write_text(
        f'name = "shop"\n[source]\ndsn = "{database.dsn}"\ntables = ["public.t"]\n'
        '[kafka]\nbootstrap = "localhost:1"\n[outbox]\ntable = "app.events"\n'
    )
    codes = [run(["migrate", *words, "-c", str(path)]) for words in (("up",), ("check",), ("sql", "--since", "0003"))]

    assert codes == [0, 0, 0], capsys.readouterr()
    found = ask(database.dsn, "select tablename from pg_tables where schemaname = 'app' and tablename = 'events'")
    assert found == [("events",)]
    assert ask(database.dsn, "select 1 from pg_namespace where nspname = 'outbox'") == []
    assert run(["inbox", "list", "-c", str(path)]) == 0


def test_commands_deploy_show_and_check(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    def cdc(*arguments: str) -> Any:
        code = run(["migrate", *arguments, "--dsn", database.dsn, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out or err)

    assert cdc("check")[0] == 1
    assert [one["revision"] for one in cdc("up", "--partitioned")[1]["applied"]] == ALL
    assert cdc("status")[1]["partitioned"] is True
    assert cdc("check") == (0, {"schema": "outbox", "differences": []})
    assert cdc("partition")[0] == 3
    assert cdc("down", "--to", "0002", "--yes")[1] == {
        "undone": [{"revision": one.id, "phase": one.phase, "what": one.title} for one in revisions()[:1:-1]]
    }
    code, told = cdc("down", "--to", "0009", "--yes")
    assert (code, told["error"]["class"]) == (3, "SourceRefused")
    assert ask(database.dsn, "select 1 from pg_namespace where nspname = 'outbox'") == [(1,)]
