"""Runs and shows the sinks of the demo: a lake with views, two indices and two caches.

Documents and rows are read like any program reads them: by HTTP, and by one command of Redis. `cdc verify` checks
indices and caches, and PostgreSQL answers the query of one view of the lake.
"""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.rows import dict_row

from cdc.client import Waiter, written_lsn
from cdc.config.settings import Config
from cdc.demo.demo_stack import NAME
from cdc.errors import LocalError, SinkBehind, TailraceError
from cdc.local.command_process import CommandProcess
from cdc.local.owned_stack import OwnedStack
from cdc.shop.config_text import LAKE, STORES, VIEW_STORES
from cdc.shop.rows import views_folder
from sinks.warehouse.lake.manifest import Manifest
from sinks.warehouse.read.lake_reader import Lake, read

SERVERS: Final = ("opensearch", "valkey")
VIEW: Final = "daily_revenue"
_REACH_S: Final = 200.0  # the first cut waits for Spark: 28 s on an idle machine, 77 s on a busy one
_CHECK_S: Final = 1.0
_ASK_S: Final = 10.0
_ROWS_MAX: Final = 10_000
_ID: Final = 7


Day: TypeAlias = tuple[date, int, int, Decimal]
"""A row of `VIEW`: day, orders, items, revenue."""


class SinkTour:
    """The processes of all sinks."""

    def __init__(self, demo: OwnedStack) -> None:
        self._demo = demo
        self._processes = [CommandProcess(demo, name, "sink", "run", name) for name in (LAKE, *STORES, *VIEW_STORES)]
        self._lake = Lake(demo.lake)
        self._shown = (0, "Spark is starting")

    def start(self) -> None:
        """Start all sinks."""
        for process in self._processes:
            process.start()

    def stop(self) -> None:
        """Stop all sinks."""
        for process in self._processes:
            process.stop()

    def await_lsn(self, config: Config, lsn: str, *sinks: str) -> float:
        """Wait until `sinks` hold everything before `lsn`. Returns the seconds. Raises LocalError if a sink ends."""
        began_s = time.monotonic()
        with Waiter(config) as waiter:
            for sink in sinks:
                while not self._holds(waiter, sink, lsn, began_s):
                    pass
        return time.monotonic() - began_s

    def _holds(self, waiter: Waiter, sink: str, lsn: str, began_s: float) -> bool:
        try:
            waiter.wait(sink, lsn, timeout_s=_CHECK_S)
        except SinkBehind as error:
            for process in self._processes:
                process.check()
            if time.monotonic() - began_s > _REACH_S:
                raise LocalError(error.message, hint=error.hint) from error
            return False
        return True

    def own_write(self, config: Config, session: psycopg.Connection) -> list[tuple[str, bool]]:
        """Rename a product and a customer, wait, and read both from index and cache. Returns lines and success."""
        name = f"renamed at {time.strftime('%H:%M:%S')}"
        self.await_lsn(config, written_lsn(session), *STORES)  # do not measure earlier changes
        with session.transaction():
            session.execute("update shop.products set name = %s where id = %s", (name, _ID))
            session.execute("update shop.customers set name = %s where id = %s", (name, _ID))
        lsn, found = written_lsn(session), []
        query = {"query": {"match_phrase": {"name": name}}, "_source": ["name"]}
        key = f"{NAME}:cache:shop.customers:{_ID}"
        for sink in STORES:
            waited_s = self.await_lsn(config, lsn, sink)
            row = self._search("search.shop.products", query) if sink == "search" else self._get(key)
            asked = f"{NAME}.search.shop.products/_search" if sink == "search" else f"GET {key}"
            found.append((f"{waited_s * 1000:4.0f} ms  {asked}  {row.get('name')}", row.get("name") == name))
        return found

    def view_rows(self, session: psycopg.Connection) -> tuple[list[Day], list[Day]]:
        """Return the rows of `VIEW` in the lake and those of its query in PostgreSQL, to which nothing writes now."""
        query = (views_folder() / f"{VIEW}.pgsql").read_text(encoding="utf-8")
        with session.cursor(row_factory=dict_row) as cursor:
            wanted = cursor.execute(query.encode()).fetchall()
        return _days(self._rows(self._lake.manifest())), _days(wanted)

    def of_views(self) -> list[str]:
        """Return queries of index and cache about views, with their answers."""
        bought = {"nested": {"path": "lines", "query": {"match": {"lines.product": "Kettle"}}}}
        found = self._search("documents.views.order_document", {"query": bought, "size": 1})
        order = f"order {found['number']} of {found['customer']['name']}, {len(found['lines'])} lines" if found else "-"
        key = f"{NAME}:answers:views.top_customers:1"
        best = self._get(key)
        top = f"{best.get('name')}, {best.get('orders')} orders, {best.get('revenue')}"
        return [f"lines.product: Kettle  {order}", f"GET {key}  {top}"]

    def view_line(self) -> str:
        """Return the newest day of the view `VIEW`, in one line."""
        try:
            manifest = self._lake.store.current()
            if manifest is None:
                return self._shown[1]
            if manifest.cut != self._shown[0]:
                days = _days(self._rows(manifest))
                self._shown = (manifest.cut, day_line(days[-1]) if days else "no orders yet")
        except (TailraceError, OSError):
            return self._shown[1]  # only the picture: the checks report errors
        age_s = max(0.0, time.time() - manifest.committed_at_us / 1e6)
        return f"{self._shown[1]}  (cut {manifest.cut}, {age_s:.0f} s ago)"

    def _rows(self, manifest: Manifest) -> list[dict[str, Any]]:
        if VIEW not in manifest.views:
            return []
        table, state = self._lake.view(VIEW, manifest)
        rows: list[dict[str, Any]] = read(self._lake, table, state.version, limit=_ROWS_MAX).to_pylist()
        return rows

    def _search(self, index: str, query: dict[str, Any]) -> dict[str, Any]:
        """Return the first document that matches; empty without one."""
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{self._demo.stack.opensearch.url}/{NAME}.{index}/_search",
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
        """Return a row of the cache; empty without one."""
        try:
            with (
                socket.create_connection(("127.0.0.1", self._demo.stack.valkey.port), _ASK_S) as link,
                link.makefile("rwb") as stream,
            ):
                stream.write(f"GET {key}\r\n".encode())
                stream.flush()
                length = int(stream.readline()[1:])
                return dict(json.loads(stream.read(length))) if length >= 0 else {}
        except (OSError, ValueError) as error:
            raise LocalError(f"Valkey does not answer: {error}") from error


def day_line(day: Day) -> str:
    """Return a row of `VIEW` in one line."""
    return f"{day[0]}  {day[1]:,} orders  {day[2]:,} items  revenue {day[3]:,}"


def _days(rows: Iterable[Mapping[str, Any]]) -> list[Day]:
    return sorted((row["day"], row["orders"], int(row["items"]), row["revenue"]) for row in rows)
