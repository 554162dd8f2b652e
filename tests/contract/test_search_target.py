"""OpenSearch as a store: the contract of every `Target`, and behaviour of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc.errors import SinkStale, SinkUnfit
from sinks.contract import Change, Target, Topic, Verdict
from sinks.search.target import SearchTarget
from tests.fixtures.servers.opensearch import OpenSearchServer
from tests.fixtures.sinks import target_contract
from tests.fixtures.sinks.search_targets import PIPELINE, TABLE, alias, ask, column, documents, opened, schema
from tests.fixtures.sinks.sink_logs import LogBook, changes, live

EXAMPLES = 8


@pytest.fixture
def target(opensearch: OpenSearchServer, sink_name: str) -> Iterator[SearchTarget]:
    found = opened(opensearch.url, sink_name)
    yield found
    found.close()


def change(offset: int, row: bytes | None, *, key: bytes = b'{"id":"1"}', schema_id: str = "5c4e4a1d") -> Change:
    return Change(TABLE.topic, 0, offset, key, row, (), schema_id if row else "", 1, offset, 0)


@pytest.mark.parametrize(
    "check",
    [
        target_contract.older_record_never_wins,
        target_contract.delete_of_what_never_was_is_done,
        target_contract.what_was_looked_at_is_removed_and_nothing_newer,
    ],
)
def test_store_is_guarded(target: SearchTarget, check: Callable[[Target, Topic], None]) -> None:
    check(target, TABLE)


@pytest.mark.parametrize("partial", [False, True])
def test_index_converges_whatever_was_repeated_or_reordered(
    opensearch: OpenSearchServer, sink_name: str, partial: bool
) -> None:
    store = opened(opensearch.url, sink_name, topics=())

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        topic = TABLE._replace(table=f"public.t{uuid.uuid4().hex[:8]}", topic=f"shop.public.{uuid.uuid4().hex[:8]}")
        store.open([topic])
        store.prepare(schema(topic=topic, schema_id=SHARED))
        target_contract.converges(data, store, topic, partial=partial)
        ask(opensearch.url, "DELETE", f"/{alias(sink_name, topic.table)}-g*")

    holds()
    store.close()


SHARED = "5c4e4a1d"


def test_row_is_the_document_byte_for_byte(target: SearchTarget, opensearch: OpenSearchServer, sink_name: str) -> None:
    row = b'{"id":"1", "v":"x",\n"n":9007199254740993,"big":"1.50"}'

    (outcome,) = target.apply([change(7, row)])

    assert outcome.verdict is Verdict.DONE
    (held,) = target.read_keys(TABLE.topic, [b'{"id":"1"}'])
    assert held is not None
    assert (held.version, held.content) == (7, {"id": "1", "v": "x", "n": 9007199254740993, "big": "1.50"})
    assert held.content == target.content(change(7, row))
    target.refresh([TABLE.topic])
    assert documents(opensearch.url, alias(sink_name)) == {"1": held.content}


def test_key_of_any_text_is_found_again_and_none_is_taken_for_another(target: SearchTarget) -> None:
    keys = ["", "a/b", "a%2Fb", "..", "ä" * 600, "ä" * 601, "~", '"', "a,b", "_x", "+", " ", "\n"]
    rows = [f'{{"id":{quoted(key)},"v":"{place}"}}'.encode() for place, key in enumerate(keys)]
    wanted = [f'{{"id":{quoted(key)}}}'.encode() for key in keys]

    outcomes = target.apply([change(5, row, key=key) for key, row in zip(wanted, rows, strict=True)])

    assert {outcome.verdict for outcome in outcomes} == {Verdict.DONE}
    target.refresh([TABLE.topic])
    assert {held.key for held in target.stored_keys(TABLE.topic)} == set(wanted)
    looked = target.read_keys(TABLE.topic, wanted)
    assert [held and held.content and held.content["v"] for held in looked] == [str(n) for n in range(len(keys))]


def test_row_that_does_not_fit_is_refused_alone_and_its_value_is_not_shown(target: SearchTarget) -> None:
    good, bad = change(1, b'{"id":"1","n":5}'), change(2, b'{"id":"2","n":"secret"}', key=b'{"id":"2"}')
    strange = change(3, b'{"id":"3","unknown":"secret"}', key=b'{"id":"3"}')

    first, second, third = target.apply([good, bad, strange])

    assert first.verdict is Verdict.DONE
    assert (second.verdict, second.error, second.reason) == (Verdict.REFUSED, "mapper_parsing_exception", "column n")
    assert (third.verdict, third.error) == (Verdict.REFUSED, "strict_dynamic_mapping_exception")
    assert "secret" not in repr((second, third))


def test_new_column_is_in_the_mapping_before_its_first_row(target: SearchTarget, sink_name: str) -> None:
    target.prepare(schema(column("id", "uuid", key=True), column("extra", "int4", "integer"), schema_id="new", lsn=2))

    (outcome,) = target.apply([change(9, b'{"id":"1","extra":5}', schema_id="new")])

    assert outcome.verdict is Verdict.DONE


def test_column_of_another_type_stops_the_sink_and_names_the_rebuild(target: SearchTarget, sink_name: str) -> None:
    with pytest.raises(SinkUnfit) as caught:
        target.prepare(schema(column("id", "uuid", key=True), column("n"), schema_id="new", lsn=2))

    assert caught.value.command == f"cdc sink rebuild {sink_name} --table public.t"


def test_older_schema_of_a_replay_adds_only_what_is_missing(
    target: SearchTarget, opensearch: OpenSearchServer, sink_name: str
) -> None:
    target.prepare(schema(column("n"), column("gone"), schema_id="old", lsn=0))

    fields = ask(opensearch.url, "GET", f"/{alias(sink_name)}/_mapping").popitem()[1]["mappings"]["properties"]
    assert fields["n"]["type"] == "long"
    assert fields["gone"]["type"] == "text"


def test_topic_that_was_made_again_is_stale(target: SearchTarget) -> None:
    with pytest.raises(SinkStale) as caught:
        target.open([TABLE._replace(topic_id="another")])

    assert "cdc sink rebuild" in (caught.value.command or "")


def test_index_that_is_gone_is_stale_and_its_topic_is_read_again(
    target: SearchTarget, opensearch: OpenSearchServer, sink_name: str
) -> None:
    target.save_positions({(TABLE.topic, 0): 40})
    assert target.saved_positions() == {(TABLE.topic, 0): 40}
    ask(opensearch.url, "DELETE", f"/{alias(sink_name)}-g1-*")

    with pytest.raises(SinkStale):
        target.apply([change(41, b'{"id":"1"}')])
    with pytest.raises(SinkStale):
        target.apply([change(42, None)])
    assert ask(opensearch.url, "GET", f"/{alias(sink_name)}-g*/_mapping") == {}, "a write does not create it"
    again = opened(opensearch.url, sink_name)

    assert again.saved_positions() == {}, "whatever the consumer group says"
    again.close()


def test_index_of_positions_that_is_gone_is_created_with_its_mapping(
    target: SearchTarget, opensearch: OpenSearchServer, sink_name: str
) -> None:
    index = f"{alias(sink_name).removesuffix(TABLE.table)}-positions".replace(".-", "-")
    before = ask(opensearch.url, "GET", f"/{index}/_mapping")
    ask(opensearch.url, "DELETE", f"/{index}")

    target.save_positions({(TABLE.topic, 0): 40})

    assert ask(opensearch.url, "GET", f"/{index}/_mapping") == before


def test_index_of_an_earlier_release_is_written_to(opensearch: OpenSearchServer, sink_name: str) -> None:
    """Its writes named the index itself; the ones of today name an alias."""
    opened(opensearch.url, sink_name).close()
    for index, found in ask(opensearch.url, "GET", f"/{PIPELINE}.{sink_name}*/_alias").items():
        assert f"{index}-w" in found["aliases"]
        ask(opensearch.url, "DELETE", f"/{index}/_alias/{index}-w")

    again = opened(opensearch.url, sink_name)
    (outcome,) = again.apply([change(1, b'{"id":"1"}')])
    again.save_positions({(TABLE.topic, 0): 2})

    assert outcome.verdict is Verdict.DONE
    assert again.saved_positions() == {(TABLE.topic, 0): 2}
    again.close()


def test_conflict_counts_only_while_the_index_is_of_this_topic(
    target: SearchTarget, opensearch: OpenSearchServer, sink_name: str
) -> None:
    assert [one.verdict for one in target.apply([change(7, b'{"id":"1"}')] * 1)] == [Verdict.DONE]
    assert [one.verdict for one in target.apply([change(6, b'{"id":"1"}')])] == [Verdict.OVERTAKEN]
    name, found = ask(opensearch.url, "GET", f"/{alias(sink_name)}/_mapping").popitem()
    meta = found["mappings"]["_meta"]
    meta["tailrace"]["topic_id"] = "another"
    ask(opensearch.url, "PUT", f"/{name}/_mapping", {"_meta": meta})

    with pytest.raises(SinkStale):
        target.apply([change(6, b'{"id":"1"}')])


def test_deletes_are_remembered_as_long_as_configured_also_in_an_index_that_is_there(
    target: SearchTarget, opensearch: OpenSearchServer, sink_name: str
) -> None:
    def setting() -> str:
        path = f"/{alias(sink_name)}/_settings/index.gc_deletes?flat_settings=true"
        return str(ask(opensearch.url, "GET", path).popitem()[1]["settings"]["index.gc_deletes"])

    before = setting()
    opened(opensearch.url, sink_name, gc_deletes_s=7200).close()

    assert (before, setting()) == ("3600s", "7200s")


def test_index_keeps_the_values_that_an_update_lacks(target: SearchTarget) -> None:
    book = LogBook(TABLE.topic)
    for key in (1, 2, 3):
        book.put(key, {"id": key, "v": 1, "big": "large", "note": "n"})
    target.apply(changes(book.records))
    begin = len(book.records)
    book.put(1, {"id": 1, "v": 2, "big": "of a later event", "note": "n"}, reselected=["big"])
    book.put(2, {"id": 2, "v": 2, "big": "large", "note": "n"}, unchanged=["big", "note"])
    book.put(4, {"id": 4, "v": 2, "big": "of a later event", "note": "n"}, reselected=["big"])

    target.apply(changes(book.records[begin:]))

    target.refresh([TABLE.topic])
    found = live(target.stored_keys(TABLE.topic))
    assert found == book.rows
    assert [found[b'{"id":%d}' % key]["big"] for key in (1, 2, 3, 4)] == [
        "of a later event",
        "large",
        "large",
        "of a later event",
    ]


def test_lines_of_a_book_are_applied_once_each(target: SearchTarget) -> None:
    book = LogBook(TABLE.topic)
    for n in range(300):
        book.put(n % 50, {"id": n % 50, "v": n})
    target.apply(changes(book.records))

    assert [one.verdict for one in target.apply(changes(book.records))] == [Verdict.OVERTAKEN] * 50


def quoted(text: str) -> str:
    import msgspec

    return msgspec.json.encode(text).decode()
