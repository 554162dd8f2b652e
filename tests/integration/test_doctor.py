"""`cdc doctor` and `cdc init` against real servers: findings, and that the printed statements work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.cli.main import run
from cdc.config.load import load
from cdc.config.secret import Secret
from cdc.doctor.toml_text import toml_string
from cdc.errors import EXIT_FAILED, EXIT_OK, EXIT_OPERATOR, EXIT_USAGE
from cdc.local.registry_server import Registry
from cdc.replication.catalog_queries import tables_matching
from cdc.replication.connect import Connection, connect
from cdc.replication.publication import publication_facts
from cdc.replication.slot import slot_facts
from tests.fixtures.capture.source_builders import HOSTILE
from tests.fixtures.servers.running_servers import Database, KafkaServer, MakeStack, PostgresServer, fresh_database

TABLES = """
create table public.customers (id int primary key, name text);
create table public.log (line text);
"""


@dataclass(frozen=True)
class Pipeline:
    """A cdc.toml for one database, and how to run `cdc` with it."""

    file: Path
    dsn: str
    bootstrap: str
    name: str

    def write(self, *source: str, dsn: str | None = None, kafka: str = "") -> None:
        self.file.write_text(
            f'name = "{self.name}"\n[source]\ndsn = {toml_string(dsn or self.dsn)}\n' + "\n".join(source) + "\n"
            f'[kafka]\nbootstrap = "{self.bootstrap}"\nreplication_factor = 1\nallow_unreplicated = true\n{kafka}\n'
        )

    def cdc(self, *arguments: str) -> int:
        return run([*arguments, "-c", str(self.file)])


@pytest.fixture
def pipeline(database: Database, kafka: KafkaServer, tmp_path: Path) -> Pipeline:
    made = Pipeline(tmp_path / "cdc.toml", database.dsn, kafka.bootstrap, database.name)
    made.write()
    return made


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    with connect(Secret(database.dsn), application_name="test") as connection:
        yield connection


@pytest.fixture
def role(source: Connection, database: Database) -> Iterator[str]:
    """A name for a role; whoever has it afterwards is dropped with all it owns."""
    name = f'r"{database.name}'
    yield name
    if source.execute("select from pg_roles where rolname = %s", (name,)).fetchone() is not None:
        for statement in ("drop owned by {}", "drop role {}"):
            source.execute(sql.SQL(statement).format(sql.Identifier(name)))


def diagnosis(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    pipeline.cdc("doctor", "--json")
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def errors(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["check"]: finding for finding in found["findings"] if finding["level"] == "error"}


def warnings(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["check"]: finding for finding in found["findings"] if finding["level"] == "warning"}


def test_source_and_broker_in_order_are_exit_0(
    pipeline: Pipeline, source: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    source.execute("create table public.customers (id int primary key)")

    assert pipeline.cdc("doctor") == EXIT_OK

    text = capsys.readouterr().out
    assert "wal_level is logical" in text
    assert "1 of 1 tables can be captured" in text
    assert "Kafka cluster" in text
    assert "`cdc run` can start" in text


def test_table_without_key_is_a_warning_until_its_statement_was_run(
    pipeline: Pipeline, source: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    source.execute(TABLES.encode())
    found = diagnosis(pipeline, capsys)

    assert found["ok"]
    assert warnings(found)["key"]["table"] == "public.log"
    assert pipeline.cdc("doctor", "-q") == EXIT_OK

    source.execute(warnings(found)["key"]["sql"].encode())
    assert "key" not in warnings(diagnosis(pipeline, capsys))


def test_statement_for_an_index_that_can_be_the_identity_makes_the_key(
    pipeline: Pipeline, source: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    source.execute('create table public.t (a int not null, b int); create unique index "i"" x" on public.t (a)')

    found = diagnosis(pipeline, capsys)
    assert not found["ok"], "it is the only table"
    source.execute(warnings(found)["key"]["sql"].encode())

    assert diagnosis(pipeline, capsys)["ok"]
    assert tables_matching(source, ["public.*"])[0].key == ("a",)


def test_large_values_are_seen_where_there_are_some(
    pipeline: Pipeline, source: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    source.execute("create table public.small (id int primary key, t text)")
    source.execute("create table public.big (id int, t text, primary key (id)) partition by range (id)")
    source.execute("create table public.big_1 partition of public.big default")
    source.execute("alter table public.big_1 alter t set storage external")
    source.execute("insert into public.big values (1, repeat('x', 100000))")

    warned = [f["table"] for f in diagnosis(pipeline, capsys)["findings"] if f["check"] == "toast"]

    assert warned == ["public.big"]


def test_partition_that_logs_other_columns_is_an_error_until_its_statement_was_run(
    pipeline: Pipeline, source: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    source.execute("create table public.p (id int primary key) partition by range (id)")
    source.execute("create table public.p_1 partition of public.p default")
    source.execute("alter table public.p replica identity full")

    source.execute(errors(diagnosis(pipeline, capsys))["partition"]["sql"].encode())

    assert diagnosis(pipeline, capsys)["ok"]


@pytest.mark.parametrize(
    ("dsn", "words"),
    [
        ("host=127.0.0.1 port=1 user=cdc password=s3cret", "Connection refused"),
        ("postgresql://cdc:s3cret@no-such-host.invalid/shop", "no-such-host.invalid"),
    ],
)
def test_unreachable_source_is_one_finding_beside_those_of_the_broker(
    dsn: str, words: str, pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.write(dsn=dsn)
    found = diagnosis(pipeline, capsys)

    assert words in errors(found)["source"]["message"]
    assert any(f["group"] == "broker" and f["level"] == "ok" for f in found["findings"])
    assert pipeline.cdc("doctor") == EXIT_OPERATOR
    assert pipeline.cdc("doctor", "--sql") == EXIT_OK
    captured = capsys.readouterr()
    assert "s3cret" not in json.dumps(found) + captured.out + captured.err


def test_unreachable_broker_is_one_finding_beside_those_of_the_source(
    pipeline: Pipeline, source: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    source.execute("create table public.t (id int primary key)")
    pipeline.file.write_text(pipeline.file.read_text().replace(pipeline.bootstrap, "127.0.0.1:1"))

    assert set(errors(diagnosis(pipeline, capsys))) == {"broker"}


def test_dsn_that_is_none_is_exit_2_without_quoting_it(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.write(dsn="postgresql://u:s3c@ret@h/db")

    assert pipeline.cdc("doctor") == EXIT_USAGE
    assert "s3c" not in capsys.readouterr().err


def test_server_without_logical_decoding_gets_the_statement(
    make_stack: MakeStack, kafka: KafkaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = make_stack("postgres", postgres={"wal_level": "replica"}).postgres
    with fresh_database(server) as database:
        pipeline = Pipeline(tmp_path / "cdc.toml", database.dsn, kafka.bootstrap, "shop")
        pipeline.write()
        with psycopg.connect(database.dsn, autocommit=True) as admin:
            admin.execute("create table public.t (id int primary key)")

        found = errors(diagnosis(pipeline, capsys))
        assert set(found) == {"wal_level"}
        with psycopg.connect(database.dsn, autocommit=True) as admin:
            admin.execute(found["wal_level"]["sql"].splitlines()[0].encode())
            auto = admin.execute("select setting from pg_file_settings where name = 'wal_level' order by seqno desc")
            assert auto.fetchone() == ("logical",)


def test_each_missing_right_is_reported_and_the_script_grants_it(
    pipeline: Pipeline, source: Connection, role: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source.execute("create table public.t (id int primary key)")
    source.execute("create table public.u (id int primary key); alter table public.u enable row level security")
    source.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
    pipeline.write(dsn=make_conninfo(pipeline.dsn, user=role))
    found = diagnosis(pipeline, capsys)

    assert set(errors(found)) == {"role_replication", "publication"}
    assert any(f["check"] == "select" and f["level"] == "warning" for f in found["findings"])

    assert pipeline.cdc("doctor", "--sql") == EXIT_OK
    execute(source, capsys.readouterr().out)
    pipeline.write("create = false", dsn=make_conninfo(pipeline.dsn, user=role))

    after = diagnosis(pipeline, capsys)
    assert (after["ok"], errors(after)) == (True, {})
    assert not any(f["check"] == "select" for f in after["findings"])


def test_script_runs_twice_whatever_names_hold(
    pipeline: Pipeline, source: Connection, role: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in HOSTILE:
        source.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))
        source.execute(
            sql.SQL("create table {} (id int primary key); create table {} (n int)").format(
                sql.Identifier(name, name), sql.Identifier(name, f"k{name}"[:20])
            )
        )
    publication = "p'\"\n$tailrace$\\"
    settings = ('tables = ["*.*"]', 'keyless = ["*.k*"]', f"publication = {toml_string(publication)}")
    source.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
    pipeline.write(*settings, dsn=make_conninfo(pipeline.dsn, user=role))

    for _ in range(2):
        assert pipeline.cdc("doctor", "--sql") == EXIT_OK
        text = capsys.readouterr().out
        execute(source, text)

    found = publication_facts(source, publication)
    assert found is not None
    assert set(found.tables) == {t.oid for t in tables_matching(source, ["*.*"])}
    assert len(found.tables) == 2 * len(HOSTILE)
    assert slot_facts(source, f"cdc_{pipeline.name}").usable
    execute(source, text)


def test_script_before_the_role_exists_makes_the_role(
    pipeline: Pipeline, source: Connection, role: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source.execute("create table public.t (id int primary key)")
    pipeline.write(dsn=make_conninfo(pipeline.dsn, user=role))

    assert pipeline.cdc("doctor", "--sql") == EXIT_OK
    captured = capsys.readouterr()
    execute(source, captured.out)

    assert "cannot read the source" in captured.err
    assert pipeline.cdc("doctor", "--sql") == EXIT_OK
    assert "create publication" in capsys.readouterr().out


def test_existing_topic_with_other_settings_is_an_error(
    pipeline: Pipeline, source: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    from cdc.kafka.admin import TopicAdmin
    from cdc.kafka.cluster_facts import TopicSpec

    source.execute("create table public.t (id int primary key)")
    topic = f"{pipeline.name}.public.t"
    configs = {"cleanup.policy": "delete"}
    TopicAdmin(load(pipeline.file, {}).kafka).create(
        [TopicSpec(topic=topic, partition_count=1, replication_factor=1, configs=configs)]
    )

    finding = errors(diagnosis(pipeline, capsys))["topic"]

    assert "cleanup.policy is delete" in finding["message"]
    assert topic in finding["command"]


def test_init_writes_a_config_that_doctor_accepts(
    pipeline: Pipeline, source: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    source.execute(TABLES.encode())
    for name in HOSTILE:
        source.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))
        source.execute(
            sql.SQL("create table {} (id int primary key); create table {} (n int)").format(
                sql.Identifier(name, name), sql.Identifier(name, f"k{name}"[:20])
            )
        )
    target = pipeline.file.with_name("new.toml")
    role = f"{pipeline.name}_init"
    source.execute(sql.SQL("create role {} login superuser password 's3cret'").format(sql.Identifier(role)))
    dsn = make_conninfo(pipeline.dsn, user=role, password="s3cret")

    assert run(["init", "--dsn", dsn, "--kafka", pipeline.bootstrap, "-o", str(target), "--json"]) == EXIT_OK

    text, told = target.read_text(), json.loads(capsys.readouterr().out)
    assert "s3cret" not in text
    assert told["password_needed"]
    assert len(told["tables"]) == len(HOSTILE) + 1
    assert {entry["table"] for entry in told["left_out"]} >= {"public.log"}
    target.write_text(text.replace("replication_factor = 3", "replication_factor = 1\nallow_unreplicated = true"))
    assert run(["doctor", "-c", str(target)]) == EXIT_OK
    selected = tables_matching(source, load(target, {}).source.tables)
    assert {t.table for t in selected} == {entry["table"] for entry in told["tables"]}


def test_init_never_overwrites_unless_forced(
    pipeline: Pipeline, source: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    before = pipeline.file.read_text()
    arguments = ["init", "--dsn", pipeline.dsn, "--kafka", pipeline.bootstrap, "-o", str(pipeline.file)]

    assert run(arguments) == EXIT_USAGE
    assert pipeline.file.read_text() == before
    assert "--force" in capsys.readouterr().err

    assert run([*arguments, "--force", "--name", "mine"]) == EXIT_OK
    assert load(pipeline.file, {}).name == "mine"
    assert [path.name for path in pipeline.file.parent.iterdir()] == [pipeline.file.name]


def test_init_of_an_unreachable_database_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "cdc.toml"

    assert run(["init", "--dsn", "host=127.0.0.1 port=1", "--kafka", "k:1", "-o", str(target)]) == EXIT_FAILED

    assert list(tmp_path.iterdir()) == []
    assert "Connection refused" in capsys.readouterr().err


def test_init_local_without_servers_says_how_to_start_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["init", "--local", "--stack", "never-started", "-o", str(tmp_path / "cdc.toml")]

    assert run(arguments) == EXIT_FAILED
    assert "try: cdc local up --stack never-started" in capsys.readouterr().err


def test_pooler_is_seen_by_its_process_ids(postgres: PostgresServer) -> None:
    with connect(Secret(postgres.dsn)) as connection:
        pid = connection.execute("select pg_backend_pid()").fetchone()

        assert pid == (connection.info.backend_pid,)


def execute(source: Connection, script: str) -> None:
    """Run a script as psql does: statement by statement, so that the slot is not made inside a transaction."""
    body, slot = script.split("\ncommit;\n")
    source.execute(f"{body}\ncommit;".encode())
    source.execute(slot.encode())


def test_doctor_asks_the_registry_when_it_is_needed(
    pipeline: Pipeline, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    patient = f'[registry]\nurl = "{registry.url}"\noptions = {{ timeout = 120 }}\n[encode]\nformat = "avro"'
    pipeline.write('tables = ["public.none"]', kafka=patient)
    pipeline.cdc("doctor", "--json")
    answering = _of_registry(capsys)
    registry.kill()
    code = pipeline.cdc("doctor", "--json")

    away = _of_registry(capsys)
    assert [(finding["level"], "compatibility is" in finding["message"]) for finding in answering] == [("ok", True)]
    assert [(finding["level"], "does not answer" in finding["message"]) for finding in away] == [("error", True)]
    assert code == EXIT_OPERATOR
    pipeline.write()
    pipeline.cdc("doctor", "--json")
    assert _of_registry(capsys) == []


def _of_registry(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    findings = json.loads(capsys.readouterr().out)["findings"]
    return [finding for finding in findings if finding["group"] == "registry"]
