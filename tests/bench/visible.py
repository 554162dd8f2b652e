"""Measures the time from COMMIT until readers see it, in a search index and in a cache, each with its own sink process.

The index refreshes at the default interval, which is most of the delay of a search. A program that needs its own write
sooner waits for it (`cdc wait`, `cdc.client`), which refreshes at once; this is measured too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import psycopg

from cdc.client import Waiter, written_lsn
from cdc.local.stack import Stack
from tests.bench.daemon import BenchDaemon, write_config
from tests.fixtures.servers.valkey import client_of
from tests.fixtures.sinks.search_targets import ask
from tests.fixtures.sinks.sink_process import SinkProcess

_WARM_UP_S: Final = 3
_LATE_S: Final = 60.0
_WAITS: Final = 50
_PAGE: Final = 1_000
_EVERY_S: Final = {"cache": 0.005, "search": 0.05}
"""Between looks: a search costs both sides much more than asking whether some keys are there."""
_TABLE: Final = "visible"


def measure_visible(stack: Stack, search: Stack, folder: Path, rate: int, seconds: int) -> dict[str, object]:
    """Return quantiles in milliseconds at `rate` commits per second; both sinks follow the same commits."""
    url = search.opensearch.url
    path = write_config(stack, folder, _TABLE, f"public.{_TABLE}")
    with path.open("a") as file:
        file.write(f'[sinks.cache]\nkind = "cache"\nurl = "{stack.valkey.url}"\n')
        file.write(f'[sinks.find]\nkind = "search"\nurl = "{url}"\n[sinks.find.index]\nnumber_of_replicas = 0\n')
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(f"create table {_TABLE} (id bigint primary key, note text)".encode())
        with BenchDaemon(path), SinkProcess(path, "cache"), SinkProcess(path, "find"), Waiter(path) as waiter:
            _insert(sql, -1)
            for sink in ("cache", "find"):
                waiter.wait(sink, written_lsn(sql), timeout_s=_LATE_S)
            looks = {"cache": _cached(stack), "search": _found(url)}
            seen = _follow(sql, looks, rate, seconds)
            waits = {sink: _waits(sql, waiter, sink) for sink in ("cache", "find")}
    return {
        "commits_per_second": rate,
        "commit_to_visible": {name: _quantiles(values) for name, values in seen.items()},
        "commit_to_answer_of_wait": {"cache": _quantiles(waits["cache"]), "search": _quantiles(waits["find"])},
    }


def _insert(sql: psycopg.Connection[Any], number: int) -> None:
    sql.execute(f"insert into {_TABLE} values ({number}, 'a note of ordinary length, forty bytes')".encode())


def _follow(
    sql: psycopg.Connection[Any], looks: dict[str, Callable[[int, int], set[int]]], rate: int, seconds: int
) -> dict[str, list[float]]:
    """Commit rows and record when each reader first sees each row, without the rows of the warm-up."""
    count = rate * (seconds + _WARM_UP_S)
    committed_s: list[float] = []
    found: dict[str, dict[int, float]] = {name: {} for name in looks}

    def look(name: str) -> None:
        unseen_from = 0
        end_s = time.monotonic() + seconds + _WARM_UP_S + _LATE_S
        while unseen_from < count and time.monotonic() < end_s:
            there = looks[name](unseen_from, len(committed_s))
            now_s = time.monotonic()
            for number in there:
                found[name].setdefault(number, now_s)
            while unseen_from in found[name]:
                unseen_from += 1
            time.sleep(_EVERY_S[name])

    threads = [threading.Thread(target=look, args=(name,)) for name in looks]
    for thread in threads:
        thread.start()
    began_s = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began_s + number / rate - time.monotonic()))
        _insert(sql, number)
        committed_s.append(time.monotonic())
    for thread in threads:
        thread.join()
    return {
        name: [(at_s - committed_s[number]) * 1e3 for number, at_s in seen.items() if number >= rate * _WARM_UP_S]
        for name, seen in found.items()
    }


def _cached(stack: Stack) -> Callable[[int, int], set[int]]:
    client = client_of(stack.valkey)

    def look(first: int, end: int) -> set[int]:
        numbers = range(first, min(end, first + _PAGE))
        with client.pipeline(transaction=False) as pipe:
            for number in numbers:
                pipe.exists(f"{_TABLE}:cache:public.{_TABLE}:{number}")
            return {number for number, there in zip(numbers, pipe.execute(), strict=True) if there}

    return look


def _found(url: str) -> Callable[[int, int], set[int]]:
    """Return a function that searches for rows which were not found yet, like the query of a reader."""

    def look(first: int, end: int) -> set[int]:
        query = {"range": {"id": {"gte": first, "lt": max(end, first + 1)}}}
        body = {"size": _PAGE, "_source": False, "query": query, "sort": ["id"], "track_total_hits": False}
        hits = ask(url, "POST", f"/{_TABLE}.find.public.{_TABLE}/_search", body)["hits"]["hits"]
        return {int(hit["_id"]) for hit in hits}

    return look


def _waits(sql: psycopg.Connection[Any], waiter: Waiter, sink: str) -> list[float]:
    """Return the time from a COMMIT until a wait for it returns, one after the other on an otherwise idle source."""
    found = []
    for number in range(_WAITS):
        _insert(sql, (-2 if sink == "cache" else -10_000) - number)
        began_s = time.monotonic()
        waiter.wait(sink, written_lsn(sql), timeout_s=_LATE_S)
        found.append((time.monotonic() - began_s) * 1e3)
    return found


def _quantiles(values_ms: list[float]) -> dict[str, float]:
    cuts = quantiles(values_ms, n=100)
    return {
        "rows": len(values_ms),
        "p50_ms": round(cuts[49], 1),
        "p99_ms": round(cuts[98], 1),
        "max_ms": round(max(values_ms), 1),
    }
