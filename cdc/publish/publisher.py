"""Writes the log: events, progress and cut in one Kafka transaction. Only one publisher writes at a time.

A commit, step by step (the code has the same numbers):

1. the last record of every touched partition is handed over with a delivery callback;
2. progress and cut follow, with the offsets that those records will have;
3. flush: everything is delivered;
4. the reported offsets equal the predicted ones, or nothing is committed;
5. commit, and know the outcome.

`submit` does 1 and 2. A thread of its own does 3 to 5, which wait for the broker, while the next batch is read. The
producer belongs to that thread until `settle`: nothing may be written in between.

After anything but a known commit, the publisher and its producer are discarded. librdkafka does not implement KIP-890,
so a late EndTxn could end the next transaction of the same producer. The caller creates new ones and reads the recorded
position back. Does not access PostgreSQL.
"""

from __future__ import annotations

import threading
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
from cdc.publish.pacing import Pacer

FULL_CUT_RECORDS: Final = 1000  # a full map at least every 1,000 records,
FULL_CUT_S: Final = 10.0  # every 10 s, and at each start
PATIENCE_S: Final = 50.0  # below transaction.timeout.ms = 60 s, so that the publisher gives up before the broker
INIT_TIMEOUT_S: Final = 30.0
CHECK_TIMEOUT_S: Final = 5.0
_NEVER: Final = threading.Event()


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
    """A commit under way: the future of its completion time, when it began, and whether its cut was a full one."""

    done: Future[float]
    began_s: float
    full: bool


class KafkaPublisher:
    """Implements `cdc.contracts.Publisher`. Called from one thread."""

    def __init__(
        self,
        name: str,
        producer: Producer,
        clock: Clock,
        *,
        epoch: int,
        patience_s: float = PATIENCE_S,
        executor: Executor | None = None,
    ) -> None:
        """`patience_s` is how long to wait for Kafka, less than the timeout of a transaction.

        `executor` runs the waiting part of a commit: a thread, unless a simulation passes its own.
        """
        self._patience_s = patience_s
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._submitted: _Submitted | None = None
        self.ledger = Ledger()
        self.tables: dict[str, str] = {}
        self._name = name
        self._producer = producer
        self._clock = clock
        self._epoch = epoch
        self._open = False
        self._pacer = Pacer()
        self._held: dict[Partition, Record] = {}
        self._delivered: dict[Partition, int] = {}
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
        return self._producer.suspicious

    def fence(self) -> None:
        """Become the only writer: Kafka refuses every older producer with this transactional id from now on."""
        self._producer.init(INIT_TIMEOUT_S)

    def write_sentinel(self, nonce: bytes) -> None:
        """Commit a sentinel, so that a reader knows when it has read everything before it."""
        self._producer.begin()
        self._produce_control(progress_topic(self._name), sentinel_key(self._name), nonce)
        self._producer.flush(self._patience_s)
        self._producer.commit(self._patience_s)

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
        began_s = self._clock.monotonic_s()
        produce_all = self._producer.produce_all
        for partition, record in self._held.items():  # 1
            produce_all(*partition, [record], partial(self._delivered.__setitem__, partition))
        self._held = {}
        full = self._write_position(position, verified, notes)  # 2
        self._open = False
        self._submitted = _Submitted(self._executor.submit(self._finish), began_s, full)

    @property
    def settling(self) -> bool:
        """See `cdc.contracts.Publisher.settling`."""
        return self._submitted is not None and not self._submitted.done.done()

    def settle(self) -> None:
        """See `cdc.contracts.Publisher.settle`."""
        submitted = self._submitted
        if submitted is None:
            return
        committed_s = submitted.done.result()
        self._submitted = None
        self._pacer.committed(submitted.began_s, committed_s)
        self.ledger.committed()
        self._delivered.clear()
        self._identity = None
        self._cuts_since_full = 1 if submitted.full else self._cuts_since_full + 1

    def check(self) -> None:
        """See `cdc.contracts.Publisher.check`."""
        assert self._submitted is None, "the producer belongs to the thread of the commit"
        self._producer.check(progress_topic(self._name), CHECK_TIMEOUT_S)

    def commit(self, position: StreamPosition, verified: Lsn, notes: SnapshotNotes = NO_NOTES) -> None:
        """`submit` and `settle`."""
        self.submit(position, verified, notes)
        self.settle()

    def _finish(self) -> float:
        """Do the part of a commit that waits for the broker. Returns the time at which it was known."""
        self._producer.flush(self._patience_s)  # 3
        self._check(self.ledger.expected())  # 4
        self._producer.commit(self._patience_s)  # 5
        return self._clock.monotonic_s()

    def close(self) -> None:
        """Close the producer, after a commit under way, which owns it. What is not committed never will be."""
        self._executor.shutdown()
        self._producer.close()

    def _begin(self) -> None:
        assert self._submitted is None, "one batch at a time"
        if not self._open:
            wait_s = self._pacer.wait_s(self._clock.monotonic_s())
            if wait_s > 0:
                self._clock.wait(_NEVER, wait_s)
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

    def _write_position(self, position: StreamPosition, verified: Lsn, notes: SnapshotNotes) -> bool:
        now_s = self._clock.monotonic_s()
        full = self._cuts_since_full >= FULL_CUT_RECORDS or now_s - self._full_at_s >= FULL_CUT_S
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
            changed=self.ledger.changed(full=full),
        )
        topic = progress_topic(self._name)
        if self._identity is not None:
            self._produce_control(topic, identity_key(self._name), encode(self._identity))
        for table, record in notes.records.items():
            self._produce_control(topic, snapshot_key(self._name, table), encode(record))
        if self._notes:
            self._producer.produce_all(topic, 0, self._notes, None)
            self._notes = []
        if notes.signals is not None:
            self._produce_control(topic, signals_key(self._name), encode(notes.signals))
        self._produce_control(topic, progress_key(self._name), encode(progress))
        self._produce_control(cuts_topic(self._name), None, encode(cut))
        return full

    def _produce_control(self, topic: str, key: bytes | None, value: bytes) -> None:
        self._producer.produce_all(topic, 0, [(key, value, None)], None)

    def _check(self, expected: Mapping[Partition, int]) -> None:
        for partition, offset in expected.items():
            found = self._delivered.get(partition)
            if found != offset:
                raise OutcomeUnknown(
                    f"the last record of {partition[0]}-{partition[1]} got offset {found}; expected offset {offset}",
                    hint="another program writes to the topic; nothing of this transaction is committed",
                    topic=partition[0],
                    partition=partition[1],
                )


def _schema_record(schema: SchemaRecord) -> Record:
    return encode(SchemaKey(schema.table, schema.schema_id)), encode(schema), None
