"""The records that capture hands to the publisher, in order, and the stream position that they reach.

A record is bytes, encoded once and never decoded again. The row path creates no object per row: a record is a plain
tuple, and a `TopicBuffer` has one list of them per partition, because Kafka keeps order only per partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cdc.lsn import Lsn

Headers: TypeAlias = list[tuple[str, bytes]]

Record: TypeAlias = tuple[bytes | None, bytes | None, Headers | None]
"""(key, value, headers); the value of a tombstone is None, and so is the key for a table without a key."""


class TopicBuffer:
    """Records of one topic that wait for the publisher, per partition, in order.

    The transcoder appends, the publisher takes and clears; both run in the capture thread.

    Attributes:
        incomplete: (partition, index) of records that lack values and are published so. Only the transcoder can tell,
            because the form of such a record depends on the format.
    """

    __slots__ = ("compacted", "incomplete", "partitions", "topic")

    def __init__(self, topic: str, partition_count: int, *, compacted: bool = True) -> None:
        self.topic = topic
        self.compacted = compacted
        self.partitions: list[list[Record]] = [[] for _ in range(partition_count)]
        self.incomplete: set[tuple[int, int]] = set()

    def clear(self) -> None:
        """Drop the records after the Kafka client has them."""
        for records in self.partitions:
            records.clear()
        self.incomplete.clear()


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The position of the log: it contains everything whose commit record starts below `end_lsn`.

    Between two source transactions `next_ordinal` is 0, and `commit_lsn` is that of the last one (0: none yet).
    Otherwise the transaction committed at `commit_lsn` is spread over several Kafka transactions, and its events from
    `next_ordinal` on are not in the log yet.
    """

    end_lsn: Lsn
    commit_lsn: Lsn = Lsn(0)  # noqa: RUF009 - Lsn is an immutable int
    next_ordinal: int = 0


@dataclass(frozen=True, slots=True)
class EventOrder:
    """The order of an event in its source transaction, as Debezium's `transaction` block; numbers start at 1."""

    transaction: str
    total_order: int
    data_collection_order: int


@dataclass(frozen=True, slots=True)
class Stamp:
    """The fields that all rows of one source transaction share, as JSON fragments of the envelope.

    Attributes:
        commit_lsn: where the commit record starts; decides the partition of rows without a key.
        source: fields of `source` up to the row's own LSN inside `sequence`.
        tail: from the top-level `ts_ms` to the end.
        xid: of the transaction, 32 bits; None for rows that were read from a table.
        commit_us: commit time in microseconds since 1970.
        order: order of one row in the transaction, if the transaction topic is enabled.
    """

    commit_lsn: int
    source: bytes
    tail: bytes
    xid: int | None
    epoch: int
    commit_us: int
    order: EventOrder | None = None


@dataclass(frozen=True, slots=True)
class Truncation:
    """A TRUNCATE of a captured table, whose keys are still in the log.

    Attributes:
        relation: pg_class.oid of the table.
        stamp: of its transaction.
        lsn: of the message.
        ordinal: its number in the transaction; all deletes that it causes have it.
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
        """Return the remainder when `part` was published before."""
        return BatchStats(
            self.row_count - part.row_count,
            self.byte_count - part.byte_count,
            self.transaction_count - part.transaction_count,
            self.commit_us,
            self.truncate_ignored_count - part.truncate_ignored_count,
        )
