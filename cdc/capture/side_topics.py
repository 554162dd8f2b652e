"""What goes beside the tables' topics: which transactions there were and how many events each has, and messages.

Counts go on over events that are in the log already, so that a replay says the same. Pure.
"""

from __future__ import annotations

from collections import Counter

from cdc.encode.envelope import with_order
from cdc.encode.side_records import SideRecords
from cdc.errors import RowRefused
from cdc.lsn import Lsn
from cdc.model.change_records import EventOrder, Record, Stamp, TopicBuffer
from cdc.model.relation import Relation
from cdc.wire.pgoutput import Begin, LogicalMessage


class SideTopics:
    """Fills the buffers of ``<name>.transaction`` and ``<name>.message``; without a buffer that part is left out.

    Attributes:
        count: records in the buffers since it was set to 0.
    """

    def __init__(
        self,
        make: SideRecords,
        *,
        transactions: TopicBuffer | None = None,
        messages: TopicBuffer | None = None,
        row_bytes_max: int,
    ) -> None:
        self._limit = row_bytes_max
        self.count = 0
        self._make = make
        self._transactions = transactions
        self._messages = messages
        self._counts: Counter[str] = Counter()
        self._total = 0
        self._id = ""
        self._ts_ms = 0
        self._told = False

    @property
    def buffers(self) -> list[TopicBuffer]:
        """Those there are."""
        return [buffer for buffer in (self._transactions, self._messages) if buffer is not None]

    @property
    def numbers(self) -> bool:
        """Whether events say which of their transaction they are."""
        return self._transactions is not None

    def begin(self, begin: Begin, *, told: bool) -> None:
        """A transaction begins; `told`: the log has its beginning."""
        self._counts.clear()
        self._total = 0
        self._id = f"{begin.xid}:{begin.commit_lsn:d}"
        self._ts_ms = begin.commit_us // 1000
        self._told = told

    def numbered(self, stamp: Stamp, relation: Relation) -> Stamp:
        """The stamp of the next event, with its place in the transaction."""
        self.passed(relation)
        return with_order(stamp, EventOrder(self._id, self._total, self._counts[relation.table]))

    def passed(self, relation: Relation) -> None:
        """An event that is in the log already."""
        self._counts[relation.table] += 1
        self._total += 1

    def opened(self) -> None:
        """Something of the transaction is about to be in the log."""
        if self._transactions is not None and not self._told:
            self._told = True
            self._add(self._transactions, self._make.begin(self._id, self._ts_ms))

    def end(self) -> None:
        """The transaction is over. One without an event is told of only if it was spread before that was known."""
        if self._transactions is not None and (self._counts or self._told):
            self.opened()
            self._add(self._transactions, self._make.end(self._id, self._ts_ms, self._counts))

    def truncate(self, relation: Relation, stamp: Stamp, lsn: int, ordinal: int) -> None:
        """A TRUNCATE of a captured table."""
        if self._transactions is not None:
            self.opened()
            table = (relation.namespace, relation.name)
            self._add(self._transactions, self._make.truncate(self._id, table, stamp, lsn, ordinal))

    def message(self, message: LogicalMessage, stamp: Stamp, lsn: int, ordinal: int) -> int:
        """A logical message; returns its size, 0 when it is left out. Raises RowRefused when it is too large."""
        if self._messages is None:
            return 0
        record = self._make.message(message, stamp, lsn, ordinal)
        size = len(record[1] or b"")
        if size > self._limit:
            raise RowRefused(
                f"a logical message at {Lsn(lsn)} makes a record of {size} bytes; the limit is {self._limit}",
                hint="raise capture.row_bytes_max and max.message.bytes of the topic, or take no messages",
                command="[capture] messages = false",
                record_bytes=size,
            )
        self._add(self._messages, record)
        return size

    def _add(self, buffer: TopicBuffer, record: Record) -> None:
        buffer.partitions[0].append(record)
        self.count += 1
