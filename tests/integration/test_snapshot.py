"""Snapshots on a real server: what was in the tables before capture began is in the log, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.snapshots import INITIAL, complete, differences

if TYPE_CHECKING:
    from tests.fixtures.daemon import CaptureSite


def test_rows_from_before_capture_are_in_the_log(capture: CaptureSite) -> None:
    capture.sql(
        "create table t (id int primary key, v text, b bool)",
        "insert into t select n, 'row ' || n || e'\\t\\\\', n % 2 = 0 from generate_series(1, 3000) n",
        "update t set v = null where id % 7 = 0",
        "create table empty (id int primary key)",
    )

    daemon = capture.running(INITIAL)
    log = complete(capture, daemon, "public.t", "public.empty")

    assert not differences(capture, log, "t").any
    assert {record.op for record in log.topic(capture.topic("t"))} == {"r"}
    assert {record.source["snapshot"] for record in log.topic(capture.topic("t"))} == {"incremental"}
    told = [cut["tables"]["public.t"] for cut in log.cuts if "public.t" in cut["tables"]]
    assert (told[0], told[-1]) == ("snapshotting", "complete")
