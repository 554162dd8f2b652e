"""Computes the counts of the cut index: next offset, record count and rolling hash of every partition.

Kafka gives consecutive offsets to the only writer of a partition, and puts one marker behind the records of each
transaction that touched it. The marker may be written after the first records of the next transaction, which has
another producer. So the offset of the last record is reported for each partition, and it must lie where the records and
markers so far allow. The index costs no callback per record, and a foreign writer is noticed.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from xxhash import xxh3_64_intdigest

from cdc.model.change_records import Record
from cdc.model.topic_names import partition_text

Partition = tuple[str, int]


def roll(rolling: int, records: list[Record]) -> int:
    """Carry the rolling hash over `records`: XXH3-64 of key and value of each, seeded with the hash so far."""
    digest = xxh3_64_intdigest
    for key, value, _ in records:
        if value is None:
            rolling = digest(key or b"", rolling)
        elif key is None:
            rolling = digest(value, rolling)
        else:
            rolling = digest(key + value, rolling)
    return rolling


@dataclass(slots=True)
class RunningCount:
    """The running count and hash of a partition.

    Attributes:
        base: the least offset that the next record can have.
        next_offset: the offset after the last record of a committed transaction.
        count: records since counting began, including tombstones.
        rolling: see `roll`.
        pending: records of the open transaction.
        last: offset of the last of them, once it is delivered.
        markers: transactions whose markers may lie at `base` or behind it.
        touched: number of the last of them.
    """

    base: int
    next_offset: int
    count: int = 0
    rolling: int = 0
    pending: int = 0
    last: int = 0
    markers: int = 0
    touched: int = 0


class Ledger:
    """Running counts of all partitions, including those that are not written to now.

    A full map of the cut includes every count, except those of deleted topics. A count that it left out would start
    again when its table comes back, and readers could not tell that from continued counting. Discarded with the
    publisher if the transaction turns out not to be committed.

    The capture thread writes and opens; then the thread that waits for the delivery calls `delivered`, `changed` and
    `committed`. `open` and `reach` may be called beside these.
    """

    def __init__(self, ring: int = 1) -> None:
        """`ring` is how many producers take turns."""
        self._ring = ring
        self._number = 0
        self._lock = threading.Lock()
        self._counts: dict[Partition, RunningCount] = {}
        self._resting: dict[Partition, RunningCount] = {}
        self._touched: dict[Partition, RunningCount] = {}

    def open(self, partition: Partition, *, end_offset: int, before: tuple[int, int, str] | None) -> None:
        """Start a count at the partition's end; `before` is its value in the last cut."""
        with self._lock:
            self._resting.pop(partition, None)
            self._counts[partition] = _running_count(end_offset, before)

    def rest(self, partition: Partition, *, end_offset: int, before: tuple[int, int, str]) -> None:
        """Keep the count of a partition that is not written to, until it is opened."""
        if partition not in self._counts:
            self._resting[partition] = _running_count(end_offset, before)

    def known(self, partition: Partition) -> bool:
        """Return whether the partition was opened."""
        return partition in self._counts

    def ends(self, topic: str) -> dict[Partition, int]:
        """Return, for each partition of a topic, the offset after the last record that was committed here."""
        return {at: running.next_offset for at, running in self._counts.items() if at[0] == topic}

    def reach(self, topic: str) -> dict[Partition, int]:
        """Like `ends`, as if the open transaction were committed and every marker before it were written.

        So there may be markers before these offsets, and no record of a later transaction.
        """
        with self._lock:
            return {
                at: running.base + running.markers + running.pending if running.pending else running.next_offset
                for at, running in self._counts.items()
                if at[0] == topic
            }

    def take_as_is(self) -> None:
        """Move every count to the end of its partition, so that no later cut includes the records that lie there now.

        A repair does this: records that another program wrote before it must not be reported again behind it.
        """
        for running in (*self._counts.values(), *self._resting.values()):
            running.next_offset = running.base

    def write(self, partition: Partition, records: list[Record]) -> None:
        """Count records handed to the producer in the open transaction."""
        running = self._counts[partition]
        running.pending += len(records)
        running.rolling = roll(running.rolling, records)
        self._touched[partition] = running

    @property
    def touched(self) -> Collection[Partition]:
        """The partitions with records of the open transaction."""
        return self._touched.keys()

    def delivered(self, last: Mapping[Partition, int]) -> tuple[Partition, int | None, range] | None:
        """Take the offset of the last record of each touched partition.

        Returns None if they are as they must be; otherwise a partition, its offset, and the offsets that it can have.
        A producer begins a transaction when the markers of its previous one are written. So only those of the other
        producers of the ring may be missing.
        """
        for partition, running in self._touched.items():
            unsure = max(0, self._ring - (self._number - running.touched))
            least = running.base + running.pending - 1
            possible = range(least + max(0, running.markers - unsure), least + running.markers + 1)
            offset = last.get(partition)
            if offset is None or offset not in possible:
                return partition, offset, possible
            running.last = offset
        return None

    def changed(self, *, full: bool) -> dict[str, tuple[int, int, str]]:
        """Return the map of the cut, as if the open transaction, which is delivered, were committed."""
        with self._lock:
            counts = {**self._resting, **self._counts} if full else self._touched
        return {
            partition_text(topic, index): (
                running.last + 1 if running.pending else running.next_offset,
                running.count + running.pending,
                f"{running.rolling:016x}",
            )
            for (topic, index), running in counts.items()
        }

    def committed(self) -> None:
        """Count the open transaction, which is delivered, as committed; each touched partition gets a marker."""
        with self._lock:
            for running in self._touched.values():
                passed = running.last + 1 - running.base - running.pending
                running.markers += 1 - passed
                running.base = running.next_offset = running.last + 1
                running.count += running.pending
                running.pending = 0
                running.touched = self._number
            self._touched = {}
            self._number += 1


def _running_count(end_offset: int, before: tuple[int, int, str] | None) -> RunningCount:
    if before is None:
        return RunningCount(base=end_offset, next_offset=end_offset)
    next_offset, count, rolling = before
    return RunningCount(end_offset, next_offset, count, int(rolling, 16))
