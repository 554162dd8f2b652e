"""Mutants of capture: each removes one rule, and the simulation must find it by a named obligation.

A mutant patches the real code, or an edge of the simulation if the rule belongs to the edge, such as fencing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import pytest

from cdc.capture import assembler
from cdc.capture.pipeline import Pipeline
from cdc.encode.envelope import stamp
from cdc.errors import InvariantError
from cdc.lsn import Lsn
from cdc.model.change_records import BatchStats, Stamp, StreamPosition, TopicBuffer
from cdc.model.progress_record import SchemaRecord
from cdc.progress import restore as restoring
from cdc.progress.restore import Restored, restore
from cdc.publish import ledger
from cdc.publish.publisher import KafkaPublisher, Producer
from cdc.replication.slot import SlotFacts
from cdc.startup import claim_log, writer_claim
from cdc.wire import pgoutput
from tests.simulation.broker import SimulatedProducer
from tests.simulation.capture import Life, OpenStream
from tests.simulation.source import Walsender

Mutant: TypeAlias = Callable[[pytest.MonkeyPatch], None]
"""Removes a rule; the caller undoes the patch."""


def ack_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Acknowledges WAL to PostgreSQL when it is submitted to Kafka, before the commit."""
    submit = Pipeline._submit

    def early(self: Pipeline, stats: BatchStats, position: StreamPosition, began_s: float) -> None:
        self._parts.stream.confirm(min(position.end_lsn, self._parts.verified()))
        submit(self, stats, position, began_s)

    patch.setattr(Pipeline, "_submit", early)


def skip_the_sentinel(patch: pytest.MonkeyPatch) -> None:
    """Trusts a read right after fencing."""

    def read(config: Any, reader: Any, publisher: KafkaPublisher, clock: Any) -> Restored:
        return restore(reader, config.name)

    patch.setattr(claim_log, "read_behind_sentinel", read)


def believe_any_cut_index(patch: pytest.MonkeyPatch) -> None:
    """Trusts a read of the cut index after the sentinel, whatever the progress record says."""
    patch.setattr(restoring, "_place", lambda _: restoring._NOWHERE)


def sentinel_of_one_producer(patch: pytest.MonkeyPatch) -> None:
    """Lets only the first producer commit a sentinel."""
    write = KafkaPublisher.write_sentinel

    def first(self: KafkaPublisher, nonce: bytes) -> None:
        every = self._producers
        self._producers = every[:1]
        try:
            write(self, nonce)
        finally:
            self._producers = every

    patch.setattr(KafkaPublisher, "write_sentinel", first)


def skip_fencing(patch: pytest.MonkeyPatch) -> None:
    """Gives every start its own transactional id."""
    made = Life._publisher

    def private(self: Life, clock: Any, epoch: int) -> KafkaPublisher:
        self.weather.private = True
        return made(self, clock, epoch)

    patch.setattr(Life, "_publisher", private)


def fence_its_own_ring(patch: pytest.MonkeyPatch) -> None:
    """Forgets that a predecessor may have had a larger ring."""
    fence = KafkaPublisher.fence

    def fewer(self: KafkaPublisher) -> None:
        del self._producers[self._ring :]
        fence(self)

    patch.setattr(KafkaPublisher, "fence", fewer)


def read_before_all_are_fenced(patch: pytest.MonkeyPatch) -> None:
    """Fences one producer, writes the sentinel and reads; then fences the others."""
    read = writer_claim.read_behind_sentinel

    others: list[Producer] = []

    def first(self: KafkaPublisher) -> None:
        self._producers[0].init(1.0)
        others[:] = self._producers[1:]
        del self._producers[1:]

    def late(config: Any, reader: Any, publisher: KafkaPublisher, clock: Any) -> Restored:
        restored = read(config, reader, publisher, clock)
        for producer in others:
            producer.init(1.0)
        publisher._producers += others[: publisher._ring - 1]
        return restored

    patch.setattr(KafkaPublisher, "fence", first)
    patch.setattr(claim_log, "read_behind_sentinel", late)


def commit_before_the_last_commit_is_known(patch: pytest.MonkeyPatch) -> None:
    """Commits a transaction whatever became of the one before."""
    commit = KafkaPublisher._commit
    patch.setattr(
        KafkaPublisher, "_commit", lambda self, producer, delivered, _: commit(self, producer, delivered, None)
    )


def write_before_the_last_batch_is_delivered(patch: pytest.MonkeyPatch) -> None:
    """Hands a batch to the next producer at once, as long as one is free."""
    patch.setattr(KafkaPublisher, "ready", property(lambda self: not self.full))
    patch.setattr(KafkaPublisher, "wait_delivered", lambda _: None)


def predict_offsets(patch: pytest.MonkeyPatch) -> None:
    """Takes every marker for written when the next transaction begins."""
    delivered = ledger.Ledger.delivered

    def predicted(self: ledger.Ledger, last: Any) -> Any:
        expected = {at: running.base + running.markers + running.pending - 1 for at, running in self._touched.items()}
        return delivered(self, expected)

    patch.setattr(ledger.Ledger, "delivered", predicted)


def no_rotation(patch: pytest.MonkeyPatch) -> None:
    """Reuses a producer whose request timed out."""
    patch.setattr(KafkaPublisher, "retire_reason", None)
    # The producer refuses as well: `cdc.kafka.producer.TransactionalProducer.begin`.
    patch.setattr(SimulatedProducer, "suspicious", property(lambda _: None, lambda *_: None), raising=False)


def drop_every_1000th_event(patch: pytest.MonkeyPatch) -> None:
    """Loses one record in a thousand."""
    count, write = 0, KafkaPublisher.write

    def leaky(self: KafkaPublisher, buffers: Sequence[TopicBuffer], schemas: Sequence[SchemaRecord]) -> None:
        nonlocal count
        for buffer in buffers:
            for records in buffer.partitions:
                count += len(records)
                if records and count >= 1000:
                    count = 0
                    records.pop()
        write(self, buffers, schemas)

    patch.setattr(KafkaPublisher, "write", leaky)


def ack_start_of_the_last_transaction(patch: pytest.MonkeyPatch) -> None:
    """Acknowledges the start of the last commit record instead of its end."""
    confirm = Pipeline._confirm

    def short(self: Pipeline) -> None:
        position = self._parts.assembler.position
        if self._durable == position.end_lsn and position.commit_lsn and not position.next_ordinal:
            self._durable = position.commit_lsn
        confirm(self)

    patch.setattr(Pipeline, "_confirm", short)


def store_start_of_the_last_transaction(patch: pytest.MonkeyPatch) -> None:
    """Records the start of the last commit record as the position instead of its end."""
    commit = assembler.Assembler._commit

    def short(self: assembler.Assembler, message: pgoutput.Commit) -> None:
        commit(self, message)
        if self.position.commit_lsn == message.commit_lsn:
            self.position = StreamPosition(message.commit_lsn, message.commit_lsn)

    patch.setattr(assembler.Assembler, "_commit", short)


def skip_at_end_lsn(patch: pytest.MonkeyPatch) -> None:
    """Uses `<=` in the skip rule."""
    begin = assembler.Assembler._begin

    def loose(self: assembler.Assembler, message: pgoutput.Begin) -> None:
        begin(self, message)
        if message.commit_lsn == self._start.end_lsn and not self._start.next_ordinal:
            self._skip_below = assembler._SKIP_ALL

    patch.setattr(assembler.Assembler, "_begin", loose)


def skip_nothing(patch: pytest.MonkeyPatch) -> None:
    """Publishes transactions again that PostgreSQL sends again."""
    begin = assembler.Assembler._begin

    def all_of_it(self: assembler.Assembler, message: pgoutput.Begin) -> None:
        begin(self, message)
        self._skip_below = 0

    patch.setattr(assembler.Assembler, "_begin", all_of_it)


def init_transactions_before_the_slot(patch: pytest.MonkeyPatch) -> None:
    """Fences before it has the slot."""
    opened = Life.open

    def late(self: Life, at: Lsn, slot: SlotFacts) -> OpenStream:
        self._publisher(self.weather.world.clock, 1).fence()
        return opened(self, at, slot)

    patch.setattr(Life, "open", late)


def refuse_to_confirm_more_than_was_received(patch: pytest.MonkeyPatch) -> None:
    """Treats a log that is ahead of the stream, as after a take-over, as an error."""
    confirm = Walsender.confirm

    def strict(self: Walsender, lsn: Lsn) -> None:
        if lsn > self.received:
            raise InvariantError("confirms more than it received")
        confirm(self, lsn)

    patch.setattr(Walsender, "confirm", strict)


def trust_the_slot(patch: pytest.MonkeyPatch) -> None:
    """Does not compare the position of the slot with the log."""
    patch.setattr(claim_log, "check_identity", lambda *_: None)


def ack_what_nobody_looked_at(patch: pytest.MonkeyPatch) -> None:
    """Ignores the catalog watch."""
    patch.setattr(Life, "verified", lambda _: Lsn(1 << 60))


def keepalive_moves_on_inside_a_spread_transaction(patch: pytest.MonkeyPatch) -> None:
    """Moves the position at a keepalive between two parts of a source transaction."""

    def moved(self: assembler.Assembler, frame: bytes) -> bool:
        wal_end = Lsn(int.from_bytes(frame[1:9], "big"))
        if self._open is None and wal_end >= self.position.end_lsn:
            self.position = StreamPosition(wal_end, self.position.commit_lsn)
        return False

    patch.setattr(assembler.Assembler, "_keepalive", moved)


def bytes_that_depend_on_the_start(patch: pytest.MonkeyPatch) -> None:
    """Puts something of this process into stamps."""
    starts = 0
    start = Life._start

    def stamped(begin: pgoutput.Begin, epoch: int) -> Stamp:
        return stamp(replace(begin, commit_us=begin.commit_us + starts * 1000), epoch)

    def counted(self: Life) -> None:
        nonlocal starts
        starts += 1
        start(self)

    patch.setattr(Life, "_start", counted)

    patch.setattr(assembler, "make_stamp", stamped)


def hash_of_the_value_alone(patch: pytest.MonkeyPatch) -> None:
    """Leaves the key out of the running hash of the cut index."""
    roll = ledger.roll
    patch.setattr(
        ledger, "roll", lambda rolling, records: roll(rolling, [(None, value or b"", None) for _, value, _ in records])
    )


MUTANTS: Final[dict[str, tuple[Mutant, str]]] = {
    mutant.__name__: (mutant, obligation)
    for mutant, obligation in (
        (ack_before_commit, "P2"),
        (skip_the_sentinel, "P4"),
        (believe_any_cut_index, "G8"),
        (sentinel_of_one_producer, "P11"),
        (skip_fencing, "P6"),
        (fence_its_own_ring, "P6"),
        (read_before_all_are_fenced, "P11"),
        (commit_before_the_last_commit_is_known, "P3"),
        (write_before_the_last_batch_is_delivered, "G8"),
        (predict_offsets, "G8"),
        (no_rotation, "P1"),
        (drop_every_1000th_event, "P3"),
        (ack_start_of_the_last_transaction, "P12"),
        (store_start_of_the_last_transaction, "P1"),
        (skip_at_end_lsn, "P3"),
        (skip_nothing, "P4"),
        (init_transactions_before_the_slot, "P6"),
        (refuse_to_confirm_more_than_was_received, "P11"),
        (trust_the_slot, "P3"),
        (ack_what_nobody_looked_at, "P11"),
        (keepalive_moves_on_inside_a_spread_transaction, "P4"),
        (bytes_that_depend_on_the_start, "P8"),
        (hash_of_the_value_alone, "G8"),
    )
}
"""Each mutant with the obligation that finds it."""
