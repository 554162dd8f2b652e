"""Bytes that cannot be decoded: nothing is acknowledged, and repeated failures are a named stop (B6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.lsn import Lsn

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite


def test_frame_that_never_decodes_stops_capture_and_nothing_past_it_is_acknowledged(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)")
    daemon = capture.running({"capture": {"catalog_check_s": 0.1}}, mutant="garble:poison")
    good = capture.sql("insert into t values (1, 'good')")
    daemon.until_position(good)

    capture.sql("insert into t values (2, 'poison')", "insert into t values (3, 'behind it')")
    stop = daemon.stopped_with()

    assert (stop["state"], stop["exit_code"]) == ("MISCONFIGURED", 3)
    assert "times in a row" in stop["message"]
    assert "poison" not in stop["message"]
    assert [event.after["id"] for event in capture.log().events] == [1]
    assert capture.confirmed() <= Lsn(capture.log().progress[-1]["end_lsn"])


def test_frame_that_decodes_the_next_time_is_captured(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)")
    daemon = capture.running(mutant="garble:poison:1")

    capture.sql("insert into t values (1, 'poison')", "insert into t values (2, 'behind it')")
    log = capture.settled(daemon)

    assert [event.after["id"] for event in log.events] == [1, 2]
    assert log.faults() == []
    assert daemon.events("capture_waiting")[0]["error"] == "DecodeError"
