"""Writes the log: events, progress and cut in one Kafka transaction. Only one publisher writes at a time.

A commit, step by step (the code has the same numbers):

1. the last record of every touched partition is handed over with a delivery callback, and progress follows;
2. flush: everything is delivered;
3. the reported offsets are possible, or nothing is committed;
4. the commit before is known, and the cut, which contains the offsets, is delivered;
5. commit, and know the outcome.

`submit` does 1. One thread does 2 and 3, another one 4 and 5. The next batch may be written after 3. So records reach a
partition in order, and transactions are committed in order. None is committed unless the one before is.

Several producers take turns, each with a transactional id of its own. The coordinator answers a commit first and writes
the markers afterwards. Meanwhile it refuses another transaction of the same producer, and librdkafka tries again 20 ms
later; the next producer does not wait.

After anything but a known commit, the publisher and all its producers are discarded. librdkafka does not implement
KIP-890, so a late EndTxn could end a later transaction of the same producer. The caller creates new ones and reads the
recorded position back. Does not access PostgreSQL.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import msgspec

from cdc.clock import Clock
from cdc.errors import OutcomeUnknown
from cdc.lsn import Lsn
from cdc.model.change_records import Record, StreamPosition, TopicBuffer
from cdc.model.outbox_record import OutboxRecord
from cdc.model.progress_record import Cut, Identity, Progress, SchemaKey, SchemaRecord
from cdc.model.snapshot_record import NO_NOTES, SnapshotNotes
from cdc.model.table_facts import CatalogScope, TableRecord
from cdc.model.topic_names import cuts_topic, progress_topic, schema_topic
from cdc.progress.record_format import (
    catalog_key,
    encode,
    identity_key,
    outbox_key,
    progress_key,
    sentinel_key,
    signals_key,
    snapshot_key,
    table_key,
)
from cdc.publish.ledger import Ledger, Partition

FULL_CUT_RECORDS: Final = 1000  # a full map at least every 1,000 records,
FULL_CUT_S: Final = 10.0  # every 10 s, and at each start
PATIENCE_S: Final = 50.0  # below transaction.timeout.ms = 60 s, so that the publisher gives up before the broker
INIT_TIMEOUT_S: Final = 30.0
CHECK_TIMEOUT_S: Final = 5.0
_EMPTY: Final[Record] = (None, None, None)
"""Readers of the cut index skip it."""
RING: Final = 3
"""How many producers take turns. A fourth one gains nothing (docs/performance.md)."""
RING_MAX: Final = 8
"""A start fences this many, because its predecessor may be of a version that has more. No version may have more."""


class Producer(Protocol):
    """A transactional producer; `cdc.kafka.producer.TransactionalProducer` implements it."""

    @property
    def suspicious(self) -> str | None:
        """Why this producer must not begin another transaction; None if it may."""

    def init(self, timeout_s: float) -> None:
        """Fence every older producer with the same transactional id."""

    def begin(self) -> None:
        """Begin a transaction."""

    def produce_all(
        self, topic: str, partition: int, records: list[Record], on_last: Callable[[int], None] | None
    ) -> None:
        """Queue records; `on_last` receives the offset of the last one when it is delivered."""

    def flush(self, timeout_s: float) -> None:
        """Deliver everything queued."""

    def commit(self, timeout_s: float) -> None:
        """Commit. Returns when the commit is known; otherwise raises."""

    def check(self, topic: str, timeout_s: float) -> None:
        """Ask for the metadata of a topic. Raises BrokerUnreachable."""

    def close(self) -> None:
        """Discard the producer and its queue."""


@dataclass(frozen=True, slots=True)
class _Submitted:
    """A commit under way: `delivered` is its cut, once the broker has every other record; `done`: it is known."""

    delivered: Future[Cut]
    done: Future[None]


class KafkaPublisher:
    """Implements `cdc.contracts.Publisher`. Called from one thread."""

    def __init__(
        self,
        name: str,
        producers: Sequence[Producer],
        clock: Clock,
        *,
        epoch: int,
        ring: int = RING,
        patience_s: float = PATIENCE_S,
        executor: Executor | None = None,
    ) -> None:
        """The first `ring` of the producers take turns; the others only fence their predecessors.

        `patience_s` is how long to wait for Kafka, less than the timeout of a transaction.

        `executor` runs the parts of a commit that wait: two threads, unless a simulation passes its own.
        """
        self._patience_s = patience_s
        self._delivering = executor or ThreadPoolExecutor(1, thread_name_prefix="deliver")
        self._committing = executor or ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._submitted: deque[_Submitted] = deque()
        self.ledger = Ledger(ring)
        self.tables: dict[str, str] = {}
        self._name = name
        self._producers = list(producers)
        self._ring = ring
        self._turn = 0
        self._clock = clock
        self._epoch = epoch
        self._open = False
        self._held: dict[Partition, Record] = {}
        self._identity: Identity | None = None
        self._notes: list[Record] = []
        self._since_lsn = Lsn(0)
        self._cuts_since_full = FULL_CUT_RECORDS
        self._full_at_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether a Kafka transaction is open."""
        return self._open

    @property
    def retire_reason(self) -> str | None:
        """See `cdc.contracts.Publisher.retire_reason`."""
        return next((reason for one in self._producers if (reason := one.suspicious) is not None), None)

    @property
    def _producer(self) -> Producer:
        return self._producers[self._turn]

    def fence(self) -> None:
        """Become the only writer: Kafka refuses every older producer of this capture from now on."""
        for producer in self._producers:
            producer.init(INIT_TIMEOUT_S)

    def write_sentinel(self, nonce: bytes) -> None:
        """Commit a sentinel, so that a reader knows when it has read everything before it.

        Each fenced producer commits one, also to the cut index; then those that take no turns are closed. A single
        broker that stops can skip the markers of a commit that it has acknowledged, which hides everything behind it
        (docs/internals/kafka.md). The next marker of the same producer in the partition takes their place.
        """
        record: Record = (sentinel_key(self._name), nonce, None)
        for producer in self._producers:
            producer.begin()
            producer.produce_all(progress_topic(self._name), 0, [record], None)
            producer.produce_all(cuts_topic(self._name), 0, [_EMPTY], None)
            producer.flush(self._patience_s)
            producer.commit(self._patience_s)
        while len(self._producers) > self._ring:
            self._producers.pop().close()

    def introduce(self, identity: Identity, since_lsn: Lsn) -> None:
        """Write `identity` and a full cut with the next commit. Its counts began at `since_lsn`; 0: with the log."""
        self._identity = identity
        self._since_lsn = since_lsn
        self._cuts_since_full = FULL_CUT_RECORDS

    def note(self, scope: CatalogScope | None, tables: Mapping[str, TableRecord | None]) -> None:
        """Write these facts of the catalog with the next commit; None deletes the scope or the record of a table."""
        self._notes.append((catalog_key(self._name), None if scope is None else encode(scope), None))
        for table, record in sorted(tables.items()):
            value = None if record is None else encode(record)
            self._notes.append((table_key(self._name, table), value, None))

    def keep(self, record: OutboxRecord) -> None:
        """Write the record of the outbox with the next commit."""
        self._notes.append((outbox_key(self._name), encode(record), None))

    def write(self, buffers: Sequence[TopicBuffer], schemas: Sequence[SchemaRecord]) -> None:
        """See `cdc.contracts.Publisher.write`. Holds back the last record of each partition for the commit."""
        self._begin()
        if schemas:
            self._write_partition((schema_topic(self._name), 0), [_schema_record(schema) for schema in schemas])
        for buffer in buffers:
            topic = buffer.topic
            for index, records in enumerate(buffer.partitions):
                if records:
                    self._write_partition((topic, index), records)
            buffer.clear()

    def submit(self, position: StreamPosition, verified: Lsn, notes: SnapshotNotes = NO_NOTES) -> None:
        """See `cdc.contracts.Publisher.submit`."""
        self._begin()
        producer, delivered = self._producer, dict[Partition, int]()
        for partition, record in self._held.items():  # 1
            producer.produce_all(*partition, [record], partial(delivered.__setitem__, partition))
        self._held = {}
        # The cut follows when offsets are known. This adds its partition to the transaction together with the others.
        producer.produce_all(cuts_topic(self._name), 0, [_EMPTY], None)
        cut = self._write_position(position, verified, notes)
        before = self._submitted[-1].done if self._submitted else None
        self._open = False
        self._turn = (self._turn + 1) % self._ring
        arrived = self._delivering.submit(self._deliver, producer, cut, delivered)
        done = self._committing.submit(self._commit, producer, arrived, before)
        self._submitted.append(_Submitted(arrived, done))

    @property
    def ready(self) -> bool:
        """See `cdc.contracts.Publisher.ready`."""
        return not self.full and (not self._submitted or self._submitted[-1].delivered.done())

    @property
    def full(self) -> bool:
        """See `cdc.contracts.Publisher.full`."""
        return len(self._submitted) == self._ring

    def wait_delivered(self) -> None:
        """See `cdc.contracts.Publisher.wait_delivered`."""
        if self._submitted:
            self._submitted[-1].delivered.result()

    @property
    def settling(self) -> bool:
        """See `cdc.contracts.Publisher.settling`."""
        return bool(self._submitted) and not self._submitted[0].done.done()

    def settle(self) -> None:
        """See `cdc.contracts.Publisher.settle`."""
        if self._submitted:
            self._submitted[0].done.result()
            self._submitted.popleft()

    def check(self) -> None:
        """See `cdc.contracts.Publisher.check`."""
        assert not self._submitted, "producers belong to the threads of their commits"
        for producer in self._producers:  # all of them: the broker closes connections that are idle for long
            producer.check(progress_topic(self._name), CHECK_TIMEOUT_S)

    def commit(self, position: StreamPosition, verified: Lsn, notes: SnapshotNotes = NO_NOTES) -> None:
        """`submit` and `settle`, until all is known."""
        self.submit(position, verified, notes)
        while self._submitted:
            self.settle()

    def _deliver(self, producer: Producer, cut: Cut, delivered: Mapping[Partition, int]) -> Cut:
        """Wait for the records of a transaction. Returns its cut."""
        producer.flush(self._patience_s)  # 2
        self._check(delivered)  # 3
        cut = msgspec.structs.replace(cut, changed=self.ledger.changed(full=cut.full))
        self.ledger.committed()
        return cut

    def _commit(self, producer: Producer, delivered: Future[Cut], before: Future[None] | None) -> None:
        """Write the cut and commit, if the transaction before is committed."""
        if before is not None:
            before.result()
        cut = delivered.result()
        producer.produce_all(cuts_topic(self._name), 0, [(None, encode(cut), None)], None)  # 4
        producer.flush(self._patience_s)
        producer.commit(self._patience_s)  # 5

    def close(self) -> None:
        """Close the producers, after the commits under way, which own them. What is not committed never will be."""
        self._delivering.shutdown()
        self._committing.shutdown()
        for producer in self._producers:
            producer.close()

    def _begin(self) -> None:
        assert self.ready, "the batch before is not delivered"
        if not self._open:
            self._producer.begin()
            self._open = True

    def _write_partition(self, partition: Partition, records: list[Record]) -> None:
        self.ledger.write(partition, records)
        held = self._held.get(partition)
        if held is not None:
            records.insert(0, held)
        self._held[partition] = records.pop()
        if records:
            self._producer.produce_all(*partition, records, None)

    def _write_position(self, position: StreamPosition, verified: Lsn, notes: SnapshotNotes) -> Cut:
        now_s = self._clock.monotonic_s()
        full = self._cuts_since_full >= FULL_CUT_RECORDS or now_s - self._full_at_s >= FULL_CUT_S
        self._cuts_since_full = 1 if full else self._cuts_since_full + 1
        if full:
            self._full_at_s = now_s
        progress = Progress(
            epoch=self._epoch,
            end_lsn=position.end_lsn,
            commit_lsn=position.commit_lsn,
            next_ordinal=position.next_ordinal,
            verified_lsn=verified,
            pending_visibility=notes.pending or msgspec.UNSET,
        )
        states = {table: record.cut_state for table, record in notes.records.items()}
        changed = {table: state for table, state in states.items() if self.tables.get(table) != state}
        self.tables.update(changed)
        cut = Cut(
            epoch=self._epoch,
            end_lsn=position.end_lsn,
            commit_lsn=position.commit_lsn,
            next_ordinal=position.next_ordinal,
            verified_lsn=verified,
            full=full,
            since_lsn=self._since_lsn if full else 0,
            tables=dict(self.tables) if full else changed,
            changed={},
        )
        topic = progress_topic(self._name)
        if self._identity is not None:
            self._produce_control(topic, identity_key(self._name), encode(self._identity))
            self._identity = None
        for table, record in notes.records.items():
            self._produce_control(topic, snapshot_key(self._name, table), encode(record))
        if self._notes:
            self._producer.produce_all(topic, 0, self._notes, None)
            self._notes = []
        if notes.signals is not None:
            self._produce_control(topic, signals_key(self._name), encode(notes.signals))
        self._produce_control(topic, progress_key(self._name), encode(progress))
        return cut

    def _produce_control(self, topic: str, key: bytes, value: bytes) -> None:
        self._producer.produce_all(topic, 0, [(key, value, None)], None)

    def _check(self, delivered: Mapping[Partition, int]) -> None:
        wrong = self.ledger.delivered(delivered)
        if wrong is not None:
            (topic, index), offset, possible = wrong
            raise OutcomeUnknown(
                f"the last record of {topic}-{index} got offset {offset}; expected offset "
                + " to ".join(map(str, dict.fromkeys((possible[0], possible[-1])))),
                hint="another program writes to the topic; nothing of this transaction is committed",
                topic=topic,
                partition=index,
            )


def _schema_record(schema: SchemaRecord) -> Record:
    return encode(SchemaKey(schema.table, schema.schema_id)), encode(schema), None
