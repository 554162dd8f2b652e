"""`encode.format = "avro"`: fastavro and the registry read the same events from the log as the JSON form has."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.capture import avro_reader
from tests.fixtures.capture.signal_records import answered, signal
from tests.fixtures.capture.snapshot_waits import INITIAL, complete
from tests.fixtures.capture.type_forms import ALL, made_domains
from tests.fixtures.capture.type_forms import columns as form_columns
from tests.fixtures.capture.type_tables import (
    MAKE_OWN,
    OWN,
    Columns,
    arrays,
    create,
    exact,
    fill,
    said_by_server,
    scalars,
)
from tests.fixtures.faults.secured import PASSWORD, USER, WRONG_PASSWORD
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.registry_api import RegistryApi

if TYPE_CHECKING:
    from pathlib import Path

    from cdc.local.registry_server import Registry
    from tests.fixtures.capture.topic_log import LogRecord, TopicLog
    from tests.fixtures.faults.registrydoor import RegistryDoor
    from tests.fixtures.servers.daemon import CaptureSite, Sections


def avro(registry: Registry, **encode: str) -> Sections:
    return {"encode": {"format": "avro", **encode}, "registry": {"url": registry.url}}


@pytest.mark.parametrize("columns", [scalars(), arrays(), OWN], ids=["scalars", "arrays", "own"])
def test_values_are_what_the_server_says(capture: CaptureSite, registry: Registry, columns: Columns) -> None:
    if columns is OWN:
        capture.sql(*MAKE_OWN)
    with capture.connect() as session:
        there = create(session, columns)
    daemon = capture.running(avro(registry))
    with capture.connect() as session:
        row_count = fill(session, there)
        expected = said_by_server(session, there)

    records = capture.settled(daemon).topic(capture.topic("t"))

    assert len(records) == row_count
    for record in records:
        row = shown_row(record, RegistryApi(registry.url))
        assert row == {"id": row["id"], **expected[int(row["id"])]}


def test_forms_an_operator_chooses_are_those_of_json(capture: CaptureSite, registry: Registry, tmp_path: Path) -> None:
    """Numbers where JSON has numbers, and its text where it has text."""
    capture.sql("create extension hstore", *made_domains())
    with capture.connect() as session:
        there = create(session, form_columns())
    with capture_site(f"{capture.name}j", capture.dsn, capture.bootstrap, tmp_path / "j") as plain:
        plain.folder.mkdir()
        daemons = capture.running(avro(registry, **ALL)), plain.running({"encode": dict(ALL)})
        with capture.connect() as session:
            fill(session, there)
        in_json = {event.after["id"]: exact(event.value or b"")["after"] for event in plain.settled(daemons[1]).events}
        records = capture.settled(daemons[0]).topic(capture.topic("t"))

    assert len(records) == len(in_json)
    for record in records:
        row = shown_row(record, RegistryApi(registry.url))
        assert row == in_json[int(row["id"])]


def test_log_says_in_avro_what_it_says_in_json(capture: CaptureSite, registry: Registry, tmp_path: Path) -> None:
    """Large values that were not sent, keys that change, FULL, no key, TRUNCATE, names that are none in Avro."""
    capture.sql(
        "create table t (id int primary key, v int, body text)",
        "alter table t alter column body set storage external",
        "create table f (id int primary key, body text)",
        "alter table f replica identity full",
        "create table k (v int)",
        "alter table k replica identity full",
        'create table "Größe %s" ("a b" text, "_x41" date, "1" int[], primary key ("a b", "1"))',
    )
    more: Sections = {"source": {"keyless": ["public.k"]}, "capture": {"transactions": True}}
    with capture_site(f"{capture.name}j", capture.dsn, capture.bootstrap, tmp_path / "j") as plain:
        plain.folder.mkdir()
        daemons = capture.running({**avro(registry), **more}), plain.running(more)
        for statement in (
            "insert into t select n, 0, repeat(chr(96 + n), 3000) from generate_series(1, 6) n",
            "update t set v = 1 where id < 4",
            "update t set id = 20, v = 2 where id = 2",
            "delete from t where id = 3",
            "insert into f values (1, repeat('a', 3000)), (2, null)",
            "update f set id = 3 where id = 1",
            "delete from f where id = 2",
            "insert into k values (1), (2)",
            "delete from k where v = 1",
            """insert into "Größe %s" values ('x', '2020-01-01', '{1,2}'), ('', null, '{{1},{2}}')""",
            """truncate "Größe %s", t""",
            "insert into t values (1, 1, 'again')",
        ):
            for site, daemon in ((capture, daemons[0]), (plain, daemons[1])):
                daemon.until_position(site.sql(statement) if site is capture else site.wal())
        log, wanted = capture.settled(daemons[0]), plain.settled(daemons[1])

    api = RegistryApi(registry.url)
    found, expected = _comparable(capture, log, api), _comparable(plain, wanted, None)
    assert len(found) == len(expected)
    assert [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]] == []
    assert tombstones(log) == tombstones(wanted) == 3 + 2 + 2 + 4


def test_each_topic_has_its_subjects_and_one_id_for_its_keys(capture: CaptureSite, registry: Registry) -> None:
    capture.sql("create table t (id int primary key, v int)")
    daemon = capture.running(avro(registry))
    capture.settled(daemon)
    capture.sql("insert into t values (1)", "alter table t add column w text", "insert into t values (2, 2, 'w')")
    capture.settled(daemon)
    daemon.stop()
    daemon = capture.running(avro(registry))
    capture.sql("alter table t alter column id type int8", "insert into t values (3000000000)")

    records = capture.settled(daemon).topic(capture.topic("t"))

    api, topic = RegistryApi(registry.url), capture.topic("t")
    assert api.subjects(f"{capture.name}.") == [f"{topic}-key", f"{topic}-value"]
    assert (api.versions(f"{topic}-key"), api.versions(f"{topic}-value")) == ([1], [1, 2, 3])
    assert len({avro_reader.schema_id(record.key or b"") for record in records}) == 1
    rows = [shown_row(record, api) for record in records]
    assert sorted(row["id"] for row in rows) == [1, 2, 3_000_000_000]
    assert [row for row in rows if row["id"] == 2] == [{"id": 2, "v": 2, "w": "w"}]


def test_change_that_is_not_compatible_stops_capture_and_loses_nothing(
    capture: CaptureSite, registry: Registry
) -> None:
    capture.sql("create table t (id int primary key, v int)", "create table u (id int primary key)")
    daemon = capture.running(avro(registry))
    daemon.until_position(capture.sql("insert into t values (1, 1)"))
    api, subject = RegistryApi(registry.url), f"{capture.topic('t')}-value"
    api.level(subject, "BACKWARD")

    capture.transaction(
        "insert into u values (1)",
        "alter table t alter column v type text",
        "insert into t values (2, 'two')",
        "insert into u values (2)",
    )
    stop = daemon.stopped_with(90.0)

    assert (stop["exit_code"], stop["state"]) == (3, "MISCONFIGURED")
    assert f"the current schema of public.t is not compatible with subject '{subject}'" in stop["message"]
    assert "reader union lacking writer type" in stop["message"], "the registry's reason"
    assert api.versions(subject) == [1]
    before = capture.log().topic(capture.topic("u"))
    assert [shown_row(record, api) for record in before] == [{"id": 1}], "what came before is published"

    api.level(subject, "NONE")
    log = capture.settled(capture.running(avro(registry)))

    rows = [shown_row(record, api) for record in log.topic(capture.topic("t"))]
    assert sorted(rows, key=lambda row: int(row["id"])) == [{"id": 1, "v": 1}, {"id": 2, "v": "two"}]
    assert sorted(shown_row(record, api)["id"] for record in log.topic(capture.topic("u"))) == [1, 2]


def test_registry_that_is_away_is_waited_for(capture: CaptureSite, registry: Registry) -> None:
    capture.sql("create table t (id int primary key)")
    registry.kill()
    daemon = capture.daemon(avro(registry))
    waiting = daemon.until_state("WAITING", within_s=90.0)
    assert waiting["reason"] == "registry"
    registry.start()
    daemon.until_running(90.0)

    capture.sql("insert into t values (1)")
    capture.settled(daemon)
    registry.kill()
    capture.sql("alter table t add column v int", "insert into t values (2, 2)")
    daemon.until_state("WAITING", within_s=90.0)
    registry.start()

    rows = [shown_row(r, RegistryApi(registry.url)) for r in capture.settled(daemon, 120.0).topic(capture.topic("t"))]
    assert sorted(rows, key=lambda row: int(row["id"])) == [{"id": 1}, {"id": 2, "v": 2}]


def test_registry_behind_tls_and_a_password_in_a_file(
    capture: CaptureSite, registry: Registry, registry_door: RegistryDoor, tmp_path: Path
) -> None:
    secret = tmp_path / "registry"
    options = {**registry_door.options(), "basic.auth.user.info_file": str(secret)}
    del options["basic.auth.user.info"]
    sections: Sections = {"encode": {"format": "avro"}, "registry": {"url": registry_door.url, "options": options}}
    capture.sql("create table t (id int primary key)")

    secret.write_text(f"{USER}:{WRONG_PASSWORD}\n")
    daemon = capture.daemon(sections)
    stop = daemon.stopped_with()
    secret.write_text(f"{USER}:{PASSWORD}\n")
    daemon_with_the_right_one = capture.running(sections)
    capture.sql("insert into t values (1)")
    (record,) = capture.settled(daemon_with_the_right_one).topic(capture.topic("t"))

    assert (stop["state"], stop["exit_code"]) == ("MISCONFIGURED", 3)
    assert "HTTP status 401" in stop["message"]
    assert WRONG_PASSWORD not in daemon.log_text()
    assert shown_row(record, RegistryApi(registry.url)) == {"id": 1}


def test_keys_in_json_are_refused_where_the_log_has_them_in_avro(capture: CaptureSite, registry: Registry) -> None:
    capture.sql("create table t (id int primary key)", "insert into t values (1)")
    daemon = capture.running({**avro(registry), **INITIAL})
    complete(capture, daemon, "public.t")

    answer = answered(capture, signal(capture, {"command": "start", "tables": ["public.t"], "keys": [{"id": 1}]}))

    assert "use a condition" in answer["refused"]["public.t"], "no line would have such a key"


def test_tail_says_that_it_reads_json(capture: CaptureSite, registry: Registry) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running(avro(registry))
    capture.settled(daemon)

    ran = cdc("tail", "--no-follow", "--from", "beginning", "-c", capture.write_config(avro(registry)))

    assert ran.code == 2
    assert "encode.format" in ran.err


def shown_row(record: LogRecord, api: RegistryApi) -> dict[str, Any]:
    """The new row of an event, each value as the JSON form has it, numbers by value."""
    assert record.value is not None
    schema = api.schema(avro_reader.schema_id(record.value))
    after = avro_reader.decoded(record.value, schema)["after"]
    fields = json.loads(schema)["fields"][0]["type"][1]["fields"]
    return {
        field.get("postgresql_name", field["name"]): _in_json(after[field["name"]], field["encoding"])
        for field in fields
    }


def _in_json(value: Any, encoding: str) -> Any:
    if isinstance(value, list):
        inner = encoding.removeprefix("array<").removesuffix(">")
        return [_in_json(item, inner) for item in value]
    if isinstance(value, bytes) and encoding == "base64":
        return base64.b64encode(value).decode()
    if isinstance(value, str) and (encoding.startswith("array<") or encoding == "json_value"):
        return exact(value)
    return avro_reader.in_json(value, lambda number: Decimal(repr(number)))


def _comparable(capture: CaptureSite, log: TopicLog, api: RegistryApi | None) -> list[tuple[str, str, Any, Any, Any]]:
    """(topic, key, value) of every event in the order of the source, without what differs between two captures."""
    found = []
    for record in log.data:
        if record.value is None:
            continue
        if api is None:
            document, key = record.document, record.key_document
            key = None if key is None else list(key.values())
        else:
            document = avro_reader.envelope(record.value, api.schema(avro_reader.schema_id(record.value)))
            key = None
            if record.key is not None:
                key = list(avro_reader.decoded(record.key, api.schema(avro_reader.schema_id(record.key))).values())
        source = document["source"]
        position = source["commit_lsn"], source["ordinal"]
        for name in ("name", "schema_id"):
            del source[name]
        if document["op"] == "d" and document["before"] is not None:
            document["before"] = {name: value for name, value in document["before"].items() if value is not None}
        topic = record.topic.removeprefix(capture.name)
        found.append(
            (
                topic,
                f"{position} {document['op'] != 'd'}",
                key and [_plain(part) for part in key],
                _plain(document),
                sorted(record.headers),
            )
        )
    return sorted(found, key=str)


def _plain(value: Any) -> Any:
    """Arrays of two dimensions are text in Avro."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return (
            [_plain(inner) for inner in value] if not any(isinstance(inner, list) for inner in value) else _text(value)
        )
    return value


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def tombstones(log: TopicLog) -> int:
    return sum(record.value is None for record in log.data)
