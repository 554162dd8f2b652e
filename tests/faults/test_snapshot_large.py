"""A large table is read under writes while capture is killed; `make snapshot-kills` uses five million rows."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from cdc.config.load import load
from cdc.verify.log_check import fold_and_compare
from tests.fixtures.capture.snapshot_waits import complete
from tests.fixtures.servers.seed import seed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.servers.daemon import CaptureSite, Sections

_ROWS: Final = int(os.environ.get("TAILRACE_SNAPSHOT_ROWS", "40000"))
_KILLS: Final = int(os.environ.get("TAILRACE_SNAPSHOT_KILLS", "2"))
_UPDATES_PER_S: Final = 2000
_AT_ONCE: Final = 20  # rows of a statement
_LIFE_S: Final = (0.2, 2.0)  # of a daemon that captures, before it is killed
_END_S: Final = 60 + _ROWS / 5000
# A small table is read slowly, or it would be complete before the first kill.
_SLOWLY: Final[Sections] = {"snapshot": {"chunk_bytes": 1 << 16, "rows_per_s_max": _ROWS // (10 * _KILLS)}}
_FULLY: Final[Sections] = {"snapshot": {"mode": "initial"}, "kafka": {"partitions": 4}}
_TABLE: Final = (
    "create table big (id bigint primary key, n int not null, at timestamptz default now(), note text not null)",
    f"insert into big select n, 0, now(), 'note ' || md5(n::text) from generate_series(1, {_ROWS}) n",
)
_WRITES: Final = (
    *["update big set n = n + 1, note = note || 'x' where id = any(%(ids)s)"] * 7,
    "delete from big where id = any(%(ids)s)",
    "insert into big select id, -1, now(), 'again' from unnest(%(ids)s::bigint[]) id on conflict do nothing",
    "update big set id = -id where id = any(%(ids)s) and not exists (select from big o where o.id = -big.id)",
)


@pytest.mark.timeout(300 + int(_END_S) + 10 * _KILLS)
def test_large_snapshot_killed_again_and_again_under_updates_is_exact(capture: CaptureSite) -> None:
    capture.sql(*_TABLE)
    sections = {**_FULLY, "snapshot": {**_FULLY["snapshot"], **(_SLOWLY["snapshot"] if _ROWS < 1_000_000 else {})}}
    chance = random.Random(seed())
    with _writing(capture.dsn, chance.randint(0, 1 << 30)) as written:
        for _ in range(_KILLS):
            daemon = capture.running(sections, within_s=120)
            time.sleep(chance.uniform(*_LIFE_S))  # the moment is what the test is about
            assert not daemon.events("snapshot_complete"), "it was complete before it was killed"
            daemon.kill()
        daemon = capture.running(_FULLY, within_s=120)
        complete(capture, daemon, "public.big", within_s=_END_S)
    daemon.until_position(capture.wal(), _END_S)
    config = load(capture.folder / f"cdc-{len(capture.daemons) - 1}.toml", {})

    report = fold_and_compare(config, capture.wal())
    assert report.ok, report
    print(f"{_ROWS:,} rows, {_KILLS} kills, {written[0]:,} rows written meanwhile")


@contextmanager
def _writing(dsn: str, seed: int) -> Iterator[list[int]]:
    """Rows of the table written at a steady rate: values, deletes, re-inserts, moved keys; yields how many."""
    stop, count = threading.Event(), [0]

    def write() -> None:
        chance, due_s = random.Random(seed), time.monotonic()
        with psycopg.connect(dsn, autocommit=True) as session:
            while not stop.wait(max(0.0, due_s - time.monotonic())):
                due_s += _AT_ONCE / _UPDATES_PER_S
                ids = [chance.choice((1, 1, 1, -1)) * chance.randint(1, _ROWS) for _ in range(_AT_ONCE)]
                count[0] += session.execute(chance.choice(_WRITES).encode(), {"ids": ids}).rowcount

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield count
    finally:
        stop.set()
        writer.join()
