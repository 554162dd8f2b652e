"""Measures cuts of the lake, from records in Kafka to a published manifest, against Structured Streaming.

One table of seven columns, about 150 bytes per row. Every system first loads the inserts, which warms Spark up and is
reported separately. The results are of updates of uniform keys, `changes` per cut: a lake with archive and mirror, a
lake with a history too, and alternately Structured Streaming (`tests.bench.streaming`) in its own JVM. `parts` are
seconds in the committer; the rest of a cut is Spark: reading, parsing, ordering by key.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.machine import Machine
from cdc.clock import SystemClock
from cdc.config.load import load
from cdc.kafka.log_reader import LogReader
from cdc.local.stack import Stack
from cdc.lsn import Lsn
from cdc.verify.verified_cut import wait_for_cut
from sinks.warehouse.driver import LakeDriver
from sinks.warehouse.spark import spark_session
from sinks.warehouse.start import start
from tests.bench.daemon import BenchDaemon, peak_rss_bytes, write_config
from tests.fixtures.servers.waiting import until

_NAME: Final = "lakebench"
_PARTS: Final = ("append", "merge", "close_and_append", "overwrite")
CAUGHT_UP_S: Final = 300.0
_ROUNDS: Final = 4  # both JVMs still become faster in the first ones; the best of each is compared
_ROW: Final = "md5(n::text), md5((n * 7)::text), n % 100, n * 1.5, now(), n % 2 = 0"
_UPDATE: Final = b"update lake_rows set total = total + 1, a = b"


def measure_lake(stack: Stack, folder: Path, changes: int) -> dict[str, object]:
    """Return seconds and rates of cuts of `changes` changes each."""
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(
            b"create table lake_rows (id int primary key, a text, b text, kind int, total numeric(12,2), "
            b"at timestamptz, ok boolean)"
        )
        config = write_config(stack, folder, _NAME, "public.lake_rows")
        with config.open("a") as text:
            text.write(lake_section("lake", folder / "lake", events_max=4 * changes))
            text.write(lake_section("versions", folder / "versions", 'history = ["public.*"]', events_max=4 * changes))
        with BenchDaemon(config):
            sql.execute(f"insert into lake_rows select n, {_ROW} from generate_series(1, {changes}) n".encode())
            await_log(config, _NAME, wal(sql))
            streaming = Streaming(stack.kafka.bootstrap, f"{_NAME}.public.lake_rows", folder / "streaming")
            first = streaming.drain()
            with ExitStack() as closing:
                lake, opened_s = opened(config, "lake", closing)
                first_s, _ = _cut(lake, wal(sql))
                mirrored, merged = [], []
                for _ in range(_ROUNDS):
                    sql.execute(_UPDATE)
                    await_log(config, _NAME, wal(sql))
                    mirrored.append(_figures(changes, *_cut(lake, wal(sql))))
                    merged.append(round(streaming.drain(), 1))
                streaming.close()
                versions, _ = opened(config, "versions", closing)
                _cut(versions, wal(sql))
                sql.execute(_UPDATE)
                await_log(config, _NAME, wal(sql))
                kept = _figures(changes, *_cut(versions, wal(sql)))
                memory = {"python": peak_rss_bytes("self"), "jvm": peak_rss_bytes(jvm_pid())}
    best, other = min(one["seconds"] for one in mirrored), min(merged)
    return {
        "changes": changes,
        "session_seconds": round(opened_s, 1),
        "first_cut_seconds": round(first_s, 1),
        "archive_and_mirror": mirrored,
        "with_history": kept,
        "streaming": {"first_seconds": round(first, 1), "seconds": merged},
        "ratio_to_streaming": round(other / best, 2),
        "ratio_of_mirrors": round(other * max(one["without_archive_per_second"] for one in mirrored) / changes, 2),
        "peak_rss_bytes": memory,
    }


def lake_section(sink: str, path: Path, more: str = "", *, events_max: int = 500_000) -> str:
    """Return the section of a sink for a configuration file."""
    return (
        f'\n[sinks.{sink}]\nkind = "warehouse"\npath = "{path}"\n{more}\n'
        f'master = "local[2]"\nmemory = "3g"\nevents_max = {events_max}\n'
    )


def jvm_pid() -> int:
    """Return the pid of the JVM of the open session."""
    opened = spark_session._opened
    assert opened is not None
    assert opened.jvm is not None
    return opened.jvm.pid


def wal(sql: psycopg.Connection[Any]) -> Lsn:
    """Return the LSN at the end of everything committed so far."""
    row = sql.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0]).before_header()


def await_log(config: Path, name: str, lsn: Lsn) -> None:
    """Wait until capture has everything before `lsn`."""
    loaded = load(config, {})
    with LogReader(loaded.kafka, client_id=f"{name}.bench") as reader:
        wait_for_cut(reader, name, lsn, SystemClock(), timeout_s=CAUGHT_UP_S)


def catch_up(driver: LakeDriver, lsn: Lsn) -> None:
    """Make cuts until the lake has everything before `lsn`."""

    def reached() -> bool:
        driver.step()
        return driver.position.end_lsn >= lsn

    until(reached, f"the lake at {lsn}", within_s=CAUGHT_UP_S)


class Streaming:
    """Runs `tests.bench.streaming` in its own process."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, *, archive: bool = False) -> None:
        command = [sys.executable, "-m", "tests.bench.streaming", bootstrap, topic, str(folder)]
        command += ["archive"] if archive else []
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def pid(self) -> int:
        """The pid of its Python."""
        return self._process.pid

    def drain(self) -> float:
        """Let it process the topic. Returns the seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"bench: the streaming job ended with {self._process.wait()}")
        return float(json.loads(line)["seconds"])

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def opened(config: Path, sink: str, closing: ExitStack) -> tuple[LakeDriver, float]:
    """Open the driver of a lake. Returns it, and how many seconds that took."""
    began_s = time.monotonic()
    driver = start(load(config, {}), sink, SystemClock(), machine=Machine.here(), progress=NoProgress())
    closing.callback(driver.close)
    return driver, time.monotonic() - began_s


def _cut(driver: LakeDriver, lsn: Lsn) -> tuple[float, dict[str, float]]:
    with _parts(driver) as parts:
        began_s = time.monotonic()
        catch_up(driver, lsn)
        return time.monotonic() - began_s, parts


def _figures(changes: int, seconds: float, parts: dict[str, float]) -> dict[str, Any]:
    return {
        "seconds": round(seconds, 2),
        "changes_per_second": round(changes / seconds),
        "without_archive_per_second": round(changes / (seconds - parts["append"])),
        "parts": {name: round(value, 2) for name, value in parts.items() if value},
    }


@contextmanager
def _parts(driver: LakeDriver) -> Iterator[dict[str, float]]:
    """Measure the seconds within the committer."""
    parts = dict.fromkeys(_PARTS, 0.0)
    committer: Any = driver._parts.committer
    for name in _PARTS:
        setattr(committer, name, _timed(getattr(type(committer), name).__get__(committer), parts, name))
    try:
        yield parts
    finally:
        for name in _PARTS:
            delattr(committer, name)


def _timed(call: Any, parts: dict[str, float], name: str) -> Any:
    def timed(*arguments: Any, **named: Any) -> Any:
        began_s = time.monotonic()
        try:
            return call(*arguments, **named)
        finally:
            parts[name] += time.monotonic() - began_s

    return timed
