"""Invalid input and limits: rows that are too large, wrong settings, and an orderly exit."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite

_LIMIT = 100_000


def test_row_larger_than_allowed_stops_capture_and_is_named(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, small text, body text)")
    daemon = capture.running({"capture": {"row_bytes_max": _LIMIT}})

    capture.sql("insert into t values (1, 'fits', 'x')", "insert into t values (2, 'x', repeat('canary', 50000))")
    stop = daemon.stopped_with()

    assert (stop["state"], stop["exit_code"]) == ("MISCONFIGURED", 3)
    assert stop["table"] == "public.t"
    assert stop["column"] == "body"
    assert int(stop["record_bytes"]) > 300_000
    assert "public.t" in stop["message"]
    assert "oversize" in stop["command"]
    assert "canary" not in daemon.log_text(), "no row value is ever logged"
    assert [event.after["id"] for event in capture.log().events] == [1], "what came before it is in the log"
    assert capture.confirmed() <= capture.wal()


def test_capture_goes_on_with_the_large_row_when_the_limit_is_raised(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, body text)")
    daemon = capture.running({"capture": {"row_bytes_max": _LIMIT}})
    capture.sql("insert into t values (1, repeat('x', 300000))", "insert into t values (2, 'after')")
    daemon.stopped_with()

    log = capture.settled(capture.running({"capture": {"row_bytes_max": 1_000_000}}))

    assert [event.after["id"] for event in log.events] == [1, 2]
    assert log.faults() == []


def test_oversize_omit_leaves_out_the_largest_columns_and_names_them(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, small text, big text, bigger text)")
    daemon = capture.running({"capture": {"row_bytes_max": _LIMIT, "oversize": "omit"}})

    capture.sql(
        "insert into t values (1, 'a', 'b', repeat('x', 300000))",
        "insert into t values (2, 'a', repeat('y', 200000), repeat('x', 300000))",
        "insert into t values (3, 'a', 'b', 'c')",
    )
    one, two, three = capture.settled(daemon).events

    assert one.after == {"id": 1, "small": "a", "big": "b"}
    assert one.source["omitted"] == ["bigger"]
    assert two.after == {"id": 2, "small": "a"}
    assert sorted(two.source["omitted"]) == ["big", "bigger"]
    assert "omitted" not in three.source


def test_row_too_large_even_without_its_columns_stops_capture(capture: CaptureSite) -> None:
    capture.sql("create table t (id text primary key)", "alter table t alter column id set storage external")
    daemon = capture.running({"capture": {"row_bytes_max": 1024, "oversize": "omit"}})

    capture.sql("insert into t values (repeat('k', 2000))")

    assert daemon.stopped_with()["table"] == "public.t"


def test_row_of_15_mb_is_captured_by_default(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, body text, list text[])")
    daemon = capture.running()

    capture.sql("insert into t values (1, repeat('0123456789', 1500000))")
    capture.sql("insert into t values (2, null, array[repeat('\"', 5000000)])")
    log = capture.settled(daemon)

    assert len(log.events[0].after["body"]) == 15_000_000
    assert log.events[1].after["list"] == ['"' * 5_000_000]


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ({"capture": {"batch_rows": 5}}, "batch_rows"),
        ({"captures": {"batch_rows_max": 5}}, "captures"),
        ({"capture": {"batch_rows_max": "many"}}, "batch_rows_max"),
        ({"capture": {"catalog_check_s": 60.0}}, "catalog_check_s"),
        ({"kafka": {"options": {"no.such.option": "1"}}}, "no.such.option"),
        ({"kafka": {"options": {"enable.idempotence": "false"}}}, "enable.idempotence"),
        ({"source": {"dsn": "this is no dsn canary"}}, "source.dsn"),
    ],
    ids=["unknown key", "unknown section", "wrong type", "out of range", "unknown option", "fixed option", "dsn"],
)
def test_wrong_setting_is_an_error_that_names_it(
    capture: CaptureSite, sections: dict[str, dict[str, Any]], named: str
) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.daemon(sections)

    stop = daemon.stopped_with()

    assert stop["exit_code"] == 2
    assert named in stop["message"]
    assert "canary" not in daemon.log_text()


def test_taken_http_port_is_an_error_that_names_it(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        stop = capture.daemon({"http": {"listen": address}}).stopped_with()

    assert stop["exit_code"] == 2
    assert address in stop["message"]


def test_sigterm_under_load_ends_in_order_within_20_s(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()
    capture.sql("insert into t select generate_series(1, 50000)")

    began_s = time.monotonic()
    code = daemon.stop()

    assert code == 0
    assert time.monotonic() - began_s < 45, "it gives up after 15 s; the rest is for a busy machine"
    assert daemon.events("capture_finished")


def test_second_sigterm_ends_at_once(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()

    daemon.terminate()
    daemon.terminate()

    assert daemon.exit_code() == 0
