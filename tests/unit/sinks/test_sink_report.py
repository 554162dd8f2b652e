"""What old and fresh reports of a sink's workers say: `cdc sink status` shows no state that nobody vouches for."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.cli import sink_lines, sink_status_command
from cdc.cli.output import table
from cdc.model.sink_report import (
    OLD_S,
    STUCK_S,
    SinkReport,
    decode,
    encode,
    is_report,
    report_of,
    summarize_reports,
    worker_key,
)
from sinks.operate.sink_view import reported
from sinks.state.pause_records import PAUSE_KEY, is_control

_NOW_MS = 1_700_000_000_000


def report(state: str = "RUNNING", *, age_s: float = 0.0, **more: Any) -> SinkReport:
    return SinkReport(at_ms=int(_NOW_MS - age_s * 1000), state=state, **more)


def document(*reports: SinkReport, members: int = 0) -> dict[str, Any]:
    """As `cdc sink status --json` has it."""
    found = summarize_reports(list(reports), _NOW_MS, members=members)
    return {"name": "fast", "state": found.state, **reported(found)}


def test_fresh_report_is_believed() -> None:
    one = document(report(age_s=3))

    assert (one["state"], one["workers"]) == ("RUNNING", 1)
    assert (sink_status_command.shown_state(one), sink_status_command.exit_code([one])) == ("RUNNING", 0)


def test_dead_sink_is_never_running_also_while_the_group_still_has_its_member() -> None:
    one = document(report(age_s=240), members=1)

    assert (one["state"], one["workers"]) == ("STOPPED", 0)
    assert sink_status_command.shown_state(one) == "STOPPED? last heartbeat 4 min ago"
    assert sink_status_command.exit_code([one]) == 1
    assert "cdc sink run fast" in " ".join(sink_status_command.notes(one))


def test_report_is_old_after_its_time_and_not_before() -> None:
    assert document(report(age_s=OLD_S))["state"] == "RUNNING"
    assert document(report(age_s=OLD_S + 1))["state"] == "STOPPED"


def test_sink_that_needs_an_operator_says_why_also_when_it_has_ended() -> None:
    error = {"error": "SinkUnfit", "message": "no such table", "hint": "correct it"}
    one = document(report("MISCONFIGURED", age_s=300, ended=True, error=error))

    assert sink_status_command.shown_state(one) == "MISCONFIGURED, ended 5 min ago"
    assert sink_status_command.exit_code([one]) == 3
    assert sink_status_command.notes(one)[:2] == ["SinkUnfit: no such table", "hint: correct it"]


def test_worker_whose_loop_stands_still_is_stuck() -> None:
    one = document(report(turn_age_s=STUCK_S + 1))

    assert (one["state"], sink_status_command.exit_code([one])) == ("STUCK", 1)


def test_worker_that_is_worst_off_gives_the_state_and_dead_ones_do_not_count() -> None:
    assert document(report(), report("CATCHING_UP"), report("WAITING", reason="store"))["state"] == "WAITING"
    assert document(report(), report("MISCONFIGURED"))["state"] == "MISCONFIGURED"
    assert document(report(), report("WAITING", age_s=3600), report("STOPPED", ended=True))["state"] == "RUNNING"


def test_group_with_members_and_no_report_is_unknown_and_without_members_stopped() -> None:
    assert document(members=1)["state"] == "UNKNOWN"
    assert document()["state"] == "STOPPED"
    assert [sink_status_command.exit_code([document(members=count)]) for count in (0, 1)] == [1, 1]


def test_reports_are_records_of_the_sink_as_a_whole_and_survive_the_topic() -> None:
    one = report_of(
        {"state": "WAITING", "reason": "store", "error": {"error": "X", "message": "m"}, "lag_seconds": 2.5},
        _NOW_MS,
        host="h",
        pid=7,
    )

    assert decode(encode(one)) == one
    assert decode(b"{") is None
    assert is_report(worker_key("a"))
    assert is_control(worker_key("a"))
    assert not is_report(PAUSE_KEY)


@pytest.mark.parametrize(
    ("kept", "line", "code"),
    [
        ({"state": "RUNNING", "pid": 7, "restarts": 0, "lag_records": 1200}, "RUNNING, 1,200 behind", 0),
        ({"state": "WAITING", "reason": "store", "pid": 7, "restarts": 2}, "WAITING (store), 2 restarts", 0),
        (
            {"state": "MISCONFIGURED", "pid": None, "report_age_seconds": 4.0, "next_start_seconds": 40.0},
            "MISCONFIGURED, ended 4.0 s ago, restarts in 40 s",
            3,
        ),
        ({"state": "UNKNOWN", "pid": 7, "report_age_seconds": 90.0}, "UNKNOWN", 1),
    ],
)
def test_status_of_a_pipeline_has_a_line_and_an_exit_code_for_each_sink(
    kept: dict[str, Any], line: str, code: int
) -> None:
    config: Any = type("Config", (), {"sinks": {"fast": None}})
    sinks = sink_lines.sinks_of(config, {"sinks": {"fast": kept}})

    assert sinks is not None
    assert sink_lines._line(sinks[0]) == line
    assert sink_lines.exit_code(0, {"sinks": sinks}) == code
    assert sink_lines.exit_code(3, {"sinks": sinks}) == 3
    assert sink_lines.with_sinks(table("a", "b"), {"sinks": sinks}).row_count >= 1


@pytest.mark.parametrize(("state", "doubted"), [("RUNNING", True), ("WAITING", False)])
def test_sink_that_runs_by_its_last_report_is_in_doubt_while_kafka_does_not_answer(state: str, doubted: bool) -> None:
    """Its client retries for 15 to 30 seconds before the sink notices."""
    one = {"name": "fast", "state": state, "workers": 1, "heartbeat_age_seconds": 12.0}

    line = sink_lines._line({**one, "unconfirmed": True})

    assert sink_lines._line(one) == state
    assert ("? Kafka does not answer, and the sink reported this 12 s ago" in line) is doubted


def test_sinks_of_which_nothing_can_be_known_are_not_called_healthy() -> None:
    document: dict[str, Any] = {"sinks": None}

    assert sink_lines.exit_code(0, document) == 1
    assert sink_lines.with_sinks(table("a", "b"), document).row_count == 1
    assert sink_lines.exit_code(0, {"sinks": []}) == 0
