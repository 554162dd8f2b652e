"""Measures one pipeline with thousands of tables: starts, idle CPU, memory, commands, a transaction over all.

CPU of PostgreSQL and of the brokers counts too: a query that is cheap for capture may not be for the server.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from cdc.config.load import load
from cdc.local.local_server import ServerOptions
from cdc.local.stack import Stack
from tests.bench.daemon import BenchDaemon, cpu_s, peak_rss_bytes, write_config
from tests.fixtures.faults.cluster import running
from tests.fixtures.servers.background_thread import beside

_SETTLED_S: Final = 10  # after a start, until its work in the background is done
_IDLE_S: Final = 60
_START_S: Final = 1800
_ELSEWHERE_S: Final = 0.1  # between commits to a table that is not captured, while CPU is measured the second time
_TOUCHED: Final = 5000
_SINGLE: Final = 2000
_COMMANDS: Final = (("status",), ("status", "--json"), ("doctor",), ("ddl", "list"))
_PATHS: Final = ("/status", "/metrics", "/api/picture", "/api/tables", "/api/topics")


@dataclass(frozen=True, slots=True)
class Brokers:
    """The cluster to measure on. `count` is 1, the broker of the stack, or 3, started for the measurement."""

    count: int = 1
    partitions: int = 1
    replicas: int = 1


def measure_estate(
    stack: Stack, folder: Path, table_counts: tuple[int, ...], brokers: Brokers, *, idle_s: float = _IDLE_S
) -> list[dict[str, Any]]:
    """Return one result per number of tables."""
    with ExitStack() as cleanup:
        if brokers.count == 1:
            bootstrap, pids = stack.kafka.bootstrap, [stack.kafka.pid]
        else:
            options = ServerOptions(heap="1500m", settings={"min.insync.replicas": str(min(2, brokers.replicas))})
            cluster = cleanup.enter_context(running(f"{stack.name}-kafka", options, controllers=range(1, 4)))
            bootstrap, pids = cluster.bootstrap, [broker.pid for broker in cluster.brokers]
        servers = _Servers(stack, bootstrap, [pid for pid in pids if pid is not None])
        return [_measure(servers, folder, tables, brokers, idle_s) for tables in table_counts]


@dataclass(frozen=True, slots=True)
class _Servers:
    stack: Stack
    bootstrap: str
    brokers: Sequence[int]

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far of PostgreSQL, with the processes of its connections, and of all brokers."""
        postgres = self.stack.postgres.pid
        assert postgres is not None
        backends = subprocess.run(["pgrep", "-P", str(postgres)], capture_output=True, check=True, text=True).stdout
        return {
            "postgres": sum(cpu_s(int(pid)) for pid in backends.split()) + cpu_s(postgres),
            "brokers": sum(cpu_s(pid) for pid in self.brokers),
        }


def _measure(servers: _Servers, folder: Path, tables: int, brokers: Brokers, idle_s: float) -> dict[str, Any]:
    name, schema, stack = f"estate{tables}", f"e{tables}", servers.stack
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(f"create schema {schema}".encode())
        for first in range(0, tables, 500):
            sql.execute(
                "; ".join(
                    f"create table {schema}.t{number} (id bigint primary key, name text, amount numeric(12, 2))"
                    for number in range(first, min(first + 500, tables))
                ).encode()
            )
        sql.execute("create table if not exists elsewhere (id bigint)")
    config = write_config(stack, folder, name, f"{schema}.*")
    text = config.read_text(encoding="utf-8").replace("[kafka]\n", f"[kafka]\npartitions = {brokers.partitions}\n")
    text = text.replace(stack.kafka.bootstrap, servers.bootstrap)
    text = text.replace("replication_factor = 1", f"replication_factor = {brokers.replicas}")
    config.write_text(text, encoding="utf-8")
    result: dict[str, Any] = {"tables": tables, "brokers": brokers.count, "partitions": tables * brokers.partitions}
    result["replicas"] = brokers.replicas
    for start in ("first_start", "next_start"):
        began_s = time.monotonic()
        with BenchDaemon(config, start_s=_START_S) as daemon:
            result[f"{start}_s"] = round(time.monotonic() - began_s, 1)
            if start == "next_start":
                result |= _running(servers, daemon, config, schema, tables, idle_s)
    result["broker_memory_mb"] = [round(peak_rss_bytes(pid) / 1e6) for pid in servers.brokers]
    return result


def _running(
    servers: _Servers, daemon: BenchDaemon, config: Path, schema: str, tables: int, idle_s: float
) -> dict[str, Any]:
    base, stack = f"http://{load(config, {}).http.listen}", servers.stack
    time.sleep(_SETTLED_S)
    found: dict[str, Any] = {"memory_mb": round(peak_rss_bytes(daemon.pid) / 1e6)}
    found["idle_cpu_percent"] = _cpu_percent(servers, daemon, idle_s)
    with beside(_writing_elsewhere(stack.postgres.dsn)):
        found["cpu_percent_beside_other_commits"] = _cpu_percent(servers, daemon, idle_s)
    for path in _PATHS:
        began_s = time.monotonic()
        try:
            with urllib.request.urlopen(base + path, timeout=120) as answer:
                size = len(answer.read())
        except OSError as error:  # capture gives up a list whose facts Kafka does not deliver in time
            found[path] = {"s": round(time.monotonic() - began_s, 3), "error": str(error)}
            continue
        found[path] = {"s": round(time.monotonic() - began_s, 3), "kb": round(size / 1000)}
    for words in _COMMANDS:
        began_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "cdc", *words, "-c", str(config)], capture_output=True, check=False, timeout=600
        )
        found[f"cdc {' '.join(words)}"] = {"s": round(time.monotonic() - began_s, 1), "code": done.returncode}
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        found["single_row_ms"] = _single_rows(daemon, sql, schema)
        touched = min(_TOUCHED, tables)
        inserts = "; ".join(f"insert into {schema}.t{number} values (1, 'a', 1)" for number in range(touched))
        sql.execute(f"begin; {inserts}; commit".encode())
        began_s = time.monotonic()
        _captured(daemon, sql, 600)
        found[f"transaction_of_{touched}_tables_s"] = round(time.monotonic() - began_s, 1)
    found["memory_mb_peak"] = round(peak_rss_bytes(daemon.pid) / 1e6)
    return found


def _cpu_percent(servers: _Servers, daemon: BenchDaemon, idle_s: float) -> dict[str, float]:
    """Of one core, while no captured table changes."""
    before, began_s = {"capture": daemon.cpu_s(), **servers.cpu_s()}, time.monotonic()
    time.sleep(idle_s)
    after, took_s = {"capture": daemon.cpu_s(), **servers.cpu_s()}, time.monotonic() - began_s
    return {name: round(100 * (after[name] - before[name]) / took_s, 2) for name in after}


def _writing_elsewhere(dsn: str) -> Callable[[threading.Event], None]:
    def write(stop: threading.Event) -> None:
        with psycopg.connect(dsn, autocommit=True) as sql:
            while not stop.wait(_ELSEWHERE_S):
                sql.execute("insert into elsewhere values (1)")

    return write


def _single_rows(daemon: BenchDaemon, sql: psycopg.Connection[Any], schema: str) -> dict[str, float]:
    """From a commit to the position of capture, which is polled every millisecond or two."""
    took = []
    for number in range(_SINGLE):
        sql.execute(f"insert into {schema}.t{number % 10} values ({1000 + number}, 'a', 1)".encode())
        began_s = time.monotonic()
        _captured(daemon, sql, 60)
        took.append(1000 * (time.monotonic() - began_s))
    took.sort()
    return {"p50": round(took[len(took) // 2], 1), "p99": round(took[int(len(took) * 0.99)], 1)}


def _captured(daemon: BenchDaemon, sql: psycopg.Connection[Any], timeout_s: float) -> None:
    row = sql.execute("select pg_current_wal_lsn()").fetchone()
    assert row is not None
    end_s = time.monotonic() + timeout_s
    while _lsn(daemon.status().get("position")) < _lsn(row[0]):
        if time.monotonic() > end_s:
            raise SystemExit("bench: capture does not reach the commit")


def _lsn(text: str | None) -> int:
    high, _, low = (text or "0/0").partition("/")
    return (int(high, 16) << 32) | int(low, 16)
