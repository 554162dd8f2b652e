"""Reads the log back beside the cut index and compares, a stretch of the index at a time; then goes on from there.

What differs is read a second time before it is told, and is told only where neither compaction nor retention explains
it. Memory is bounded: what a stretch of the index names, and the records around one finding.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from cdc.audit.audit_report import AuditReport, Finding
from cdc.audit.expected_counts import Check, Contradiction, ExpectedCounts, Partition
from cdc.audit.recomputed_counts import LOCATE_RECORDS_MAX, DamageKind, Fold, Reckoned, diagnose
from cdc.clock import Clock
from cdc.errors import TopicMismatch
from cdc.model.progress_record import Cut
from cdc.model.topic_names import cuts_topic
from cdc.patterns import matches
from cdc.progress.record_format import decode
from cdc.progress.restore import LogRecord

STRETCH: Final = 4096
"""Offsets of the index at a time: a cut and its marker each, so more than capture writes between two full maps."""
READ_AGAIN_MAX: Final = 100  # findings of a stretch that are looked at closely; more are told by their counts
_EARLIER: Final = 1000  # offsets before a finding in which a record that came twice is looked for
_LOOK_S: Final = 0.2
_NOWHERE: Final = 1 << 62  # an offset that no record has


class AuditReader(Protocol):
    """What an audit needs of a reader; `cdc.kafka.log_reader.LogReader` is one."""

    def end_offsets(self, topics: Iterable[str]) -> dict[Partition, tuple[int, int]]:
        """First offset there is, and the one after the last committed record. Raises TopicMismatch."""

    def read(
        self, assignments: Mapping[Partition, int], until: Mapping[Partition, int] | None = None
    ) -> Iterator[list[LogRecord]]:
        """Committed records between two offsets of each partition."""


class Horizon(Protocol):
    """See `cdc.audit.horizon.CompactionHorizon`."""

    def reaches(self, partition: Partition, high: int) -> int:
        """No record at this offset or behind it can have been compacted away."""


@dataclass(slots=True)
class AuditLimits:
    """How an audit behaves.

    Attributes:
        patterns: topics that are compared.
        patience_s: how long data may stay behind its cut, or a record without one: markers are written one after
            the other, behind the commit.
        pace: told of the bytes of each batch; may wait.
        stop: ends the audit between two batches.
    """

    patterns: Sequence[str] = ("*",)
    patience_s: float = 30.0
    pace: Callable[[int], None] = lambda _: None
    stop: threading.Event = field(default_factory=threading.Event)


class Auditor:
    """One audit. `begin`, then `step` until it returns False; later steps go on. Used by one thread."""

    def __init__(
        self,
        reader: AuditReader,
        horizon: Horizon,
        name: str,
        clock: Clock,
        limits: AuditLimits,
        report: AuditReport | None = None,
    ) -> None:
        """`report` is that of an audit this one goes on with."""
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
        self._told: set[Partition] = set()

    @property
    def cuts_offset(self) -> int:
        """Everything of the index before this offset was compared, or passed over by `begin`."""
        return self._at

    def begin(self, cuts_offset: int | None = None) -> None:
        """Start with the first cut there is, or at `cuts_offset`. Raises BrokerError, ProgressDamaged."""
        low, high = self._reader.end_offsets([self._cuts[0]])[self._cuts]
        if cuts_offset is None or cuts_offset <= low or cuts_offset > high:
            self._index, self._at = ExpectedCounts(from_beginning=low == 0), low
            return
        for start in dict.fromkeys((max(low, cuts_offset - STRETCH), low)):
            self._index = ExpectedCounts(from_beginning=start == 0)
            for offset, cut in self._read_cuts(start, cuts_offset):
                self._index.take(offset, cut)
            if self._index.began is not None:
                break
        self._at = cuts_offset
        if self._index.began is not None and self.report.reached is None:
            self.report.began = self._index.place

    def catch_up(self) -> None:
        """Compare everything up to where the index ends now."""
        high = self._reader.end_offsets([self._cuts[0]])[self._cuts][1]
        while self._at < high and self.step():
            pass

    def step(self) -> bool:
        """Compare what the next stretch of the index says. False: there was nothing new, or it was told to stop.

        When it was told to stop, or raises, nothing of the stretch is found, and the audit goes on as another one,
        from `cuts_offset`.
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
            self.report.hide(self._cuts, low, "retention has removed cuts that were not compared yet")
            self._index, self._at = ExpectedCounts(from_beginning=False), low
        end = min(self._at + STRETCH, high)
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
        """Look for records behind the last cut that no cut accounts for, when there is nothing left to compare.

        A record is told when it has lain there for the patience; `wait` waits that long when there is one.
        """
        while True:
            accounts = {at: account for at, account in self._index.accounts.items() if self._wanted(at)}
            ends = self._ends_of({topic for topic, _ in accounts})
            self.catch_up()
            self._find_behind(ends)
            self._tell_behind(ends)
            if not wait or not self._behind or self._clock.wait(self._limits.stop, _LOOK_S):
                return

    def _account_end(self, partition: Partition) -> int:
        account = self._index.accounts.get(partition)
        return _NOWHERE if account is None else account.next_offset

    def _find_behind(self, ends: Mapping[Partition, tuple[int, int]]) -> None:
        """Note partitions with records behind their accounts. Markers alone are there mostly, and looked at once."""
        starts: dict[Partition, int] = {}
        for partition, (low, high) in ends.items():
            begin = max(low, self._account_end(partition))
            seen = self._behind.get(partition)
            if seen is not None and seen[0] < begin:
                del self._behind[partition]  # a cut accounts for it by now
            if partition not in self._told and max(begin, self._quiet.get(partition, 0)) < high:
                starts[partition] = begin
        found: dict[Partition, int] = {}
        for batch in self._reader.read(starts, {at: ends[at][1] for at in starts}):
            for record in batch:
                found.setdefault(record[:2], record[2])
        now_s = self._clock.monotonic_s()
        for partition in starts:
            if partition in found:
                self._behind.setdefault(partition, (found[partition], now_s))
            else:
                self._quiet[partition] = ends[partition][1]

    def _tell_behind(self, ends: Mapping[Partition, tuple[int, int]]) -> None:
        now_s, place = self._clock.monotonic_s(), self._index.place
        late = [at for at, seen in self._behind.items() if at in ends and now_s - seen[1] >= self._limits.patience_s]
        for partition in late if place is not None else ():
            assert place is not None
            del self._behind[partition]
            self._told.add(partition)
            account, high = self._index.accounts[partition], ends[partition][1]
            self._judge(
                Reckoned(Check(partition, account, account._replace(next_offset=high), place), 0, 0), closely=True
            )

    def _wanted(self, partition: Partition) -> bool:
        return matches(partition[0], self._limits.patterns)

    def _read_cuts(self, start: int, end: int) -> Iterator[tuple[int, Cut]]:
        for batch in self._reader.read({self._cuts: start}, {self._cuts: end}) if start < end else ():
            for record in batch:
                if record[5] is not None:
                    yield record[2], decode(record[5], Cut, record[0])

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
        """Read the records of these checks. False when it was told to stop: then nothing of them is noted."""
        needed = {check.partition: check.after.next_offset for check in checks}
        ends = self._await(needed)
        open_checks = [check for check in checks if self._is_there(check, ends)]
        starts: dict[Partition, int] = {}
        for check in open_checks:
            starts.setdefault(check.partition, check.before.next_offset)
        until = {at: min(needed[at], ends[at][1]) for at in starts}
        fold, suspects = Fold(open_checks), []
        bytes_before = 0
        for batch in self._reader.read(starts, until):
            suspects += [one for one in fold.take(batch) if not one.holds]
            self._limits.pace(fold.byte_count - bytes_before)
            bytes_before = fold.byte_count
            if self._limits.stop.is_set():
                return False
        suspects += [one for one in fold.finish() if not one.holds]
        for number, suspect in enumerate(suspects):
            self._judge(suspect, closely=number < READ_AGAIN_MAX)
        self.report.partitions.update(starts)
        self.report.records += fold.record_count
        self.report.bytes += fold.byte_count
        return True

    def _is_there(self, check: Check, ends: Mapping[Partition, tuple[int, int]]) -> bool:
        """Whether the range can still be read; else it is noted."""
        end = ends.get(check.partition)
        if end is None:
            self.report.hide(check.partition, check.after.next_offset, "the topic is gone")
            return False
        if check.before.next_offset < end[0]:
            self.report.hide(check.partition, end[0], "records were deleted, by retention or on demand")
            return False
        return True

    def _judge(self, suspect: Reckoned, *, closely: bool) -> None:
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
            self.report.hide(check.partition, high, "compaction has removed records")
            return
        kind, offsets = diagnose(suspect, records, earlier)
        begin, end = check.before.next_offset, check.after.next_offset
        self.report.found(Finding(kind, check.partition, begin, end, check.expected, suspect.found, check.cut, offsets))

    def _again(self, check: Check) -> tuple[Reckoned, list[LogRecord], list[LogRecord]]:
        """Reckon a check once more, with the records before and in it, and as the account may have been otherwise."""
        partition, begin = check.partition, check.before.next_offset
        low, high = self._reader.end_offsets([partition[0]])[partition]
        earlier: deque[LogRecord] = deque(maxlen=_EARLIER)
        records: list[LogRecord] = []
        folds = [Fold([check])]
        if check.otherwise is not None:
            folds.append(Fold([Check(partition, check.otherwise, check.after, check.cut)]))
        start, end = max(low, begin - _EARLIER), min(high, check.after.next_offset)
        for batch in self._reader.read({partition: start}, {partition: end}):
            earlier.extend(one for one in batch if one[2] < begin)
            records += [one for one in batch if one[2] >= begin][: LOCATE_RECORDS_MAX + 1 - len(records)]
            for fold in folds:
                fold.take(batch)
        reckoned = [one for fold in folds for one in fold.finish()]
        best = next((one for one in reckoned if one.holds), None)
        if best is None:
            best = next((one for one in reckoned if diagnose(one, records, list(earlier)).offsets), reckoned[0])
        return best, list(earlier), records

    def _await(self, needed: Mapping[Partition, int]) -> dict[Partition, tuple[int, int]]:
        """Where partitions end, when they are as far as their cuts say or the patience is over."""
        topics = {topic for topic, _ in needed}
        ends_s = self._clock.monotonic_s() + self._limits.patience_s
        while True:
            ends = self._ends_of(topics)
            late = any(at in ends and ends[at][1] < offset for at, offset in needed.items())
            if not late or self._clock.monotonic_s() > ends_s or self._clock.wait(self._limits.stop, _LOOK_S):
                return ends

    def _ends_of(self, topics: Iterable[str]) -> dict[Partition, tuple[int, int]]:
        """As `AuditReader.end_offsets`, without topics that are gone."""
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
