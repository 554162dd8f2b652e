"""Drains a backlog of one million row changes with pg_recvlogical, the daemon, and pg_recvlogical again."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psycopg

from cdc.local.stack import Stack
from cdc.lsn import Lsn
from tests.bench.daemon import BenchDaemon, safety, write_config
from tests.bench.parts import measure_parts

TABLE = """
create table bench_rows (
    id bigint primary key, customer int not null, sku text not null, quantity int not null,
    price numeric(12,2) not null, note text not null, changed_at timestamptz not null default now()
)
"""
LOAD = """
do $$
begin
    for t in 0..{last} loop
        insert into bench_rows
        select t * 100 + g, g, 'sku-' || g, g % 10, g * 1.25, repeat('n', 60)
        from generate_series(1, 100) g;
        commit;
    end loop;
end $$
"""
_IDLE_S = 10.0


def measure_throughput(stack: Stack, folder: Path, row_count: int) -> dict[str, object]:
    """Return rows per second, CPU per row, peak memory, and the ratio to pg_recvlogical."""
    config = write_config(stack, folder, "bench", "public.bench_rows")
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(TABLE)
        with BenchDaemon(config) as daemon:
            before_s, began_s = daemon.cpu_s(), time.monotonic()
            time.sleep(_IDLE_S)
            idle_cpu = (daemon.cpu_s() - before_s) / (time.monotonic() - began_s)
        for slot in ("reference_1", "reference_2", "parts"):
            sql.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        sql.execute(LOAD.format(last=row_count // 100 - 1).encode())
        row = sql.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    end = Lsn.parse(row[0])
    first_s = _reference(stack, "reference_1", end)
    drained = _drain(config, end, row_count)
    second_s = _reference(stack, "reference_2", end)
    reference = row_count / ((first_s + second_s) / 2)
    rate = drained["rows_per_second"]
    assert isinstance(rate, float)
    return {
        "rows": row_count,
        "rows_per_transaction": 100,
        **drained,
        "cpu_us_per_row": _breakdown(stack, drained),
        "idle_cpu_percent": round(100 * idle_cpu, 2),
        "pg_recvlogical_rows_per_second": [round(row_count / first_s), round(row_count / second_s)],
        "ratio_to_pg_recvlogical": round(rate / reference, 3),
        "safety": safety(config),
    }


def _drain(config: Path, end: Lsn, row_count: int) -> dict[str, object]:
    with BenchDaemon(config) as daemon:
        began_s, cpu_s = time.monotonic(), daemon.cpu_s()
        done = daemon.wait_for(lambda status: Lsn.parse(status["position"] or "0/0") >= end, 600)
        took_s, cpu_s = time.monotonic() - began_s, daemon.cpu_s() - cpu_s
        if done["rows"] != row_count:
            raise SystemExit(f"bench: {row_count} rows were written, {done['rows']} captured")
        return {
            "seconds": round(took_s, 2),
            "rows_per_second": round(row_count / took_s, 1),
            "cpu_seconds_per_million_rows": round(cpu_s / row_count * 1e6, 2),
            "peak_rss_bytes": daemon.peak_rss_bytes(),
            "kafka_transactions": done["batches"],
        }


def _breakdown(stack: Stack, drained: dict[str, object]) -> dict[str, float]:
    total = drained["cpu_seconds_per_million_rows"]
    assert isinstance(total, float)
    parts = measure_parts(stack, "parts", "cdc_bench", "bench.public.bench_rows")
    return {**parts, "client_threads": round(total - sum(parts.values()), 2), "total": total}


def _reference(stack: Stack, slot: str, end: Lsn) -> float:
    """Return the seconds that PostgreSQL's own client needs for the same backlog; it discards the output."""
    began_s = time.monotonic()
    subprocess.run(
        [
            str(stack.postgres.programs / "pg_recvlogical"),
            *("-d", stack.postgres.dsn, "-S", slot, "--start", "-f", "/dev/null", "-F", "0", "--endpos", str(end)),
            *("-o", "proto_version=1", "-o", "publication_names=cdc_bench"),
        ],
        check=True,
    )
    return time.monotonic() - began_s
