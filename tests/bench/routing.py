"""Measures the outbox: routing against plain capture of the same rows, and pruning under load."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

import psycopg

from cdc.local.stack import Stack
from cdc.lsn import Lsn
from tests.bench.daemon import BenchDaemon, write_config
from tests.fixtures.outbox.outbox_events import made

_TABLE: Final = "outbox.outbox"
_EVENT: Final = """
insert into outbox.outbox (id, aggregate_type, aggregate_id, type, payload, headers)
select gen_random_uuid(), 'order', (g %% 5000)::text, 'OrderPlaced',
       json_build_object('order', g, 'note', repeat('n', 60)),
       '{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'
from generate_series(1, %s) g
"""
_PER_TRANSACTION: Final = 100
_DRAIN_S: Final = 1200.0
_WRITERS: Final = 2
_LOOK_S: Final = 1.0


def measure_routing(stack: Stack, folder: Path, row_count: int) -> dict[str, object]:
    """Return rows per second and CPU of both over the same backlog, alternately: plain, routed, plain, routed."""
    configs = [
        (kind, _config(stack, folder, f"{kind}_{turn}", "" if kind == "plain" else "[outbox]\nexisting = 'skip'\n"))
        for turn in (1, 2)
        for kind in ("plain", "routed")
    ]
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(b"drop schema if exists outbox cascade")
        for statement in made():
            sql.execute(statement.encode())
        for _, config in configs:
            with BenchDaemon(config):
                pass  # so that slot and topics are there
        for _ in range(row_count // _PER_TRANSACTION):
            sql.execute(_EVENT.encode(), (_PER_TRANSACTION,))
        end = _wal(sql)
    found: dict[str, list[tuple[float, float]]] = {"plain": [], "routed": []}
    for kind, config in configs:
        with BenchDaemon(config) as daemon:
            began_s, cpu_s = time.monotonic(), daemon.cpu_s()
            done = daemon.wait_for(lambda status: Lsn.parse(status["position"] or "0/0") >= end, _DRAIN_S)
            found[kind].append((time.monotonic() - began_s, daemon.cpu_s() - cpu_s))
            if done["rows"] < row_count:
                raise SystemExit(f"bench: {row_count} rows were written, {done['rows']} captured")
    wall, cpu = ({kind: sum(one[at] for one in turns) for kind, turns in found.items()} for at in (0, 1))
    return {
        "rows": row_count,
        "seconds": {kind: [round(one[0], 2) for one in turns] for kind, turns in found.items()},
        "cpu_seconds": {kind: [round(one[1], 2) for one in turns] for kind, turns in found.items()},
        "routed_to_plain_rate": round(wall["plain"] / wall["routed"], 3),
        "routed_to_plain_rate_per_cpu": round(cpu["plain"] / cpu["routed"], 3),
    }


def measure_pruner(stack: Stack, folder: Path, seconds: float, rate: int) -> dict[str, object]:
    """Return size and rows of the table while `rate` events per second are written for `seconds`."""
    outbox = "[outbox]\nprune = 'delete'\nkeep_s = 0\nprune_interval_s = 0.2\n"
    config = _config(stack, folder, "pruned", outbox)
    sizes: list[tuple[int, int]] = []
    written = [0] * _WRITERS
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(b"drop schema if exists outbox cascade")
        for statement in made():
            sql.execute(statement.encode())
        with BenchDaemon(config) as daemon:
            ends_s = time.monotonic() + seconds
            threads = [
                threading.Thread(target=_write, args=(stack.postgres.dsn, rate / _WRITERS, ends_s, written, index))
                for index in range(_WRITERS)
            ]
            for thread in threads:
                thread.start()
            while time.monotonic() < ends_s:
                time.sleep(_LOOK_S)
                row = sql.execute(
                    "select pg_total_relation_size(%s::regclass), (select count(*) from outbox.outbox)", (_TABLE,)
                ).fetchone()
                assert row is not None
                sizes.append((row[0], row[1]))
            for thread in threads:
                thread.join()
            end = _wal(sql)
            daemon.wait_for(lambda status: Lsn.parse(status["position"] or "0/0") >= end, _DRAIN_S)
            document = daemon.status()["outbox"]
    third = len(sizes) // 3
    return {
        "seconds": seconds,
        "events": sum(written),
        "events_per_second": round(sum(written) / seconds),
        "routed": document["events"],
        "pruned_rows": document["pruned_rows"],
        "rows_max": max(rows for _, rows in sizes),
        "bytes_max": max(size for size, _ in sizes),
        "bytes_max_of_each_third": [max(size for size, _ in sizes[at * third : (at + 1) * third]) for at in range(3)],
        "bytes_written": sum(written) * _row_bytes(sizes),
    }


def _row_bytes(sizes: list[tuple[int, int]]) -> int:
    """Return the approximate bytes per row, at the largest size of the table."""
    size, rows = max(sizes, key=lambda one: one[1])
    return size // max(rows, 1)


def _write(dsn: str, rate: float, ends_s: float, written: list[int], index: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as sql:
        began_s = time.monotonic()
        while time.monotonic() < ends_s:
            sql.execute(_EVENT.encode(), (_PER_TRANSACTION,))
            written[index] += _PER_TRANSACTION
            time.sleep(max(0.0, began_s + written[index] / rate - time.monotonic()))


def _config(stack: Stack, folder: Path, name: str, more: str) -> Path:
    """Write a configuration. Without an outbox section, the table is captured like any other."""
    config = write_config(stack, folder, name, _TABLE)
    text = config.read_text(encoding="utf-8")
    config.write_text(text + more, encoding="utf-8")
    return config


def _wal(sql: psycopg.Connection[tuple[object, ...]]) -> Lsn:
    row = sql.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(str(row[0])).before_header()
