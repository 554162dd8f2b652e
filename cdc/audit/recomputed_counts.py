"""Recomputes count and rolling hash from records, and diagnoses differences from the expected counts. Pure.

The hash is implemented here again, from its definition in docs/reference/formats.md: an audit that shared code with
capture would share its bugs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from cdc.audit.expected_counts import Check, Partition, PartitionCount
from cdc.model.log_record import LogRecord

LOCATE_RECORDS_MAX: Final = 1024
"""Additional records are searched in at most this many; the search is quadratic at worst, 0.2 s (2026-11-22)."""
OFFSETS_SHOWN: Final = 10


class DamageKind(StrEnum):
    """What is wrong with a range of a partition."""

    TORN = "torn"
    LOST = "lost"
    FOREIGN = "foreign"
    DOUBLED = "doubled"
    ALTERED = "altered"
    INDEX = "index"


MEANING: Final = {
    DamageKind.TORN: "the whole Kafka transaction is missing, although its cut exists",
    DamageKind.LOST: "records are missing",
    DamageKind.FOREIGN: "there are records that capture did not write",
    DamageKind.DOUBLED: "there are records twice",
    DamageKind.ALTERED: "records differ from what capture wrote",
    DamageKind.INDEX: "the cut index contradicts itself",
}


class RecomputedCheck(NamedTuple):
    """A check with the count and hash recomputed from the log."""

    check: Check
    found: int
    rolling: int

    @property
    def holds(self) -> bool:
        """Whether the log matches the index."""
        return self.found == self.check.expected and self.rolling == self.check.after.rolling


@dataclass(slots=True)
class _Open:
    """A partition between two counts."""

    checks: deque[Check]
    count: int
    rolling: int


class Recount:
    """Counts and hashes records of several partitions, in order per partition, and closes one check after another."""

    def __init__(self, checks: Iterable[Check]) -> None:
        """`checks` in order of the cut index."""
        self._open: dict[Partition, _Open] = {}
        self.record_count = 0
        self.byte_count = 0
        for check in checks:
            opened = self._open.get(check.partition)
            if opened is None:
                self._open[check.partition] = _Open(deque([check]), 0, check.before.rolling)
            else:
                opened.checks.append(check)

    def take(self, records: Iterable[LogRecord]) -> list[RecomputedCheck]:
        """Add records; returns the checks that end before one of them. Ignores records of other partitions."""
        closed: list[RecomputedCheck] = []
        for topic, index, offset, _, key, value, _ in records:
            opened = self._open.get((topic, index))
            if opened is None:
                continue
            while opened.checks and offset >= opened.checks[0].after.next_offset:
                closed.append(_close(opened))
            if opened.checks and offset >= opened.checks[0].before.next_offset:
                opened.rolling = rolled(opened.rolling, key, value)
                opened.count += 1
                self.record_count += 1
                self.byte_count += len(key or b"") + len(value or b"")
        return closed

    def finish(self) -> list[RecomputedCheck]:
        """Return the remaining checks after everything was read."""
        return [_close(opened) for opened in self._open.values() for _ in range(len(opened.checks))]


def rolled(rolling: int, key: bytes | None, value: bytes | None) -> int:
    """Return the rolling hash after one more record: XXH3-64 of key and value, seeded with the hash before."""
    return xxh3_64_intdigest((key or b"") + (value or b""), rolling)


class Damage(NamedTuple):
    """What is wrong, and the offsets of additional records where they can be determined."""

    kind: DamageKind
    offsets: tuple[int, ...] = ()


def diagnose(recomputed: RecomputedCheck, records: Sequence[LogRecord], earlier: Sequence[LogRecord]) -> Damage:
    """Return what is wrong with a check that does not hold.

    Args:
        recomputed: the check.
        records: those of its range; if they are cut off at LOCATE_RECORDS_MAX, additional records are not located.
        earlier: records right before the range, in order.
    """
    check, surplus = recomputed.check, recomputed.found - recomputed.check.expected
    if surplus == 0:
        return Damage(DamageKind.ALTERED)
    if surplus < 0:
        return Damage(DamageKind.LOST if recomputed.found else DamageKind.TORN)
    if len(records) != recomputed.found or len(records) > LOCATE_RECORDS_MAX:
        return Damage(DamageKind.FOREIGN)
    at = _additional_run(records, check.before, check.after, surplus)
    if at is None:
        return Damage(DamageKind.FOREIGN)
    run = records[at : at + surplus]
    others = {_content(one) for one in (*earlier, *records[:at], *records[at + surplus :])}
    kind = DamageKind.DOUBLED if all(_content(one) in others for one in run) else DamageKind.FOREIGN
    return Damage(kind, tuple(one.offset for one in run[:OFFSETS_SHOWN]))


def _additional_run(
    records: Sequence[LogRecord], before: PartitionCount, after: PartitionCount, length: int
) -> int | None:
    """Return the index of `length` consecutive records without which the others have the right hash."""
    prefix = before.rolling
    for at in range(len(records) - length + 1):
        rolling = prefix
        for one in records[at + length :]:
            rolling = rolled(rolling, one.key, one.value)
        if rolling == after.rolling:
            return at
        prefix = rolled(prefix, records[at].key, records[at].value)
    return None


def _content(record: LogRecord) -> tuple[bytes | None, bytes | None]:
    return record.key, record.value


def _close(opened: _Open) -> RecomputedCheck:
    """Close the first open check. The next one starts with the hash of the index, so damage is reported once."""
    recomputed = RecomputedCheck(opened.checks.popleft(), opened.count, opened.rolling)
    if opened.checks:
        opened.count, opened.rolling = 0, opened.checks[0].before.rolling
    return recomputed
