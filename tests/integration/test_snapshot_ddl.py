"""DDL on a table during its snapshot is detected, and the affected part is read again."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from tests.fixtures.capture.snapshot_waits import INITIAL, SMALL_CHUNKS, complete, differences
from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.servers.daemon import CaptureSite, Daemon

_ROWS: Final = 400
_MADE: Final = "create table {} (id int primary key, n int not null, pad text not null)"
_FILLED: Final = "insert into {} select n, n, repeat('x', 700) from generate_series(1, %d) n" % _ROWS  # noqa: UP031


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(["vacuum full t"], id="VACUUM FULL"),
        pytest.param(["cluster t using t_pkey"], id="CLUSTER"),
        pytest.param(["alter table t alter n type bigint using n * 10"], id="ALTER TYPE"),
        pytest.param(["alter table t add extra int not null default (random() * 100)::int"], id="volatile default"),
        pytest.param(["alter table t drop column n"], id="DROP COLUMN"),
        pytest.param(["truncate t"], id="TRUNCATE"),
        pytest.param(
            ["begin", "truncate t", "insert into t values (1, 1, 'new'), (900, 9, 'new')", "commit"], id="new"
        ),
        pytest.param(
            ["delete from t where id % 3 = 0", "vacuum t", _FILLED.format("t") + " on conflict do nothing"], id="holes"
        ),
    ],
)
def test_table_that_changes_in_the_middle_is_exact_in_the_end(capture: CaptureSite, statements: list[str]) -> None:
    capture.sql(_MADE.format("t"), _FILLED.format("t"))
    daemon = capture.running(SMALL_CHUNKS, mutant="slow_chunks:300")
    with _writer(capture):
        _wait_for_the_middle(daemon)
        capture.sql(*statements)
    log = complete(capture, daemon, "public.t")

    found = differences(capture, log, "t")
    assert (found.wrong, found.missing, found.extra) == (0, 0, 0)


def test_column_that_came_with_a_default_while_capture_was_down_is_read_of_every_row(capture: CaptureSite) -> None:
    """It rewrites nothing, so where rows lie does not tell."""
    capture.sql(_MADE.format("t"), _FILLED.format("t"))
    daemon = capture.running(SMALL_CHUNKS, mutant="slow_chunks:300")
    _wait_for_the_middle(daemon)
    daemon.kill()

    capture.sql("alter table t add extra text not null default 'filled'")
    log = complete(capture, capture.running(SMALL_CHUNKS), "public.t")

    assert not differences(capture, log, "t").any_but_stale


def test_partition_that_is_attached_in_the_middle_is_read(capture: CaptureSite) -> None:
    capture.sql(
        "create table t (id int, n int not null, pad text not null, primary key (id)) partition by range (id)",
        "create table t1 partition of t for values from (0) to (1000)",
        _FILLED.format("t"),
        _MADE.format("apart"),
        "insert into apart select n, n, 'y' from generate_series(1001, 1100) n",
    )
    daemon = capture.running({**SMALL_CHUNKS, "source": {"tables": ["public.t"]}}, mutant="slow_chunks:300")

    _wait_for_the_middle(daemon)
    capture.sql("alter table t attach partition apart for values from (1000) to (2000)")
    log = complete(capture, daemon, "public.t")

    assert not differences(capture, log, "t").any
    assert len(log.fold(capture.topic("t"))) == _ROWS + 100


@contextmanager
def _writer(capture: CaptureSite) -> Iterator[None]:
    """Somebody who updates rows all the time."""

    def write(stop: threading.Event) -> None:
        number = 0
        with capture.connect() as session:
            while not stop.wait(0.01):
                number += 1
                session.execute("update t set pad = pad || 'z' where id = %s", (number * 7 % _ROWS,))

    with beside(write):
        yield


@pytest.mark.parametrize(
    ("statements", "table"),
    [
        pytest.param(["alter table t add extra text not null default 'filled'"], "t", id="default"),
        pytest.param(["alter table t alter n type text using 'n' || n"], "t", id="type"),
        pytest.param(["alter table t rename to u"], "u", id="rename"),
        pytest.param(
            [
                "create table late (id int primary key, n int)",
                "insert into late select n, n from generate_series(1, 50) n",
            ],
            "late",
            id="joined",
        ),
    ],
)
def test_table_is_read_again_after_ddl_that_the_stream_does_not_tell(
    capture: CaptureSite, statements: list[str], table: str
) -> None:
    capture.sql(_MADE.format("t"), _FILLED.format("t"), f"create publication {capture.slot} for all tables")
    daemon = capture.running(INITIAL)
    complete(capture, daemon, "public.t")

    capture.sql(*statements)
    until(lambda: not differences(capture, capture.log(), table).any_but_stale, "the log is level again", within_s=60)

    until(lambda: daemon.status().get("ddl_count") == 0, "what was found is settled")
    assert daemon.stop() == 0


def _wait_for_the_middle(daemon: Daemon) -> None:
    """Until rows have joined, and others are left. Asks the daemon: to read the topic takes longer than the middle."""
    until(lambda: any(one["rows"] for one in daemon.status().get("snapshots", [])), "rows join")
    assert not daemon.events("snapshot_complete"), "too late"
