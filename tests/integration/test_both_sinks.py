"""A search sink and a cache of the same table on real servers, with the commands for operators."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pytest

from cdc.client import Waiter
from cdc.config.load import load
from cdc.config.sink_kinds import applied_of
from cdc.kafka.admin import TopicAdmin
from cdc.lsn import Lsn
from sinks.cache.row_names import mark
from sinks.compose import target_of
from sinks.contract import Change, Topic, Verifiable
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.supervised_run import supervised
from tests.fixtures.servers.valkey import client_of
from tests.fixtures.sinks.sink_beside_capture import writing
from tests.fixtures.sinks.sink_process import SinkProcess

if TYPE_CHECKING:
    from pathlib import Path

    from cdc.local.valkey_server import Valkey
    from tests.fixtures.servers.daemon import CaptureSite, Sections
    from tests.fixtures.servers.opensearch import OpenSearchServer
from tests.fixtures.sinks.search_targets import ask, documents

HOUR_S: Final = 3600
# Keys 1 to 100 are nobody's; above, rows come, change and go.
LOAD: Final = (
    "insert into t values (1000 + :n, 'new')",
    "update t set v = ':n' where id between 101 and 120",
    "delete from t where id = 1000 + :n - 5",
)


def sections(opensearch: OpenSearchServer, valkey: Valkey) -> Sections:
    return {
        "sinks.find": {
            "kind": "search", "url": opensearch.url, "tables": ["public.t"], "refresh_interval_s": HOUR_S
        },
        "sinks.find.index": {"number_of_replicas": 0},
        "sinks.cache": {"kind": "cache", "url": valkey.url, "tables": ["public.t"]},
    }  # fmt: skip


def command(*arguments: object, config: Path) -> tuple[int, Any]:
    ran = cdc(*arguments, "--json", "-c", config, timeout_s=300)
    assert ran.code in {0, 1}, ran.err
    return ran.code, json.loads(ran.out)


def test_waits_on_two_supervised_sinks_see_writes_and_name_the_refused_key(
    capture: CaptureSite, opensearch: OpenSearchServer, valkey: Valkey
) -> None:
    capture.sql("create table t (id int primary key, v text)")
    numbers = {'sinks.find.fields."public.t".v': {"type": "integer"}}
    with supervised(capture, {**sections(opensearch, valkey), **numbers}, "both") as daemon:
        daemon.until_running()
        lsn = capture.sql("insert into t values (1, '1')")
        assert [daemon.wait_for(sink, lsn)[0] for sink in ("find", "cache")] == [200, 200]
        found = ask(opensearch.url, "POST", f"/{capture.name}.find.public.t/_search", {})["hits"]["hits"]
        assert [hit["_source"] for hit in found] == [{"id": 1, "v": "1"}], "long before the index refreshes by itself"
        with client_of(valkey) as reader:
            assert reader.get(f"{capture.name}:cache:public.t:1") == b'{"id":1,"v":"1"}'

        lsn = capture.sql("update t set v = 'no number' where id = 1", "insert into t values (2, '2')")
        waited = {
            (sink, key): daemon.ask(f"/sinks/{sink}/wait?lsn={lsn}&timeout_s=60&key={quote(key)}")[0]
            for sink in ("find", "cache")
            for key in ('{"id":1}', '{"id":2}')
        }
        config = capture.folder / "cdc-0.toml"
        told = cdc("wait", "--sink", "find", "--lsn", lsn, "--key", '{"id": 1}', "--table", "public.t", "-c", config)
        named = json.loads(cdc("wait", "--sink", "find", "--lsn", lsn, "--json", "-c", config).out)["blocked"]
        listed = command("sink", "list", config=config)[1]["sinks"]
        verified = {sink: command("verify", sink, "--no-source", config=config) for sink in ("find", "cache")}
        examined = command("doctor", config=config)[1]["findings"]
        assert daemon.stop() == 0

    refused = ("find", '{"id":1}')
    assert {at: code for at, code in waited.items() if code != 200} == {refused: 409}
    assert told.code == 3
    assert named == [{"table": "public.t", "key": '{"id":1}'}]
    assert "refused a record" in told.err
    assert "cdc dlq list" in told.err
    assert [(one["name"], one["state"], Lsn.parse(one["lsn"]) >= lsn) for one in listed] == [
        ("cache", "RUNNING", True),
        ("find", "RUNNING", True),
    ]
    assert [(code, one["topics_sink"][0]["blocked"]) for code, one in verified.values()] == [(1, 1), (0, 0)]
    of_sinks = [one for one in examined if one["group"] == "sinks"]
    assert {one["check"] for one in of_sinks if one["level"] == "ok"} >= {"search", "cache", "acl", "sink_group"}
    assert [one["message"] for one in of_sinks if one["level"] == "error"] == []


def test_truncate_moved_keys_and_new_columns_reach_two_views_and_a_cache_of_one_table(
    capture: CaptureSite, opensearch: OpenSearchServer, valkey: Valkey
) -> None:
    """The second view has another mapping of the same rows: a text is found as a whole in it, not by its words."""
    capture.sql("create table t (id int primary key, v text, old int)", "insert into t values (0, 'before', 0)")
    whole: Sections = {
        "sinks.whole": {"kind": "search", "url": opensearch.url, "tables": ["public.t"]},
        "sinks.whole.index": {"number_of_replicas": 0},
        'sinks.whole.fields."public.t".v': {"type": "keyword"},
    }
    more: Sections = {"snapshot": {"mode": "initial"}}
    with supervised(capture, {**sections(opensearch, valkey), **whole, **more}, "views") as daemon:
        daemon.until_running()
        names = ("find", "whole", "cache")

        def seen() -> dict[str, list[dict[str, Any]]]:
            """What each has when it holds everything that is committed."""
            lsn = capture.wal()
            assert [daemon.wait_for(sink, lsn)[0] for sink in names] == [200, 200, 200]
            with client_of(valkey) as client:
                cached = [json.loads(client.get(name) or b"") for name in client.scan_iter(f"{capture.name}:cache:*")]
            views = [documents(opensearch.url, f"{capture.name}.{sink}.public.t").values() for sink in names[:2]]
            rows = [list(map(dict, view)) for view in (*views, cached)]
            return dict(zip(names, (sorted(some, key=lambda row: row["id"]) for some in rows), strict=True))

        def all_have(*rows: dict[str, Any]) -> bool:
            return all(found == list(rows) for found in seen().values())

        capture.sql(
            "insert into t select n, 'a red house', n from generate_series(1, 3) n", "delete from t where id = 0"
        )
        rows = [{"id": n, "v": "a red house", "old": n} for n in (1, 2, 3)]
        assert all_have(*rows)
        query = {"query": {"match": {"v": "red"}}}
        found = {
            sink: ask(opensearch.url, "POST", f"/{capture.name}.{sink}.public.t/_search", query) for sink in names[:2]
        }
        assert {sink: len(one["hits"]["hits"]) for sink, one in found.items()} == {"find": 3, "whole": 0}

        capture.sql("update t set id = id + 10 where id = 1")
        assert all_have(*rows[1:], {"id": 11, "v": "a red house", "old": 1})
        capture.sql("alter table t add column w int", "insert into t values (20, 'new', 20, 7)")
        assert {"id": 20, "v": "new", "old": 20, "w": 7} in seen()["whole"]
        capture.sql("truncate t")
        assert all_have()
        capture.sql("alter table t drop column old", "insert into t values (30, 'last', 8)")
        assert all_have({"id": 30, "v": "last", "w": 8})
        verified = [command("verify", sink, config=capture.folder / "cdc-0.toml") for sink in names]
        assert daemon.stop() == 0

    assert [(code, one["ok"]) for code, one in verified] == [(0, True)] * 3, verified


class Store:
    """Somebody else's hand in a store."""

    def __init__(self, kind: str, capture: CaptureSite, opensearch: OpenSearchServer, valkey: Valkey) -> None:
        self._url = opensearch.url if kind == "find" else ""
        self._index = f"{capture.name}.{kind}.public.t"
        self._rows = client_of(valkey)
        self._head = f"{capture.name}:{kind}:public.t:"

    def put(self, key: int, row: object) -> None:
        if self._url:
            ask(self._url, "PUT", f"/{self._index}/_doc/{key}?refresh=true", row)
        else:
            self._rows.set(f"{self._head}{key}", json.dumps(row))

    def delete(self, key: int) -> None:
        if self._url:
            ask(self._url, "DELETE", f"/{self._index}/_doc/{key}?refresh=true")
        else:
            self._rows.delete(f"{self._head}{key}", mark(f"{self._head}{key}"))

    def get(self, key: int) -> object:
        if self._url:
            return ask(self._url, "GET", f"/{self._index}/_doc/{key}").get("_source")
        found = self._rows.get(f"{self._head}{key}")
        return json.loads(found) if isinstance(found, bytes) else None

    def close(self) -> None:
        self._rows.close()


def make_stale(config_path: Path, sink: str, topic: str, key: int) -> None:
    """The row as it was before its last change, with the version of then."""
    config = load(config_path, {})
    facts = TopicAdmin(config.kafka).describe([topic])[topic]
    assert facts is not None
    target = target_of(config, sink, applied_of(config, sink))
    assert isinstance(target, Verifiable)
    target.open([Topic(topic, facts.topic_id, facts.partition_count, "public.t", ("id",))])
    raw = b'{"id":%d}' % key
    (held,) = target.read_keys(topic, [raw])
    assert held is not None
    row = b'{"id":%d,"v":"older"}' % key
    target.repair_keys([Change(topic, 0, held.version - 1, raw, row, (), "", 1, 1, 1)], [held])
    target.close()


@pytest.mark.parametrize("sink", ["find", "cache"])
def test_planted_differences_are_all_found_and_repaired_and_nothing_else_is_accused(
    capture: CaptureSite, opensearch: OpenSearchServer, valkey: Valkey, sink: str
) -> None:
    """In the store, and in the topic: rows that were deleted while their partition was detached, which nobody told."""
    capture.sql(
        "create table t (id int primary key, v text) partition by range (id)",
        "create table quiet partition of t for values from (1) to (101)",
        "create table busy partition of t default",
        "insert into t select n, 'first' from generate_series(1, 120) n",
    )
    more: Sections = {"snapshot": {"mode": "initial"}, "ddl": {"policy": "warn"}}
    daemon = capture.running({**sections(opensearch, valkey), **more})
    config, store = capture.folder / "cdc-0.toml", Store(sink, capture, opensearch, valkey)
    daemon.until_position(capture.sql("update t set v = 'second' where id <= 100"))
    with SinkProcess(config, sink), Waiter(config) as waiter, writing(capture, *LOAD, pause_s=0.05):
        waiter.wait(sink, str(capture.wal()), timeout_s=120)
        capture.sql(
            "alter table t detach partition quiet",
            "delete from quiet where id between 21 and 23",
            "alter table t attach partition quiet for values from (1) to (101)",
        )
        store.put(1, {"id": 1, "v": "edited"})
        store.delete(2)
        make_stale(config, sink, capture.topic("t"), 3)
        store.put(77_777, {"id": 77_777, "v": "extra"})

        code, found = command("verify", sink, config=config)
        (of_topic,), (of_store,) = found["source_topics"], found["topics_sink"]
        kinds = ("missing", "extra", "stale", "different", "undecided")
        assert (code, [of_topic[kind] for kind in kinds]) == (1, [0, 3, 0, 0, 0]), found
        assert [of_store[kind] for kind in kinds] == [1, 1, 1, 1, 0], found
        code, found = command("verify", sink, "--repair", config=config)
        (of_topic,), (of_store,) = found["source_topics"], found["topics_sink"]
        assert (code, of_topic["repaired"], of_store["repaired"]) == (0, 3, 4), found

        waiter.wait(sink, str(capture.wal()), timeout_s=120)
        assert [store.get(key) for key in (1, 2, 3)] == [{"id": key, "v": "second"} for key in (1, 2, 3)]
        assert [store.get(key) for key in (21, 22, 23, 77_777)] == [None] * 4
        code, found = command("verify", sink, config=config)
        assert (code, found["ok"]) == (0, True), found
    store.close()
