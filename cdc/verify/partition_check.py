"""Checks the records of one partition one by one, in constant memory. Pure.

It implements partitioner and rolling hash independently of capture, so that faults of capture show.

Positions never decrease, so events with the same position are adjacent: an event id is repeated exactly when a key
occurs twice among them. Therefore no set of all ids is needed.
"""

from __future__ import annotations

from typing import Final

import msgspec
from murmurhash2 import murmurhash2
from xxhash import xxh3_64_intdigest

from cdc.cutindex.index_reader import PartitionCount
from cdc.model.change_records import Record
from cdc.verify.verify_report import Countable, LogFaults

Position = tuple[int, int, int]
"""(epoch, commit_lsn, ordinal)."""


class Source(msgspec.Struct, frozen=True, gc=False):
    """The fields of `source` that this check reads."""

    epoch: int
    commit_lsn: int
    ordinal: int
    unchanged: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()


class Event(msgspec.Struct, frozen=True, gc=False):
    """An envelope; row images stay bytes."""

    op: str
    source: Source
    before: msgspec.Raw
    after: msgspec.Raw


_decode = msgspec.json.Decoder(Event).decode
_MURMUR_SEED: Final = 0x9747B28C  # org.apache.kafka.common.utils.Utils.murmur2
_SHAPES: Final = {"c": True, "r": True, "u": True, "d": False}  # operation -> whether `after` has a row


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition of a key, as Kafka's Java client computes it."""
    return (murmurhash2(key, _MURMUR_SEED) & 0x7FFFFFFF) % partition_count


def rolled(rolling: int, records: list[Record]) -> int:
    """Return the rolling hash after more records, as docs/reference/formats.md defines it for ``__cuts``."""
    for key, value, _ in records:
        rolling = xxh3_64_intdigest((key or b"") + (value or b""), rolling)
    return rolling


class PartitionCheck:
    """Checks every record of a partition, in order."""

    def __init__(self, index: int, partition_count: int, *, keyed: bool) -> None:
        self.count = 0
        self.tombstone_count = 0
        self.faults = LogFaults()
        self._index = index
        self._partition_count = partition_count
        self._keyed = keyed
        self._rolling = 0
        self._at: Position = (0, 0, 0)
        self._keys_here: set[bytes | None] = set()
        self._deleted: bytes | None = None

    def count_in(self, records: list[Record]) -> None:
        """Count and hash records; call it before `judge`."""
        self.count += len(records)
        self._rolling = rolled(self._rolling, records)

    def judge(self, key: bytes | None, value: bytes | None) -> Event | None:
        """Check and decode a record; None for a tombstone and for a record that capture did not write."""
        faults = self.faults
        if (key is not None) is not self._keyed or (key is None and value is None):
            faults.foreign += 1
            return None
        if key is not None and partition_of(key, self._partition_count) != self._index:
            faults.misplaced += 1
        if value is None:
            self.tombstone_count += 1
            faults.unpaired += self._deleted != key
            self._deleted = None
            return None
        self.finish()
        try:
            event = _decode(value)
        except msgspec.MsgspecError:
            faults.foreign += 1
            return None
        if _shape(event) != _SHAPES.get(event.op):
            faults.foreign += 1
            return None
        self._place(event, key)
        if event.op == "d":
            self._deleted = key
        return event

    def finish(self) -> None:
        """Count a fault if the last delete has no tombstone."""
        self.faults.unpaired += self._deleted is not None
        self._deleted = None

    def settle(self, account: PartitionCount, *, since_start: bool, may_be_compacted: bool) -> Countable:
        """Compare the records with the cut index; call it once, at the end."""
        self.finish()
        if not since_start:
            return "unknown"
        if self.count < account.count and may_be_compacted:
            self.faults.unpaired = 0  # compaction removes a delete before its tombstone
            return "compacted"
        if self.count != account.count:
            self.faults.miscounted += 1
        elif self._rolling != account.rolling:
            self.faults.altered += 1
        return "exact"

    def _place(self, event: Event, key: bytes | None) -> None:
        source = event.source
        position = (source.epoch, source.commit_lsn, source.ordinal)
        if position > self._at:
            self._at = position
            self._keys_here = {key}
        elif position < self._at:
            self.faults.disordered += 1
        elif key in self._keys_here:
            self.faults.repeated += 1
        else:
            self._keys_here.add(key)


def _shape(event: Event) -> bool:
    return bytes(event.after)[:1] == b"{"
