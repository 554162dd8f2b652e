"""A cut of the lake: from records in Kafka to a published manifest, with the parts it is made of.

One table of seven columns, about 150 bytes a row. The first cut warms Spark up and is reported apart; the second one is
the figure: as many changes again, updates of uniform keys. `parts` are seconds inside the committer, the rest of
`seconds` is Spark: reading, counting, parsing, folding.
"""

from __future__ import annotations

import resource
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psycopg

from cdc.artifacts.machine import Machine
from cdc.artifacts.progress import Silent
from cdc.clock import SystemClock
from cdc.config.load import load
from cdc.kafka.consumer import LogReader
from cdc.local.stack import Stack
from cdc.lsn import Lsn
from cdc.verify.cut import wait_for_cut
from sinks.warehouse.driver import LakeDriver
from sinks.warehouse.start import start
from tests.bench.daemon import BenchDaemon, write_config

_NAME: Final = "lakebench"
_PARTS: Final = ("append", "merge", "close_and_append", "overwrite")
_CAUGHT_UP_S: Final = 300.0
_ROW: Final = "md5(n::text), md5((n * 7)::text), n % 100, n * 1.5, now(), n % 2 = 0"


def measure_lake(stack: Stack, folder: Path, changes: int) -> dict[str, object]:
    """Seconds and rates of two cuts of `changes` changes each, with a mirror and a history."""
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(
            b"create table lake_rows (id int primary key, a text, b text, kind int, total numeric(12,2), "
            b"at timestamptz, ok boolean)"
        )
        config = write_config(stack, folder, _NAME, "public.lake_rows")
        with config.open("a") as text:
            text.write(
                f'\n[sinks.lake]\nkind = "warehouse"\npath = "{folder / "lake"}"\nhistory = ["public.*"]\n'
                f'master = "local[2]"\nmemory = "3g"\nevents_max = {4 * changes}\n'
            )
        with BenchDaemon(config), ExitStack() as closing:
            statement = f"insert into lake_rows select n, {_ROW} from generate_series(1, {changes}) n"
            sql.execute(statement.encode())
            _await(config, _wal(sql))
            began_s = time.monotonic()
            driver = start(load(config, {}), "lake", SystemClock(), machine=Machine.here(), progress=Silent())
            closing.callback(driver.close)
            opened_s = time.monotonic() - began_s
            first_s, _ = _cut(driver, _wal(sql))
            sql.execute(b"update lake_rows set total = total + 1, a = b")
            _await(config, _wal(sql))
            second_s, parts = _cut(driver, _wal(sql))
    return {
        "changes": changes,
        "session_seconds": round(opened_s, 1),
        "first_cut_seconds": round(first_s, 1),
        "seconds": round(second_s, 1),
        "changes_per_second": round(changes / second_s),
        "parts": {name: round(value, 2) for name, value in parts.items()},
        "python_peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _cut(driver: LakeDriver, lsn: Lsn) -> tuple[float, dict[str, float]]:
    parts = dict.fromkeys(_PARTS, 0.0)
    committer: Any = driver._parts.committer
    for name in _PARTS:
        setattr(committer, name, _timed(getattr(type(committer), name).__get__(committer), parts, name))
    began_s = time.monotonic()
    while driver.mark.end_lsn < lsn:
        if not driver.step():
            time.sleep(0.2)
    return time.monotonic() - began_s, parts


def _timed(call: Any, parts: dict[str, float], name: str) -> Any:
    def timed(*arguments: Any, **named: Any) -> Any:
        began_s = time.monotonic()
        try:
            return call(*arguments, **named)
        finally:
            parts[name] += time.monotonic() - began_s

    return timed


def _wal(sql: psycopg.Connection[Any]) -> Lsn:
    row = sql.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0]).before_header()


def _await(config: Path, lsn: Lsn) -> None:
    """Wait until capture has everything before `lsn`."""
    loaded = load(config, {})
    with LogReader(loaded.kafka, client_id="lakebench") as reader:
        wait_for_cut(reader, _NAME, lsn, SystemClock(), timeout_s=_CAUGHT_UP_S)
