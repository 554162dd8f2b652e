"""Audits the log: reads the topics and the cut index, and compares them, one section of the index at a time.

A difference is read a second time before it is reported, and reported only where neither compaction nor retention
explains it. Memory is bounded by the partitions in one section and the records around one finding.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from cdc.audit.audit_report import AuditReport, Finding
from cdc.audit.expected_counts import Check, Contradiction, ExpectedCounts, Partition
from cdc.audit.recomputed_counts import LOCATE_RECORDS_MAX, DamageKind, RecomputedCheck, Recount, diagnose
from cdc.clock import Clock
from cdc.errors import TopicMismatch
from cdc.model.log_record import LogRecord
from cdc.model.progress_record import Cut
from cdc.model.topic_names import cuts_topic
from cdc.patterns import matches
from cdc.progress.record_format import decode
from cdc.progress.restore import RecordReader

SECTION_OFFSETS: Final = 8192
"""Offsets of the index per section, which has two full maps. A cut uses three: an empty record, its own, a marker."""
READ_AGAIN_MAX: Final = 100  # findings of a section that are read again in detail; the others are reported by count
_EARLIER: Final = 1000  # offsets before a finding that are searched for the original of a doubled record
_POLL_S: Final = 0.2
_NOWHERE: Final = 1 << 62  # an offset that no record has


class Horizon(Protocol):
    """See `cdc.audit.horizon.CompactionHorizon`."""

    def reaches(self, partition: Partition, high: int) -> int:
        """Return the offset from which on no record can have been compacted away."""


@dataclass(slots=True)
class AuditLimits:
    """Settings of an audit.

    Attributes:
        patterns: topics to compare.
        patience_s: how long data may lag behind its cut, and how long a record may lack one. The broker writes the
            markers one after the other, after the commit.
        pace: called with the bytes of each batch; may wait.
        stop: ends the audit between two batches.
    """

    patterns: Sequence[str] = ("*",)
    patience_s: float = 30.0
    pace: Callable[[int], None] = lambda _: None
    stop: threading.Event = field(default_factory=threading.Event)


class Auditor:
    """One audit. Call `begin`, then `step` until it returns False; later steps continue. Used by one thread."""

    def __init__(
        self,
        reader: RecordReader,
        horizon: Horizon,
        name: str,
        clock: Clock,
        limits: AuditLimits,
        report: AuditReport | None = None,
    ) -> None:
        """`report` is that of an earlier audit that this one continues."""
        self.report = report or AuditReport()
        self._reader = reader
        self._horizon = horizon
        self._clock = clock
        self._limits = limits
        self._cuts = (cuts_topic(name), 0)
        self._index = ExpectedCounts(from_beginning=False)
        self._at = 0
        self._behind: dict[Partition, tuple[int, float]] = {}
        self._quiet: dict[Partition, int] = {}
        self._reported: set[Partition] = set()

    @property
    def cuts_offset(self) -> int:
        """Everything in the index before this offset was compared, or skipped by `begin`."""
        return self._at

    def begin(self, cuts_offset: int | None = None) -> None:
        """Start with the first existing cut, or at `cuts_offset`. Raises BrokerError, ProgressDamaged."""
        low, high = self._reader.end_offsets([self._cuts[0]])[self._cuts]
        if cuts_offset is None or cuts_offset <= low or cuts_offset > high:
            self._index, self._at = ExpectedCounts(from_beginning=low == 0), low
            return
        for start in dict.fromkeys((max(low, cuts_offset - SECTION_OFFSETS), low)):
            self._index = ExpectedCounts(from_beginning=start == 0)
            for offset, cut in self._read_cuts(start, cuts_offset):
                self._index.take(offset, cut)
            if self._index.began is not None:
                break
        self._at = cuts_offset
        if self._index.began is not None and self.report.reached is None:
            self.report.began = self._index.place

    def catch_up(self) -> None:
        """Compare everything up to the current end of the index."""
        high = self._reader.end_offsets([self._cuts[0]])[self._cuts][1]
        while self._at < high and self.step():
            pass

    def step(self) -> bool:
        """Compare the next section of the index. Returns False if there is nothing new or `stop` is set.

        After a stop or an error the report has no findings of the section; a new audit continues at `cuts_offset`.
        """
        report = self.report
        before = len(report.findings), report.finding_count
        try:
            return self._step()
        except BaseException:
            del report.findings[before[0] :]
            report.finding_count = before[1]
            raise

    def _step(self) -> bool:
        low, high = self._reader.end_offsets([self._cuts[0]])[self._cuts]
        if low > self._at:
            self.report.hide(self._cuts, low, "retention removed cuts that were not compared yet")
            self._index, self._at = ExpectedCounts(from_beginning=False), low
        end = min(self._at + SECTION_OFFSETS, high)
        if self._at >= end:
            return False
        checks: list[Check] = []
        for offset, cut in self._read_cuts(self._at, end):
            for one in self._index.take(offset, cut):
                if not self._wanted(one.partition):
                    continue
                if isinstance(one, Check):
                    checks.append(one)
                else:
                    self._contradicted(one)
            self._count()
        if not self._compare(checks):
            return False
        self.report.reached = self._index.place or self.report.reached
        self._at = end
        return True

    def check_tail(self, *, wait: bool) -> None:
        """Check for records behind the last cut that no cut counts; call it when there is nothing left to compare.

        A record is reported after `patience_s`; with `wait` this method waits that long if there is one.
        """
        while True:
            ends = self._ends_of({topic for topic, index in self._index.counts if self._wanted((topic, index))})
            self.catch_up()
            self._find_behind(ends)
            self._report_behind(ends)
            if not wait or not self._behind or self._clock.wait(self._limits.stop, _POLL_S):
                return

    def _counted_end(self, partition: Partition) -> int:
        count = self._index.counts.get(partition)
        return _NOWHERE if count is None else count.next_offset

    def _find_behind(self, ends: Mapping[Partition, tuple[int, int]]) -> None:
        """Find partitions with records behind their last cut. Mostly there are only markers, which are read once."""
        starts: dict[Partition, int] = {}
        for partition, (low, high) in ends.items():
            begin = max(low, self._counted_end(partition))
            seen = self._behind.get(partition)
            if seen is not None and seen[0] < begin:
                del self._behind[partition]  # a cut counts it by now
            if partition not in self._reported and max(begin, self._quiet.get(partition, 0)) < high:
                starts[partition] = begin
        found: dict[Partition, int] = {}
        for batch in self._reader.read(starts, {at: ends[at][1] for at in starts}):
            for record in batch:
                found.setdefault(record.topic_partition, record.offset)
        now_s = self._clock.monotonic_s()
        for partition in starts:
            if partition in found:
                self._behind.setdefault(partition, (found[partition], now_s))
            else:
                self._quiet[partition] = ends[partition][1]

    def _report_behind(self, ends: Mapping[Partition, tuple[int, int]]) -> None:
        now_s, place = self._clock.monotonic_s(), self._index.place
        late = [at for at, seen in self._behind.items() if at in ends and now_s - seen[1] >= self._limits.patience_s]
        for partition in late if place is not None else ():
            assert place is not None
            del self._behind[partition]
            self._reported.add(partition)
            count, high = self._index.counts[partition], ends[partition][1]
            self._judge(
                RecomputedCheck(Check(partition, count, count._replace(next_offset=high), place), 0, 0), closely=True
            )

    def _wanted(self, partition: Partition) -> bool:
        return matches(partition[0], self._limits.patterns)

    def _read_cuts(self, start: int, end: int) -> Iterator[tuple[int, Cut]]:
        for batch in self._reader.read({self._cuts: start}, {self._cuts: end}) if start < end else ():
            for record in batch:
                if record.value is not None:
                    yield record.offset, decode(record.value, Cut, record.topic)

    def _count(self) -> None:
        report, index = self.report, self._index
        if index.began is None:
            return
        if index.began == index.place and index.given:
            report.began = report.began or index.began
            return
        report.cuts += 1

    def _contradicted(self, one: Contradiction) -> None:
        begin, end = one.before.next_offset, one.after.next_offset
        expected, found = one.before.records, one.after.records
        self.report.found(Finding(DamageKind.INDEX, one.partition, begin, end, expected, found, one.cut))

    def _compare(self, checks: Sequence[Check]) -> bool:
        """Read the records of these checks and add findings. Returns False, without findings, if `stop` is set."""
        needed = {check.partition: check.after.next_offset for check in checks}
        ends = self._await(needed)
        open_checks = [check for check in checks if self._is_readable(check, ends)]
        starts: dict[Partition, int] = {}
        for check in open_checks:
            starts.setdefault(check.partition, check.before.next_offset)
        until = {at: min(needed[at], ends[at][1]) for at in starts}
        recount, suspects = Recount(open_checks), []
        bytes_before = 0
        for batch in self._reader.read(starts, until):
            suspects += [one for one in recount.take(batch) if not one.holds]
            self._limits.pace(recount.byte_count - bytes_before)
            bytes_before = recount.byte_count
            if self._limits.stop.is_set():
                return False
        suspects += [one for one in recount.finish() if not one.holds]
        for number, suspect in enumerate(suspects):
            self._judge(suspect, closely=number < READ_AGAIN_MAX)
        self.report.partitions.update(starts)
        self.report.records += recount.record_count
        self.report.bytes += recount.byte_count
        return True

    def _is_readable(self, check: Check, ends: Mapping[Partition, tuple[int, int]]) -> bool:
        """Return whether the range can still be read; otherwise report it as not auditable."""
        end = ends.get(check.partition)
        if end is None:
            self.report.hide(check.partition, check.after.next_offset, "the topic no longer exists")
            return False
        if check.before.next_offset < end[0]:
            self.report.hide(check.partition, end[0], "records were deleted, by retention or on request")
            return False
        return True

    def _judge(self, suspect: RecomputedCheck, *, closely: bool) -> None:
        check = suspect.check
        earlier: list[LogRecord] = []
        records: list[LogRecord] = []
        if closely or check.otherwise is not None:
            suspect, earlier, records = self._again(check)
            if suspect.holds:
                return
            check = suspect.check
        high = check.after.next_offset
        if suspect.found < check.expected and check.before.next_offset < self._horizon.reaches(check.partition, high):
            self.report.hide(check.partition, high, "compaction removed records")
            return
        kind, offsets = diagnose(suspect, records, earlier)
        begin, end = check.before.next_offset, check.after.next_offset
        self.report.found(Finding(kind, check.partition, begin, end, check.expected, suspect.found, check.cut, offsets))

    def _again(self, check: Check) -> tuple[RecomputedCheck, list[LogRecord], list[LogRecord]]:
        """Recompute a check with both possible earlier counts; also returns the records before and in its range."""
        partition, begin = check.partition, check.before.next_offset
        low, high = self._reader.end_offsets([partition[0]])[partition]
        earlier: deque[LogRecord] = deque(maxlen=_EARLIER)
        records: list[LogRecord] = []
        recounts = [Recount([check])]
        if check.otherwise is not None:
            recounts.append(Recount([Check(partition, check.otherwise, check.after, check.cut)]))
        start, end = max(low, begin - _EARLIER), min(high, check.after.next_offset)
        for batch in self._reader.read({partition: start}, {partition: end}):
            earlier.extend(one for one in batch if one.offset < begin)
            records += [one for one in batch if one.offset >= begin][: LOCATE_RECORDS_MAX + 1 - len(records)]
            for recount in recounts:
                recount.take(batch)
        results = [one for recount in recounts for one in recount.finish()]
        best = next((one for one in results if one.holds), None)
        if best is None:
            best = next((one for one in results if diagnose(one, records, list(earlier)).offsets), results[0])
        return best, list(earlier), records

    def _await(self, needed: Mapping[Partition, int]) -> dict[Partition, tuple[int, int]]:
        """Wait until partitions reach the offsets of their cuts, at most `patience_s`; returns their ends."""
        topics = {topic for topic, _ in needed}
        ends_s = self._clock.monotonic_s() + self._limits.patience_s
        while True:
            ends = self._ends_of(topics)
            late = any(at in ends and ends[at][1] < offset for at, offset in needed.items())
            if not late or self._clock.monotonic_s() > ends_s or self._clock.wait(self._limits.stop, _POLL_S):
                return ends

    def _ends_of(self, topics: Iterable[str]) -> dict[Partition, tuple[int, int]]:
        """As `RecordReader.end_offsets`, without topics that no longer exist."""
        left = set(topics)
        while left:
            try:
                return self._reader.end_offsets(sorted(left))
            except TopicMismatch as error:
                gone = error.facts.get("topic")
                if gone not in left:
                    raise
                left.discard(str(gone))
        return {}
