"""Measures what capture needs by the number of tables: memory, files, threads, connections, start, bytes in Kafka."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import psycopg
from confluent_kafka import Consumer

from cdc.local.stack import Stack
from tests.bench.daemon import BenchDaemon, peak_rss_bytes, write_config

_ROWS: Final = 20_000
_SETTLED_S: Final = 5  # until the memory of a start is no longer growing
_ROW: Final = (
    "insert into {} (name, amount, note) select 'customer ' || g, g, repeat('n', 60) from generate_series(1, {}) g"
)


def measure_sizing(stack: Stack, folder: Path, table_counts: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return one result per number of tables; each pipeline has one partition per topic."""
    return [_measure(stack, folder, tables) for tables in table_counts]


def _measure(stack: Stack, folder: Path, tables: int) -> dict[str, Any]:
    name, schema = f"sizing{tables}", f"s{tables}"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(f"create schema {schema}".encode())
        for number in range(tables):
            sql.execute(
                f"create table {schema}.t{number} (id bigint generated always as identity primary key, "
                "name text, amount numeric(12, 2), note text, at timestamptz default now())".encode()
            )
    config = write_config(stack, folder, name, f"{schema}.*")
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("[kafka]\n", "[kafka]\npartitions = 1\n"), encoding="utf-8")
    began_s = time.monotonic()
    with BenchDaemon(config) as daemon:
        started_s = time.monotonic() - began_s
        time.sleep(_SETTLED_S)
        idle_bytes = peak_rss_bytes(daemon.pid)
        with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
            sql.execute(_ROW.format(f"{schema}.t0", _ROWS).encode())
            for number in range(1, min(tables, 500)):
                sql.execute(_ROW.format(f"{schema}.t{number}", 10).encode())
            row = sql.execute("select pg_current_wal_lsn()").fetchone()
            assert row is not None
            daemon.wait_for(lambda status: _lsn(status["position"]) >= _lsn(row[0]), 120)
            row = sql.execute("select count(*) from pg_stat_activity where application_name like 'cdc%'").fetchone()
            assert row is not None
            connections = row[0]
        return {
            "tables": tables,
            "partitions": tables,
            "memory_mb_after_start": round(idle_bytes / 1e6),
            "memory_mb_peak": round(peak_rss_bytes(daemon.pid) / 1e6),
            "start_s": round(started_s, 1),
            "threads": len(list(Path(f"/proc/{daemon.pid}/task").iterdir())),
            "open_files": len(list(Path(f"/proc/{daemon.pid}/fd").iterdir())),
            "postgresql_connections": connections,
            "kafka_connections": _connections_to(daemon.pid, int(stack.kafka.bootstrap.rpartition(":")[2])),
            "bytes_per_row_in_kafka": round(_log_bytes(stack, f"{name}.{schema}.t0") / _ROWS),
        }


def _lsn(text: str | None) -> int:
    high, _, low = (text or "0/0").partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def _connections_to(pid: int, port: int) -> int:
    """Return the number of established connections of a process to a local port."""
    sockets = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = fd.readlink().name
        except OSError:
            continue
        if target.startswith("socket:["):
            sockets.add(target[8:-1])
    lines = Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    fields = [line.split() for line in lines]
    return sum(int(one[2].rpartition(":")[2], 16) == port and one[3] == "01" and one[9] in sockets for one in fields)


def _log_bytes(stack: Stack, topic: str) -> int:
    """Return the bytes of the keys and values that a consumer reads; the broker stores them compressed."""
    consumer = Consumer(
        {
            "bootstrap.servers": stack.kafka.bootstrap,
            "group.id": f"sizing-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    rows = total = 0
    while rows < _ROWS:
        for record in consumer.consume(1000, 30.0):
            if record.error() is None:
                rows += 1
                total += len(record.value() or b"") + len(record.key() or b"")
    consumer.close()
    return total
