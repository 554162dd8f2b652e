"""What `cdc snapshot` shows of a table: the log's record beside the daemon's report."""

from __future__ import annotations

from cdc.inspect.snapshot_state import merged


def test_report_of_the_snapshot_before_does_not_replace_the_record_of_the_new_one() -> None:
    logged = {"t": {"table": "t", "number": 2, "state": "reading", "eta_seconds": None}}

    found = merged(logged, [{"table": "t", "number": 1, "state": "complete", "eta_seconds": 0.0}])

    assert found == [{"table": "t", "number": 2, "state": "reading", "eta_seconds": None}]


def test_report_of_the_same_or_a_newer_snapshot_adds_its_facts_and_tables() -> None:
    logged = {"t": {"table": "t", "number": 2, "state": "reading", "where": "id = 1", "eta_seconds": None}}
    reported = [
        {"table": "t", "number": 2, "state": "reading", "eta_seconds": 4.0},
        {"table": "s", "number": 1, "state": "waiting", "eta_seconds": None},
    ]

    assert merged(logged, reported) == [
        {"table": "s", "number": 1, "state": "waiting", "eta_seconds": None},
        {"table": "t", "number": 2, "state": "reading", "where": "id = 1", "eta_seconds": 4.0},
    ]
