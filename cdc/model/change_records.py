"""What the pure steps hand to the publisher: records in order, and the position they reach.

A record is bytes, made once and never looked into again. The row path has no object per row: a record is a plain
tuple, and a `TopicBuffer` keeps one list of them per partition, because order per partition is all Kafka keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cdc.lsn import Lsn

Headers: TypeAlias = list[tuple[str, bytes]]

Record: TypeAlias = tuple[bytes | None, bytes | None, Headers | None]
"""(key, value, headers); the value of a tombstone is None, the key of a keyless table is None."""


class TopicBuffer:
    """Records of one topic that wait for the publisher, per partition, in order.

    The transcoder appends, the publisher takes and clears; both run in the capture thread.

    Attributes:
        incomplete: (partition, index) of records that lack values and get none before they are published. Only the
            transcoder knows: what such a record looks like depends on the format.
    """

    __slots__ = ("compacted", "incomplete", "partitions", "topic")

    def __init__(self, topic: str, partition_count: int, *, compacted: bool = True) -> None:
        self.topic = topic
        self.compacted = compacted
        self.partitions: list[list[Record]] = [[] for _ in range(partition_count)]
        self.incomplete: set[tuple[int, int]] = set()

    def clear(self) -> None:
        """Forget the records, which Kafka's client has now."""
        for records in self.partitions:
            records.clear()
        self.incomplete.clear()


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How far the log is: everything whose commit record starts below `end_lsn` is in it.

    `next_ordinal` is 0 at a boundary of source transactions; `commit_lsn` is then that of the last one (0: none yet).
    Otherwise the transaction committed at `commit_lsn` is spread over several Kafka transactions, and its events from
    `next_ordinal` on are not in the log yet.
    """

    end_lsn: Lsn
    commit_lsn: Lsn = Lsn(0)  # noqa: RUF009 - Lsn is an immutable int
    next_ordinal: int = 0


@dataclass(frozen=True, slots=True)
class EventOrder:
    """Which event of its source transaction an event is: `transaction` names that, numbers count from 1."""

    transaction: str
    total_order: int
    data_collection_order: int


@dataclass(frozen=True, slots=True)
class Stamp:
    """What every row of one source transaction shares; JSON of it is ready to be pasted into an envelope.

    Attributes:
        commit_lsn: where its commit record starts; decides the partition of rows without a key.
        source: fields of `source` up to the row's own LSN inside `sequence`.
        tail: from the top-level `ts_ms` to the end.
        xid: of the transaction, 32 bits; None of rows that were read from a table.
        commit_us: when it was committed, in microseconds since 1970.
        place: of one row, where that is asked for.
    """

    commit_lsn: int
    source: bytes
    tail: bytes
    xid: int | None
    epoch: int
    commit_us: int
    place: EventOrder | None = None


@dataclass(frozen=True, slots=True)
class Truncation:
    """A TRUNCATE of a captured table, whose keys the log still has.

    Attributes:
        relation: pg_class.oid of the table.
        stamp: of its transaction.
        lsn: of the message.
        ordinal: its place in the transaction; every key that it removes has it.
    """

    relation: int
    stamp: Stamp
    lsn: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class BatchStats:
    """Counts of one Kafka transaction, for metrics. `commit_us` is the commit time of its last source transaction."""

    row_count: int
    byte_count: int
    transaction_count: int
    commit_us: int
    truncate_ignored_count: int = 0

    def less(self, part: BatchStats) -> BatchStats:
        """What is left when `part` of it was published before."""
        return BatchStats(
            self.row_count - part.row_count,
            self.byte_count - part.byte_count,
            self.transaction_count - part.transaction_count,
            self.commit_us,
            self.truncate_ignored_count - part.truncate_ignored_count,
        )
