"""/status and metrics of a running capture."""

from __future__ import annotations

import math

import pytest
import structlog

from cdc.errors import SlotHeld
from cdc.lsn import Lsn
from cdc.model.change_records import BatchStats, StreamPosition
from cdc.model.run_state import State
from cdc.model.table_facts import DdlFinding
from cdc.telemetry.capture_status import SlotReading, Status
from cdc.telemetry.metrics import Metrics
from tests.fixtures.servers.manual_clock import ManualClock


class Watched:
    """A status with its clock and metrics."""

    def __init__(self) -> None:
        self.clock, self.metrics = ManualClock(), Metrics()
        self.status = Status("shop", self.clock, self.metrics)

    def publish(self, *, rows: int = 10, age_s: float = 0.0) -> None:
        commit_us = int((self.clock.wall_s() - age_s) * 1e6)
        self.status.published(BatchStats(rows, 1000 * rows, 2, commit_us), StreamPosition(Lsn(110)), 0.004)

    def see_slot(self, current: int, *, safe: int | None = 1000, wal_status: str = "reserved") -> None:
        self.status.slot_seen(
            SlotReading(
                at_s=self.clock.now_s,
                current_lsn=Lsn(current),
                confirmed_lsn=Lsn(100),
                restart_lsn=Lsn(90),
                wal_status=wal_status,
                safe_wal_bytes=safe,
                retained_bytes=current - 90,
            )
        )

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    @property
    def gauge_states(self) -> list[str]:
        return [state.value for state in State if self.metric("cdc_state", state=state.value) == 1]


def test_running_is_catching_up_until_the_end_of_the_stream_was_seen() -> None:
    watched = Watched()
    watched.status.enter(State.RUNNING)

    before = watched.status.state
    watched.status.caught_up()

    assert (before, watched.status.state) == (State.CATCHING_UP, State.RUNNING)


def test_snapshots_are_reported_until_their_session_ends() -> None:
    watched = Watched()
    found = [{"state": "reading", "chunks_waiting": 2}, {"state": "stopped", "chunks_waiting": 0}]

    end = watched.status.report_snapshots(lambda: found)
    watched.status.snapshot_joined(7)

    assert watched.status.snapshot()["snapshots"] == found
    states = {state: watched.metric("cdc_snapshot_tables", state=state) for state in ("reading", "stopped", "paused")}
    assert states == {"reading": 1, "stopped": 1, "paused": 0}
    assert watched.metric("cdc_snapshot_waiting_chunks") == 2
    assert watched.metric("cdc_snapshot_rows_total") == 7

    end()

    assert watched.status.snapshot()["snapshots"] == []
    assert math.isnan(watched.metric("cdc_snapshot_tables", state="reading") or 0)


def test_running_is_catching_up_again_when_the_end_was_not_seen_for_a_while() -> None:
    watched = Watched()
    watched.status.enter(State.RUNNING)
    watched.status.caught_up()

    watched.clock.now_s += 4.9
    soon = watched.status.state
    watched.clock.now_s += 0.2

    assert (soon, watched.status.state) == (State.RUNNING, State.CATCHING_UP)


@pytest.mark.parametrize("state", list(State))
def test_gauge_and_status_name_the_same_state(state: State) -> None:
    watched = Watched()

    watched.status.enter(state)

    assert watched.gauge_states == [watched.status.state.value]
    assert watched.status.snapshot()["state"] == watched.status.state.value


def test_changes_flow_only_while_running_or_catching_up() -> None:
    ready = []
    for state in State:
        watched = Watched()
        watched.status.enter(state)
        ready.append((state, watched.status.ready))

    assert {state for state, flows in ready if flows} == {State.RUNNING, State.CATCHING_UP}


def test_states_that_need_a_person_are_those_that_stop() -> None:
    assert {state for state in State if state.needs_operator} == {
        State.GAP,
        State.DIVERGED,
        State.FENCED,
        State.MISCONFIGURED,
        State.STALE,
    }


def test_waiting_says_for_what_and_since_when() -> None:
    watched = Watched()
    error = SlotHeld("another process reads the slot", hint="stop it", command="cdc slot list")

    watched.status.enter(State.WAITING, "slot", error)
    watched.clock.now_s += 7
    watched.status.enter(State.WAITING, "slot", error)

    document = watched.status.snapshot()
    assert (document["state"], document["reason"], document["state_seconds"]) == ("WAITING", "slot", 7)
    assert document["error"] == {
        "error": "SlotHeld",
        "message": "another process reads the slot",
        "hint": "stop it",
        "command": "cdc slot list",
    }


def test_committed_batches_are_counted() -> None:
    watched = Watched()

    watched.publish(rows=10)
    watched.publish(rows=30)

    document = watched.status.snapshot()
    assert (document["rows"], document["batches"], document["source_transactions"]) == (40, 2, 4)
    assert (document["position"], document["last_batch_rows"]) == ("0/6E", 30)
    assert watched.metric("cdc_rows_total") == 40
    assert watched.metric("cdc_batches_total") == 2
    assert watched.metric("cdc_position_lsn") == 110


def test_rates_are_of_the_last_ten_seconds() -> None:
    watched = Watched()
    watched.publish(rows=1000)
    watched.clock.now_s += 60
    watched.publish(rows=10)
    watched.clock.now_s += 5
    watched.publish(rows=10)

    assert watched.status.snapshot()["rows_per_second"] == pytest.approx(4.0)


def test_lag_is_the_age_of_the_newest_commit_while_there_is_more_to_read() -> None:
    watched = Watched()
    watched.publish(age_s=90)

    behind = watched.status.lag_s()
    watched.status.caught_up()

    assert behind == pytest.approx(90, abs=0.01)
    assert watched.status.lag_s() == 0


def test_lag_is_unknown_before_anything_was_read() -> None:
    assert math.isnan(Watched().status.lag_s())
    assert Watched().status.snapshot()["lag_seconds"] is None


def test_lag_grows_while_postgresql_is_away_however_old_the_newest_commit_is() -> None:
    watched = Watched()
    watched.publish(age_s=3600)
    watched.status.caught_up()
    lags = []

    for _ in range(3):
        watched.clock.now_s += 60
        lags.append(watched.metric("cdc_lag_seconds"))

    assert lags == [60, 120, 180]


def test_time_until_the_slot_is_lost_follows_the_rate_of_wal() -> None:
    watched = Watched()
    watched.see_slot(1000, safe=5000)
    first = watched.status.snapshot()["slot"]
    watched.clock.now_s += 10
    watched.see_slot(2000, safe=4000)

    slot = watched.status.snapshot()["slot"]
    assert first["lost_in_seconds"] is None
    assert (slot["wal_bytes_per_second"], slot["lost_in_seconds"]) == (100, 40)
    assert watched.metric("cdc_slot_lost_in_seconds") == 40
    assert (slot["lag_bytes"], slot["retained_bytes"], slot["wal_status"]) == (1900, 1910, "reserved")


def test_slot_without_a_limit_is_never_lost() -> None:
    watched = Watched()
    watched.see_slot(1000, safe=None)
    watched.clock.now_s += 10
    watched.see_slot(2000, safe=None)

    assert watched.status.snapshot()["slot"]["lost_in_seconds"] is None
    assert watched.metric("cdc_slot_lost_in_seconds") == math.inf
    assert math.isnan(watched.metric("cdc_slot_safe_wal_bytes") or 0)


def test_slot_that_is_lost_has_no_time_left() -> None:
    """The server then reports safe_wal_size as null, which must not mean "no limit"."""
    watched = Watched()
    watched.see_slot(1000, safe=None, wal_status="lost")

    assert watched.status.snapshot()["slot"]["lost_in_seconds"] == 0
    assert watched.metric("cdc_slot_lost_in_seconds") == 0


def test_slot_past_its_limit_has_no_time_left() -> None:
    watched = Watched()
    watched.see_slot(1000, safe=100)
    watched.clock.now_s += 10
    watched.see_slot(2000, safe=-900)

    assert watched.status.snapshot()["slot"]["lost_in_seconds"] == 0


def test_document_has_its_keys_from_the_first_moment() -> None:
    """Scripts read the document, so every key is always present."""
    empty = Watched()
    full = Watched()
    full.publish()
    full.see_slot(1000)

    assert list(empty.status.snapshot()) == list(full.status.snapshot())
    assert empty.status.snapshot()["position"] is None


def test_findings_of_thousands_of_tables_are_counted_and_the_first_are_shown() -> None:
    watched = Watched()
    found = [
        DdlFinding(kind="renamed", table=f"s.t{n}", what="w", hint="h", epoch=1, since_lsn=1, lsn=2)
        for n in range(2000)
    ]

    with structlog.testing.capture_logs() as logged:
        watched.status.ddl_found(found, found)
    document = watched.status.snapshot()

    assert (document["ddl_count"], len(document["ddl"])) == (2000, 100)
    assert document["ddl"][0]["table"] == "s.t0"
    assert watched.metric("cdc_ddl_found_total", kind="renamed") == 2000
    assert watched.metric("cdc_ddl_open_findings") == 2000
    assert [event["event"] for event in logged] == ["ddl_found"] * 20 + ["ddl_found_more"]
    assert logged[-1]["count"] == 1980
