"""Recomputes count and rolling hash from records, and says how they differ from what was to be there. Pure.

The hash is written out here once more, from its definition in docs/reference/formats.md and not from the code that
writes it: an audit that shared that code would share its mistakes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from cdc.audit.expected_counts import Check, Partition, PartitionCount
from cdc.progress.restore import LogRecord

LOCATE_RECORDS_MAX: Final = 1024
"""Records among which the odd ones are looked for, which is quadratic at worst: 0.2 s then (2026-11-22)."""
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
    DamageKind.TORN: "nothing of the Kafka transaction is there, although its cut is",
    DamageKind.LOST: "records are missing",
    DamageKind.FOREIGN: "there are records that capture did not write",
    DamageKind.DOUBLED: "there are records twice",
    DamageKind.ALTERED: "records are others than capture wrote",
    DamageKind.INDEX: "the cut index contradicts itself",
}


class Reckoned(NamedTuple):
    """A check, and what the log has of it."""

    check: Check
    found: int
    rolling: int

    @property
    def holds(self) -> bool:
        """Whether the log has what the index says."""
        return self.found == self.check.expected and self.rolling == self.check.after.rolling


@dataclass(slots=True)
class _Open:
    """A partition between two accounts."""

    checks: deque[Check]
    count: int
    rolling: int


class Fold:
    """Takes records of several partitions, in order of each, and closes one check after the other."""

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

    def take(self, records: Iterable[LogRecord]) -> list[Reckoned]:
        """Carry records on; returns the checks that end before one of them. Records of other partitions are ignored."""
        closed: list[Reckoned] = []
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

    def finish(self) -> list[Reckoned]:
        """Everything was read: the checks that are left."""
        return [_close(opened) for opened in self._open.values() for _ in range(len(opened.checks))]


def rolled(rolling: int, key: bytes | None, value: bytes | None) -> int:
    """The rolling hash behind one more record: XXH3-64 of key and value, seeded with the hash before."""
    return xxh3_64_intdigest((key or b"") + (value or b""), rolling)


class Damage(NamedTuple):
    """What is wrong, and the offsets of records that are too many, as far as they can be told."""

    kind: DamageKind
    offsets: tuple[int, ...] = ()


def diagnose(reckoned: Reckoned, records: Sequence[LogRecord], earlier: Sequence[LogRecord]) -> Damage:
    """What is wrong with a check that does not hold.

    Args:
        reckoned: the check.
        records: those of its range; may be cut off at LOCATE_RECORDS_MAX, then nothing is located.
        earlier: some that lie right before it, in order.
    """
    check, surplus = reckoned.check, reckoned.found - reckoned.check.expected
    if surplus == 0:
        return Damage(DamageKind.ALTERED)
    if surplus < 0:
        return Damage(DamageKind.LOST if reckoned.found else DamageKind.TORN)
    if len(records) != reckoned.found or len(records) > LOCATE_RECORDS_MAX:
        return Damage(DamageKind.FOREIGN)
    at = _odd_run(records, check.before, check.after, surplus)
    if at is None:
        return Damage(DamageKind.FOREIGN)
    run = records[at : at + surplus]
    others = {_content(one) for one in (*earlier, *records[:at], *records[at + surplus :])}
    kind = DamageKind.DOUBLED if all(_content(one) in others for one in run) else DamageKind.FOREIGN
    return Damage(kind, tuple(one[2] for one in run[:OFFSETS_SHOWN]))


def _odd_run(records: Sequence[LogRecord], before: PartitionCount, after: PartitionCount, length: int) -> int | None:
    """Where `length` records in a row lie without which the others have the right hash."""
    prefix = before.rolling
    for at in range(len(records) - length + 1):
        rolling = prefix
        for one in records[at + length :]:
            rolling = rolled(rolling, one[4], one[5])
        if rolling == after.rolling:
            return at
        prefix = rolled(prefix, records[at][4], records[at][5])
    return None


def _content(record: LogRecord) -> tuple[bytes | None, bytes | None]:
    return record[4], record[5]


def _close(opened: _Open) -> Reckoned:
    """End the first open check. What follows it begins with what the index says, so damage is told once."""
    reckoned = Reckoned(opened.checks.popleft(), opened.count, opened.rolling)
    if opened.checks:
        opened.count, opened.rolling = 0, opened.checks[0].before.rolling
    return reckoned
