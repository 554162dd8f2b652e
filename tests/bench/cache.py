"""Measures the cache sink: its write rate against a bare client, the delay of a commit, and the time of a wait.

The reference is the same client with a pipeline of the same values only, without versions and without keys from
records. The delay and the waits use one `cdc sink run`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import msgspec
import psycopg
import redis

from cdc.client import Waiter, written_lsn
from cdc.local.stack import Stack
from sinks.cache.start import target as target_of
from sinks.contract import Change, Topic
from tests.bench.daemon import BenchDaemon, write_config
from tests.fixtures.servers.valkey import cache_settings, client_of
from tests.fixtures.servers.valkey import config as configured
from tests.fixtures.sinks.sink_process import SinkProcess

_PIPELINE = 2_000
_TURNS = 5
_PARTITIONS = 4
_WAITS = 200
_WARM_UP_S = 3
_TABLE = Topic("bench.public.t", "topic-id", 1, "public.t", ("id",))


def measure_cache(stack: Stack, folder: Path, rows: int, seconds: int) -> dict[str, object]:
    """Return rows per second and their ratio to the bare client, and quantiles in milliseconds."""
    return {
        "apply": {mode: _measure_apply(stack, mode, rows) for mode in ("value", "hash")},
        **_measure_freshness(stack, folder, 200, seconds),
    }


def _measure_apply(stack: Stack, mode: str, rows: int) -> dict[str, object]:
    values = [_row(number) for number in range(rows)]
    plain = [msgspec.json.decode(value) for value in values]
    changes = [
        Change(_TABLE.topic, 0, number, b'{"id":%d}' % number, value, (), "5c4e4a1d", 1, 1, 1)
        for number, value in enumerate(values)
    ]
    settings = cache_settings(stack.valkey, mode=mode)
    client = client_of(stack.valkey)

    def bare() -> None:
        for begin in range(0, rows, _PIPELINE):
            with client.pipeline(transaction=False) as pipe:
                for number in range(begin, min(begin + _PIPELINE, rows)):
                    if mode == "value":
                        pipe.set(f"bench:cache:public.t:{number}", values[number])
                    else:
                        pipe.hset(f"bench:cache:public.t:{number}", mapping=plain[number])
                pipe.execute()

    target = target_of(configured("bench"), "cache", settings)

    def ours() -> None:
        for begin in range(0, rows, _PIPELINE):
            target.apply(changes[begin : begin + _PIPELINE])

    found: list[tuple[float, float]] = []
    for _ in range(_TURNS):
        client.flushall()
        bare_s = _seconds(bare)
        client.flushall()
        target.open([_TABLE])
        found.append((bare_s, _seconds(ours)))
    target.close()
    client.close()
    return {
        "rows_per_second": round(rows / median(ours_s for _, ours_s in found)),
        "bare_rows_per_second": round(rows / median(bare_s for bare_s, _ in found)),
        "ratio": round(median(bare_s / ours_s for bare_s, ours_s in found), 2),
    }


def _measure_freshness(stack: Stack, folder: Path, rate: int, seconds: int) -> dict[str, object]:
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute("create table cached (id bigint primary key, note text)")
        with _worker(stack, folder, "cached") as (path, prefix):
            visible_ms = _visible(stack, sql, prefix, rate, seconds)
            waits_ms = _waits(sql, path)
    return {
        "commits_per_second": rate,
        "commit_to_visible": _quantiles(visible_ms),
        "commit_to_answer_of_wait": _quantiles(waits_ms),
    }


@contextmanager
def _worker(stack: Stack, folder: Path, name: str) -> Iterator[tuple[Path, str]]:
    path = write_config(stack, folder, name, "public.cached")
    with path.open("a") as file:
        file.write(f'[sinks.cache]\nkind = "cache"\nurl = "{stack.valkey.url}"\n')
    with BenchDaemon(path), SinkProcess(path, "cache"):
        yield path, f"{name}:cache:public.cached:"


def _visible(
    stack: Stack, sql: psycopg.Connection[tuple[object, ...]], prefix: str, rate: int, seconds: int
) -> list[float]:
    """Return the time from each COMMIT until the row is in the cache, after a warm-up."""
    committed_s: list[float] = []
    found: list[float] = []
    count = rate * (seconds + _WARM_UP_S)

    def read() -> None:
        with client_of(stack.valkey) as client:
            for number in range(count):
                while number >= len(committed_s) or not _there(client, f"{prefix}{number}"):
                    time.sleep(0.0005)
                found.append((time.monotonic() - committed_s[number]) * 1e3)

    reader = threading.Thread(target=read)
    reader.start()
    began_s = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began_s + number / rate - time.monotonic()))
        sql.execute("insert into cached values (%s, 'a note of ordinary length, forty bytes')", (number,))
        committed_s.append(time.monotonic())
    reader.join()
    return found[rate * _WARM_UP_S :]


def _there(client: redis.Redis, name: str) -> bool:
    return bool(client.exists(name))


def _waits(sql: psycopg.Connection[tuple[object, ...]], path: Path) -> list[float]:
    """Return the time from a COMMIT until a wait for it returns, one after the other on an otherwise idle source."""
    found = []
    with Waiter(path) as waiter:
        waiter.wait("cache", written_lsn(sql), timeout_s=60)
        for number in range(_WAITS):
            sql.execute("insert into cached values (%s, 'waited for')", (-1 - number,))
            began_s = time.monotonic()
            waiter.wait("cache", written_lsn(sql), timeout_s=60)
            found.append((time.monotonic() - began_s) * 1e3)
    return found


def _row(number: int) -> bytes:
    row = {"id": number, "name": f"customer {number}", "email": f"c{number}@example.com", "city": "Basel"}
    return msgspec.json.encode({**row, "balance": "120.50", "note": "a note of ordinary length, forty bytes"})


def _seconds(work: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _quantiles(values_ms: list[float]) -> dict[str, float]:
    cuts = quantiles(values_ms, n=100)
    return {"p50_ms": round(cuts[49], 1), "p99_ms": round(cuts[98], 1), "max_ms": round(max(values_ms), 1)}
