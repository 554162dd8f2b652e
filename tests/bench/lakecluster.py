"""Measures cuts that executors write, from Kafka to a manifest, against Structured Streaming with delta-spark.

Both keep a mirror and an archive of a table of seven columns, of about 150 bytes per row, on ``local[2]``, each in its
own JVM, and take turns. The first round loads the inserts and is not compared; the others are updates of every row. CPU
is that of the whole process tree: driver, JVM and Python workers.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Final

import psycopg

from tests.bench.daemon import BenchDaemon, peak_rss_bytes, write_config
from tests.bench.lake import Streaming, await_log, catch_up, jvm_pid, lake_section, opened, wal
from tests.fixtures.lake.growing_cut import cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cdc.local.stack import Stack

_NAME: Final = "lakecluster"
_ROUNDS: Final = 3
_ROW: Final = "md5(n::text), md5((n * 7)::text), n % 100, n * 1.5, now(), n % 2 = 0"
_UPDATE: Final = b"update cluster_rows set total = total + 1, a = b"


def measure_lake_cluster(stack: Stack, folder: Path, changes: int) -> dict[str, object]:
    """Return seconds, CPU seconds and memory of rounds of `changes` changes each."""
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql, ExitStack() as closing:
        sql.execute(
            b"create table cluster_rows (id int primary key, a text, b text, kind int, total numeric(12,2), "
            b"at timestamptz, ok boolean)"
        )
        config = write_config(stack, folder, _NAME, "public.cluster_rows")
        with config.open("a") as text:
            more = 'committer = "distributed"\nbytes_max = 8589934592'
            text.write(lake_section("lake", folder / "cluster-lake", more, events_max=4 * changes))
        closing.enter_context(BenchDaemon(config))
        streaming = Streaming(stack.kafka.bootstrap, f"{_NAME}.public.cluster_rows", folder / "cluster", archive=True)
        closing.callback(streaming.close)
        sql.execute(f"insert into cluster_rows select n, {_ROW} from generate_series(1, {changes}) n".encode())
        await_log(config, _NAME, wal(sql))
        lake, _ = opened(config, "lake", closing)
        for _ in range(1 + _ROUNDS):
            end = wal(sql)
            theirs.append(_cost(streaming.drain, streaming.pid))
            ours.append(_cost(partial(catch_up, lake, end), getpid(), without=streaming.pid))
            sql.execute(_UPDATE)
            await_log(config, _NAME, wal(sql))
        memory = {
            "distributed": {"python": peak_rss_bytes("self"), "jvm": peak_rss_bytes(jvm_pid())},
            "streaming": {"python": peak_rss_bytes(streaming.pid), "jvm": peak_rss_bytes(_jvm_of(streaming.pid))},
        }
    best = {name: min(one[name] for one in theirs[1:]) / min(one[name] for one in ours[1:]) for name in ours[0]}
    return {
        "changes": changes,
        "distributed": ours,
        "streaming": theirs,
        "ratio_to_streaming": {name: round(value, 2) for name, value in best.items()},
        "peak_rss_bytes": memory,
    }


def _cost(work: Callable[[], object], pid: int, without: int | None = None) -> dict[str, float]:
    """Return the seconds and the CPU seconds of a process tree, a part of which may be left out."""

    def used() -> float:
        return cpu_s(pid) - (0.0 if without is None else cpu_s(without))

    began_s, before = time.monotonic(), used()
    work()
    return {"seconds": round(time.monotonic() - began_s, 2), "cpu_s": round(used() - before, 2)}


def _jvm_of(pid: int) -> int:
    """Return the JVM that a process has started."""
    found = subprocess.run(["pgrep", "-P", str(pid), "java"], check=True, capture_output=True, text=True)
    return int(found.stdout.split()[0])
