"""The capture loop: read, transcode, publish, confirm.

One thread runs it; no other thread handles single rows. A batch ends as soon as nothing more is readable, so light load
has low latency and heavy load has large batches. A batch ends at a boundary between source transactions, unless one
transaction alone exceeds twice the limits. While Kafka takes a batch, the next one is read. It is written when all
records before it are delivered, even if their commit is not known yet.

The loop uses only the interfaces of `cdc.contracts`, so that the simulation runs this code.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cdc.capture.assembler import Assembler, DescribedAgain, Stop, Truncated, Unplanned
from cdc.capture.no_snapshots import NoSnapshots
from cdc.capture.split_rows import together
from cdc.clock import Clock
from cdc.contracts import (
    BatchObserver,
    LiveKeys,
    PlannedRelation,
    Publisher,
    RelationPlanner,
    ReplicationStream,
    Reselect,
    SideWriter,
    Snapshots,
    Stage,
    Transcoding,
)
from cdc.errors import OutcomeUnknown, RegistryRefused, RowRefused, SourceError, SourceRefused, SourceUnreachable
from cdc.lsn import Lsn
from cdc.model.change_records import BatchStats, StreamPosition, TopicBuffer, Truncation
from cdc.model.progress_record import SchemaRecord
from cdc.model.relation import Relation
from cdc.model.snapshot_record import NO_NOTES

_SLICE_ROWS: Final = 2000  # rows handed to Kafka at a time: bounds memory, overlaps reading and sending
_SLICE_BYTES: Final = 2 << 20
_OPEN_MAX_S: Final = 5.0  # a Kafka transaction is open this long inside one of the source: spread it (limit: 60 s)
# Rows of a snapshot arrive without pause. A batch that has changes beside them is committed after this long:
_MIXED_AGE_S: Final = 0.02  # if Kafka is idle
_MIXED_AGE_MAX_S: Final = 0.1  # if it is busy with the previous batch
# While changes arrive, no more rows of a snapshot join a batch that has this many: Kafka takes a larger one for longer,
# and a change waits for the batch before its own. Without changes, batches grow up to their limits.
_MIXED_ROWS_MAX: Final = 3000
_CHANGES_S: Final = 1.0  # changes arrive if the last one is not older
_KNOWN_S: Final = 0.002  # how often commits under way are asked for their outcome while nothing is readable
_IDLE_PROGRESS_S: Final = 1.0  # progress for WAL of other tables is committed at most once a second
_NOTHING: Final = BatchStats(0, 0, 0, 0)


@dataclass(slots=True)
class Parts:
    """What a pipeline is made of. All of it is discarded together.

    `kafka_check_s`: without a commit for this long, Kafka is asked for an answer, and again as often.
    """

    stream: ReplicationStream
    publisher: Publisher
    assembler: Assembler
    planner: RelationPlanner
    live_keys: LiveKeys
    reselect: Reselect
    observer: BatchObserver
    clock: Clock
    verified: Callable[[], Lsn]
    batch_age_max_s: float
    kafka_check_s: float = 10.0
    side_buffers: Sequence[TopicBuffer] = ()
    snapshots: Snapshots = field(default_factory=NoSnapshots)
    asides: Sequence[SideWriter] = ()
    stages: Sequence[Stage] = ()
    shown: Callable[[Relation, Lsn], None] = lambda _relation, _lsn: None


class Pipeline:
    """Runs until it is stopped or something fails. It is not used again after that."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._buffers = {buffer.topic: buffer for buffer in parts.side_buffers}
        self._planned: dict[int, PlannedRelation] = {}
        self._schemas: list[SchemaRecord] = []
        self._unwritten = (0, 0)
        self._written: tuple[BatchStats, StreamPosition] | None = None
        self._notes = NO_NOTES
        self._committed = _NOTHING
        self._sliced = True
        self._batch_since_s: float | None = None
        self._copied_count = 0
        self._changed_s = -_CHANGES_S
        self._hasten = False
        self._last_commit_s = 0.0
        self._kafka_answered_s = parts.clock.monotonic_s()
        self._opened_s = 0.0
        self._durable = parts.assembler.position.end_lsn
        self._submitted: deque[tuple[BatchStats, StreamPosition, float]] = deque()

    def run(self, stop: threading.Event) -> None:
        """Capture until `stop`. Publishes the complete transactions read so far before it returns."""
        while not stop.is_set():
            self.step()
        if not self._parts.assembler.in_transaction and self._parts.assembler.filled:
            self._commit()
        self._finish()
        self._confirm()

    def step(self) -> None:
        """Take what is readable now, or wait a moment; commit if there is a reason to."""
        parts, assembler = self._parts, self._parts.assembler
        frames = self._read()
        rows_before, full = assembler.row_count, False
        at = 0
        while at < len(frames):
            at, stop = self._feed(frames, at)
            if isinstance(stop, Unplanned):
                self._plan(stop.relation)
            elif isinstance(stop, DescribedAgain):
                self._show(stop.relation)
            elif isinstance(stop, Truncated):
                if not self._truncate(stop.tables):
                    return
            elif stop is not None:
                full = True
                self._join()
                if not self._commit():
                    return
        self._join()
        self._take_known()
        quiet = not full and rows_before == assembler.row_count
        if quiet and not assembler.in_transaction:
            if assembler.filled and not parts.publisher.ready:
                self._make_room()
                return  # what arrived meanwhile belongs to the same batch
            parts.observer.caught_up()
        self._settle(quiet=quiet)

    def _read(self) -> list[bytes]:
        """Read the stream. If it is broken, the commits under way say first whether another process has taken over."""
        try:
            return self._parts.stream.read(self._wait_s)
        except SourceError:
            self._finish()
            raise

    @property
    def _wait_s(self) -> float:
        """How long to wait for the stream: not at all if something can be done without it."""
        if (self._parts.assembler.filled and not self._parts.assembler.in_transaction) or self._may_join:
            return 0.0
        return min(_KNOWN_S, self._parts.snapshots.wait_s) if self._submitted else self._parts.snapshots.wait_s

    def _feed(self, frames: list[bytes], at: int) -> tuple[int, Stop | None]:
        """Feed on. If a row is refused, publish everything before it first, so that a restart begins at that row."""
        assembler = self._parts.assembler
        try:
            return assembler.feed(frames, at, hasten=self._hasten)
        except (RowRefused, SourceRefused) as error:
            if assembler.row_position is not None:
                lsn, ordinal = assembler.row_position
                error.add_place(f"change {ordinal} of the transaction at {lsn}", lsn=lsn, ordinal=ordinal)
            assembler.step_back()
            self._commit()
            self._finish()
            raise

    def _settle(self, *, quiet: bool) -> None:
        """After every read: hand over a slice, and commit if it is time. `quiet`: no rows were added.

        Nothing here waits for silence: a walsender that serves other tables sends keepalives without end.
        """
        assembler, now_s = self._parts.assembler, self._parts.clock.monotonic_s()
        pending = assembler.filled or bool(self._schemas) or self._parts.snapshots.notes_pending
        if not pending:
            self._batch_since_s = None
        elif self._batch_since_s is None:
            self._batch_since_s = now_s
        old = self._batch_since_s is not None and now_s - self._batch_since_s > self._age_max_s
        if assembler.in_transaction:
            self._hasten = old or self._parts.snapshots.due(assembler.position.end_lsn)
            self._write_slice()
            if self._parts.publisher.is_open and now_s - self._opened_s > _OPEN_MAX_S:
                self._commit()
        elif (quiet or old or assembler.full) if pending else self._idle_commit_due(now_s):
            self._commit()
        elif quiet:
            self._confirm()
            self._check_kafka(now_s)
            if self._parts.snapshots.waits(assembler.position.end_lsn):
                self._parts.stream.request_reply()
        else:
            self._write_slice()

    @property
    def _age_max_s(self) -> float:
        parts, mixed = self._parts, self._copied_count > 0 and self._parts.assembler.transaction_count > 0
        soon_s = _MIXED_AGE_S if parts.publisher.ready else _MIXED_AGE_MAX_S
        return min(soon_s, parts.batch_age_max_s) if mixed else parts.batch_age_max_s

    @property
    def _may_join(self) -> bool:
        """Whether rows of a snapshot may join here, and the batch has room for them."""
        assembler = self._parts.assembler
        if not assembler.at_boundary or assembler.full:
            return False
        if self._copied_count >= _MIXED_ROWS_MAX and self._changes_arrive:
            return False
        return self._parts.snapshots.due(assembler.position.end_lsn)

    @property
    def _changes_arrive(self) -> bool:
        return (
            self._parts.assembler.transaction_count > 0
            or self._parts.clock.monotonic_s() - self._changed_s < _CHANGES_S
        )

    def _join(self) -> None:
        """Let rows of snapshots join, after everything that commits below the position and before everything else.

        The order makes an unneeded key in a verdict harmless: it drops a row whose newest state the log already has.
        """
        parts, assembler = self._parts, self._parts.assembler
        if not self._may_join:
            return
        joined = parts.snapshots.join(assembler.position.end_lsn, assembler.boundary_us)
        for planned in joined.planned:
            self._buffers[planned.buffer.topic] = planned.buffer
            self._schemas.extend(planned.schemas)
        assembler.joined(joined.row_count, joined.byte_count)
        self._copied_count += joined.row_count

    def _idle_commit_due(self, now_s: float) -> bool:
        waited = not self._submitted and now_s - self._last_commit_s >= _IDLE_PROGRESS_S
        return waited and (self._parts.assembler.advanced or any(aside.due() for aside in self._parts.asides))

    def _check_kafka(self, now_s: float) -> None:
        """Notice a broker that is away although there is nothing to write."""
        if not self._submitted and now_s - self._kafka_answered_s >= self._parts.kafka_check_s:
            self._parts.publisher.check()
            self._kafka_answered_s = self._parts.clock.monotonic_s()

    def _plan(self, relation: Relation) -> None:
        """Plan a new relation, or a new shape or name of one. Queries and topic creation happen here, never per row."""
        self._show(relation)
        try:
            taken = self._taken(relation)
            planned = self._parts.planner.plan(relation, self._parts.assembler.position.end_lsn)
        except (SourceRefused, RegistryRefused):
            self._commit()
            self._finish()
            raise
        if planned is None:
            self._parts.assembler.plan(relation, together(taken) if taken else None, routed=bool(taken))
            return
        self._buffers[planned.buffer.topic] = planned.buffer
        self._planned[relation.oid] = planned
        self._schemas.extend(planned.schemas)
        self._parts.snapshots.watch(relation.table, planned.buffer)
        self._parts.assembler.plan(relation, together([planned.transcoder, *taken]))

    def _show(self, relation: Relation) -> None:
        """Report the name that a relation has here; the catalog may say otherwise."""
        row = self._parts.assembler.row_position
        if row is not None:
            self._parts.shown(relation, row[0])

    def _taken(self, relation: Relation) -> list[Transcoding]:
        """Return the encoders of stages for its rows. If capture must start over for it, publish what came before.

        That is the case for an outbox that the start did not know: the stream has none of its rows from before it was
        published.
        """
        try:
            return [found for stage in self._parts.stages if (found := stage.take(relation)) is not None]
        except SourceUnreachable:
            self._commit()
            self._finish()
            raise

    def _truncate(self, truncated: Sequence[Truncation]) -> bool:
        """Delete every key that the log has of the truncated tables. Returns False like `_commit`.

        Everything before the TRUNCATE is committed first, so the log itself says which keys those are. After a crash in
        the middle, they are the keys that are left. Source reading pauses; a temporary database holds the keys.
        """
        parts, assembler = self._parts, self._parts.assembler
        if not self._commit():
            return False
        self._finish()
        for truncation in truncated:
            planned, count = self._planned[truncation.relation], 0
            if not planned.buffer.compacted:
                continue  # its records have no keys, so none can be deleted
            with parts.live_keys.of(planned.buffer.topic) as found:
                for partition, keys in found:
                    count += len(keys)
                    if assembler.removed(len(keys), planned.transcoder.remove(partition, keys, truncation)):
                        self._commit()
                    else:
                        self._write_slice()
            parts.observer.truncated(planned.buffer.topic, count)
        assembler.pass_truncate(truncated)
        return True

    def _write_slice(self) -> None:
        """Hand over what was read, if it is enough and Kafka is not busy with the previous batch."""
        rows, size = self._unwritten
        assembler = self._parts.assembler
        if not self._parts.publisher.ready or not self._sliced or self._parts.reselect.pending:
            return
        if assembler.row_count - rows >= _SLICE_ROWS or assembler.byte_count - size >= _SLICE_BYTES:
            self._write()

    def _write(self) -> None:
        self._make_room()
        assert not self._parts.reselect.pending
        if not self._parts.publisher.is_open:
            self._opened_s = self._parts.clock.monotonic_s()
        self._written = (self._parts.assembler.stats(), self._parts.assembler.reach())
        self._parts.snapshots.gather()
        self._notes = self._parts.snapshots.notes()
        for stage in self._parts.stages:
            self._buffers.update((buffer.topic, buffer) for buffer in stage.gather())
        self._parts.publisher.write(list(self._buffers.values()), self._schemas)
        self._schemas = []
        self._unwritten = (self._parts.assembler.row_count, self._parts.assembler.byte_count)

    def _commit(self) -> bool:
        """Submit what is buffered; `_finish` waits for it. Returns False if stopped while records were incomplete."""
        self._make_room()
        if not self._complete():
            return False
        parts, assembler = self._parts, self._parts.assembler
        began_s = parts.clock.monotonic_s()
        stats, position = assembler.stats().less(self._committed), assembler.reach()
        beside = [aside.write(position) for aside in parts.asides]
        if assembler.filled or self._schemas or any(beside):
            self._write()
        else:
            self._notes = parts.snapshots.notes()
        self._submit(stats, position, began_s)
        assembler.taken()
        self._hasten = False
        self._copied_count = 0
        self._unwritten = (0, 0)
        self._committed = _NOTHING
        self._batch_since_s = None
        self._take_known()
        return True

    def _submit(self, stats: BatchStats, position: StreamPosition, began_s: float) -> None:
        self._parts.publisher.submit(position, self._parts.verified(), self._notes)
        self._parts.snapshots.noted(self._notes)
        self._submitted.append((stats, position, began_s))
        if stats.transaction_count > 0:
            self._changed_s = began_s

    def _complete(self) -> bool:
        """Complete the records that lack values. No Kafka transaction is open meanwhile.

        What was handed over before the first incomplete record is committed up to there. The batch after such a batch
        is not written in slices. So under a steady load of incomplete records no source transaction is spread because
        of them.
        """
        self._sliced = not self._parts.reselect.pending
        if self._sliced:
            return True
        self._finish()
        if self._parts.publisher.is_open and self._written is not None:
            stats, position = self._written
            self._submit(stats, position, self._parts.clock.monotonic_s())
            self._finish()
            self._committed = stats
        return self._parts.reselect.fill()

    def _make_room(self) -> None:
        """Wait until a batch can be written."""
        while self._parts.publisher.full:
            self._finish_one()
        self._parts.publisher.wait_delivered()

    def _take_known(self) -> None:
        """Confirm what is known to be committed by now."""
        while self._submitted and not self._parts.publisher.settling:
            self._finish_one()

    def _finish(self) -> None:
        """Wait until everything submitted is known to be committed."""
        while self._submitted:
            self._finish_one()

    def _finish_one(self) -> None:
        """Wait until the oldest submitted batch is known to be committed; only then confirm it to PostgreSQL."""
        stats, position, began_s = self._submitted[0]
        parts = self._parts
        parts.publisher.settle()
        self._submitted.popleft()
        self._durable = position.end_lsn
        self._last_commit_s = self._kafka_answered_s = parts.clock.monotonic_s()
        self._confirm()
        parts.observer.published(stats, position, self._last_commit_s - began_s)
        for aside in parts.asides:
            aside.written()
        if parts.publisher.retire_reason is not None:
            raise OutcomeUnknown(f"the producer is replaced: {parts.publisher.retire_reason}")

    def _confirm(self) -> None:
        """Confirm what is durable and was verified by the catalog watch.

        PostgreSQL 18 silently publishes nothing when its publication is gone. So WAL is released only where a check has
        confirmed slot and publication (`cdc.replication.catalog_watch`).
        """
        self._parts.stream.confirm(min(self._durable, self._parts.verified()))
