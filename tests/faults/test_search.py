"""Faults of OpenSearch, and of the network between it and a search sink (rows D1-D4 of the faults)."""

from __future__ import annotations

import random
import threading
import time

import pytest

from cdc.errors import SinkUnfit, SinkUnreachable
from sinks.contract import Verdict
from tests.fixtures.faults.searchproxy import search_proxy
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.servers.opensearch import OpenSearchServer
from tests.fixtures.sinks.search_targets import TABLE, alias, ask, column, documents, opened, schema
from tests.fixtures.sinks.sink_drain import drain
from tests.fixtures.sinks.sink_logs import LogBook, changes, live

_DELETES_FORGOTTEN_S = 60.0


def book_of(count: int, *, keys: int = 60, seed: int = 1) -> LogBook:
    """Rows that come, change and go."""
    chance, book = random.Random(seed), LogBook()
    for n in range(count):
        key = chance.randrange(keys)
        if chance.random() < 0.2 and book.rows.get(f'{{"id":{key}}}'.encode()):
            book.delete(key)
        else:
            book.put(key, {"id": key, "v": n, "big": "x" * chance.randrange(200)})
    return book


def test_stale_write_after_deletes_are_forgotten_brings_a_row_back_and_not_before(
    opensearch: OpenSearchServer, sink_name: str
) -> None:
    target = opened(opensearch.url, sink_name)
    book = LogBook()
    book.put(1, {"id": 1, "v": "stale"})
    book.put(2, {"id": 2, "v": "stale"})
    for key in (1, 2):
        book.delete(key)
    stale, delete = changes(book.records[:2]), changes(book.records[2:])
    target.apply(delete)
    assert [one.verdict for one in target.apply(stale)] == [Verdict.OVERTAKEN] * 2

    ask(opensearch.url, "PUT", f"/{alias(sink_name)}/_settings", {"index": {"gc_deletes": "1s"}})
    target.apply(delete)
    verdict, end = Verdict.OVERTAKEN, time.monotonic() + _DELETES_FORGOTTEN_S
    while verdict is Verdict.OVERTAKEN and time.monotonic() < end:
        time.sleep(0.3)
        target.refresh([TABLE.topic])
        (outcome,) = target.apply(stale[:1])
        verdict = outcome.verdict

    assert verdict is Verdict.DONE, "an index that forgets takes a frozen worker's row: this is why ours does not"
    target.close()
    again = opened(opensearch.url, sink_name)
    again.apply(delete)
    again.apply(stale[1:])
    again.refresh([TABLE.topic])
    assert live(again.stored_keys(TABLE.topic)).keys() <= {b'{"id":1}'}, "an hour again, from the next start on"
    again.remove(TABLE.topic, list(again.stored_keys(TABLE.topic)))
    again.refresh([TABLE.topic])
    assert live(again.stored_keys(TABLE.topic)) == {}
    again.close()


def test_worker_that_was_frozen_for_too_long_sends_nothing_more(opensearch: OpenSearchServer, sink_name: str) -> None:
    clock = ManualClock()
    with search_proxy(opensearch.url) as proxy:
        target = opened(proxy.url, sink_name, clock=clock)
        book = book_of(10)

        def frozen(size: int) -> str:
            clock.wait(threading.Event(), 1801)
            return "too_large"

        proxy.choose = frozen  # type: ignore[method-assign]
        with pytest.raises(SinkUnreachable, match="was frozen"):
            target.apply(changes(book.records))
        target.close()


def test_index_equals_the_log_through_storms_and_lost_answers(opensearch: OpenSearchServer, sink_name: str) -> None:
    book = book_of(800)
    with search_proxy(opensearch.url) as proxy:
        target = opened(proxy.url, sink_name)
        proxy.bytes_max = 6_000
        proxy.weights = {
            "pass": 6, "busy": 2, "busy_documents": 6, "unavailable": 1, "truncated": 1, "torn": 1, "lost": 2,
        }  # fmt: skip

        seen, refused = drain(target, book.records)

        assert not refused
        assert min(proxy.seen[fault] for fault in (*proxy.weights, "too_large")) > 0, proxy.seen
        assert min(seen[name] for name in ("DONE", "OVERTAKEN", "LATER", "UNREACHABLE")) > 0, seen
        target.refresh([TABLE.topic])
        assert live(target.stored_keys(TABLE.topic)) == book.rows
        target.close()


def test_document_too_large_for_the_server_is_refused_alone(opensearch: OpenSearchServer, sink_name: str) -> None:
    book = LogBook()
    for key in range(8):
        book.put(key, {"id": key, "v": 1, "big": "x" * (5_000 if key == 3 else 5)})
    with search_proxy(opensearch.url) as proxy:
        target = opened(proxy.url, sink_name)
        proxy.bytes_max = 1_000

        outcomes = target.apply(changes(book.records))

        refused = [place for place, outcome in enumerate(outcomes) if outcome.verdict is Verdict.REFUSED]
        assert (refused, outcomes[3].error) == ([3], "request_entity_too_large")
        assert sum(outcome.verdict is Verdict.DONE for outcome in outcomes) == 7
        target.close()


def test_full_disk_makes_writes_wait_and_nothing_is_lost(opensearch: OpenSearchServer, sink_name: str) -> None:
    target = opened(opensearch.url, sink_name)
    book = book_of(60)
    settings = f"/{alias(sink_name)}/_settings"
    # What OpenSearch itself does to an index whose node passes the flood stage watermark.
    ask(opensearch.url, "PUT", settings, {"index.blocks.read_only_allow_delete": True})

    rows = [change for change in changes(book.records) if change.row is not None]
    outcomes = target.apply(rows)

    assert {(outcome.verdict, outcome.error) for outcome in outcomes} == {(Verdict.LATER, "cluster_block_exception")}
    ask(opensearch.url, "PUT", settings, {"index.blocks.read_only_allow_delete": None})
    drain(target, book.records)
    target.refresh([TABLE.topic])
    assert live(target.stored_keys(TABLE.topic)) == book.rows
    target.close()


def test_everything_acknowledged_is_there_after_kills_under_load(
    own_opensearch: OpenSearchServer, sink_name: str
) -> None:
    target = opened(own_opensearch.url, sink_name)
    book = book_of(2_000, keys=400)
    half = threading.Event()

    def kill() -> None:
        half.wait(120)
        own_opensearch.kill()
        own_opensearch.start()

    thread = threading.Thread(target=kill)
    thread.start()
    first, second = book.records[:1_000], book.records[1_000:]
    drain(target, first, batch=100)
    half.set()
    seen, refused = drain(target, second, batch=20, pause=lambda: time.sleep(0.2))
    thread.join()
    if not seen["UNREACHABLE"]:  # the log was at its end before the kill came
        drain(target, second, batch=20, pause=lambda: time.sleep(0.2))

    assert not refused
    target.refresh([TABLE.topic])
    assert live(target.stored_keys(TABLE.topic)) == book.rows
    target.close()


def test_wrong_password_is_named_and_not_shown(opensearch: OpenSearchServer, sink_name: str) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer

    from cdc.config.secret import Secret

    class Door(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with HTTPServer(("127.0.0.1", 0), Door) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(SinkUnfit, match="credentials") as caught:
            opened(
                f"http://127.0.0.1:{server.server_port}",
                sink_name,
                options={"username": Secret("u"), "password": Secret("geheim")},
            )
        thread.join()

    assert "geheim" not in repr(caught.value.__dict__)


def test_column_that_came_while_the_index_was_replaced_is_in_the_new_one(
    opensearch: OpenSearchServer, sink_name: str
) -> None:
    """A worker meets an index that was replaced: it goes on with the new one, fields first."""
    target = opened(opensearch.url, sink_name)
    target.prepare(schema(column("id", "uuid", key=True), column("extra"), schema_id="new", lsn=2))
    old = next(iter(ask(opensearch.url, "GET", f"/{alias(sink_name)}/_alias")))
    other = opened(opensearch.url, sink_name)
    indices = other._indices
    indices.create(TABLE, 2, live=False)
    indices.block(old, closed=True)
    (stuck,) = target.apply([c._replace(schema_id="new") for c in changes(book_with({"id": 1, "extra": "x"}).records)])
    assert (stuck.verdict, stuck.error) == (Verdict.LATER, "cluster_block_exception")
    indices.swap(TABLE, old, indices.name(TABLE, 2))

    (outcome,) = target.apply(
        [c._replace(schema_id="new") for c in changes(book_with({"id": 1, "extra": "x"}).records)]
    )

    assert outcome.verdict is Verdict.DONE
    assert documents(opensearch.url, alias(sink_name)) == {"1": {"id": 1, "extra": "x"}}
    target.close()
    other.close()


def book_with(row: dict[str, object]) -> LogBook:
    book = LogBook()
    book.put(row["id"], row)
    return book
