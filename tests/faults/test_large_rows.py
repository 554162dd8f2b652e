"""Rows of 1, 10 and 200 MB (60 in the short form): policy, order, and memory bounded by a single row (C9)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tests.fixtures.faults.tally import tally
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite

_MB: Final = 1_000_000
LARGEST_MB: Final = int(os.environ.get("TAILRACE_LARGEST_ROW_MB", "60"))
# What libpq and we hold of a row at once: its message, its columns, and of a value that is read again the same.
# Measured with 200 MB on 2026-11-22: 6.1.
_COPIES_MAX: Final = 8
_BESIDE_BYTES: Final = 160 << 20


def test_rows_of_1_10_and_many_mb_follow_the_policy_in_order_and_within_memory(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, small text, body text)")
    daemon = capture.running({"capture": {"oversize": "omit"}})
    sizes = (1, 10, LARGEST_MB, 1, LARGEST_MB, 10)

    statements = [f"insert into t values ({n}, 'small', repeat('x', {size * _MB}))" for n, size in enumerate(sizes)]
    daemon.until_position(capture.sql(*statements, "update t set small = 'later' where id = 2"), within_s=240)
    peak_bytes, events = daemon.rss_peak_bytes(), capture.settled(daemon).events

    assert [event.after["id"] for event in events] == [0, 1, 2, 3, 4, 5, 2]
    assert [len(event.after.get("body", "")) // _MB for event in events[:6]] == [1, 10, 0, 1, 0, 10]
    assert [event.source.get("omitted") for event in events[:6]] == [None, None, ["body"], None, ["body"], None]
    assert (events[6].after["small"], events[6].source["omitted"]) == ("later", ["body"])
    assert peak_bytes < _COPIES_MAX * LARGEST_MB * _MB + _BESIDE_BYTES
    tally(f"rows of {LARGEST_MB} MB", rss_peak_mb=peak_bytes >> 20)


def test_row_of_many_mb_stops_capture_by_default_and_what_came_before_is_in_the_log(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, body text)")
    daemon = capture.running()

    capture.sql("insert into t values (1, 'fits')", f"insert into t values (2, repeat('x', {LARGEST_MB * _MB}))")
    until(lambda: not daemon.alive, "it stops", within_s=240)
    stop = daemon.stopped_with()

    assert (stop["state"], stop["exit_code"], stop["table"]) == ("MISCONFIGURED", 3, "public.t")
    assert [event.after["id"] for event in capture.log().events] == [1]
