"""A new index replaces the live one under writes and reads, and the rollback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Self

import pytest

from cdc.clock import SystemClock
from cdc.errors import SinkStale, SinkUnfit, SinkUnreachable
from sinks.contract import Verdict
from sinks.search.index_positions import IndexPositions
from sinks.search.rebuild import RebuildContext, SwapResult, rebuild, roll_back
from sinks.search.start import indices_of, shape_of
from tests.fixtures.servers.opensearch import OpenSearchServer
from tests.fixtures.sinks.growing_log import GrowingLog
from tests.fixtures.sinks.search_targets import (
    PIPELINE,
    TABLE,
    alias,
    ask,
    column,
    configured,
    documents,
    opened,
    schema,
)
from tests.fixtures.sinks.sink_drain import drain
from tests.fixtures.sinks.sink_logs import changes, live

STABLE = 100
"""Keys that are always there."""
DAY_MS = 86_400_000


def log_of(stable: int = STABLE) -> GrowingLog:
    log = GrowingLog([schema()])
    for key in range(stable):
        log.book.put(key, {"id": key, "n": 0})
    return log


def workshop(url: str, sink: str, log: GrowingLog, **given: Any) -> RebuildContext:
    paused = given.pop("paused", nullcontext)
    clock = given.pop("clock", SystemClock())
    accept = given.pop("accept_refused", False)
    _, settings = configured(url, **given)
    indices = indices_of(PIPELINE, sink, settings)
    return RebuildContext(
        indices=indices,
        book=IndexPositions(indices.client, PIPELINE, sink),
        shape=shape_of(settings),
        reader=log,
        schemas=log,
        paused=paused,
        clock=clock,
        accept_refused=accept,
        request_records=200,
    )


class Busy:
    """Writes rows to the log, applies them as a worker does, and searches, all the time."""

    def __init__(self, url: str, sink: str, log: GrowingLog) -> None:
        self.url, self.sink, self.log = url, sink, log
        self.stop = threading.Event()
        self.searches = 0
        self.wrong: list[str] = []
        self._threads = [
            threading.Thread(target=each) for each in (self._guarded(self._work), self._guarded(self._search))
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # a thread's error must fail the test
                self.wrong.append(repr(error))
                raise

        return run

    def _work(self) -> None:
        target = opened(self.url, self.sink)
        at = n = 0
        while not self.stop.is_set():
            n += 1
            with self.log.lock:
                for key in range(n % 7, STABLE, 7):
                    self.log.book.put(key, {"id": key, "n": n})
                self.log.book.put(f"x{n % 50}", {"id": f"x{n % 50}", "n": n})
                if n % 3 == 0:
                    self.log.book.delete(f"x{n % 50}")
            records = self.log.records(at)
            drain(target, records, batch=200)
            at = records[-1][2] + 1
            target.save_positions({(TABLE.topic, 0): at})
        target.close()

    def _search(self) -> None:
        seen: dict[str, int] = {}
        body = {"size": 10_000, "query": {"match_all": {}}}
        while not self.stop.is_set():
            hits = ask(self.url, "POST", f"/{alias(self.sink)}/_search", body)["hits"]["hits"]
            found = {hit["_id"]: hit["_source"]["n"] for hit in hits}
            missing = [key for key in map(str, range(STABLE)) if key not in found]
            older = [key for key in map(str, range(STABLE)) if found.get(key, 0) < seen.get(key, 0)]
            if missing or older:
                self.wrong.append(f"missing {missing}, older {older}")
            seen = {key: found[key] for key in map(str, range(STABLE)) if key in found}
            self.searches += 1


def test_readers_never_miss_a_document_while_an_index_is_replaced_and_brought_back(
    opensearch: OpenSearchServer, sink_name: str
) -> None:
    log = log_of()
    first = opened(opensearch.url, sink_name)
    drain(first, log.records())
    first.refresh([TABLE.topic])
    pauses: list[str] = []

    @contextmanager
    def paused() -> Iterator[None]:
        pauses.append("held")
        yield
        pauses.append("ended")

    shop = workshop(opensearch.url, sink_name, log, paused=paused)
    with Busy(opensearch.url, sink_name, log) as busy:
        swaps = [
            rebuild(shop, TABLE),
            roll_back(shop, TABLE, remembers_ms=DAY_MS),
            rebuild(shop, TABLE),
        ]
        done = busy.searches
        while busy.searches < done + 3:
            assert not busy.wrong
            busy.stop.wait(0.05)

    assert busy.wrong == []
    assert pauses == ["held", "ended"] * 3
    assert [swap.before for swap in swaps[1:]] == [swap.now for swap in swaps[:-1]]
    assert swaps[1].now != swaps[0].now
    last = opened(opensearch.url, sink_name)
    drain(last, log.records())
    last.refresh([TABLE.topic])
    assert live(last.stored_keys(TABLE.topic)) == log.book.rows
    kept = ask(opensearch.url, "GET", f"/{alias(sink_name)}-g*/_alias")
    assert len(kept) == 2, "the live one, and one to go back to"
    last.close()
    first.close()


def test_rebuild_makes_a_column_of_another_type_fit(opensearch: OpenSearchServer, sink_name: str) -> None:
    log = log_of(5)
    target = opened(opensearch.url, sink_name)
    drain(target, log.records())
    log.schemas.append(schema(column("id", "uuid", key=True), column("n"), schema_id="text", lsn=9))
    with pytest.raises(SinkUnfit):
        target.prepare(log.schemas[-1])

    rebuild(workshop(opensearch.url, sink_name, log), TABLE)

    again = opened(opensearch.url, sink_name)
    again.prepare(log.schemas[-1])
    (outcome,) = again.apply(
        [c._replace(offset=99, schema_id="text", row=b'{"id":0,"n":"text"}') for c in changes(log.records()[:1])]
    )
    assert outcome.verdict is Verdict.DONE
    assert len(documents(opensearch.url, alias(sink_name))) == 5
    target.close()
    again.close()


def test_index_that_refuses_records_does_not_take_over(opensearch: OpenSearchServer, sink_name: str) -> None:
    log = log_of(5)
    with log.lock:
        log.book.put("bad", {"id": "bad", "n": "secret"})
    target = opened(opensearch.url, sink_name)
    drain(target, log.records())
    before = next(iter(ask(opensearch.url, "GET", f"/{alias(sink_name)}/_alias")))

    with pytest.raises(SinkUnfit, match="1 mapper_parsing_exception column n") as caught:
        rebuild(workshop(opensearch.url, sink_name, log), TABLE)

    assert "secret" not in repr(caught.value.__dict__)
    assert list(ask(opensearch.url, "GET", f"/{alias(sink_name)}-g*/_alias")) == [before]
    swapped = rebuild(workshop(opensearch.url, sink_name, log, accept_refused=True), TABLE)
    assert (swapped.refused, swapped.before) == (1, before)
    target.close()


def test_killed_rebuild_leaves_the_live_index_writable_and_can_be_repeated(
    opensearch: OpenSearchServer, sink_name: str
) -> None:
    log = log_of(5)
    target = opened(opensearch.url, sink_name)
    drain(target, log.records())
    shop = workshop(opensearch.url, sink_name, log)

    class Dies(IndexPositions):
        def note(self, positions: object) -> None:
            raise SinkUnreachable("the network is gone")

    with pytest.raises(SinkUnreachable):
        rebuild(RebuildContext(**{**fields(shop), "book": Dies(shop.indices.client, PIPELINE, sink_name)}), TABLE)
    with log.lock:
        log.book.put(7, {"id": 7, "n": 7})
    outcomes = target.apply(changes(log.records()[-1:]))
    swapped = rebuild(shop, TABLE)

    assert [one.verdict for one in outcomes] == [Verdict.DONE]
    assert swapped.records == 6
    assert len(documents(opensearch.url, alias(sink_name))) == 6
    target.close()


def test_topic_that_was_made_again_gets_a_new_index_and_no_way_back(
    opensearch: OpenSearchServer, sink_name: str
) -> None:
    opened(opensearch.url, sink_name).close()
    again = TABLE._replace(topic_id="another")
    shop = workshop(opensearch.url, sink_name, log_of(3))

    rebuild(shop, again)

    opened(opensearch.url, sink_name, topics=[again]).close()
    assert len(documents(opensearch.url, alias(sink_name))) == 3
    with pytest.raises(SinkStale, match="recreated"):
        roll_back(shop, again, remembers_ms=DAY_MS)


def test_index_that_rested_longer_than_the_topic_remembers_deletes_is_not_brought_back(
    opensearch: OpenSearchServer, sink_name: str
) -> None:
    opened(opensearch.url, sink_name).close()
    shop = workshop(opensearch.url, sink_name, log_of(3))
    with pytest.raises(SinkUnfit, match="no previous index"):
        roll_back(shop, TABLE, remembers_ms=DAY_MS)
    rebuild(shop, TABLE)

    with pytest.raises(SinkStale, match="deletes"):
        roll_back(shop, TABLE, remembers_ms=-1)

    swapped: SwapResult = roll_back(shop, TABLE, remembers_ms=DAY_MS)
    assert swapped.records == 3


def fields(shop: RebuildContext) -> dict[str, Any]:
    return {name: getattr(shop, name) for name in shop.__dataclass_fields__}
