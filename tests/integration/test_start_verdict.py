"""`cdc doctor` and `cdc status` predict what `cdc run` then does, for every kind of broken setup."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.cli.main import run
from tests.fixtures.faults.patience_mutants import HASTY
from tests.fixtures.servers.daemon import CaptureSite, Sections, capture_site
from tests.fixtures.servers.running_servers import fresh_database
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack, PostgresServer

_LSN: Final = re.compile(r"\b[0-9A-F]+/[0-9A-F]+\b")
_PID: Final = re.compile(r"\b\d+\b")
_REPAIR: Final = "cdc slot recreate --resnapshot"


@dataclass(slots=True)
class Scene:
    """A capture whose table `t` exists, its broker's administrator, and a role that is dropped with the test."""

    site: CaptureSite
    admin: AdminClient
    role: str
    sections: Sections = field(default_factory=dict)

    def once(self) -> None:
        """Capture one row, and stop."""
        daemon = self.site.running(self.sections)
        daemon.until_position(self.site.sql("insert into t values ((select count(*) from t))"))
        assert daemon.stop() == 0

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result()
        until(lambda: not self.partitions(topic), f"{topic} is gone")

    def create(self, topic: str, partitions: int, policy: str = "compact") -> None:
        config = {"cleanup.policy": policy, "max.message.bytes": str(32 << 20)}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result()
        until(lambda: self.partitions(topic) == partitions, f"{topic} is there")

    def partitions(self, topic: str) -> int:
        found = self.admin.list_topics(timeout=60).topics.get(topic)
        return 0 if found is None or found.error is not None else len(found.partitions)

    def as_role(self, attributes: str, *grants: str) -> None:
        """Connect as a role with these attributes from now on."""
        name = sql.Identifier(self.role).as_string(None)
        self.site.sql(f"create role {name} login {attributes}", *(grant.format(role=name) for grant in grants))
        self.sections = {**self.sections, "source": {"dsn": make_conninfo(self.site.dsn, user=self.role)}}


@pytest.fixture
def scene(capture: CaptureSite) -> Iterator[Scene]:
    capture.sql("create table t (id int primary key)")
    admin = AdminClient({"bootstrap.servers": capture.bootstrap, "log_level": 3})
    made = Scene(capture, admin, f"r_{capture.name}")
    yield made
    with capture.connect() as session:
        name = sql.Identifier(made.role)
        if session.execute("select from pg_roles where rolname = %s", (made.role,)).fetchone() is not None:
            session.execute(sql.SQL("drop owned by {0}; drop role {0}").format(name))


def nothing(_: Scene) -> None:
    """A first start in a world that is in order."""


def captured_before(scene: Scene) -> None:
    scene.once()


def new_table(scene: Scene) -> None:
    scene.once()
    scene.site.sql("create table later (id int primary key)")


def slot_dropped(scene: Scene) -> None:
    scene.once()
    scene.site.sql(f"select pg_drop_replication_slot('{scene.site.slot}')")


def slot_dropped_by_hand_made(scene: Scene) -> None:
    scene.once()
    scene.site.sql(f"select pg_drop_replication_slot('{scene.site.slot}')")
    scene.sections = {"source": {"create": False}}


def slot_made_again(scene: Scene) -> None:
    slot_dropped(scene)
    scene.site.sql(f"select pg_create_logical_replication_slot('{scene.site.slot}', 'pgoutput')")


def slot_advanced(scene: Scene) -> None:
    scene.once()
    scene.site.sql("insert into t values (9)")
    scene.site.sql(f"select pg_replication_slot_advance('{scene.site.slot}', pg_current_wal_lsn())")


def slot_of_another_plugin(scene: Scene) -> None:
    scene.site.sql(f"select pg_create_logical_replication_slot('{scene.site.slot}', 'test_decoding')")


def slot_of_another_database(scene: Scene) -> None:
    with psycopg.connect(make_conninfo(scene.site.dsn, dbname="postgres"), autocommit=True) as other:
        other.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (scene.site.slot,))


def slot_renamed(scene: Scene) -> None:
    scene.once()
    scene.sections = {"source": {"slot": f"{scene.site.slot}_b"}}
    scene.site.sql(f"select pg_create_logical_replication_slot('{scene.site.slot}_b', 'pgoutput')")


def data_topic_deleted(scene: Scene) -> None:
    scene.once()
    scene.delete(scene.site.topic("t"))


def data_topic_made_again(scene: Scene) -> None:
    data_topic_deleted(scene)
    scene.create(scene.site.topic("t"), 2)


def progress_topic_deleted(scene: Scene) -> None:
    scene.once()
    scene.delete(f"{scene.site.name}.__progress")


def cut_index_deleted(scene: Scene) -> None:
    scene.once()
    scene.delete(f"{scene.site.name}.__cuts")


def schema_topic_deleted(scene: Scene) -> None:
    scene.once()
    scene.delete(f"{scene.site.name}.__schema")


def signals_topic_deleted(scene: Scene) -> None:
    scene.once()
    scene.delete(f"{scene.site.name}.__signals")


def partitions_added(scene: Scene) -> None:
    scene.once()
    topic = scene.site.topic("t")
    scene.admin.create_partitions([NewPartitions(topic, 5)])[topic].result()
    until(lambda: scene.partitions(topic) == 5, "the new partitions are there")


def topic_of_another_policy(scene: Scene) -> None:
    scene.create(scene.site.topic("t"), 1, "delete")


def topics_by_hand_missing(scene: Scene) -> None:
    scene.sections = {"kafka": {"create_topics": False}}


def more_replicas_than_brokers(scene: Scene) -> None:
    scene.sections = {"kafka": {"replication_factor": 3}}


def signals_by_hand_missing(scene: Scene) -> None:
    signals_topic_deleted(scene)
    scene.sections = {"kafka": {"create_topics": False}}


def publication_dropped(scene: Scene) -> None:
    scene.once()
    scene.site.sql(f"drop publication {scene.site.slot}")


def publication_made_again(scene: Scene) -> None:
    publication_dropped(scene)
    scene.site.sql(f"create publication {scene.site.slot} for table only t")


def table_taken_out(scene: Scene) -> None:
    scene.once()
    scene.site.sql(f"alter publication {scene.site.slot} drop table t")


def updates_not_published(scene: Scene) -> None:
    scene.site.sql(f"create publication {scene.site.slot} for table only t with (publish = 'insert')")


def publication_by_hand_missing(scene: Scene) -> None:
    scene.sections = {"source": {"create": False}}


def role_without_replication(scene: Scene) -> None:
    scene.as_role("", "grant select on t to {role}", "alter table t owner to {role}")


def role_that_may_not_create_a_publication(scene: Scene) -> None:
    scene.as_role("replication", "grant select on t to {role}", "alter table t owner to {role}")


def role_without_select(scene: Scene) -> None:
    scene.site.sql(f"create publication {scene.site.slot} for table only t")
    scene.sections = {"snapshot": {"mode": "initial"}}
    scene.as_role("replication")


def role_that_may_not_read_a_partition(scene: Scene) -> None:
    scene.site.sql(
        "create table p (id int primary key) partition by range (id)",
        "create table p_1 partition of p default",
        f"create publication {scene.site.slot} for table only t, p with (publish_via_partition_root = true)",
    )
    scene.sections = {"snapshot": {"mode": "initial"}}
    scene.as_role("replication", "grant select on t, p to {role}")


def role_without_select_that_takes_no_snapshot(scene: Scene) -> None:
    scene.site.sql(f"create publication {scene.site.slot} for table only t")
    scene.as_role("replication")


def role_that_does_not_exist(scene: Scene) -> None:
    scene.sections = {"source": {"dsn": make_conninfo(scene.site.dsn, user="nobody_here")}}


def no_table(scene: Scene) -> None:
    scene.sections = {"source": {"tables": ["nowhere.*"]}}


def database_that_does_not_exist(scene: Scene) -> None:
    scene.sections = {"source": {"dsn": make_conninfo(scene.site.dsn, dbname="nowhere")}}


def key_changed(scene: Scene) -> None:
    scene.once()
    scene.site.sql(
        "alter table t add column v int not null default 1",
        "alter table t drop constraint t_pkey",
        "alter table t add primary key (id, v)",
    )


def key_type_changed(scene: Scene) -> None:
    scene.once()
    scene.site.sql("alter table t alter column id type text")


def format_changed(scene: Scene) -> None:
    scene.once()
    scene.sections = {"encode": {"format": "flat"}}


def another_pipeline_reads_the_slot(scene: Scene) -> None:
    scene.site.running()


WORLDS: Final[tuple[tuple[Callable[[Scene], None], str, str], ...]] = (
    (nothing, "", ""),
    (captured_before, "", ""),
    (new_table, "", ""),
    (signals_topic_deleted, "", ""),
    (role_without_select_that_takes_no_snapshot, "", ""),
    (role_without_select, "", ""),
    (role_that_may_not_read_a_partition, "", ""),
    (another_pipeline_reads_the_slot, "WAITING", ""),
    (slot_dropped, "GAP", _REPAIR),
    (slot_dropped_by_hand_made, "GAP", _REPAIR),
    (slot_made_again, "GAP", _REPAIR),
    (slot_advanced, "GAP", _REPAIR),
    (slot_of_another_plugin, "MISCONFIGURED", ""),
    (slot_of_another_database, "MISCONFIGURED", ""),
    (slot_renamed, "MISCONFIGURED", "source.slot"),
    (data_topic_deleted, "MISCONFIGURED", _REPAIR),
    (data_topic_made_again, "MISCONFIGURED", _REPAIR),
    (cut_index_deleted, "MISCONFIGURED", _REPAIR),
    (schema_topic_deleted, "MISCONFIGURED", _REPAIR),
    (progress_topic_deleted, "MISCONFIGURED", "name ="),
    (partitions_added, "MISCONFIGURED", ""),
    (topic_of_another_policy, "MISCONFIGURED", "cleanup.policy=compact"),
    (topics_by_hand_missing, "MISCONFIGURED", "kafka-topics.sh"),
    (signals_by_hand_missing, "MISCONFIGURED", "kafka-topics.sh"),
    (more_replicas_than_brokers, "MISCONFIGURED", "kafka.replication_factor = 1"),
    (publication_dropped, "GAP", _REPAIR),
    (publication_made_again, "GAP", _REPAIR),
    (table_taken_out, "GAP", _REPAIR),
    (updates_not_published, "MISCONFIGURED", "alter publication"),
    (publication_by_hand_missing, "MISCONFIGURED", "create publication"),
    (role_without_replication, "MISCONFIGURED", "cdc doctor --sql"),
    (role_that_may_not_create_a_publication, "MISCONFIGURED", "create publication"),
    (role_that_does_not_exist, "MISCONFIGURED", ""),
    (database_that_does_not_exist, "MISCONFIGURED", ""),
    (no_table, "MISCONFIGURED", "cdc doctor"),
    (key_changed, "MISCONFIGURED", "restore its former key"),
    (key_type_changed, "MISCONFIGURED", "restore the former type"),
    (format_changed, "MISCONFIGURED", '[encode] format = "json"'),
)


@pytest.mark.parametrize(("world", "state", "command"), WORLDS, ids=[world.__name__ for world, _, _ in WORLDS])
def test_doctor_and_status_say_what_run_then_does(
    scene: Scene,
    capsys: pytest.CaptureFixture[str],
    world: Callable[[Scene], None],
    state: str,
    command: str,
) -> None:
    world(scene)

    assert_said_and_done(scene, capsys, state, command)


def test_doctor_and_status_name_the_tables_that_a_start_leaves_out_because_of_their_topics(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.site.sql("create table other (id int primary key)")
    key_changed(scene)
    scene.site.sql("create table later (id int primary key)")
    scene.sections = {"kafka": {"create_topics": False}}

    config = str(scene.site.write_config(scene.sections))
    assert (run(["doctor", "--json", "-c", config]), run(["status", "--json", "-c", config])) == (0, 0)
    doctor, status = (json.loads(text) for text in capsys.readouterr().out.replace("}\n{", "}\0{").split("\0"))
    daemon = scene.site.running(scene.sections)

    expected = {"public.t": "key_changed", "public.later": "no_topic"}
    assert {one["table"]: one["check"] for one in doctor["findings"] if one["table"]} == expected
    assert {one["table"]: one["reason"] for one in status["left_out"]} == expected
    assert {one["table"]: one["reason"] for one in daemon.status()["left_out"]} == expected
    assert not [one for one in doctor["findings"] if one["check"] == "topic_missing"]


def test_slot_lost_by_its_wal_limit_is_the_gap_that_doctor_and_status_name(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    source = make_stack("postgres", postgres=settings).postgres
    with capture_site(topic_prefix, source.dsn, kafka.bootstrap, tmp_path) as site:
        site.sql("create table t (id int primary key)")
        scene = Scene(site, AdminClient({"bootstrap.servers": site.bootstrap, "log_level": 3}), "")
        scene.once()

        def invalidated() -> bool:
            site.sql("select pg_switch_wal()", "insert into t select max(id) + 1 from t", "checkpoint")
            query = "select wal_status from pg_replication_slots where slot_name = %s"
            return site.query(query, site.slot) == [("lost",)]

        until(invalidated, "the slot is lost", every_s=0.2)

        said = assert_said_and_done(scene, capsys, "GAP", _REPAIR)

        assert "wal_removed" in said["start"]["message"]


def test_server_with_wal_level_replica_and_then_another_one_under_the_same_name(
    make_stack: MakeStack, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    source = make_stack("postgres", postgres={"wal_level": "replica"}).postgres
    with psycopg.connect(source.dsn, autocommit=True) as session:
        session.execute("create table t (id int primary key)")
    scene.sections = {"source": {"dsn": source.dsn}}
    assert_said_and_done(scene, capsys, "MISCONFIGURED", "alter system set wal_level")

    source.restart(settings={"wal_level": "logical"})
    scene.sections = {}
    scene.once()
    scene.sections = {"source": {"dsn": source.dsn}}
    said = assert_said_and_done(scene, capsys, "DIVERGED", _REPAIR)

    assert "system_identifier" in said["start"]["message"]


def test_second_pipeline_under_the_same_name_in_another_database_is_diverged(
    scene: Scene, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.once()
    with fresh_database(postgres) as database:
        with psycopg.connect(database.dsn, autocommit=True) as session:
            session.execute("create table t (id int primary key)")
        scene.sections = {"source": {"dsn": database.dsn}}

        said = assert_said_and_done(scene, capsys, "DIVERGED", _REPAIR)

    assert "database_oid" in said["start"]["message"]


def assert_said_and_done(scene: Scene, capsys: pytest.CaptureFixture[str], state: str, command: str) -> dict[str, Any]:
    """The document of doctor: it agrees with that of status, and with what `cdc run` then does."""
    config = str(scene.site.write_config(scene.sections))
    capsys.readouterr()
    doctor_code = run(["doctor", "--json", "-c", config])
    doctor: dict[str, Any] = json.loads(capsys.readouterr().out)
    status_code = run(["status", "--json", "-c", config])
    status: dict[str, Any] = json.loads(capsys.readouterr().out)
    said, next_start = doctor["start"], status["outlook"]
    stops = state not in {"", "WAITING"}
    proposed = [f"{finding['sql']} {finding['command']}" for finding in doctor["findings"]]

    assert (said["runs"], said["state"] or "") == (not state, state)
    assert (doctor_code, status_code) == ((3, 3) if stops else (0, 0)), doctor
    assert doctor["ok"] is not stops
    assert (next_start is None) == (not state)
    if said["command"] == _REPAIR:
        assert run(["doctor", "--sql", "-c", config]) == 0
        script = capsys.readouterr().out
        assert "create_logical_replication_slot" not in script
        assert _REPAIR in script
        assert not any("create_logical_replication_slot" in one or "create publication" in one for one in proposed)
    if next_start is not None:
        same = ("state", "state"), ("why", "message"), ("hint", "hint"), ("command", "command")
        assert [_bare(next_start[a]) for a, _ in same] == [_bare(said[b]) for _, b in same]
        assert command in said["command"]

    daemon = scene.site.daemon(scene.sections, mutant=HASTY if stops else "")
    if state == "":
        daemon.until_running()
    elif state == "WAITING":
        assert daemon.until_state("WAITING")["state"] == "WAITING"
    else:
        stop = daemon.stopped_with()
        assert stop["exit_code"] == 3
        done = {name: stop.get(name) or "" for name in ("state", "message", "hint", "command")}
        assert {name: _bare(text) for name, text in done.items()} == {name: _bare(said[name]) for name in done}
    return doctor


def _bare(text: str) -> str:
    """Without positions and process ids, which move on, and for how long a start saw that a topic is missing."""
    return _PID.sub("N", _LSN.sub("LSN", text)).replace(" (for N s, while the broker answered)", "")
