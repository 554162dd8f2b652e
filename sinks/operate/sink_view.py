"""Reads the state of sinks from Kafka: offsets, group members, pauses, and the reports of workers. Changes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cdc.clock import Clock
from cdc.config.settings import Applied, Config, Warehouse
from cdc.config.sink_kinds import kind_of, view_lakes
from cdc.errors import BrokerError, TopicMismatch
from cdc.kafka.group_offsets import GroupAdmin, GroupOffsets
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.run_state import State
from cdc.model.sink_report import UNKNOWN, SinkSummary, decode, is_report, needs_operator, summarize_reports
from cdc.model.topic_names import sink_group, sink_state_topic
from sinks.contract import TopicPartition
from sinks.operate.applied_lsn import AppliedCutFinder
from sinks.state.capture_start import waiting_for_capture
from sinks.state.claim_records import busy_with
from sinks.state.pause_records import PAUSE_KEY, holds, is_control
from sinks.state.read_topics import has_positions
from sinks.state.schema_follower import SchemaFollower

_TIMES: Final = 8  # partitions whose next record is read for its age


@dataclass(frozen=True, slots=True)
class AppliedView:
    """The state of a sink that applies one key at a time.

    Attributes:
        evidence: the reports of its workers, and their age.
        members: processes in its group; a dead worker stays in it until its session ends, 45 s by default.
        positions: the committed offset of each partition.
        lag_records: offsets to the ends, including control records; partitions without a commit count completely.
        lag_seconds: age of the oldest record that is not applied; None while nothing is committed.
        lsn: every transaction that committed before it is applied; None: unknown, or nothing applied yet.
        busy: the running rebuild, rollback or repair, its owner and start; empty: none.
    """

    evidence: SinkSummary
    members: int
    positions: Mapping[TopicPartition, int]
    lag_records: int
    lag_seconds: float | None
    lsn: Lsn | None
    paused: bool
    busy: str = ""

    @property
    def state(self) -> str:
        """The last state that its workers reported, or PAUSED; STOPPED without a worker, UNKNOWN without a report."""
        state = self.evidence.state
        if self.paused and not needs_operator(state):
            return "PAUSED"
        if state == State.RUNNING and (self.lag_seconds is None or self.lag_seconds > _BEHIND_S):
            return State.CATCHING_UP.value
        return state

    def document(self) -> dict[str, Any]:
        """For --json."""
        return {
            "state": self.state,
            **reported(self.evidence),
            "members": self.members,
            "partitions": len(self.positions),
            "lag_records": self.lag_records,
            "lag_seconds": None if self.lag_seconds is None else round(self.lag_seconds, 1),
            "lsn": None if self.lsn is None else str(self.lsn),
            "paused": self.paused,
            "busy": self.busy,
        }


_BEHIND_S: Final = 30.0


def reported(evidence: SinkSummary) -> dict[str, Any]:
    """Return what the workers of a sink reported, for --json."""
    report = evidence.report
    return {
        "reason": report.reason if report else "",
        "workers": evidence.workers,
        "heartbeat_age_seconds": None if evidence.age_s is None else round(evidence.age_s, 1),
        "ended": report.ended if report else None,
        "records": report.records if report else None,
        "behind_bytes": report.behind_bytes if report else None,
        "error": report.error if report else None,
    }


class SinkViewer:
    """Reads the state of sinks. Close it. Raises BrokerUnreachable, BrokerRefused, CaptureNotStarted, TopicMismatch."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._reader = LogReader(config.kafka, client_id="tailrace-sinks")
        self._groups = GroupAdmin(config.kafka)

    def close(self) -> None:
        """End the connections."""
        self._reader.close()

    def applied(self, name: str, settings: Applied) -> AppliedView:
        """Return the state of a sink that applies one key at a time."""
        lakes = view_lakes(self._config, settings.tables)
        book = SchemaFollower(self._reader, self._config.name, settings.tables, self._clock, lakes=lakes)
        with waiting_for_capture(self._reader, self._config.name, lambda: has_positions(self._control(name))):
            book.look()
        group = sink_group(self._config.name, name)
        topics = book.tables()
        ends = self._reader.end_offsets(topics) if topics else {}
        committed = {place: one.offset for place, one in self._groups.committed(group, ends).items()}
        at = {place: committed.get(place, low) for place, (low, _) in ends.items()}
        behind = {place: offset for place, offset in at.items() if offset < ends[place][1]}
        control = self._control(name)
        members = len(self._groups.members(group))
        return AppliedView(
            evidence=self._evidence(control, members),
            members=members,
            positions=committed,
            lag_records=sum(ends[place][1] - offset for place, offset in behind.items()),
            lag_seconds=self._age_s(behind, ends) if committed or not behind else None,
            lsn=self._lsn(group, settings, lakes) if committed else None,
            paused=holds(control.get(PAUSE_KEY), self._clock) is not None,
            busy=busy_with(control.items(), self._clock.wall_s() * 1000),
        )

    def evidence(self, name: str) -> SinkSummary:
        """Return what the workers of a sink of any kind reported."""
        return self._evidence(self._control(name), 0)

    def _evidence(self, control: Mapping[bytes, bytes], members: int) -> SinkSummary:
        reports = [decode(value) for key, value in control.items() if is_report(key)]
        return summarize_reports(
            [one for one in reports if one is not None], self._clock.wall_s() * 1000, members=members
        )

    def busy(self, name: str) -> str:
        """Return `AppliedView.busy` of a sink of any kind."""
        return busy_with(self._control(name).items(), self._clock.wall_s() * 1000)

    def _age_s(self, behind: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, tuple[int, int]]) -> float:
        """Return the age of the oldest record that is not applied, among the partitions with the most lag."""
        most = sorted(behind, key=lambda place: behind[place] - ends[place][1])[:_TIMES]
        oldest_ms = None
        for place in most:
            for batch in self._reader.read({place: behind[place]}, {place: ends[place][1]}):
                found_ms = batch[0].timestamp_ms
                oldest_ms = found_ms if oldest_ms is None else min(oldest_ms, found_ms)
                break
        return 0.0 if oldest_ms is None else max(0.0, self._clock.wall_s() - oldest_ms / 1000)

    def _lsn(self, group: str, settings: Applied, lakes: Sequence[str]) -> Lsn | None:
        """Return the LSN of captured tables or of views, whichever is further behind."""
        found = [self._reached(group, settings, "")]
        for lake in lakes:
            with contextlib.suppress(TopicMismatch):  # the lake has not published yet, so there is nothing to wait for
                found.append(self._reached(group, settings, lake))
        return None if None in found else min(lsn for lsn in found if lsn is not None)

    def _reached(self, group: str, settings: Applied, lake: str) -> Lsn | None:
        kafka = self._config.kafka
        reach = AppliedCutFinder(
            self._config.name,
            settings.tables,
            lambda: LogReader(kafka, client_id="tailrace-sinks"),
            lambda: GroupOffsets(kafka, group),
            lake=lake,
        )
        try:
            found = reach()
        finally:
            reach.close()
        return None if found is None else found.end_lsn

    def _control(self, name: str) -> dict[bytes, bytes]:
        """Return the control records of the sink's state topic, without the blocked keys, which may be many."""
        topic = sink_state_topic(self._config.name, name)
        found: dict[bytes, bytes] = {}
        with contextlib.suppress(TopicMismatch):
            place = (topic, 0)
            low, high = self._reader.end_offsets([topic])[place]
            for batch in self._reader.read({place: low}, {place: high}):
                for record in batch:
                    key, value = record.key, record.value
                    if key is not None and is_control(key):
                        found[key] = value or b""
        return {key: value for key, value in found.items() if value}


def sink_documents(config: Config, clock: Clock, lake: Callable[[Warehouse], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the state of every configured sink, by name; `lake` reads what a warehouse has published."""
    found: list[dict[str, Any]] = []
    viewer: SinkViewer | None = None
    try:
        for name, settings in sorted(config.sinks.items()):
            viewer = viewer or SinkViewer(config, clock)
            if isinstance(settings, Warehouse):
                found.append({"name": name, "kind": "warehouse", **_worker(viewer, name), **lake(settings)})
                continue
            found.append({"name": name, "kind": kind_of(settings), **viewer.applied(name, settings).document()})
    finally:
        if viewer is not None:
            viewer.close()
    return found


def _worker(viewer: SinkViewer, name: str) -> dict[str, Any]:
    """Return the worker state of a warehouse; its files can be read while Kafka is down."""
    try:
        known = viewer.evidence(name)
    except BrokerError as error:
        return {"state": UNKNOWN, "reason": f"Kafka: {error.message}", "workers": None, "heartbeat_age_seconds": None}
    return {"state": known.state, **reported(known)}
