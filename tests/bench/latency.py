"""Measures the latency from commit to a `read_committed` consumer, at a steady rate of single-row commits.

It starts at the commit time that PostgreSQL wrote into the WAL (`source.ts_us`, before its fsync), and ends when the
consumer has the record. Both use the clock of one machine.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles

import msgspec
import psycopg
from confluent_kafka import Consumer, TopicPartition

from cdc.local.stack import Stack
from tests.bench.daemon import BenchDaemon, write_config

_WARM_UP_S = 3
_PARTITIONS = 4


class _Source(msgspec.Struct):
    ts_us: int


class _Event(msgspec.Struct):
    source: _Source
    op: str


def measure_latency(stack: Stack, folder: Path, rate: int, seconds: int) -> dict[str, object]:
    """Return quantiles in milliseconds at `rate` commits per second."""
    table, name = f"latency_{rate}", f"latency{rate}"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(f"create table {table} (id bigint generated always as identity primary key, note text)".encode())
    with BenchDaemon(write_config(stack, folder, name, f"public.{table}")):
        latencies_ms = latencies_of(stack, folder, f"{name}.public.{table}", table, rate, seconds)
    return {"commits_per_second": rate, **summary_of(latencies_ms, seconds)}


def latencies_of(stack: Stack, folder: Path, topic: str, table: str, rate: int, seconds: int) -> list[float]:
    """Return the milliseconds of each commit, see `heard_of`."""
    return [latency_ms for _, latency_ms in heard_of(stack, folder, topic, table, rate, seconds)]


def heard_of(stack: Stack, folder: Path, topic: str, table: str, rate: int, seconds: int) -> list[tuple[int, float]]:
    """Commit at `rate` per second into a table whose topic is read.

    Returns the time of each commit, in microseconds since 1970, and the milliseconds until it was read.
    """
    script = folder / f"{table}.sql"
    script.write_text(f"insert into {table} (note) values ('a note of ordinary length, forty bytes');\n")
    consumer = consumer_of(stack, topic)
    clients = "2" if rate <= 500 else "8"
    writer = subprocess.Popen(
        [
            str(stack.postgres.programs / "pgbench"),
            *("-n", "-M", "prepared", "-c", clients, "-j", "2", "-R", str(rate), "-T", str(seconds + _WARM_UP_S)),
            *("-f", str(script), stack.postgres.dsn),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    heard = _listen(consumer, writer)
    consumer.close()
    return heard


def summary_of(latencies_ms: list[float], seconds: int) -> dict[str, float]:
    """Return the number of latencies and their quantiles."""
    cuts = quantiles(latencies_ms, n=1000)
    return {
        "measured_per_second": round(len(latencies_ms) / seconds),
        "events": len(latencies_ms),
        "p50_ms": round(cuts[499], 1),
        "p95_ms": round(cuts[949], 1),
        "p99_ms": round(cuts[989], 1),
        "max_ms": round(max(latencies_ms), 1),
    }


def consumer_of(stack: Stack, topic: str) -> Consumer:
    """Return a consumer of committed records from the beginning of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": stack.kafka.bootstrap,
            "group.id": "latency",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 500,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(_PARTITIONS)])
    return consumer


@contextmanager
def listener(stack: Stack, topic: str) -> Iterator[list[tuple[float, float]]]:
    """Yield a growing list with (commit time, latency in ms) of every event of a topic, without snapshot rows."""
    heard: list[tuple[float, float]] = []
    stop, decoder = threading.Event(), msgspec.json.Decoder(_Event)
    consumer = consumer_of(stack, topic)

    def listen() -> None:
        while not stop.is_set():
            message = consumer.poll(0.1)
            value = None if message is None else message.value()
            if value is not None and (event := decoder.decode(value)).op != "r":
                committed_s = event.source.ts_us / 1e6
                heard.append((committed_s, (time.time() - committed_s) * 1000))

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield heard
    finally:
        stop.set()
        thread.join()
        consumer.close()


def _listen(consumer: Consumer, writer: subprocess.Popen[bytes]) -> list[tuple[int, float]]:
    decoder = msgspec.json.Decoder(_Event)
    heard: list[tuple[int, float]] = []
    warm_us = (time.time() + _WARM_UP_S) * 1e6
    while True:
        message = consumer.poll(1.0)
        if message is None:
            if writer.poll() is not None:
                return heard
            continue
        now_us = time.time() * 1e6
        value = message.value()
        if value is not None and (committed_us := decoder.decode(value).source.ts_us) > warm_us:
            heard.append((committed_us, (now_us - committed_us) / 1000))
