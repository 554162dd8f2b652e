"""Keys that another row takes over, with unchanged large values: search and cache equal the table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.supervised_run import supervised
from tests.fixtures.servers.valkey import client_of
from tests.fixtures.sinks.search_targets import ask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc.local.valkey_server import Valkey
    from tests.fixtures.servers.daemon import CaptureSite, Sections
    from tests.fixtures.servers.opensearch import OpenSearchServer
    from tests.fixtures.servers.supervised_run import Supervised

TABLE: Final = (
    "create table t (id int primary key, body text, n int)",
    "alter table t alter column body set storage external",
)
FILL: Final = "insert into t select n, repeat(chr(96 + n), 4000), n from generate_series(1, 20) n"
ROWS: Final = 20
SINKS: Final = ("find", "cache", "hashes")

ONE_TRANSACTION: Final = {
    "deleted_and_given_to_another_row": ("delete from t where id = 1", "update t set id = 1 where id = 2"),
    "given_on_and_updated": (
        "delete from t where id = 3",
        "update t set id = 3 where id = 4",
        "update t set n = n + 100 where id = 3",
    ),
    "deleted_and_inserted": (
        "delete from t where id = 5",
        "insert into t values (5, repeat('X', 4000), 55)",
        "update t set n = 56 where id = 5",
    ),
    "swapped_by_a_third_key": (
        "update t set id = 99 where id = 6",
        "update t set id = 6 where id = 7",
        "update t set id = 7 where id = 99",
    ),
    "moved_and_deleted": ("update t set id = 98 where id = 8", "delete from t where id = 98"),
    "moved_away_and_back": ("update t set id = 97 where id = 9", "update t set id = 9, n = 99 where id = 97"),
    "given_on_without_a_value": (
        "delete from t where id = 10",
        "insert into t values (10, null, 10)",
        "update t set n = 11 where id = 10",
    ),
}
"""Each in one transaction, on keys of its own."""

ONE_BY_ONE: Final = (
    "delete from t where id = 11",
    "update t set id = 11 where id = 12",
    "update t set n = n + 1 where id = 11",
    "update t set id = 96 where id = 13",
    "update t set id = 13 where id = 14",
    "update t set id = 14 where id = 96",
    "delete from t where id = 15",
    "insert into t values (15, repeat('Y', 4000), 0)",
    "delete from t where id = 15",
    "update t set id = 15 where id = 16",
)
"""Each a transaction of its own, so that a key is used again across batches."""


def sections(opensearch: OpenSearchServer, valkey: Valkey) -> Sections:
    return {
        "sinks.find": {"kind": "search", "url": opensearch.url, "tables": ["public.t"]},
        "sinks.find.index": {"number_of_replicas": 0},
        "sinks.cache": {"kind": "cache", "url": valkey.url, "tables": ["public.t"]},
        "sinks.hashes": {"kind": "cache", "url": valkey.url, "tables": ["public.t"], "mode": "hash"},
    }


def rows_of(capture: CaptureSite) -> dict[int, Any]:
    return {row["id"]: row for (row,) in capture.query("select to_jsonb(t) from t")}


def stored(
    capture: CaptureSite, daemon: Supervised, opensearch: OpenSearchServer, valkey: Valkey
) -> dict[str, Mapping[int, Any]]:
    """What each store has when it holds all that is committed; a hash as texts."""
    lsn = capture.wal()
    assert [daemon.wait_for(sink, lsn)[0] for sink in SINKS] == [200] * len(SINKS)
    hits = ask(opensearch.url, "POST", f"/{capture.name}.find.public.t/_search", {"size": 100})["hits"]["hits"]
    found: dict[str, Mapping[int, Any]] = {"find": {hit["_source"]["id"]: hit["_source"] for hit in hits}}
    with client_of(valkey) as reader:
        names = list(reader.scan_iter(match=f"{capture.name}:cache:public.t:*", count=1000))
        values = [json.loads(reader.get(name)) for name in names]
        hashes = [reader.hgetall(name) for name in reader.scan_iter(match=f"{capture.name}:hashes:public.t:*")]
    found["cache"] = {row["id"]: row for row in values}
    plain = [{name.decode(): value.decode() for name, value in fields.items()} for fields in hashes]
    found["hashes"] = {int(row["id"]): row for row in plain}
    return found


def in_hashes(rows: Mapping[int, Any]) -> dict[int, dict[str, str]]:
    return {key: {name: str(value) for name, value in row.items() if value is not None} for key, row in rows.items()}


@pytest.mark.parametrize("how", ["in_one_transaction", "one_by_one"])
def test_stores_have_the_large_value_of_the_row_that_has_the_key_now(
    capture: CaptureSite, opensearch: OpenSearchServer, valkey: Valkey, how: str
) -> None:
    capture.sql(*TABLE)
    with supervised(capture, sections(opensearch, valkey), "reuse") as daemon:
        daemon.until_running()
        capture.sql(FILL)
        before = stored(capture, daemon, opensearch, valkey)
        assert [len(before[sink]) for sink in SINKS] == [ROWS] * len(SINKS)

        if how == "in_one_transaction":
            for statements in ONE_TRANSACTION.values():
                capture.transaction(*statements)
        else:
            capture.sql(*ONE_BY_ONE)
        found, wanted = stored(capture, daemon, opensearch, valkey), rows_of(capture)

        verified = {
            sink: cdc("verify", sink, "--json", "-c", capture.folder / "cdc-0.toml", timeout_s=300) for sink in SINKS
        }
        taken = 1 if how == "in_one_transaction" else 11
        with client_of(valkey) as writer:
            stale = {**wanted[taken], "body": before["cache"][taken]["body"]}
            writer.set(f"{capture.name}:cache:public.t:{taken}", json.dumps(stale))
        planted = cdc("verify", "cache", "--json", "-c", capture.folder / "cdc-0.toml", timeout_s=300)
        assert daemon.stop() == 0

    assert found["cache"] == wanted
    assert found["find"] == wanted
    assert found["hashes"] == in_hashes(wanted)
    assert {sink: (ran.code, ran.err) for sink, ran in verified.items()} == dict.fromkeys(SINKS, (0, ""))
    assert planted.code == 1, "the value of the deleted row is found, as it stood in caches before"
    (difference,) = json.loads(planted.out)["topics_sink"]
    assert (difference["different"], difference["examples"]) == (1, {"different": [f'{{"id":{taken}}}']})
