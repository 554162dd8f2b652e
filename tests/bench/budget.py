"""Measures where the time from a commit to a reader goes: `python -m tests.bench.budget [SECONDS]`.

Runs the daemon of `tests.bench.probed_daemon` at 200 and 2,000 commits per second, and prints for each rate the latency
and, in milliseconds, p50, p95 and p99 of each step. Quantiles of steps do not add up to those of the whole.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import quantiles
from typing import Any

import psycopg

from cdc.local.local_server import ServerOptions
from cdc.local.stack import Stack
from tests.bench.daemon import BenchDaemon, write_config
from tests.bench.latency import heard_of, summary_of

_KAFKA = ServerOptions(heap="1g", short_pauses=True)


def main(seconds: int) -> None:
    """Print one line of JSON per rate."""
    gc.freeze()  # as in `tests.bench`
    with (
        Stack(f"budget-{os.getpid()}", ("postgres", "kafka"), wipe=True, options={"kafka": _KAFKA}) as stack,
        tempfile.TemporaryDirectory() as folder,
    ):
        for rate in (200, 2000):
            print(json.dumps(_measured(stack, Path(folder), rate, seconds)), flush=True)


def _measured(stack: Stack, folder: Path, rate: int, seconds: int) -> dict[str, Any]:
    table, out = f"budget_{rate}", folder / f"{rate}.probe"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(f"create table {table} (id bigint generated always as identity primary key, note text)".encode())
    config = write_config(stack, folder, f"budget{rate}", f"public.{table}")
    with BenchDaemon(config, program=("tests.bench.probed_daemon", str(out))):
        heard = heard_of(stack, folder, f"budget{rate}.public.{table}", table, rate, seconds)
    received_s = {committed_us: committed_us / 1e6 + latency_ms / 1000 for committed_us, latency_ms in heard}
    steps: dict[str, list[float]] = defaultdict(list)
    for line in out.read_text(encoding="utf-8").splitlines():
        _add(steps, json.loads(line), received_s)
    latencies_ms = [latency_ms for _, latency_ms in heard]
    return {"commits_per_second": rate, **summary_of(latencies_ms, seconds), "steps_ms": _quantiles(steps)}


def _add(steps: dict[str, list[float]], facts: dict[str, Any], received_s: dict[int, float]) -> None:
    for committed_us, sent_s, read_s in facts["commits"]:
        if committed_us not in received_s:
            continue  # while it warmed up
        steps["commit to walsender"].append(sent_s - committed_us / 1e6)
        steps["walsender to capture"].append(read_s - sent_s)
        steps["capture to transaction"].append(facts["begin"] - read_s)
        steps["commit to reader"].append(received_s[committed_us] - facts["commit"])
    if facts["commits"]:
        steps["write"].append(facts["submit"] - facts["begin"])
        steps["add partitions, deliver"].append(facts["flush"] - facts["submit"])
        steps["hand over"].append(facts["produce_all began"] - facts["flush"])
        steps["cut"].append(facts["cut"] - facts["produce_all began"])
        steps["commit"].append(facts["commit"] - facts["cut"])


def _quantiles(steps: dict[str, list[float]]) -> dict[str, list[float]]:
    found = {name: quantiles(values, n=100) for name, values in steps.items()}
    return {name: [round(cuts[at] * 1000, 2) for at in (49, 94, 98)] for name, cuts in found.items()}


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
