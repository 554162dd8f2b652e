"""Measures one pipeline with thousands of tables: starts, idle CPU, memory, commands, a transaction over all."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

import psycopg

from cdc.config.load import load
from cdc.local.stack import Stack
from tests.bench.daemon import BenchDaemon, peak_rss_bytes, write_config

_SETTLED_S: Final = 10  # after a start, until its work in the background is done
_IDLE_S: Final = 60
_START_S: Final = 900
_TOUCHED: Final = 5000
_SINGLE: Final = 200
_COMMANDS: Final = (("status",), ("status", "--json"), ("doctor",), ("ddl", "list"))
_PATHS: Final = ("/status", "/metrics", "/api/picture", "/api/tables", "/api/topics")


def measure_estate(stack: Stack, folder: Path, table_counts: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return one result per number of tables, each with one partition per topic."""
    return [_measure(stack, folder, tables) for tables in table_counts]


def _measure(stack: Stack, folder: Path, tables: int) -> dict[str, Any]:
    name, schema = f"estate{tables}", f"e{tables}"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(f"create schema {schema}".encode())
        for first in range(0, tables, 500):
            sql.execute(
                "; ".join(
                    f"create table {schema}.t{number} (id bigint primary key, name text, amount numeric(12, 2))"
                    for number in range(first, min(first + 500, tables))
                ).encode()
            )
    config = write_config(stack, folder, name, f"{schema}.*")
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("[kafka]\n", "[kafka]\npartitions = 1\n"), encoding="utf-8")
    result: dict[str, Any] = {"tables": tables}
    for start in ("first_start", "next_start"):
        began_s = time.monotonic()
        with BenchDaemon(config, start_s=_START_S) as daemon:
            result[f"{start}_s"] = round(time.monotonic() - began_s, 1)
            if start == "next_start":
                result |= _running(stack, daemon, config, schema, tables)
    return result


def _running(stack: Stack, daemon: BenchDaemon, config: Path, schema: str, tables: int) -> dict[str, Any]:
    base = f"http://{load(config, {}).http.listen}"
    time.sleep(_SETTLED_S)
    found: dict[str, Any] = {"memory_mb": round(peak_rss_bytes(daemon.pid) / 1e6)}
    before_s = daemon.cpu_s()
    time.sleep(_IDLE_S)
    found["idle_cpu_percent"] = round(100 * (daemon.cpu_s() - before_s) / _IDLE_S, 2)
    for path in _PATHS:
        began_s = time.monotonic()
        with urllib.request.urlopen(base + path, timeout=120) as answer:
            size = len(answer.read())
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
