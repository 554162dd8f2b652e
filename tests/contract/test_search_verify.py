"""`cdc verify` on OpenSearch finds and repairs documents that were edited, removed or added by its API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from cdc.verify.key_states import Sample
from cdc.verify.key_verdict import DifferenceKind
from cdc.verify.sink_check import SinkComparison, check_topic
from sinks.contract import StoredKey, Verdict
from sinks.search.target import SearchTarget
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.servers.opensearch import OpenSearchServer
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks import target_contract
from tests.fixtures.sinks.search_targets import TABLE, alias, ask, documents, opened
from tests.fixtures.sinks.sink_logs import LogBook, changes
from tests.fixtures.sinks.verify_world import World


@pytest.fixture
def target(opensearch: OpenSearchServer, sink_name: str) -> Iterator[SearchTarget]:
    found = opened(opensearch.url, sink_name)
    yield found
    found.close()


def written(url: str, index: str, name: str, document: object, query: str = "") -> None:
    answer = ask(url, "PUT", f"/{index}/_doc/{quote(name)}?refresh=true{query}", document)
    assert "error" not in answer, answer


@pytest.mark.parametrize("how", ["by an edit, which counts the version up", "under the same version"])
def test_wrong_keys_of_the_topic_are_repaired(
    target: SearchTarget, opensearch: OpenSearchServer, sink_name: str, how: str
) -> None:
    def damage(one: StoredKey) -> None:
        same = f"&version={one.version}&version_type=external_gte" if "same" in how else ""
        written(opensearch.url, alias(sink_name), one.name, {"id": "1", "v": "edited"}, same)

    target_contract.what_the_topic_proves_wrong_is_mended(target, TABLE, damage)

    path = f"/{alias(sink_name)}/_settings/index.gc_deletes?flat_settings=true"
    (found,) = ask(opensearch.url, "GET", path).values()
    assert found["settings"]["index.gc_deletes"] == "3600s"


def test_document_that_was_deleted_by_the_api_is_written_again(
    target: SearchTarget, opensearch: OpenSearchServer, sink_name: str
) -> None:
    """The delete has counted the version up, too, so that the record's own would be refused."""
    book = LogBook(TABLE.topic)
    book.put("1", {"id": "1", "v": "x"})
    (change,) = changes(book.records)
    target.apply([change])
    ask(opensearch.url, "DELETE", f"/{alias(sink_name)}/_doc/1?refresh=true")
    assert target.apply([change])[0].verdict is Verdict.OVERTAKEN

    target.repair_keys([change], [None])

    target.refresh([TABLE.topic])
    assert documents(opensearch.url, alias(sink_name)) == {"1": {"id": "1", "v": "x"}}


def test_planted_documents_are_found_and_repaired_and_nothing_else_is_touched(
    target: SearchTarget, opensearch: OpenSearchServer, sink_name: str
) -> None:
    book = LogBook(TABLE.topic)
    for key in range(40):
        book.put(str(key), {"id": str(key), "v": f"first {key}"})
        book.put(str(key), {"id": str(key), "v": f"second {key}"})
    target.apply(changes(book.records))
    url, index = opensearch.url, alias(sink_name)
    before = documents(url, index)
    versions = _versions(url, index)
    stale = [record for record in book.records if record[4] == b'{"id":"5"}'][:1]
    written(url, index, "3", {"id": "3", "v": "edited"})
    ask(url, "DELETE", f"/{index}/_doc/4?refresh=true")
    ask(url, "DELETE", f"/{index}/_doc/5?refresh=true")
    target._indices.put_settings(target._live[TABLE.topic], {"gc_deletes": "0ms"})

    def is_stale() -> bool:
        target.refresh([TABLE.topic])
        return target.apply(changes(stale))[0].verdict is Verdict.DONE

    until(is_stale, "OpenSearch has forgotten the delete", every_s=0.25)
    written(url, index, "extra", {"id": "extra", "v": "x"})
    world = World(book.records, iter(()))
    world.finish()

    def check(*, repair: bool) -> Any:
        sides = SinkComparison(
            reader=world,
            target=target,
            committed=world.committed,
            blocked=lambda _: frozenset(),
            content=target.content,
            clock=ManualClock(),
            sample=Sample(),
            repair=repair,
        )
        return check_topic(sides, TABLE)

    found = check(repair=False)
    assert found.counts == {
        DifferenceKind.MISSING: 1,
        DifferenceKind.EXTRA: 1,
        DifferenceKind.STALE: 1,
        DifferenceKind.DIFFERENT: 1,
    }, found
    found = check(repair=True)
    assert (found.repaired, found.unrepaired, found.ok) == (4, 0, True), found
    assert documents(url, index) == before
    assert _versions(url, index) == versions
    assert check(repair=False).differing == 0


def _versions(url: str, index: str) -> dict[str, int]:
    query = {"size": 10_000, "version": True, "query": {"match_all": {}}}
    found = ask(url, "POST", f"/{index}/_search", query)
    return {hit["_id"]: hit["_version"] for hit in found["hits"]["hits"]}
