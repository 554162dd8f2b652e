"""Measures the time from a COMMIT in PostgreSQL until a search finds the changed document of a view, under load.

A view of the lake turns orders with lines into documents, publishes them as a topic, and a sink keeps them in an index.
Capture, lake and sink are the commands that users run. During the load, an order is marked twice a second, and searches
poll for the marks.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import psycopg

from cdc.local.local_server import ServerOptions
from cdc.local.stack import Stack
from sinks.warehouse.lake.manifest import ManifestStore
from tests.bench.daemon import BenchDaemon, write_config
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.sink_process import SinkProcess

_NAME: Final = "viewfresh"
_LINES: Final = 4  # of each order
_WARM_UP_S: Final = 60  # the first cuts compile what later ones run
_MARK_S: Final = 0.5
_POLL_S: Final = 0.1
_READY_S: Final = 600.0
_INDEX: Final = f"{_NAME}.documents.views.order_document"
_VIEW: Final = """-- key: id
-- publish: topic
select o.id, o.note, o.mark, sum(l.qty) as items,
       sort_array(collect_list(struct(l.id, l.sku, l.qty)) filter (where l.id is not null)) as lines
from orders o left join order_lines l on l.order_id = o.id
group by o.id, o.note, o.mark
"""
_SINKS: Final = """
[sinks.lake]
kind = "warehouse"
path = "{folder}/lake"
views = "{folder}/views"
master = "local[2]"
memory = "2g"
interval_s = 0.5

[sinks.documents]
kind = "search"
url = "{url}"
tables = ["views.order_document"]
index = {{ number_of_replicas = 0 }}
"""
_LOAD: Final = """\\set id random(1, {lines})
update order_lines set qty = qty % 9 + 1 where id = :id;
"""


def measure_view_freshness(folder: Path, orders: int, rate: int, seconds: int) -> dict[str, object]:
    """Return quantiles in seconds of the time from COMMIT to a search that finds the change."""
    servers = {"opensearch": ServerOptions(heap="1g"), "kafka": ServerOptions(heap="512m")}
    names = ("postgres", "kafka", "opensearch")
    with Stack(f"bench-views-{os.getpid()}", names, wipe=True, options=servers) as stack, ExitStack() as closing:
        session = closing.enter_context(psycopg.connect(stack.postgres.dsn, autocommit=True))
        session.execute("create table orders (id int primary key, note text, mark bigint not null)")
        session.execute("create table order_lines (id int primary key, order_id int, sku text, qty int)")
        config = _config(stack, folder)
        closing.enter_context(BenchDaemon(config))
        session.execute(f"insert into orders select n, md5(n::text), 0 from generate_series(1, {orders}) n".encode())
        session.execute(
            f"insert into order_lines select n, (n - 1) / {_LINES} + 1, 's' || n % 500, n % 9 + 1"
            f" from generate_series(1, {_LINES * orders}) n".encode()
        )
        for sink in ("lake", "documents"):
            closing.enter_context(SinkProcess(config, sink))
        url = f"{stack.opensearch.url}/{_INDEX}"
        until(lambda: _count(url) == orders, "every document is in the index", within_s=_READY_S)
        began = _cuts(folder)
        ages_s, committed = _ages(stack, session, url, folder, orders, rate, seconds)
        cuts = _cuts(folder) - began
    counted = sorted(ages_s)
    cut_points = quantiles(counted, n=100)
    return {
        "orders": orders,
        "lines": _LINES * orders,
        "changes_per_second_asked": rate,
        "changes_per_second_made": round(committed),
        "marks": len(counted),
        "cuts": cuts,
        **{f"p{share}_seconds": round(cut_points[share - 1], 2) for share in (50, 95, 99)},
        "max_seconds": round(counted[-1], 2),
    }


def _config(stack: Stack, folder: Path) -> Path:
    (folder / "views").mkdir()
    (folder / "views" / "order_document.sql").write_text(_VIEW)
    config = write_config(stack, folder, _NAME, "public.order*")
    with config.open("a") as text:
        text.write(_SINKS.format(folder=folder, url=stack.opensearch.url))
    return config


def _ages(
    stack: Stack, session: psycopg.Connection[Any], url: str, folder: Path, orders: int, rate: int, seconds: int
) -> tuple[list[float], float]:
    """Return the age of each mark after the warm-up when it was found, and the actual load."""
    script = folder / "load.sql"
    script.write_text(_LOAD.format(lines=_LINES * orders))
    total_s = seconds + _WARM_UP_S
    command = [str(stack.postgres.programs / "pgbench"), "-n", "-c", "4", "-R", str(rate), "-T", str(total_s)]
    pgbench = subprocess.Popen(
        [*command, "-f", str(script), stack.postgres.dsn], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    committed_s: dict[int, float] = {}
    found_s: dict[int, float] = {}
    stop = threading.Event()
    finder = threading.Thread(target=_find, args=(url, found_s, stop))
    finder.start()
    try:
        mark = 0
        while pgbench.poll() is None:
            mark += 1
            session.execute("update orders set mark = %s where id = %s", (mark, mark % orders + 1))
            committed_s[mark] = time.monotonic()
            time.sleep(_MARK_S)
        until(lambda: committed_s.keys() <= found_s.keys(), "every mark", within_s=_READY_S)
    finally:
        stop.set()
        finder.join()
        output = pgbench.communicate()[0]
    made = next(line.split("=")[1].split()[0] for line in output.splitlines() if line.startswith("tps"))
    warm = int(_WARM_UP_S / _MARK_S)
    return [found_s[at] - committed_s[at] for at in sorted(committed_s) if at > warm], float(made)


def _find(url: str, found_s: dict[int, float], stop: threading.Event) -> None:
    """Record when each mark is first found. A later mark may be found first, as they are in several partitions."""
    behind = 0  # every mark up to here was found
    while not stop.wait(_POLL_S):
        query = {"query": {"range": {"mark": {"gt": behind}}}, "size": 1000, "_source": ["mark"]}
        hits = _ask(f"{url}/_search", query).get("hits", {}).get("hits", [])
        now_s = time.monotonic()
        marks = [int(hit["_source"]["mark"]) for hit in hits]
        for mark in marks:
            found_s.setdefault(mark, now_s)
        while behind + 1 in found_s:
            behind += 1


def _count(url: str) -> int:
    return int(_ask(f"{url}/_count").get("count", -1))


def _ask(url: str, query: dict[str, Any] | None = None) -> dict[str, Any]:
    body = None if query is None else json.dumps(query).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            document: dict[str, Any] = json.load(answer)
    except OSError:
        return {}
    return document


def _cuts(folder: Path) -> int:
    manifest = ManifestStore(folder / "lake").current()
    return manifest.cut if manifest else 0
