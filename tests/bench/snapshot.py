"""A table of two million rows, read by `COPY` alone, by the daemon's snapshot, and by that while others write."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from cdc.local.stack import Stack
from tests.bench.daemon import BenchDaemon, write_config

if TYPE_CHECKING:
    from collections.abc import Iterator

_TABLE = """
create table {name} (
    id bigint primary key, customer_id int, status text, amount numeric, note text, created_at timestamptz, flags bool
)
"""
_ROWS = """
insert into {name}
select i, i % 1000, 'paid', i + 0.25, 'some note ' || i || ' of text', now(), true from generate_series(1, {count}) i
"""
_WAIT_S = 600.0


def measure_snapshot(stack: Stack, folder: Path, row_count: int) -> dict[str, object]:
    """Rows a second, CPU a row and peak memory, alone and with 500 updates a second; and the ratio to a plain COPY."""
    result: dict[str, object] = {"rows": row_count}
    for name, rate in (("quiet", 0), ("updated", 500)):
        table = f"snap_{name}"
        with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
            sql.execute(_TABLE.format(name=table).encode())
            sql.execute(_ROWS.format(name=table, count=row_count).encode())
            sql.execute(f"vacuum analyze {table}".encode())
            first_s = _plain(sql, table)
            config = write_config(stack, folder, name, f"public.{table}", snapshot="initial")
            with _updates(stack.postgres.dsn, table, row_count, rate), BenchDaemon(config) as daemon:
                found = _wait(daemon, config.with_suffix(".log"), row_count)
                found["peak_rss_bytes"] = daemon.peak_rss_bytes()
            plain_s = (first_s + _plain(sql, table)) / 2
        rate_of = found["rows_per_second"]
        assert isinstance(rate_of, float)
        result[name] = {
            **found,
            "plain_copy_rows_per_second": round(row_count / plain_s),
            "ratio_to_plain_copy": round(rate_of * plain_s / row_count, 3),
        }
    return result


def _plain(sql: psycopg.Connection[tuple[object, ...]], table: str) -> float:
    """Seconds of a COPY of all rows to a client that drops them."""
    began_s = time.monotonic()
    with sql.cursor() as cursor, cursor.copy(f"copy {table} to stdout".encode()) as copy:
        for _ in copy:
            pass
    return time.monotonic() - began_s


def _wait(daemon: BenchDaemon, log: Path, row_count: int) -> dict[str, object]:
    began_s, cpu_s = time.monotonic(), daemon.cpu_s()
    while "snapshot_complete" not in log.read_text(encoding="utf-8"):
        if time.monotonic() - began_s > _WAIT_S:
            raise SystemExit("bench: the snapshot does not end")
        time.sleep(0.02)
    took_s, cpu_s = time.monotonic() - began_s, daemon.cpu_s() - cpu_s
    return {
        "seconds": round(took_s, 2),
        "rows_per_second": round(row_count / took_s, 1),
        "cpu_us_per_row": round(cpu_s / row_count * 1e6, 2),
    }


@contextmanager
def _updates(dsn: str, table: str, row_count: int, rate: int) -> Iterator[None]:
    """So many updates a second of rows all over the table."""
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(dsn, autocommit=True) as session:
            number = 0
            while rate and not stop.wait(1 / rate):
                number += 7919
                session.execute(
                    f"update {table} set customer_id = customer_id + 1 where id = %s".encode(),
                    (number % row_count + 1,),
                )

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
