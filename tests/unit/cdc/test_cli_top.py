"""`cdc top`: the lines of a picture, and the exit code."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from cdc.cli.top_command import exit_code
from cdc.cli.top_text import Trend, drawn
from cdc.overview.picture import Seen, picture
from cdc.overview.places import Places, SinkPlace
from cdc.overview.sink_facts import SinkFacts
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from tests.fixtures.servers.manual_clock import ManualClock

_SINKS = {"cache": SinkPlace("cache", "redis://cache"), "lake": SinkPlace("lake", "/lake", has_views=True)}
_SNAPSHOT = {
    "table": "public.big", "number": 1, "state": "reading", "again": False, "rows": 1200, "bytes": 1, "blocks_done": 3,
    "blocks": 4, "keys_left": 0, "rows_per_second": 900.0, "eta_seconds": 61.0, "chunks_reading": 1,
    "chunks_waiting": 0, "waits_for": [],
}  # fmt: skip


def _picture(**changed: Any) -> dict[str, Any]:
    status = Status("shop", ManualClock(), Metrics("shop")).snapshot() | {"state": "RUNNING"}
    status |= {"source_check_age_seconds": 0.2, "rows_per_second": 321.0, "lag_seconds": 0.0} | changed
    sinks = [
        SinkFacts(name="cache", state="RUNNING", workers=1, lag_records=1234, lag_seconds=2.5),
        SinkFacts(name="lake", state="RUNNING", workers=1, behind_bytes=2048),
    ]
    places = Places("shop", "db:5432/shop", "cdc_shop", "kafka:9092", _SINKS)
    views = {"lake": (3, {"revenue": "division by zero"})}
    return picture(Seen("2026-11-28T10:11:12.5Z", places, status, sinks, {"cache": 99.0}, views))


def _text(found: dict[str, Any], *, width: int = 100, height: int = 0) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(drawn(found, Trend(), width=width, height=height))
    return out.getvalue()


def test_flow_is_a_tree_from_the_source_to_the_views() -> None:
    lines = _text(_picture(snapshots=[_SNAPSHOT])).splitlines()

    assert lines[0].startswith("shop  ▲ RUNNING  10:11:12 UTC")
    assert [line.split()[0] for line in lines[2:7]] == ["PostgreSQL", "│", "Slot", "│", "Kafka"]
    assert "321 rows/s" in lines[5]
    assert "├─ cache" in lines[7]
    assert "99 records/s, 1,234 records behind, 2.5 s" in lines[7]
    assert "└─ lake" in lines[8]
    assert "2.0 KiB behind" in lines[8]
    assert "└─ 3 views" in lines[9]
    assert "revenue is behind: division by zero" in lines[10]
    assert any("75%  public.big  reading, 1,200 rows, 900 rows/s, 61 s left" in line for line in lines)


def test_what_needs_attention_has_its_hint_and_command() -> None:
    error = {"error": "BrokerUnreachable", "message": "Kafka is away", "hint": "start it", "command": "cdc doctor"}

    shown = _text(_picture(state="WAITING", reason="broker", error=error))

    assert "✖" not in shown
    assert "▲ Kafka is away" in shown
    assert "hint: start it" in shown
    assert "try:  cdc doctor" in shown


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, _text(_picture(snapshots=[_SNAPSHOT]), width=width).splitlines())) <= width


def test_a_terminal_that_is_too_low_says_how_much_is_hidden() -> None:
    lines = _text(_picture(), height=6).splitlines()

    assert len(lines) == 6
    assert "more lines: enlarge the window" in lines[-1]


def test_names_cannot_move_the_cursor() -> None:
    found = _picture()
    found["nodes"][0]["detail"] = "db\x1b[2J"

    assert "\x1b" not in _text(found)


def test_trend_is_empty_without_traffic_and_full_at_the_highest_rate() -> None:
    trend = Trend()
    trend.add(_picture(rows_per_second=0.0))
    assert trend.text() == ""

    trend.add(_picture(rows_per_second=50.0))
    trend.add(_picture(rows_per_second=100.0))
    assert trend.text() == " ▄█"


def test_a_capture_that_is_down_needs_an_operator_only_if_a_start_would() -> None:
    assert exit_code({"level": "bad", "needs_operator": False}) == 1
    assert exit_code({"level": "bad", "needs_operator": True}) == 3


@pytest.mark.parametrize(("level", "code"), [("ok", 0), ("busy", 0), ("off", 0), ("warn", 1), ("bad", 3)])
def test_exit_code_follows_the_level(level: str, code: int) -> None:
    assert exit_code({"level": level}) == code
