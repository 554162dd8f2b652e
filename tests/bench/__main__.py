"""`make bench`: measures throughput, CPU, memory and latency of the real daemon on real servers, and prints JSON.

Every value has a reference from the same run: `pg_recvlogical` reads the same backlog before and after. The daemon is
the one that users run, and its configuration disables nothing. `safety` in the result lists the safety settings; the
run is refused if one is off. Times are noisy on shared machines, so compare ratios.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from cdc.local.local_server import ServerOptions
from cdc.local.stack import Stack
from tests.bench.cache import measure_cache
from tests.bench.debezium import measure_debezium
from tests.bench.estate import Brokers, measure_estate
from tests.bench.freshness import measure_freshness
from tests.bench.lake import measure_lake
from tests.bench.lakecluster import measure_lake_cluster
from tests.bench.latency import measure_latency
from tests.bench.outbox import measure_outbox
from tests.bench.routing import measure_pruner, measure_routing
from tests.bench.search import measure_search
from tests.bench.sizing import measure_sizing
from tests.bench.snapshot import measure_snapshot
from tests.bench.throughput import measure_throughput
from tests.bench.tpch import measure_sizes
from tests.bench.verifying import measure_verify
from tests.bench.viewfreshness import measure_view_freshness
from tests.bench.views import measure_views, summary
from tests.bench.visible import measure_visible

_EVENTS_PER_S = 5000
_SERVERS = {
    "postgres": ServerOptions(
        settings={"max_wal_size": "8GB", "shared_buffers": "256MB", "max_replication_slots": "60"},
    ),
    "kafka": ServerOptions(heap="1g", short_pauses=True),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=20, help="of each latency measurement")
    only = (
        *("throughput", "latency", "snapshot", "lake", "freshness", "search", "cache", "visible", "verify"),
        *(
            "outbox",
            "routing",
            "pruner",
            "views",
            "view-freshness",
            "tpch",
            "debezium",
            "sizing",
            "estate",
            "lake-cluster",
        ),
    )
    parser.add_argument("--only", choices=only)
    parser.add_argument("--changes", type=int, default=300_000, help="of each cut of the lake")
    parser.add_argument("--tables", type=int, default=10_000, help="of the estate")
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3), help="of the estate")
    parser.add_argument("--partitions", type=int, default=1, help="of each topic of the estate")
    parser.add_argument("--replicas", type=int, default=1, help="of each partition of the estate")
    parser.add_argument("--documents", type=int, default=50_000, help="of each round of the search sink")
    parser.add_argument("--orders", type=int, default=50_000, help="documents of the view that is searched")
    return parser


def main() -> int:
    """Run the selected measurements and print one JSON document."""
    options = _parser().parse_args()
    gc.freeze()  # collecting among all these modules takes 200 ms, in which no latency is read
    result: dict[str, object] = {
        "machine": {
            "cpus": os.cpu_count(),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "load_average": os.getloadavg(),
        },
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    with (
        Stack(f"bench-{os.getpid()}", ("postgres", "kafka", "valkey"), wipe=True, options=_SERVERS) as stack,
        tempfile.TemporaryDirectory() as folder,
    ):
        if options.only in {None, "throughput"}:
            result["throughput"] = measure_throughput(stack, Path(folder), options.rows)
        if options.only in {None, "latency"}:
            rates = (200, 2000)
            result["latency"] = [measure_latency(stack, Path(folder), rate, options.seconds) for rate in rates]
        if options.only == "debezium":
            result["debezium"] = measure_debezium(stack, Path(folder), options.rows, options.seconds)
        if options.only == "sizing":
            result["sizing"] = measure_sizing(stack, Path(folder), (10, 500, 2000))
        if options.only == "estate":
            brokers = Brokers(options.brokers, options.partitions, options.replicas)
            result["estate"] = measure_estate(stack, Path(folder), (10, options.tables), brokers)
        if options.only in {None, "snapshot"}:
            result["snapshot"] = measure_snapshot(stack, Path(folder), 2 * options.rows)
        if options.only in {None, "lake"}:
            result["lake"] = measure_lake(stack, Path(folder), options.changes)
        if options.only == "lake-cluster":
            result["lake_cluster"] = measure_lake_cluster(stack, Path(folder), options.changes)
        if options.only in {None, "freshness"}:
            result["freshness"] = measure_freshness(stack, Path(folder), 1_000_000, 2000, 60)
        if options.only in {None, "cache"}:
            result["cache"] = measure_cache(stack, Path(folder), options.rows // 20, options.seconds)
        if options.only in {None, "outbox"}:
            result["outbox"] = measure_outbox(stack, max(200, options.rows // 500))
        if options.only in {None, "routing"}:
            result["routing"] = measure_routing(stack, Path(folder), options.rows // 4)
        if options.only == "pruner":
            result["pruner"] = measure_pruner(stack, Path(folder), options.seconds, _EVENTS_PER_S)
        if options.only in {None, "visible", "verify"}:
            name = f"bench-sinks-{os.getpid()}"
            heap = {"opensearch": ServerOptions(heap="1g")}
            with Stack(name, ("opensearch",), wipe=True, options=heap) as search:
                if options.only != "verify":
                    result["visible"] = measure_visible(stack, search, Path(folder), 200, options.seconds)
                if options.only != "visible":
                    result["verify"] = measure_verify(stack, search, Path(folder), options.rows)
    if options.only in {None, "search"}:
        result["search"] = measure_search(options.documents)
    if options.only in {None, "views"}:
        with tempfile.TemporaryDirectory() as folder:
            result["views"] = summary(measure_views(Path(folder)))
    if options.only == "tpch":
        result["tpch"] = measure_sizes()
    if options.only in {None, "view-freshness"}:
        with tempfile.TemporaryDirectory() as folder:
            result["view_freshness"] = measure_view_freshness(Path(folder), options.orders, 500, 3 * options.seconds)
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
