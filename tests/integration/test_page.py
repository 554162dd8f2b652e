"""The documents of the live page on real servers: what they say is what PostgreSQL and Kafka have."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tests.browser import documents
from tests.fixtures.capture.topic_log import read_raw
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.sink_process import SinkProcess

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdc.local.valkey_server import Valkey
    from tests.fixtures.servers.daemon import CaptureSite

_TOKEN = "s3cret-token"
_ROUNDS = 8


class _Reader:
    """Asks the documents of a daemon."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str, *, token: str = _TOKEN, **query: object) -> dict[str, Any]:
        """Return a document; fails unless it is one."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request("GET", f"/api/{path}?{urlencode(query)}" if query else f"/api/{path}", headers=headers)
            answer = connection.getresponse()
            found: dict[str, Any] = json.loads(answer.read())
            assert answer.status == 200, found
            return found
        finally:
            connection.close()


def test_polls_of_the_newest_events_return_every_event_of_every_table(capture: CaptureSite) -> None:
    capture.sql(*(f"create table t{number} (id int primary key, v text)" for number in range(5)))
    daemon = capture.running({"http": {"token": _TOKEN}})
    capture.settled(daemon)
    reader = _Reader(daemon.events("http_listening")[0]["port"])
    capture.sql("insert into t0 values (0, 'before')")
    capture.settled(daemon)
    cursor = reader.get("events")["cursor"]

    seen: set[tuple[str, int, int]] = set()
    rows: set[tuple[int, int]] = set()
    for number in range(_ROUNDS):
        # Not every table changes in every round, and one only in the last one.
        for table in {0, number % 3, 4 if number == _ROUNDS - 1 else 0}:
            ids = range(100 * number, 100 * number + 7)
            capture.sql(f"insert into t{table} select g, 'x' from generate_series({ids[0] + 1}, {ids[-1] + 1}) g")
            rows |= {(table, number) for number in ids}
        capture.settled(daemon)
        found = reader.get("events", cursor=cursor, limit=1000)
        cursor = found["cursor"]
        seen |= {(event["topic"], event["partition"], event["offset"]) for event in found["events"]}
    assert daemon.stop() == 0

    assert len(seen) == len(rows)
    assert {topic for topic, _, _ in seen} == {f"{capture.name}.public.t{table}" for table in (0, 1, 2, 4)}


def test_values_and_filters_of_events(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)", "create table u (id int primary key)")
    daemon = capture.running({"http": {"token": _TOKEN}})
    capture.settled(daemon)
    reader = _Reader(daemon.events("http_listening")[0]["port"])
    capture.sql(
        "insert into t values (1, 'a'), (2, 'b')",
        "update t set v = 'c' where id = 1",
        "delete from t where id = 2",
        "insert into u values (7)",
    )
    capture.settled(daemon)

    everything = reader.get("events")["events"]
    without = reader.get("events", token="")
    updates = reader.get("events", tables="public.t", ops="u")["events"]
    one_key = reader.get("key", table="public.t", key='{"id": 2}')
    assert daemon.stop() == 0

    assert [(one["op"], one["table"]) for one in everything] == [
        ("c", "public.t"), ("c", "public.t"), ("u", "public.t"), ("d", "public.t"), ("c", "public.u"),
    ]  # fmt: skip
    assert without["values"] is False
    assert {(one["key"], one["before"], one["after"]) for one in without["events"]} == {(None, None, None)}
    assert [(one["key"], one["after"]) for one in updates] == [({"id": 1}, {"id": 1, "v": "c"})]
    assert [(one["op"], one["key"]) for one in one_key["events"]] == [("c", {"id": 2}), ("d", {"id": 2})]


def test_tables_and_topics_are_those_of_the_servers(capture: CaptureSite) -> None:
    capture.sql("create table a (id int primary key, v text)", "create table b (id int primary key)")
    capture.sql("create table nokey (v text)", "insert into a values (1, 'x')")
    daemon = capture.running()
    capture.settled(daemon)
    reader = _Reader(daemon.events("http_listening")[0]["port"])
    capture.sql("alter table a add column more int", "insert into a values (2, 'y', 3)")
    capture.settled(daemon)

    tables = {one["table"]: one for one in reader.get("tables", token="")["tables"]}
    searched = reader.get("tables", token="", search="NOKEY", state="left_out")
    table = reader.get("table", token="", name="public.a")
    topics = {one["topic"]: one for one in reader.get("topics", token="")["topics"]}
    assert daemon.stop() == 0

    assert {name: one["state"] for name, one in tables.items()} == {
        "public.a": "captured", "public.b": "captured", "public.nokey": "left_out",
    }  # fmt: skip
    assert (searched["count"], searched["tables"][0]["left_out"]["reason"]) == (1, "no_key")
    assert [(one["added"], one["dropped"]) for one in table["schemas"]] == [(["more"], []), ([], [])]
    assert [(one["name"], one["type"], one["key"]) for one in table["columns"]] == [
        ("id", "int4", True), ("v", "text", False), ("more", "int4", False),
    ]  # fmt: skip
    topic = f"{capture.name}.public.a"
    assert topics[topic]["table"] == "public.a"
    assert topics[topic]["records"] >= len(read_raw(capture.bootstrap, topic)) == 1


def test_documents_of_the_browser_tests_have_the_form_of_the_servers(capture: CaptureSite) -> None:
    capture.sql("create table public.orders (id int primary key, v text)", "create table nokey (v text)")
    capture.sql("insert into public.orders values (1, '7')")
    daemon = capture.running({"ddl": {"policy": "warn"}})
    capture.settled(daemon)
    reader = _Reader(daemon.events("http_listening")[0]["port"])
    capture.sql("alter table public.orders alter column v type int using v::int")
    until(lambda: bool(reader.get("findings", token="")["findings"]), "the finding is shown", within_s=60)

    tables = reader.get("tables", token="")["tables"]
    real = {
        "tables": tables,
        "topics": reader.get("topics", token="")["topics"],
        "findings": reader.get("findings", token="")["findings"],
        "table": [reader.get("table", token="", name="public.orders")],
        "config": reader.get("config", token="")["settings"],
        "why": [reader.get("why", token="")],
    }
    assert daemon.stop() == 0

    drawn = {
        "tables": documents.tables(),
        "topics": documents.topics(),
        "findings": documents.findings()["findings"],
        "table": [documents.table_details()],
        "config": documents.settings()["settings"],
        "why": [documents.why()],
    }
    for name, rows in drawn.items():
        assert _keys(rows) <= _keys(real[name]), name


def _keys(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    return {key for row in rows for key in row}


def test_picture_shows_a_sink_that_another_process_runs_and_its_pause(capture: CaptureSite, valkey: Valkey) -> None:
    capture.sql("create table t (id int primary key)", "insert into t values (1)")
    daemon = capture.running({"sinks.fast": {"kind": "cache", "url": valkey.url, "tables": ["public.t"]}})
    capture.settled(daemon)
    reader = _Reader(daemon.events("http_listening")[0]["port"])

    def sink(state: str) -> bool:
        nodes = {node["id"]: node for node in reader.get("picture", token="")["nodes"]}
        return bool(nodes["sink:fast"]["state"] == state)

    with SinkProcess(capture.folder / "cdc-0.toml", "fast"):
        until(lambda: sink("RUNNING"), "the page shows that the sink runs", within_s=60)
    until(lambda: sink("STOPPED"), "the page shows that the sink has stopped", within_s=60)
    assert daemon.stop() == 0
