"""The indices and caches of the demo: `cdc sink run` as processes of their own, and what they must hold.

Documents and rows are read as any program reads them: by HTTP, and by one command of Redis.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.client import Waiter, written_lsn
from cdc.clock import SystemClock
from cdc.config.settings import Config
from cdc.config.sink_kinds import applied_of
from cdc.demo.place import NAME, Place
from cdc.demo.program import Program
from cdc.errors import LocalError, SinkBehind
from cdc.lsn import Lsn
from cdc.verify.findings import TableFindings
from cdc.verify.key_states import Sample
from cdc.verify.store_check import verify_store
from sinks.compose import target_of

SINKS: Final = ("search", "cache")
VIEW_SINKS: Final = ("documents", "answers")
"""Those that keep views of the lake, from the topics it publishes them as."""
SERVERS: Final = ("opensearch", "valkey")
_REACH_S: Final = 120.0
_CHECK_S: Final = 1.0
_ASK_S: Final = 10.0
_ID: Final = 7


@dataclass(frozen=True, slots=True)
class Seen:
    """A write of ours as a store shows it.

    Attributes:
        how: what was asked.
        answer: the name that is there.
        waited_s: until the sink was said to have it.
        good: it is what was written.
    """

    how: str
    answer: str
    waited_s: float
    good: bool


class StoresRun:
    """All of them."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._programs = [Program(place, name, "sink", "run", name) for name in (*SINKS, *VIEW_SINKS)]

    def start(self) -> None:
        """Start all."""
        for program in self._programs:
            program.start()

    def stop(self) -> None:
        """End all in order."""
        for program in self._programs:
            program.stop()

    def await_lsn(self, waiter: Waiter, sink: str, lsn: Lsn) -> float:
        """Wait until a sink holds everything before `lsn`; seconds it took. Raises LocalError when it has ended."""
        began_s = time.monotonic()
        while True:
            try:
                waiter.wait(sink, str(lsn), timeout_s=_CHECK_S)
                return time.monotonic() - began_s
            except SinkBehind as error:
                for program in self._programs:
                    program.check()
                if time.monotonic() - began_s > _REACH_S:
                    raise LocalError(error.message, hint=error.hint) from error

    def own_write(self, config: Config, session: psycopg.Connection) -> list[Seen]:
        """Change a product and a customer, and read both where they are kept as soon as they are said to be there."""
        name = f"renamed at {time.strftime('%H:%M:%S')}"
        with Waiter(config) as waiter:
            for sink in SINKS:  # what came before is not to be measured
                self.await_lsn(waiter, sink, Lsn.parse(written_lsn(session)))
            with session.transaction():
                session.execute("update shop.products set name = %s where id = %s", (name, _ID))
                session.execute("update shop.customers set name = %s where id = %s", (name, _ID))
            lsn = Lsn.parse(written_lsn(session))
            with ThreadPoolExecutor(len(SINKS)) as both:
                return list(both.map(lambda sink: self._seen(waiter, sink, lsn, name), SINKS))

    def verify(self, config: Config, lsn: Lsn) -> dict[str, list[TableFindings]]:
        """Compare each with its topics, once it has everything before `lsn`; of views the lake must be there too."""
        found = {}
        with Waiter(config) as waiter:
            for sink in (*SINKS, *VIEW_SINKS):
                self.await_lsn(waiter, sink, lsn)
                with contextlib.closing(target_of(config, sink, applied_of(config, sink))) as target:
                    found[sink] = verify_store(
                        config, sink, target, (), clock=SystemClock(), sample=Sample(1.0, 0), repair=False
                    )
        return found

    def of_views(self) -> list[tuple[str, str]]:
        """What was asked of index and cache about views, and the answer in a line."""
        bought = {"nested": {"path": "lines", "query": {"match": {"lines.product": "Kettle"}}}}
        found = self._search("documents.views.order_document", {"query": bought, "size": 1})
        document: dict[str, Any] = found or {"number": "-", "customer": {"name": "-"}, "lines": []}
        order = f"order {document['number']} of {document['customer']['name']}, {len(document['lines'])} lines"
        best = self._get(f"{NAME}:answers:views.top_customers:1")
        top = f"{best.get('name')}, {best.get('orders')} orders, {best.get('revenue')}"
        return [("lines.product: Kettle", order), (f"GET {NAME}:answers:views.top_customers:1", top)]

    def _seen(self, waiter: Waiter, sink: str, lsn: Lsn, name: str) -> Seen:
        waited_s = self.await_lsn(waiter, sink, lsn)
        how, ask = {"search": self._searched, "cache": self._cached}[sink](name)
        row = ask()
        return Seen(how, str(row.get("name")), waited_s, row.get("name") == name)

    def _searched(self, name: str) -> tuple[str, Callable[[], dict[str, Any]]]:
        index = "search.shop.products"
        query = {"query": {"match_phrase": {"name": name}}, "_source": ["name"]}
        return f"{NAME}.{index}/_search", lambda: self._search(index, query)

    def _cached(self, name: str) -> tuple[str, Callable[[], dict[str, Any]]]:  # noqa: ARG002 - as `_searched`
        key = f"{NAME}:cache:shop.customers:{_ID}"
        return f"GET {key}", lambda: self._get(key)

    def _search(self, index: str, query: dict[str, Any]) -> dict[str, Any]:
        """The first document found."""
        request = urllib.request.Request(  # noqa: S310 - the address of our own server
            f"{self._place.stack.opensearch.url}/{NAME}.{index}/_search",
            json.dumps(query).encode(),
            {"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_ASK_S) as answer:  # noqa: S310
                hits = json.load(answer)["hits"]["hits"]
        except (OSError, ValueError) as error:
            raise LocalError(f"OpenSearch does not answer: {error}") from error
        return dict(hits[0]["_source"]) if hits else {}

    def _get(self, key: str) -> dict[str, Any]:
        """A row of the cache."""
        try:
            with (
                socket.create_connection(("127.0.0.1", self._place.stack.valkey.port), _ASK_S) as link,
                link.makefile("rwb") as stream,
            ):
                stream.write(f"GET {key}\r\n".encode())
                stream.flush()
                length = int(stream.readline()[1:])
                return dict(json.loads(stream.read(length))) if length >= 0 else {}
        except (OSError, ValueError) as error:
            raise LocalError(f"Valkey does not answer: {error}") from error
