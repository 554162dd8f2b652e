"""Measures Tailrace and Debezium over the same WAL, alternately, in one run: a backlog, a snapshot, and the latency.

For both, the time runs from the first record that a reader can see to the last one. So it excludes the start of a JVM;
the second turn in the same worker uses a warm JVM. Each turn has its own slot, created before the rows were written.
Afterwards every topic is read and must contain every row once.

A JVM uses the heap that it is given, so its memory says little. The backlog is read with several heaps. The other
measurements use the smallest heap with which Debezium is as fast as with any other. Its snapshot is measured with
several numbers of threads and fetch sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition

from cdc.local.stack import Stack
from tests.bench.connect import OWN_HEAP, Connect, version
from tests.bench.daemon import BenchDaemon, cpu_s, peak_rss_bytes, write_config
from tests.bench.latency import consumer_of, latencies_of, summary_of
from tests.bench.throughput import LOAD, TABLE

_TURNS: Final = 2
_LOOK_S: Final = 0.05
_STILL_S: Final = 3.0  # nothing new for so long, and enough: it was the last
_DEADLINE_S: Final = 900.0
_RATES: Final = (200, 2000)
_HEAPS: Final = (OWN_HEAP, "1G", "512M", "384M", "256M")  # the largest first
_AS_FAST: Final = 0.95  # of the best: the difference between two turns is larger
_SNAPSHOTS: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {},
    "2 threads": {"snapshot.max.threads": "2", "snapshot.fetch.size": "20480"},
    "4 threads": {"snapshot.max.threads": "4", "snapshot.fetch.size": "50000"},
}


@dataclass
class _Side:
    """The results of one system, one value per turn."""

    rows_per_s: list[int] = field(default_factory=list)
    cpu_us_per_row: list[float] = field(default_factory=list)
    peak_rss_mb: int = 0

    def add(self, rows: int, took_s: float, cpu: float, pid: int) -> None:
        self.rows_per_s.append(round(rows / took_s))
        self.cpu_us_per_row.append(round(cpu / rows * 1e6, 1))
        self.peak_rss_mb = max(self.peak_rss_mb, peak_rss_bytes(pid) >> 20)


def measure_debezium(stack: Stack, folder: Path, rows: int, seconds: int) -> dict[str, object]:
    """Return rows per second, CPU per row, memory and their ratios for both systems, and their latencies."""
    sides: dict[str, _Side] = {"tailrace": _Side()}
    heap = _backlog(stack, folder, rows, sides)
    snapshots = _snapshots(stack, folder, rows, heap)
    ours = max(sides["tailrace"].rows_per_s)
    return {
        "debezium": version(),
        "rows": rows,
        "smallest_heap_at_full_speed": heap,
        "stream": {name: vars(side) for name, side in sides.items()},
        "stream_ratio_of_best_turns": {
            name: round(ours / max(side.rows_per_s), 2) for name, side in sides.items() if name != "tailrace"
        },
        "snapshot": {name: vars(side) for name, side in snapshots.items()},
        "latency": [_latency(stack, folder, rate, seconds, heap) for rate in _RATES],
    }


def _backlog(stack: Stack, folder: Path, rows: int, sides: dict[str, _Side]) -> str:
    """Fill `sides`. Returns the smallest heap with which Debezium is as fast as with any other."""
    workers = {f"eos_{heap.lower()}": (f"debezium exactly once, heap {heap}", True, heap) for heap in _HEAPS}
    configs = [write_config(stack, folder, f"ours{turn}", "public.bench_rows") for turn in range(_TURNS)]
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(TABLE)
        for config in configs:
            with BenchDaemon(config):
                pass
        for mode in (*workers, "alo"):
            for turn in range(_TURNS):
                _slot(sql, f"{mode}{turn}", "public.bench_rows")
        sql.execute(LOAD.format(last=rows // 100 - 1).encode())
    for turn in range(_TURNS):
        _ours(stack, configs[turn], f"ours{turn}.public.bench_rows", rows, sides["tailrace"])
        for mode, worker in list(workers.items())[turn::_TURNS]:
            with suppress(SystemExit):  # that heap is too small: the result says 0 rows a second
                _theirs(stack, folder, mode, worker, rows, sides)
    best = {heap: max(sides[name].rows_per_s, default=0) for name, _, heap in workers.values()}
    needed = [heap for heap in _HEAPS if best[heap] >= _AS_FAST * max(best.values())][-1]
    _theirs(stack, folder, "alo", (f"debezium at least once, heap {needed}", False, needed), rows, sides)
    return needed


def _ours(stack: Stack, config: Path, topic: str, rows: int, side: _Side) -> None:
    began = _Growth(stack, topic)
    with BenchDaemon(config) as daemon:
        timed, took_s, cpu = began.until(rows, daemon.cpu_s)
        side.add(timed, took_s, cpu, daemon.pid)
    _check(stack, topic, rows)


def _theirs(
    stack: Stack, folder: Path, mode: str, worker: tuple[str, bool, str], rows: int, sides: dict[str, _Side]
) -> None:
    name, exactly_once, heap = worker
    sides[name] = _Side()
    with Connect(stack, folder, mode, exactly_once=exactly_once, heap=heap) as connect:
        for turn in range(_TURNS):
            growth = _Growth(stack, f"{mode}{turn}.public.bench_rows")
            topic = connect.start(f"{mode}{turn}", "public.bench_rows", slot=f"{mode}{turn}")
            timed, took_s, cpu = growth.until(rows, lambda: cpu_s(connect.pid))
            sides[name].add(timed, took_s, cpu, connect.pid)
            connect.stop(f"{mode}{turn}")
            _check(stack, topic, rows)


def _snapshots(stack: Stack, folder: Path, rows: int, heap: str) -> dict[str, _Side]:
    """Measure snapshots of a table that no transaction writes to."""
    sides = {"tailrace": _Side()}
    config = write_config(stack, folder, "whole", "public.bench_rows", snapshot="initial")
    _ours(stack, config, "whole.public.bench_rows", rows, sides["tailrace"])
    for number, (how, more) in enumerate(_SNAPSHOTS.items()):
        side = sides[f"debezium at least once, heap {heap}, {how}"] = _Side()
        with Connect(stack, folder, f"snap_{number}", exactly_once=False, heap=heap) as connect:
            for turn in range(_TURNS):
                name = f"snap{number}_{turn}"
                growth = _Growth(stack, f"{name}.public.bench_rows")
                with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
                    _slot(sql, name, "public.bench_rows")
                topic = connect.start(name, "public.bench_rows", slot=name, snapshot="initial", more=more)
                timed, took_s, cpu = growth.until(rows, partial(cpu_s, connect.pid))
                side.add(timed, took_s, cpu, connect.pid)
                connect.stop(name)
                _check(stack, topic, rows)
    return sides


def _latency(stack: Stack, folder: Path, rate: int, seconds: int, heap: str) -> dict[str, object]:
    found: dict[str, object] = {"commits_per_second": rate}
    table = f"peer_latency_{rate}"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(f"create table {table} (id bigint generated always as identity primary key, note text)".encode())
        for mode in ("eos", "alo"):
            _slot(sql, f"{mode}_{rate}", f"public.{table}")
    with BenchDaemon(write_config(stack, folder, f"soon{rate}", f"public.{table}")):
        topic = f"soon{rate}.public.{table}"
        found["tailrace"] = summary_of(latencies_of(stack, folder, topic, table, rate, seconds), seconds)
    for mode, name in (("eos", "debezium exactly once"), ("alo", "debezium at least once")):
        with Connect(stack, folder, f"{mode}-{rate}", exactly_once=mode == "eos", heap=heap) as connect:
            topic = connect.start(f"{mode}_{rate}", f"public.{table}", slot=f"{mode}_{rate}")
            # Its topic is made by its first record; the JVM gets the same warming up as the daemon twice.
            latencies_of(stack, folder, topic, table, rate, seconds)
            found[name] = summary_of(latencies_of(stack, folder, topic, table, rate, seconds), seconds)
    return found


def _slot(sql: psycopg.Connection, name: str, table: str) -> None:
    sql.execute(f"create publication cdc_{name} for table {table}".encode())
    sql.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [name])


class _Growth:
    """Measures when a reader of committed records sees the first and the last record of a topic."""

    def __init__(self, stack: Stack, topic: str) -> None:
        self._topic = topic
        self._consumer = consumer_of(stack, topic)

    def until(self, rows: int, cpu: Callable[[], float]) -> tuple[int, float, float]:
        """Return rows, seconds and CPU seconds from the first visible record to the last of `rows`."""
        deadline_s = time.monotonic() + _DEADLINE_S
        began: tuple[float, float] | None = None
        last = (0.0, 0.0)
        first, seen = 0, 0
        while seen < rows or time.monotonic() < last[0] + _STILL_S:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"bench: {self._topic} has {seen} of {rows} records after {_DEADLINE_S:.0f} s")
            now = sum(self._ends())
            if now > seen:
                last = (time.monotonic(), cpu())
                if began is None:
                    began, first = last, now
                seen = now
            time.sleep(_LOOK_S)
        self._consumer.close()
        assert began is not None
        return rows - first, last[0] - began[0], last[1] - began[1]

    def _ends(self) -> list[int]:
        ends = []
        for partition in self._consumer.assignment():
            with suppress(KafkaException):  # it is not made yet
                ends.append(self._consumer.get_watermark_offsets(partition, timeout=5)[1])
        return ends


def _check(stack: Stack, topic: str, rows: int) -> None:
    """Check that every row is in the topic, and only once where that is guaranteed."""
    consumer = Consumer(
        {
            "bootstrap.servers": stack.kafka.bootstrap,
            "group.id": "check",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found, ended = 0, 0
    while ended < len(partitions):
        for message in consumer.consume(10_000, 5.0):
            if message.error() is not None:
                ended += 1
            elif message.value() is not None:
                found += 1
    consumer.close()
    if found != rows:
        raise SystemExit(f"bench: {topic} has {found} records of {rows} rows")
