"""Where those who read tables and the capture thread meet: one lock around the merger.

The capture thread tells of every transaction and takes rows away at boundaries; readers register chunks and bring rows.
Neither waits for the other but for the moment the lock is held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, runtime_checkable

from cdc.capture.no_snapshots import IDLE_WAIT_S
from cdc.contracts import Joined, PlannedRelation
from cdc.encode.envelope import snapshot_stamp
from cdc.encode.partitioner import partition_of
from cdc.errors import SourceUnreachable
from cdc.lsn import Lsn
from cdc.model.change_records import Stamp, TopicBuffer, Truncation
from cdc.model.incomplete_record import IncompleteRecord
from cdc.model.relation import Relation
from cdc.model.snapshot_record import IncompleteKey, SnapshotNotes
from snapshot.chunk import ChunkSpec, Form, Rows
from snapshot.keyless_rule import CopyFilter
from snapshot.log_writer import LogWriter
from snapshot.merger import Merger
from snapshot.sweep import Bounds
from snapshot.window import TransactionKeys, Verdict

_BUSY_WAIT_S: Final = 0.005  # how late a chunk may be noticed on one
_JOIN_ROWS: Final = 2000  # looked at in one go: what the stream waits for, some 10 ms


@runtime_checkable
class CopyTranscoder(Protocol):
    """What can place lines of COPY, and delete keys; `cdc.encode.json_transcoder.Transcoder` is one."""

    def copied(self, text: bytes, drop: Container[bytes], stamp: Stamp) -> tuple[int, int]:
        """See there."""

    def key_of(self, line: bytes) -> bytes:
        """See there."""

    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:
        """See `cdc.contracts.Transcoding.remove`."""


@dataclass(slots=True)
class _Touching:
    """The transaction that is half streamed; `marks` is how far its tables' buffers were looked through."""

    xid: int
    whole: bool
    marks: dict[str, list[int]]
    keys: dict[str, set[bytes]] = field(default_factory=dict)
    partial: dict[str, set[bytes]] = field(default_factory=dict)
    emptied: set[str] = field(default_factory=set)


class HandOver:
    """See `cdc.contracts.Snapshots`; `merging` is for everybody else."""

    def __init__(
        self,
        merger: Merger,
        plan: Callable[[Relation, Lsn], PlannedRelation | None],
        *,
        epoch: int,
        reach: Callable[[str], Bounds] = lambda _: {},
        copied: CopyFilter | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Wire it to the capture thread's planner.

        Args:
            merger: has the state of all snapshots.
            plan: makes the transcoder of a relation that is read before the stream shows it.
            epoch: of the log, for the stamps of rows that join.
            reach: where the topic of a table ends with the commit that is under way.
            copied: which rows of tables without a key are in the log already.
            check: raises the error that a reader stopped with.
        """
        self.boundary = self._notes_boundary = Lsn(0)
        self.joined: Callable[[int], None] = lambda _: None
        self._check = check
        self._asked: Form | None = None
        self._answered = threading.Event()
        self._merger = merger
        self._plan = plan
        self._epoch = epoch
        self._reach = reach
        self._copied = copied or CopyFilter({})
        self._lock = threading.Lock()
        self._buffers: dict[str, TopicBuffer] = {}
        self._planned: dict[Form, PlannedRelation] = {}
        self._new: list[PlannedRelation] = []
        self._touching: _Touching | None = None
        self._tracked: frozenset[str] = frozenset()
        self._refresh()

    @contextmanager
    def merging(self) -> Iterator[Merger]:
        """The merger, for a moment. From any thread; nothing that takes time inside."""
        with self._lock:
            try:
                yield self._merger
            finally:
                self._refresh()

    @property
    def active(self) -> bool:
        """Whether a snapshot is being taken."""
        return bool(self._tracked)

    def key_of(self, form: Form, stop: threading.Event) -> Callable[[bytes], bytes] | None:
        """What makes the key of a line of COPY, as the log has it. Waits for the capture thread, which alone plans.

        None when `stop` was set before it answered.
        """
        while form not in self._planned and not stop.is_set():
            with self._lock:
                self._answered.clear()
                self._asked = form
            self._answered.wait(IDLE_WAIT_S)
        planned = self._planned.get(form)
        return None if planned is None else _copying(planned).key_of

    # What the capture thread calls.

    @property
    def wait_s(self) -> float:
        """See `cdc.contracts.Snapshots.wait_s`."""
        return _BUSY_WAIT_S if self._tracked else IDLE_WAIT_S

    @property
    def notes_pending(self) -> bool:
        """See `cdc.contracts.Snapshots.notes_pending`."""
        return self._merger.notes_pending

    def watch(self, table: str, buffer: TopicBuffer) -> None:
        """See `cdc.contracts.Snapshots.watch`."""
        self._buffers[table] = buffer
        self._copied.watch(table, buffer)
        if self._touching is not None and table in self._tracked:
            self._touching.marks.setdefault(table, _lengths(buffer))

    def begun(self, xid: int, *, whole: bool) -> None:
        """See `cdc.contracts.Snapshots.begun`."""
        if self._copied.active:
            self._copied.begun(xid)
        if not self._tracked:
            return
        marks = {table: _lengths(self._buffers[table]) for table in self._tracked if table in self._buffers}
        self._touching = _Touching(xid, whole, marks)

    def truncated(self, table: str) -> None:
        """See `cdc.contracts.Snapshots.truncated`."""
        if self._touching is not None:
            self._touching.emptied.add(table)

    def gather(self) -> None:
        """See `cdc.contracts.Snapshots.gather`."""
        self._copied.gather()
        if self._touching is None:
            return
        self._collect(self._touching)
        for marks in self._touching.marks.values():
            marks[:] = [0] * len(marks)

    def ended(self) -> None:
        """See `cdc.contracts.Snapshots.ended`."""
        self._copied.ended()
        touching, self._touching = self._touching, None
        if touching is None:
            return
        self._collect(touching)
        if not touching.whole:
            touch = TransactionKeys(touching.xid, unknown=None)
        elif touching.keys or touching.emptied:
            touch = TransactionKeys(touching.xid, touching.keys, touching.partial, frozenset(touching.emptied))
        else:
            return
        with self._lock:
            self._merger.streamed(touch)

    def due(self, boundary: Lsn) -> bool:
        """See `cdc.contracts.Snapshots.due`."""
        self.boundary = boundary
        self._copied.passed(boundary)
        if not self._tracked:
            return False
        self._check()
        with self._lock:
            return self._asked is not None or self._merger.due(boundary)

    def waits(self, boundary: Lsn) -> bool:
        """See `cdc.contracts.Snapshots.waits`."""
        if not self._tracked:
            return False
        with self._lock:
            return self._merger.waits(boundary)

    def join(self, boundary: Lsn, at_us: int) -> Joined:
        """See `cdc.contracts.Snapshots.join`."""
        stamp = snapshot_stamp(boundary, at_us, self._epoch)
        removed_count = 0
        self._new = []

        def put(spec: ChunkSpec, rows: Rows, verdict: Verdict) -> tuple[int, int]:
            row_count = byte_count = 0
            copied = self._copying(spec.form, boundary).copied
            for piece in rows:
                count, size = copied(piece, verdict.keys, stamp)
                row_count += count
                byte_count += size
            return row_count, byte_count

        def keys(spec: ChunkSpec, rows: Rows) -> set[bytes]:
            key_of = self._copying(spec.form, boundary).key_of
            return {key_of(line) for piece in rows for line in piece.splitlines(keepends=True)}

        def remove(spec: ChunkSpec, absent: Sequence[bytes]) -> int:
            nonlocal removed_count
            removed_count += len(absent)
            return self._remove(spec.form, absent, Truncation(spec.form.relation.oid, stamp, boundary, 0))

        with self._lock:
            if self._asked is not None:
                self._copying(self._asked, boundary)
                self._asked = None
                self._answered.set()
            row_count, byte_count = self._merger.join(boundary, LogWriter(put, keys, remove), rows_max=_JOIN_ROWS)
        self.joined(row_count - removed_count)
        return Joined(row_count, byte_count, self._new)

    def owe(self, holes: Sequence[IncompleteRecord]) -> bool:
        """Have rows read later by key whose records are about to be published without all their values.

        With the record that says so in the same commit. False: not all can be, so none is.
        """
        rows: dict[tuple[str, int], dict[bytes, IncompleteKey]] = {}
        for hole in holes:
            names = (hole.relation.columns[index].name for index in hole.key_columns)
            one = IncompleteKey(hole.record_key, dict(zip(names, hole.key, strict=True)))
            rows.setdefault((hole.relation.table, hole.relation.oid), {})[one.key] = one
        with self.merging() as merger:
            return merger.owe({table: list(keys.values()) for table, keys in rows.items()}, self.boundary)

    def notes(self) -> SnapshotNotes:
        """See `cdc.contracts.Snapshots.notes`."""
        self._notes_boundary = self.boundary
        if not self._tracked and not self._merger.notes_pending:
            return SnapshotNotes()
        with self._lock:
            notes = self._merger.notes()
        if self._touching is not None and (self._touching.keys or self._touching.emptied):
            notes = replace(notes, pending=(*notes.pending, self._touching.xid))
        return notes

    def noted(self, notes: SnapshotNotes) -> None:
        """See `cdc.contracts.Snapshots.noted`."""
        if notes.records or notes.signals is not None or notes.sweeps:
            with self._lock:
                self._merger.noted(notes, self._reach)
                self._merger.mark(self._notes_boundary, self._reach)

    def _remove(self, form: Form, keys: Sequence[bytes], at: Truncation) -> int:
        """Delete keys as a TRUNCATE there would."""
        copying, buffer = self._copying(form, Lsn(at.lsn)), self._planned[form].buffer
        found: dict[int, list[bytes]] = {}
        for key in keys:
            found.setdefault(partition_of(key, len(buffer.partitions)), []).append(key)
        return sum(copying.remove(partition, some, at) for partition, some in sorted(found.items()))

    def _copying(self, form: Form, at: Lsn) -> CopyTranscoder:
        planned = self._planned.get(form)
        if planned is None:
            planned = self._plan(form.relation, at)
            if planned is None:
                raise SourceUnreachable(
                    f"{form.relation.table} cannot be captured any more; capture starts over without it",
                    hint="this takes a moment and loses nothing; `cdc status` says why",
                    table=form.relation.table,
                )
            self._planned[form] = planned
            self._new.append(planned)
        return _copying(planned)

    def _collect(self, touching: _Touching) -> None:
        for table, marks in touching.marks.items():
            buffer = self._buffers[table]
            for index, records in enumerate(buffer.partitions):
                first, marks[index] = marks[index], len(records)
                if first == len(records) or table in touching.emptied:
                    continue  # no row of a chunk outlives a TRUNCATE
                new = {at: key for at, (key, _, _) in enumerate(records[first:], first) if key is not None}
                touching.keys.setdefault(table, set()).update(new.values())
                if buffer.incomplete or table in touching.partial:
                    partial = touching.partial.setdefault(table, set())
                    for at, key in new.items():
                        (partial.add if (index, at) in buffer.incomplete else partial.discard)(key)

    def _refresh(self) -> None:
        self._tracked = self._merger.tracked


def _copying(planned: PlannedRelation) -> CopyTranscoder:
    transcoder = planned.transcoder
    assert isinstance(transcoder, CopyTranscoder)
    return transcoder


def _lengths(buffer: TopicBuffer) -> list[int]:
    return [len(records) for records in buffer.partitions]
