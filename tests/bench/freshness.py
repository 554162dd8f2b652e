"""Measures the age of a change when the lake shows it: from the commit of its Kafka transaction to the published cut.

Three tables of a million rows, each with a mirror, receive single-row updates at a steady rate. The lake runs like `cdc
sink run`, cut after cut. It runs twice: with keys of the whole tables, so that a cut touches every file, and with keys
of the newest twentieth, as recent orders change most.
"""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

import psycopg

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.machine import Machine
from cdc.clock import SystemClock
from cdc.config.load import load
from cdc.kafka.log_reader import LogReader
from cdc.local.stack import Stack
from cdc.model.progress_record import Cut
from cdc.model.topic_names import cuts_topic, parse_partition
from cdc.progress.record_format import decode
from sinks.warehouse.driver import LakeDriver
from sinks.warehouse.log.span import is_data
from sinks.warehouse.start import start
from tests.bench.daemon import BenchDaemon, peak_rss_bytes, write_config
from tests.bench.lake import CAUGHT_UP_S, await_log, catch_up, jvm_pid, lake_section, wal
from tests.fixtures.servers.waiting import until

_NAME: Final = "fresh"
_TABLES: Final = 3
_WARM_UP_S: Final = 20
_NEWEST: Final = 20  # one row in so many
_COLUMNS: Final = "id int primary key, a text, b text, kind int, total numeric(12,2), at timestamptz, ok boolean"
_ROW: Final = "n, md5(n::text), md5((n * 7)::text), n % 100, n * 1.5, now(), n % 2 = 0"


def measure_freshness(stack: Stack, folder: Path, rows: int, rate: int, seconds: int) -> dict[str, object]:
    """Return quantiles in seconds over all changes of the last `seconds`, and the time of a cut."""
    config = write_config(stack, folder, _NAME, "public.fresh_*")
    with config.open("a") as text:
        text.write(lake_section("lake", folder / "fresh"))
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql, ExitStack() as closing:
        for number in range(_TABLES):
            sql.execute(f"create table fresh_{number} ({_COLUMNS})".encode())
        closing.enter_context(BenchDaemon(config))
        for number in range(_TABLES):
            sql.execute(f"insert into fresh_{number} select {_ROW} from generate_series(1, {rows}) n".encode())
        await_log(config, _NAME, wal(sql))
        driver = start(load(config, {}), "lake", SystemClock(), machine=Machine.here(), progress=NoProgress())
        closing.callback(driver.close)
        began_s = time.monotonic()
        catch_up(driver, wal(sql))
        loaded_s = time.monotonic() - began_s
        script = folder / "fresh.sql"
        command = [str(stack.postgres.programs / "pgbench"), "-n", "-M", "simple", "-c", "8", "-j", "2"]
        command += ["-R", str(rate), "-T", str(seconds + _WARM_UP_S), "-f", str(script), stack.postgres.dsn]
        figures = {}
        for keys, first in (("all", 1), ("newest", rows - rows // _NEWEST + 1)):
            published = _run(driver, sql, command, script, (first, rows))
            figures[f"keys_{keys}"] = _figures(_ages(config, published, seconds), published, seconds)
        memory = {"python": peak_rss_bytes("self"), "jvm": peak_rss_bytes(jvm_pid())}
    return {
        "rows_of_each_table": rows,
        "load_seconds": round(loaded_s, 1),
        **figures,
        "peak_rss_bytes": memory,
    }


def _figures(ages_s: list[float], published: list[tuple[int, float]], seconds: int) -> dict[str, object]:
    steps = [after - before for (_, before), (_, after) in itertools.pairwise(published)]
    return {
        "changes_per_second": round(len(ages_s) / seconds),
        "cuts": len(published),
        "seconds_between_cuts": round(median(steps), 2),
        **{f"p{share}_seconds": round(ages_s[len(ages_s) * share // 100], 2) for share in (50, 95, 99)},
        "max_seconds": round(ages_s[-1], 2),
    }


def _run(
    driver: LakeDriver, sql: psycopg.Connection[Any], pgbench: list[str], script: Path, ids: tuple[int, int]
) -> list[tuple[int, float]]:
    """Run the lake during the writes. Returns (end in the cut index, time of publication) of every cut."""
    script.write_text(
        f"\\set id random({ids[0]}, {ids[1]})\n\\set t random(0, {_TABLES - 1})\n"
        "update fresh_:t set total = total + 1, at = now() where id = :id;\n"
    )
    published: list[tuple[int, float]] = []
    store: Any = driver._parts.store
    publish = store.publish

    def noted(manifest: Any) -> None:
        publish(manifest)
        published.append((manifest.position.cuts_offset, time.time()))

    store.publish = noted
    stop = threading.Event()
    runner = threading.Thread(target=driver.run, args=(stop,))
    runner.start()
    try:
        subprocess.run(pgbench, check=True, capture_output=True)
        lsn = wal(sql)
        until(lambda: driver.position.end_lsn >= lsn, f"the lake at {lsn}", within_s=CAUGHT_UP_S)
    finally:
        stop.set()
        runner.join()
        store.publish = publish
    return published


def _ages(config: Path, published: list[tuple[int, float]], seconds: int) -> list[float]:
    """Return the sorted ages of all changes of the last `seconds` at the publication of their cut."""
    loaded = load(config, {})
    topic = cuts_topic(_NAME)
    found: list[tuple[float, int, int]] = []
    with LogReader(loaded.kafka, client_id=f"{_NAME}.bench") as reader:
        low, high = reader.end_offsets([topic])[(topic, 0)]
        before: dict[str, int] = {}
        for batch in reader.read({(topic, 0): low}, {(topic, 0): high}):
            for record in batch:
                if record[5] is None:
                    continue
                cut = decode(record[5], Cut, topic)
                counts = {at: count for at, (_, count, _) in cut.changed.items() if is_data(parse_partition(at)[0])}
                found.append((record[3] / 1000, record[2], sum(counts[at] - before.get(at, 0) for at in counts)))
                before |= counts
    last_s = max(at for at, _, changes in found if changes)
    ages_s: list[float] = []
    for at, offset, changes in found:
        if changes and at > last_s - seconds:
            shown_s = next(when for end, when in published if end > offset)
            ages_s.extend([shown_s - at] * changes)
    return sorted(ages_s)
