"""Simulates the parts of Kafka that exactly-once depends on, without KIP-890, over fixtures/capture/memory_log.py.

It adds a coordinator with epochs, where a late EndTxn or Produce of the same epoch affects the transaction that is open
then; markers that are written after the answer to the commit; a last stable offset; reads that are briefly stale;
transactions that time out in the broker; and a stop that skips markers of the last commit in the control topics, which
the next marker of that producer makes up for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from cdc.errors import BrokerUnreachable, OutcomeUnknown, ProducerFenced
from cdc.kafka.cluster_facts import TopicFacts, TopicSpec
from cdc.model.change_records import Record
from cdc.model.log_record import LogRecord
from cdc.model.progress_record import Cut
from cdc.publish.ledger import Partition
from tests.fixtures.capture.memory_log import MemoryLog
from tests.simulation.world import World

TRANSACTION_TIMEOUT_S: Final = 60.0
_MARKERS_S: Final = 1.0
_HELD_MAX: Final = 40
_CONTROL: Final = frozenset({"shop.__progress", "shop.__cuts"})
_SOON: Final = 0.5  # the chance that a marker is written before anything else happens


@dataclass(slots=True)
class Transaction:
    """A transaction of the coordinator. `records` were appended in it; `ended` is None while it is open."""

    number: int
    producer: int
    opened_s: float
    records: list[tuple[Partition, int, Record]] = field(default_factory=list)
    ended: bool | None = None


@dataclass(slots=True)
class Late:
    """A request that is still on its way after its connection broke."""

    epoch: int
    deliver: Callable[[], object]


class Broker:
    """One cluster and its coordinator of transactions.

    Attributes:
        epoch: number of the newest producer; no two have the same.
        newest: transactional id -> epoch of its newest producer.
        owners: epoch -> the ring that the producer belongs to.
        committed: called with each transaction when its commit is decided.
        appended: called with each record of any producer.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.log = MemoryLog()
        self.topics: dict[str, TopicFacts] = {}
        self.epoch = 0
        self.newest: dict[str, int] = {}
        self.owners: dict[int, object] = {}
        self.open: dict[int, Transaction] = {}
        self.held: list[Late] = []
        self.stable: dict[Partition, list[tuple[int, Record, int]]] = {}
        self.stable_to: dict[Partition, int] = {}
        self.stale_reads = 0
        self.slow_markers = False
        self.skip_markers = False
        self.stopped: Callable[[], None] = lambda: None
        self.markers_due_s = 0.0
        self.committed: Callable[[Transaction], None] = lambda _: None
        self.appended: Callable[[Partition, Record], None] = lambda *_: None
        self._transactions: dict[int, Transaction] = {}
        self._ids: dict[int, str] = {}
        self._markers: list[tuple[Partition, int, str]] = []
        self._skipped: list[tuple[Partition, int, str]] = []
        self._last: dict[int, bool] = {}
        self._appended: dict[tuple[int, Partition], int] = {}

    def init(self, transactional_id: str, owner: object) -> int:
        """InitProducerId: fence the previous producer and abort its transaction."""
        before = self.newest.get(transactional_id)
        if before in self.open:
            self._end(before, committed=False)
        self.write_markers(transactional_id)
        self._take(transactional_id)
        self.owners[self.epoch] = owner
        return self.epoch

    def _take(self, transactional_id: str) -> None:
        self.epoch += 1
        self.newest[transactional_id] = self.epoch
        self._ids[self.epoch] = transactional_id

    def is_newest(self, epoch: int) -> bool:
        """Return whether no newer producer has its transactional id."""
        return self.newest.get(self._ids.get(epoch, "")) == epoch

    def alive(self, epoch: int) -> None:
        """Raise if a newer producer exists, or the transaction is too old."""
        opened = self.open.get(epoch)
        if opened is not None and self.world.clock.now_s - opened.opened_s > TRANSACTION_TIMEOUT_S:
            self.world.seen["transaction timed out by the broker"] += 1
            self._end(epoch, committed=False)
            if self.is_newest(epoch):
                self._take(self._ids[epoch])
        if not self.is_newest(epoch):
            raise ProducerFenced("a newer producer has the transactional id")

    def produce(self, epoch: int, partition: Partition, records: Sequence[Record], *, first: int) -> int:
        """Append records that are new; `first` is the sequence number of the first in the producer's partition.

        Returns the offset of the last record.
        """
        have = self._appended.get((epoch, partition), 0)
        if first > have:
            raise OutcomeUnknown("OUT_OF_ORDER_SEQUENCE")
        self._appended[epoch, partition] = max(have, first + len(records))
        for record in records[have - first :]:
            transaction = self.open.get(epoch) or self._opened(epoch)
            self._write_some_markers()
            self.appended(partition, record)
            offset = self.log.append(partition, record, transaction.number)
            transaction.records.append((partition, offset, record))
        return self.log.end_offset(partition) - 1

    def _opened(self, epoch: int) -> Transaction:
        """Add the first record of a transaction, which waits for the markers of its producer's previous one."""
        self.write_markers(self._ids[epoch])
        self.log.transactions += 1
        transaction = Transaction(self.log.transactions, epoch, self.world.clock.now_s)
        self.open[epoch] = self._transactions[transaction.number] = transaction
        return transaction

    def end(self, epoch: int, *, committed: bool) -> None:
        """EndTxn; a repeated request gets the same answer."""
        if epoch in self.open:
            self._end(epoch, committed=committed)
        elif self._last.get(epoch) is not committed:
            raise OutcomeUnknown("INVALID_TXN_STATE")

    def hold(self, epoch: int, deliver: Callable[[], object]) -> None:
        """Keep a copy of a request that arrives later, or never."""
        if len(self.held) < _HELD_MAX:
            self.held.append(Late(epoch, deliver))

    def deliver_late(self) -> None:
        """Deliver one of the delayed requests; refuse it if its epoch is old."""
        if not self.held:
            return
        late = self.held.pop(self.world.dice.randrange(len(self.held)))
        if not self.is_newest(late.epoch):
            self.world.seen["late request of an older epoch"] += 1
            return
        self.world.seen["late request of the same epoch"] += 1
        with suppress(OutcomeUnknown):  # out of sequence
            late.deliver()

    def write_markers(self, transactional_id: str = "") -> None:
        """Write the markers of every decided transaction, or of those of one transactional id."""
        self._write_markers([one for one in self._markers if transactional_id in {"", one[2]}])

    def _write_some_markers(self) -> None:
        """Write any of them, between two records of another producer."""
        if self._markers and not self.slow_markers:
            self._write_markers([one for one in self._markers if self.world.dice.random() < _SOON])

    def _write_markers(self, chosen: list[tuple[Partition, int, str]]) -> None:
        for marker in chosen:
            partition, number, _ = marker
            self.log.append(partition, None, number)
            self._markers.remove(marker)
            self._skipped = [one for one in self._skipped if (one[0], one[2]) != (partition, marker[2])]
            self._advance(partition)

    def _end(self, epoch: int, *, committed: bool) -> None:
        transaction, transactional_id = self.open.pop(epoch), self._ids[epoch]
        transaction.ended = self._last[epoch] = committed
        if committed:
            self.log.committed.add(transaction.number)
            self.committed(transaction)
        self._markers += [
            (partition, transaction.number, transactional_id)
            for partition in {at: 0 for at, _, _ in transaction.records}
        ]
        if self.skip_markers and committed:
            self.skip_markers = False
            self.world.seen["markers skipped"] += 1
            skipped = [one for one in self._markers if one[1] == transaction.number and one[0][0] in _CONTROL]
            self._skipped += skipped
            self._markers = [one for one in self._markers if one not in skipped]
            self.stopped()
        if self.slow_markers and committed:
            self.slow_markers = False
            self.world.seen["markers late"] += 1
            self.markers_due_s = self.world.clock.now_s + _MARKERS_S
        elif not committed or self.world.dice.random() < _SOON:
            self.write_markers(transactional_id)

    def _advance(self, partition: Partition) -> None:
        """Return the last stable offset: the first record of an open transaction."""
        slots = self.log.partitions[partition]
        at = self.stable_to.get(partition, 0)
        stable = self.stable.setdefault(partition, [])
        pending = {number for where, number, _ in (*self._markers, *self._skipped) if where == partition}
        while at < len(slots):
            slot = slots[at]
            if slot.record is not None:
                transaction = self._transactions[slot.transaction]
                if transaction.ended is None or slot.transaction in pending:
                    break
                if transaction.ended:
                    stable.append((at, slot.record, slot.transaction))
            at += 1
        self.stable_to[partition] = at


class LogDoor:
    """`cdc.progress.restore.TopicReader` of one process; read committed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def last_records(self, topic: str, *, keys: Collection[bytes] | None = None) -> dict[bytes, tuple[int, bytes]]:
        records = self._records((topic, 0), stale=True)
        latest = {record[0]: (offset, record[1]) for offset, record in records}
        return {
            key: (offset, value)
            for key, (offset, value) in latest.items()
            if key is not None and value is not None and (keys is None or key in keys)
        }

    def end_offsets(self, topics: Iterable[str]) -> dict[Partition, tuple[int, int]]:
        broker = self._broker
        return {
            (topic, index): (0, broker.stable_to.get((topic, index), 0))
            for topic in topics
            for index in range(broker.topics[topic].partition_count)
        }

    def read(
        self, assignments: Mapping[Partition, int], until: Mapping[Partition, int] | None = None
    ) -> Iterator[list[LogRecord]]:
        for partition, start in assignments.items():
            end = 1 << 62 if until is None else until[partition]
            if until is not None and self._broker.stable_to.get(partition, 0) < end:
                self._broker.write_markers()  # it waits until it is there
            batch: list[LogRecord] = [
                LogRecord(*partition, offset, 0, key, value, headers)
                for offset, (key, value, headers) in self._records(partition, stale=partition[0].endswith(".__cuts"))
                if start <= offset < end
            ]
            if batch:
                yield batch

    def _records(self, partition: Partition, *, stale: bool) -> list[tuple[int, Record]]:
        broker = self._broker
        if broker.world.clock.now_s >= broker.markers_due_s:
            broker.write_markers()
        records = broker.stable.get(partition, [])
        if stale and broker.stale_reads > 0 and records:
            broker.stale_reads -= 1
            if broker.world.dice.random() < 0.5:
                return [(offset, record) for offset, record, _ in records]
            broker.world.seen["stale read"] += 1
            # A last stable offset never lies inside of a transaction.
            numbers = list(dict.fromkeys(number for _, _, number in records))
            seen = set(numbers[: -broker.world.dice.randint(1, 4)])
            older = [(offset, record) for offset, record, number in records if number in seen]
            if partition[0] != "shop.__cuts" or not older or _place(older) != _place(records):
                return older
            # Two cuts at one position look alike, and so do the counts restored from them.
        return [(offset, record) for offset, record, _ in records]


def _place(records: Sequence[tuple[Any, ...]]) -> tuple[int, int, int, int] | None:
    """Return the position of the last cut; records are (offset, record, ...)."""
    values = [one[1][1] for one in records if one[1][1] is not None]
    if not values:
        return None
    cut = msgspec.json.decode(values[-1], type=Cut)
    return cut.end_lsn, cut.commit_lsn, cut.next_ordinal, cut.verified_lsn


class DirectoryDoor:
    """`cdc.publish.topic_setup.TopicDirectory`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def describe(self, topics: Iterable[str]) -> Mapping[str, TopicFacts | None]:
        return {topic: self._broker.topics.get(topic) for topic in topics}

    def create(self, specs: Sequence[TopicSpec]) -> None:
        for spec in specs:
            if spec.topic not in self._broker.topics:
                self._broker.topics[spec.topic] = TopicFacts(
                    topic=spec.topic,
                    topic_id=f"id-{len(self._broker.topics)}",
                    partition_count=spec.partition_count,
                    replication_factor=spec.replication_factor,
                    configs=dict(spec.configs),
                )


class SimulatedProducer:
    """One `cdc.publish.publisher.Producer` and the network before it.

    Attributes:
        queue: records that librdkafka has not sent; they may arrive even after the process dies.
        late: the next request of this kind times out and is repeated; its first copy is still on its way.
        owner: the ring that it belongs to.
    """

    def __init__(self, broker: Broker, transactional_id: str, owner: object) -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        self.owner = owner
        self.suspicious: str | None = None
        self.late = ""
        self.lazy = False
        self.queue: list[Callable[[], None]] = []
        self._epoch = -1
        self._sent: dict[Partition, int] = {}
        self._reports: dict[Partition, tuple[Callable[[int], None], int]] = {}
        self._offsets: dict[Partition, int] = {}

    @property
    def open(self) -> bool:
        """Whether it has an open transaction in the broker."""
        return self._epoch in self.broker.open

    @property
    def is_newest(self) -> bool:
        """Whether it is the newest producer."""
        return self.broker.is_newest(self._epoch)

    def init(self, timeout_s: float) -> None:
        self._epoch = self.broker.init(self.transactional_id, self.owner)

    def begin(self) -> None:
        if self.suspicious is not None:
            raise OutcomeUnknown(f"the producer must be replaced first: {self.suspicious}")

    def produce_all(
        self, topic: str, partition: int, records: list[Record], on_last: Callable[[int], None] | None
    ) -> None:
        if not records:
            return
        self.broker.alive(self._epoch)
        at, batch = (topic, partition), list(records)
        first = self._sent.get(at, 0)
        self._sent[at] = first + len(batch)
        if on_last is not None:
            self._reports[at] = (on_last, 0)

        def send() -> None:
            self._offsets[at] = self.broker.produce(self._epoch, at, batch, first=first)

        if self.late == "produce":
            self.late, self.suspicious = "", "a request timed out"
            self.broker.world.seen["produce sent twice"] += 1
            self.broker.hold(self._epoch, partial(self.broker.produce, self._epoch, at, batch, first=first))
        self.queue.append(send)
        if not self.lazy:
            self._send()

    def flush(self, timeout_s: float) -> None:
        self.broker.alive(self._epoch)
        if self.late == "lost":
            self.late = ""
            self.broker.world.seen["produce timed out"] += 1
            self.abandon()
            raise BrokerUnreachable("cannot deliver records: they are on their way")
        self._send()
        for at, (report, _) in self._reports.items():
            report(self._offsets[at])
        self._reports = {}

    def commit(self, timeout_s: float) -> None:
        self.broker.alive(self._epoch)
        epoch, end = self._epoch, self.broker.end
        if self.late == "end":
            self.late, self.suspicious = "", "a request timed out"
            self.broker.world.seen["commit sent twice"] += 1
            self.broker.hold(epoch, lambda: self._end_late(epoch))
        elif self.late == "unknown":
            self.late = ""
            self.broker.world.seen["commit on its way for ever"] += 1
            self.broker.hold(epoch, lambda: self._end_late(epoch))
            raise OutcomeUnknown("no answer to the commit")
        end(epoch, committed=True)

    def check(self, topic: str, timeout_s: float) -> None:
        """A fenced producer gets metadata, too."""

    def close(self) -> None:
        """Close without waiting or ending the transaction, as `TransactionalProducer.close`."""
        self.queue = []

    def abandon(self) -> None:
        """Die or give up; unsent records may still arrive."""
        for send in self.queue:
            self.broker.hold(self._epoch, send)
        self.queue = []

    def _end_late(self, epoch: int) -> None:
        if epoch in self.broker.open:
            self.broker.world.seen["late EndTxn found a transaction"] += 1
            self.broker.end(epoch, committed=True)

    def _send(self) -> None:
        while self.queue:
            self.queue.pop(0)()
