"""State of the daemon, readable from every thread: the source of /status, /readyz, metrics and logs.

Written by the capture thread (`published`, `caught_up`), the catalog watch (`slot_seen`) and the daemon (`enter`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from cdc.clock import Clock
from cdc.command_text import with_pipeline
from cdc.errors import TailraceError
from cdc.lsn import Lsn
from cdc.model.change_records import BatchStats, StreamPosition
from cdc.model.left_out import LeftOut
from cdc.model.run_state import State
from cdc.model.table_facts import ColumnsLeftOut, DdlFinding
from cdc.model.wal_reading import WalReading
from cdc.telemetry import log
from cdc.telemetry.audit_status import AuditStatus
from cdc.telemetry.exposition import UNKNOWN, known
from cdc.telemetry.left_out_status import LeftOutStatus
from cdc.telemetry.load_status import LoadStatus
from cdc.telemetry.metrics import Metrics
from cdc.telemetry.notify_status import NotifyStatus
from cdc.telemetry.objective_status import ObjectiveStatus
from cdc.telemetry.outbox_status import OutboxStatus
from cdc.telemetry.readiness import follows_log
from cdc.telemetry.signal_status import SignalStatus
from cdc.telemetry.spans import SpanOutlet
from cdc.telemetry.topic_status import TopicStatus
from cdc.telemetry.wal_status import WalStatus

SNAPSHOT_STATES: Final = ("waiting", "reading", "sweeping", "paused", "stopped", "complete")
_RATE_WINDOW_S: Final = 10.0
_DDL_LOGGED: Final = 20  # at a time: renaming a schema can affect thousands of tables
DDL_SHOWN: Final = 100  # in /status; `cdc ddl list` shows all
_SLOT_OLD_S: Final = 5.0  # then the catalog watch is not running, because nothing is streamed
_CATCHING_UP_S: Final = 5.0  # capture normally reaches the end of the stream many times a second


@dataclass(frozen=True, slots=True)
class SlotReading:
    """The state of the slot, as the catalog watch read it.

    Attributes:
        wal_status: reserved, extended, unreserved or lost.
        safe_wal_bytes: WAL that may be written before the slot is in danger; None without a limit.
        retained_bytes: WAL kept for the slot.
        current_lsn: the server's insert position.
    """

    at_s: float
    current_lsn: Lsn
    confirmed_lsn: Lsn
    restart_lsn: Lsn
    wal_status: str
    safe_wal_bytes: int | None
    retained_bytes: int


class Status:
    """Thread-safe. Times come from the given clock."""

    def __init__(self, name: str, clock: Clock, metrics: Metrics, *, catching_up_s: float = _CATCHING_UP_S) -> None:
        """`catching_up_s`: after this long without the end of the log, the state is CATCHING_UP."""
        self.name = name
        self.audit = AuditStatus(metrics)
        self.outbox = OutboxStatus(metrics)
        self.signals = SignalStatus(metrics)
        self.topics = TopicStatus(metrics)
        self.left_out = LeftOutStatus(metrics)
        self.load = LoadStatus(metrics)
        self.objectives = ObjectiveStatus(metrics)
        self.notify = NotifyStatus(metrics)
        self.spans: SpanOutlet | None = None
        self._catching_up_s = catching_up_s
        self._clock = clock
        self._metrics = metrics
        self._lock = threading.Lock()
        self._state = State.STARTING
        self._since_s = clock.monotonic_s()
        self._reason = ""
        self._error: dict[str, object] | None = None
        self._position: StreamPosition | None = None
        self._commit_us = 0
        self._end_reached_s: float | None = None
        self._rates: deque[tuple[float, int, int]] = deque()
        self._totals = [0, 0, 0, 0]
        self._slot: SlotReading | None = None
        self._checked_s: float | None = None
        self._wal = WalStatus(metrics)
        self._heartbeat_fails = False
        self._ddl: Sequence[DdlFinding] = ()
        self._columns_left_out: Sequence[ColumnsLeftOut] = ()
        self._wal_rate: float | None = None
        self._last_commit_seconds: float | None = None
        self._last_batch_rows: int | None = None
        self._snapshots: Callable[[], list[dict[str, Any]]] | None = None
        self._when_working: Callable[[], None] = lambda: None
        metrics.lag_seconds.set_function(self.lag_s)
        metrics.source_check_age.set_function(self._check_age_s)
        for state in State:
            metrics.state.labels(state.value).set_function(partial(self._in_state, state))
        for shown in SNAPSHOT_STATES:
            metrics.snapshot_tables.labels(shown).set_function(partial(self._snapshots_in, shown))
        metrics.snapshot_waiting_chunks.set_function(self._chunks_waiting)

    def enter(self, state: State, reason: str = "", error: TailraceError | None = None) -> None:
        """Change the state. The reason is one word: slot, broker, source, reselect, disk."""
        with self._lock:
            if state is not self._state or reason != self._reason:
                self._since_s = self._clock.monotonic_s()
            if self._state is State.WAITING:
                self._metrics.waiting.labels(self._reason).set(0)
            if state is State.WAITING:
                self._metrics.waiting.labels(reason).set(1)
            self._state, self._reason = state, reason
            self._error = None
            if error is not None:
                self._error = {"error": type(error).__name__, "message": error.message}
                self._error |= {"hint": error.hint, "command": error.command}

    def works(self) -> None:
        """Enter RUNNING and end the incident, after a write has succeeded."""
        self.enter(State.RUNNING)
        self._when_working()

    def when_working(self, call: Callable[[], None]) -> None:
        """Register a function for `works` to call; the daemon logs the end of incidents there."""
        self._when_working = call

    def published(self, stats: BatchStats, position: StreamPosition, commit_s: float) -> None:
        """See `cdc.contracts.BatchObserver`."""
        metrics = self._metrics
        metrics.rows.inc(stats.row_count)
        metrics.bytes.inc(stats.byte_count)
        metrics.transactions.inc(stats.transaction_count)
        metrics.batches.inc()
        metrics.truncates_ignored.inc(stats.truncate_ignored_count)
        metrics.batch_rows.observe(stats.row_count)
        metrics.commit_seconds.observe(commit_s)
        metrics.position.set(position.end_lsn)
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._position = position
            self._commit_us = stats.commit_us or self._commit_us
            self._last_commit_seconds, self._last_batch_rows = commit_s, stats.row_count
            for index, count in enumerate((stats.row_count, stats.byte_count, stats.transaction_count, 1)):
                self._totals[index] += count
            self._rates.append((now_s, stats.row_count, stats.byte_count))
            self._forget(now_s)

    def reselected(self, *, row_count: int, gone_count: int, query_count: int) -> None:
        """See `cdc.contracts.ReselectObserver`."""
        self._metrics.reselected.inc(row_count - gone_count)
        self._metrics.reselect_gone.inc(gone_count)
        self._metrics.reselect_queries.inc(query_count)

    def reselect_owed(self, row_count: int) -> None:
        """See `cdc.contracts.ReselectObserver.reselect_owed`."""
        self._metrics.reselect_owed.inc(row_count)

    def reselect_waits(self, cause: TailraceError | None) -> None:
        """See `cdc.contracts.ReselectObserver`."""
        if cause is None:
            self.enter(State.RUNNING)
        else:
            self._metrics.reselect_waits.inc()
            self.enter(State.WAITING, "reselect", cause)

    def reached(self, position: StreamPosition) -> None:
        """Set the position that the log was found to reach, before anything new is published."""
        self._metrics.position.set(position.end_lsn)
        with self._lock:
            self._position = position

    def caught_up(self) -> None:
        """See `cdc.contracts.BatchObserver`."""
        self._end_reached_s = self._clock.monotonic_s()

    def truncated(self, topic: str, keys: int) -> None:
        """See `cdc.contracts.BatchObserver`."""
        self._metrics.truncated_keys.inc(keys)
        log.get().info("truncated", topic=topic, keys=keys)

    def ddl_found(self, new: Sequence[DdlFinding], unsettled: Sequence[DdlFinding]) -> None:
        """See `cdc.contracts.DdlObserver`."""
        for one in new:
            self._metrics.ddl_found.labels(one.kind).inc()
        for one in new[:_DDL_LOGGED]:
            log.get().warning("ddl_found", **ddl_document(one))
        if len(new) > _DDL_LOGGED:
            log.get().warning("ddl_found_more", count=len(new) - _DDL_LOGGED)
        self._metrics.ddl_open.set(len(unsettled))
        self._ddl = tuple(unsettled)

    def columns_left_out(self, found: Sequence[ColumnsLeftOut]) -> None:
        """Record the generated columns that the stream lacks, found at a start."""
        for one in found:
            emit = log.get().warning if one.stored else log.get().info
            emit("columns_left_out", table=one.table, columns=list(one.columns), why=one.why, command=one.sql)
        self._columns_left_out = tuple(found)

    def tables_left_out(self, found: Sequence[LeftOut]) -> None:
        """See `cdc.startup.table_joins.JoinObserver`."""
        self.left_out.seen(found)

    def ddl_accepted(self, table: str, count: int) -> None:
        """See `cdc.contracts.DdlObserver`."""
        log.get().info("ddl_accepted", table=table, findings=count)

    def heartbeat_returned(self, seconds: float) -> None:
        """See `cdc.contracts.HeartbeatObserver`."""
        self._metrics.heartbeat_seconds.observe(seconds)

    def heartbeat_failed(self, cause: TailraceError | None) -> None:
        """See `cdc.contracts.HeartbeatObserver`. An incident is logged once."""
        if cause is None:
            log.get().info("heartbeat_recovered")
        else:
            self._metrics.heartbeat_failures.inc()
            if not self._heartbeat_fails:
                log.get().warning("heartbeat_failed", **log.error_fields(cause))
        self._heartbeat_fails = cause is not None

    def report_snapshots(self, report: Callable[[], list[dict[str, Any]]]) -> Callable[[], None]:
        """Take the snapshots' state from `report`, until the returned function is called."""
        self._snapshots = report

        def end() -> None:
            self._snapshots = None

        return end

    def snapshot_joined(self, row_count: int) -> None:
        """Count rows of tables that joined a batch."""
        self._metrics.snapshot_rows.inc(row_count)

    def _snapshots_in(self, state: str) -> float:
        report = self._snapshots
        return UNKNOWN if report is None else float(sum(one["state"] == state for one in report()))

    def _chunks_waiting(self) -> float:
        report = self._snapshots
        return UNKNOWN if report is None else float(sum(one["chunks_waiting"] for one in report()))

    def slot_seen(self, reading: SlotReading) -> None:
        """Record the state of the slot; the rate of WAL is computed from the previous one."""
        with self._lock:
            before, self._slot = self._slot, reading
            self._checked_s = reading.at_s
            if before is not None and reading.at_s > before.at_s:
                rate = max(0, reading.current_lsn - before.current_lsn) / (reading.at_s - before.at_s)
                self._wal_rate = rate if not self._wal_rate else 0.7 * self._wal_rate + 0.3 * rate
        self._metrics.slot_lag_bytes.set(reading.retained_bytes)
        safe = reading.safe_wal_bytes
        self._metrics.slot_safe_wal_bytes.set(UNKNOWN if safe is None else safe)
        lost_in_s = self._lost_in_s()
        self._metrics.slot_lost_in_seconds.set(float("inf") if lost_in_s is None else lost_in_s)

    def wal_seen(self, reading: WalReading, *, alarm_bytes: int, transaction_alarm_s: float) -> None:
        """Record a reading of the WAL guard, which also reads the slot while nothing is streamed."""
        now_s, last = self._clock.monotonic_s(), self._slot
        self._checked_s = now_s
        if last is None or now_s - last.at_s > _SLOT_OLD_S:
            self.slot_seen(
                SlotReading(
                    at_s=now_s,
                    current_lsn=reading.current_lsn,
                    confirmed_lsn=reading.confirmed_lsn,
                    restart_lsn=reading.restart_lsn,
                    wal_status=reading.wal_status,
                    safe_wal_bytes=reading.safe_bytes,
                    retained_bytes=reading.kept_bytes,
                )
            )
        self._wal.seen(reading, alarm_bytes=alarm_bytes, transaction_alarm_s=transaction_alarm_s)

    @property
    def state(self) -> State:
        """The current state; CATCHING_UP instead of RUNNING if the end of the stream was not seen lately."""
        if self._state is State.RUNNING:
            reached = self._end_reached_s
            if reached is None or self._clock.monotonic_s() - reached > self._catching_up_s:
                return State.CATCHING_UP
        return self._state

    @property
    def reason(self) -> str:
        """The reason of the current state, one word; empty if there is none."""
        return self._reason

    def _in_state(self, state: State) -> float:
        return float(self.state is state)

    @property
    def position(self) -> StreamPosition | None:
        """How far the log reaches; None before the first commit of this process."""
        return self._position

    @property
    def ready(self) -> bool:
        """Whether changes flow."""
        return follows_log(self.state)

    def lag_s(self) -> float:
        """Return how far the log may be behind the source; 0 at the end of the stream, NaN before any read.

        The log has everything older than the newest captured commit, and everything up to the last time the end of the
        stream was seen; the later of the two counts.
        """
        behind_s = self.behind_s()
        reached = self._end_reached_s
        recent = reached is not None and self._clock.monotonic_s() - reached <= self._catching_up_s
        return 0.0 if recent else UNKNOWN if behind_s is None else behind_s

    def behind_s(self) -> float | None:
        """Return the same without rounding a few seconds down to 0; None before any read."""
        reached, commit_us = self._end_reached_s, self._commit_us
        ages = [] if reached is None else [self._clock.monotonic_s() - reached]
        if commit_us:
            ages.append(max(0.0, self._clock.wall_s() - commit_us / 1e6))
        return min(ages, default=None)

    def _check_age_s(self) -> float:
        """Seconds since the source was last checked; NaN before."""
        return UNKNOWN if self._checked_s is None else self._clock.monotonic_s() - self._checked_s

    def snapshot(self) -> dict[str, Any]:
        """Return the document of /status. Its keys are part of the interface."""
        state, report = self.state, self._snapshots
        snapshots = [] if report is None else report()
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._forget(now_s)
            span_s = max(1.0, min(_RATE_WINDOW_S, now_s - self._rates[0][0])) if self._rates else 1.0
            position = self._position
            return {
                "name": self.name,
                "state": state.value,
                "reason": self._reason,
                "state_seconds": round(now_s - self._since_s, 1),
                "error": self._error,
                "position": str(position.end_lsn) if position else None,
                "next_ordinal": position.next_ordinal if position else None,
                "lag_seconds": known(self.lag_s(), 3),
                "source_check_age_seconds": known(self._check_age_s(), 1),
                "rows_per_second": round(sum(row[1] for row in self._rates) / span_s, 1),
                "bytes_per_second": round(sum(row[2] for row in self._rates) / span_s),
                "rows": self._totals[0],
                "bytes": self._totals[1],
                "source_transactions": self._totals[2],
                "batches": self._totals[3],
                "last_commit_seconds": known(self._last_commit_seconds, 4),
                "last_batch_rows": self._last_batch_rows,
                "slot": self._slot_document(),
                "wal": self._wal.document(),
                "ddl_count": len(self._ddl),
                "ddl": [ddl_document(one) for one in self._ddl[:DDL_SHOWN]],
                "columns_left_out": [
                    {"table": one.table, "columns": list(one.columns), "why": one.why, "command": one.sql}
                    for one in self._columns_left_out
                ],
                "left_out_count": self.left_out.count,
                "left_out": self.left_out.document(),
                "snapshots": snapshots,
                "load_guard": self.load.document,
                "signals": self.signals.document,
                "weak_topics": self.topics.document,
                "audit": self.audit.document,
                "outbox": self.outbox.document,
                "objectives": self.objectives.document,
                "notify": self.notify.document,
            }

    def _slot_document(self) -> dict[str, Any] | None:
        slot = self._slot
        if slot is None:
            return None
        lost_in_s = self._lost_in_s()
        return {
            "current_lsn": str(slot.current_lsn),
            "confirmed_lsn": str(slot.confirmed_lsn) if slot.confirmed_lsn else None,
            "restart_lsn": str(slot.restart_lsn) if slot.restart_lsn else None,
            "lag_bytes": max(0, slot.current_lsn - slot.confirmed_lsn),
            "retained_bytes": slot.retained_bytes,
            "wal_status": slot.wal_status or None,
            "safe_wal_bytes": slot.safe_wal_bytes,
            "wal_bytes_per_second": None if self._wal_rate is None else round(self._wal_rate),
            "lost_in_seconds": None if lost_in_s is None else round(lost_in_s),
        }

    def _lost_in_s(self) -> float | None:
        """Seconds until the slot is lost if WAL is written at this rate and nothing is confirmed; None: never."""
        slot = self._slot
        if slot is not None and slot.wal_status == "lost":
            return 0.0
        if slot is None or slot.safe_wal_bytes is None or not self._wal_rate:
            return None
        return max(0, slot.safe_wal_bytes) / self._wal_rate

    def _forget(self, now_s: float) -> None:
        while self._rates and now_s - self._rates[0][0] > _RATE_WINDOW_S:
            self._rates.popleft()


def ddl_document(finding: DdlFinding) -> dict[str, str]:
    """Return a finding for logs, /status and commands; LSNs as text."""
    return {
        "table": finding.table,
        "kind": finding.kind,
        "what": finding.what,
        "hint": finding.hint,
        "command": with_pipeline(finding.command),
        "since_lsn": str(Lsn(finding.since_lsn)),
        "lsn": str(Lsn(finding.lsn)),
    }
