"""Writes the transaction topic (BEGIN and END with event counts) and the message topic, beside the topics of tables.

Counts include events that the log already has, so that a replay gives the same counts. Pure.
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
    """Fills the buffers of ``<name>.transaction`` and ``<name>.message``. Without a buffer that part is left out.

    Attributes:
        count: records added to the buffers since it was last set to 0.
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
        self._begin_written = False

    @property
    def buffers(self) -> list[TopicBuffer]:
        """The configured buffers."""
        return [buffer for buffer in (self._transactions, self._messages) if buffer is not None]

    @property
    def numbers(self) -> bool:
        """Whether events carry their place in the transaction."""
        return self._transactions is not None

    def begin(self, begin: Begin, *, written: bool) -> None:
        """A transaction begins. `written`: the log already has its BEGIN record."""
        self._counts.clear()
        self._total = 0
        self._id = f"{begin.xid}:{begin.commit_lsn:d}"
        self._ts_ms = begin.commit_us // 1000
        self._begin_written = written

    def numbered(self, stamp: Stamp, relation: Relation) -> Stamp:
        """Return the stamp of the next event, with its place in the transaction."""
        self.passed(relation)
        return with_order(stamp, EventOrder(self._id, self._total, self._counts[relation.table]))

    def passed(self, relation: Relation) -> None:
        """Count an event that the log already has."""
        self._counts[relation.table] += 1
        self._total += 1

    def opened(self) -> None:
        """Write BEGIN, once, before the first record of the transaction."""
        if self._transactions is not None and not self._begin_written:
            self._begin_written = True
            self._add(self._transactions, self._make.begin(self._id, self._ts_ms))

    def end(self) -> None:
        """Write END. A transaction without events is left out, unless its BEGIN was written before that was known."""
        if self._transactions is not None and (self._counts or self._begin_written):
            self.opened()
            self._add(self._transactions, self._make.end(self._id, self._ts_ms, self._counts))

    def truncate(self, relation: Relation, stamp: Stamp, lsn: int, ordinal: int) -> None:
        """Write the TRUNCATE of a captured table."""
        if self._transactions is not None:
            self.opened()
            table = (relation.namespace, relation.name)
            self._add(self._transactions, self._make.truncate(self._id, table, stamp, lsn, ordinal))

    def message(self, message: LogicalMessage, stamp: Stamp, lsn: int, ordinal: int) -> int:
        """Write a logical message. Returns its size, 0 if messages are off. Raises RowRefused if it is too large."""
        if self._messages is None:
            return 0
        record = self._make.message(message, stamp, lsn, ordinal)
        size = len(record[1] or b"")
        if size > self._limit:
            raise RowRefused(
                f"a logical message at {Lsn(lsn)} makes a record of {size} bytes; the limit is {self._limit}",
                hint="raise capture.row_bytes_max and max.message.bytes of the topic, or turn messages off",
                command="[capture] messages = false",
                record_bytes=size,
            )
        self._add(self._messages, record)
        return size

    def _add(self, buffer: TopicBuffer, record: Record) -> None:
        buffer.partitions[0].append(record)
        self.count += 1
