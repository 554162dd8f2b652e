"""Measures reading two million rows: a plain `COPY`, the daemon's snapshot, and a snapshot under writes.

Under writes, one in five updates goes to a second table with its own topic. Their time to a `read_committed` consumer
is the latency of the stream. The times of the writers are compared with those before the start of the daemon.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from types import TracebackType
from typing import Self

import psycopg

from cdc.local.stack import Stack
from tests.bench.daemon import BenchDaemon, write_config
from tests.bench.latency import listener

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
_ALONE_S = 5.0
_BESIDE_ROWS = 1000
_BESIDE_EVERY = 5  # of the updates


def measure_snapshot(stack: Stack, folder: Path, row_count: int) -> dict[str, object]:
    """Rows a second, CPU a row and peak memory, alone and with 500 updates a second; and the ratio to a plain COPY."""
    result: dict[str, object] = {"rows": row_count}
    for name, rate in (("quiet", 0), ("updated", 500)):
        table = f"snap_{name}"
        with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
            for made, count in ((table, row_count), (f"{table}_beside", _BESIDE_ROWS)):
                sql.execute(_TABLE.format(name=made).encode())
                sql.execute(_ROWS.format(name=made, count=count).encode())
                sql.execute(f"vacuum analyze {made}".encode())
            first_s = _plain(sql, table)
            config = write_config(stack, folder, name, f"public.{table}*", snapshot="initial")
            found = _measured(stack, config, name, (table, row_count, rate))
            plain_s = (first_s + _plain(sql, table)) / 2
        rate_of = found["rows_per_second"]
        assert isinstance(rate_of, float)
        result[name] = {
            **found,
            "plain_copy_rows_per_second": round(row_count / plain_s),
            "ratio_to_plain_copy": round(rate_of * plain_s / row_count, 3),
        }
    return result


def _measured(stack: Stack, config: Path, name: str, load: tuple[str, int, int]) -> dict[str, object]:
    table, row_count, rate = load
    with ExitStack() as closing:
        writer = closing.enter_context(_Writer(stack.postgres.dsn, *load)) if rate else None
        if writer is not None:
            time.sleep(_ALONE_S)
            alone_s = writer.taken()
        daemon = closing.enter_context(BenchDaemon(config))
        heard = closing.enter_context(listener(stack, f"{name}.public.{table}_beside")) if rate else []
        running_s = time.time()
        if writer is not None:
            writer.taken()
        found = _wait(daemon, config.with_suffix(".log"), table, row_count)
        found["peak_rss_bytes"] = daemon.peak_rss_bytes()
        if writer is not None:
            waited_s = writer.taken()
            found["updates_per_second"] = round(len(waited_s) / float(str(found["seconds"])))
            found["stream_p50_ms"], found["stream_p99_ms"] = _quantiles(
                [latency_ms for committed_s, latency_ms in heard if committed_s > running_s]
            )
            found["writer_p95_ms_alone"] = round(quantiles(alone_s, n=20)[18] * 1000, 2)
            found["writer_p95_ms"] = round(quantiles(waited_s, n=20)[18] * 1000, 2)
    return found


def _quantiles(milliseconds: list[float]) -> tuple[float, float]:
    cuts = quantiles(milliseconds, n=100)
    return round(cuts[49], 1), round(cuts[98], 1)


def _plain(sql: psycopg.Connection[tuple[object, ...]], table: str) -> float:
    """Return the seconds of a COPY of all rows to a client that discards them."""
    began_s = time.monotonic()
    with sql.cursor() as cursor, cursor.copy(f"copy {table} to stdout".encode()) as copy:
        for _ in copy:
            pass
    return time.monotonic() - began_s


def _wait(daemon: BenchDaemon, log: Path, table: str, row_count: int) -> dict[str, object]:
    began_s, cpu_s = time.monotonic(), daemon.cpu_s()
    while not any(
        "snapshot_complete" in line and f"{table}_beside" not in line
        for line in log.read_text(encoding="utf-8").splitlines()
    ):
        if time.monotonic() - began_s > _WAIT_S:
            raise SystemExit("bench: the snapshot does not end")
        time.sleep(0.02)
    took_s, cpu_s = time.monotonic() - began_s, daemon.cpu_s() - cpu_s
    return {
        "seconds": round(took_s, 2),
        "rows_per_second": round(row_count / took_s, 1),
        "cpu_us_per_row": round(cpu_s / row_count * 1e6, 2),
    }


@dataclass
class _Writer:
    """Writes a given number of updates per second, to random rows of both tables."""

    dsn: str
    table: str
    row_count: int
    rate: int
    _stop: threading.Event = field(default_factory=threading.Event)
    _took_s: list[float] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._write)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def taken(self) -> list[float]:
        """Return the seconds of every update since the last call."""
        taken, self._took_s = self._took_s, []
        return taken

    def _write(self) -> None:
        number, due_s = 0, time.monotonic()
        with psycopg.connect(self.dsn, autocommit=True) as session:
            while not self._stop.wait(max(0.0, due_s - time.monotonic())):
                due_s += 1 / self.rate
                number += 7919
                beside = number % _BESIDE_EVERY == 0
                table, count = (f"{self.table}_beside", _BESIDE_ROWS) if beside else (self.table, self.row_count)
                began_s = time.monotonic()
                session.execute(
                    f"update {table} set customer_id = customer_id + 1 where id = %s".encode(), (number % count + 1,)
                )
                self._took_s.append(time.monotonic() - began_s)
