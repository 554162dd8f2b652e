"""Stored queries publish every document that matches before its change counts as applied."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from cdc.errors import SinkUnfit, SinkUnreachable, UsageError
from sinks.contract import Change, Verdict
from sinks.search.rebuild import RebuildContext, rebuild
from sinks.search.stored_queries import LOOK_S, Match, Matcher, StoredQueries
from sinks.search.target import SearchTarget
from tests.contract.test_search_rebuild import workshop
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.servers.opensearch import OpenSearchServer
from tests.fixtures.sinks.growing_log import GrowingLog
from tests.fixtures.sinks.search_targets import TABLE, column, opened, schema
from tests.fixtures.sinks.sink_logs import LogBook, changes

RED = {"term": {"v": "red"}}


class Kept:
    """A publisher that keeps what it is given, or fails."""

    def __init__(self) -> None:
        self.matches: list[Match] = []
        self.fails = False

    def publish(self, matches: Sequence[Match]) -> None:
        if self.fails:
            raise SinkUnreachable("no broker")
        self.matches += matches

    def close(self) -> None: ...

    def told(self) -> set[tuple[str, int, object, int]]:
        found = [json.loads(match.value) for match in self.matches]
        return {(each["query"], each["version"], each["key"]["id"], each["offset"]) for each in found}


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def target(opensearch: OpenSearchServer, sink_name: str, kept: Kept, clock: ManualClock) -> SearchTarget:
    return opened(opensearch.url, sink_name, publisher=kept, clock=clock)


def queries(target: SearchTarget) -> StoredQueries:
    return StoredQueries(target._indices)


def rows(*colours: str, first: int = 0) -> list[Change]:
    book = LogBook(first=first)
    for key, colour in enumerate(colours):
        book.put(key, {"id": key, "v": colour})
    return changes(book.records)


def test_match_is_published_before_the_change_is_done_and_again_after_a_crash(target: SearchTarget, kept: Kept) -> None:
    queries(target).add(TABLE, "red", RED, {})
    kept.fails = True
    with pytest.raises(SinkUnreachable):
        target.apply(rows("red", "blue", "red"))
    kept.fails = False

    outcomes = target.apply(rows("red", "blue", "red"))

    assert {outcome.verdict for outcome in outcomes} == {Verdict.OVERTAKEN}, "the documents were there already"
    assert kept.told() == {("red", 1, 0, 0), ("red", 1, 2, 2)}
    target.apply(rows("red", "blue", "red"))
    assert len({match.key for match in kept.matches}) == 2
    assert len(kept.matches) == 4


def test_query_that_comes_later_changes_or_goes_is_heard_of(
    target: SearchTarget, kept: Kept, clock: ManualClock
) -> None:
    target.apply(rows("red"))
    queries(target).add(TABLE, "colour", RED, {})
    again = queries(target).add(TABLE, "colour", {"term": {"v": "blue"}}, {})
    clock.now_s += LOOK_S

    target.apply(rows("red", "blue", first=10))
    assert again.version == 2
    assert kept.told() == {("colour", 2, 1, 11)}
    assert queries(target).all(TABLE) == [again]

    assert queries(target).remove(TABLE, "colour")
    assert not queries(target).remove(TABLE, "colour")
    target.apply(rows("blue", first=20))
    assert len(kept.matches) == 1


def test_kept_values_count_for_a_match(target: SearchTarget, kept: Kept) -> None:
    queries(target).add(TABLE, "red", RED, {})
    (change,) = rows("red")
    target.apply([change])

    target.apply([change._replace(offset=5, row=b'{"id":0,"v":"of a later event"}', kept=("v",))])

    assert kept.told() == {("red", 1, 0, 0), ("red", 1, 0, 5)}


def test_query_may_be_of_a_column_that_came_later(target: SearchTarget, kept: Kept) -> None:
    queries(target).add(TABLE, "red", RED, {})
    with pytest.raises(UsageError, match="rejects the query"):
        queries(target).add(TABLE, "bad", {"nonsense": {}}, {})
    record = schema(column("id", "uuid", key=True), column("size", "int4", "integer"), schema_id="new", lsn=2)
    target.prepare(record)

    queries(target).add(TABLE, "large", {"range": {"size": {"gte": 5}}}, {})
    target.apply([c._replace(schema_id="new", row=b'{"id":0,"size":7}') for c in rows("x")])

    assert kept.told() == {("large", 1, 0, 0)}


def test_query_over_a_column_whose_type_changed_is_named_and_stored_again_over_the_new_type(
    opensearch: OpenSearchServer, sink_name: str, kept: Kept, clock: ManualClock
) -> None:
    def worker(shop: RebuildContext) -> SearchTarget:
        made = SearchTarget(
            shop.indices, shop.book, shop.shape, clock, watcher=Matcher(StoredQueries(shop.indices), kept, clock)
        )
        made.open([TABLE])
        return made

    number = schema(column("id", "uuid", key=True), column("v", "int4", "integer"), schema_id="number", lsn=1)
    text = schema(column("id", "uuid", key=True), column("v", "uuid"), schema_id="text", lsn=2)
    log = GrowingLog([number])
    shop = workshop(opensearch.url, sink_name, log)
    before = worker(shop)
    before.prepare(number)
    queries(before).add(TABLE, "seven", {"range": {"v": {"gte": 7}}}, {})
    before.apply([change._replace(schema_id="number") for change in rows("7", "6")])
    assert kept.told() == {("seven", 1, 0, 0)}

    with pytest.raises(SinkUnfit, match="cannot take the fields"):
        before.prepare(text)
    log.schemas = [text]
    rebuild(shop, TABLE)
    after = worker(shop)
    after.prepare(text)
    changed = [change._replace(schema_id="text") for change in rows("seven", "six", first=10)]
    with pytest.raises(SinkUnfit, match=r"stored queries of .* cannot be matched") as refused:
        after.apply(changed)
    assert "add them again" in refused.value.hint

    assert queries(after).remove(TABLE, "seven")
    queries(after).add(TABLE, "seven", {"term": {"v": "seven"}}, {})
    clock.now_s += LOOK_S
    after.apply(changed)
    assert kept.told() == {("seven", 1, 0, 0), ("seven", 1, 0, 10)}


def test_many_documents_and_queries_are_matched_as_one_by_one(target: SearchTarget, kept: Kept) -> None:
    colours = ["red", "blue", "green"] * 150
    for colour in ("red", "blue"):
        queries(target).add(TABLE, colour, {"term": {"v": colour}}, {})

    target.apply(rows(*colours))

    wanted = {(colour, 1, key, key) for key, colour in enumerate(colours) if colour != "green"}
    assert kept.told() == wanted
