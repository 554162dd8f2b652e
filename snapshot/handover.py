"""Connects the capture thread and the threads that read tables: one lock around the merger.

The capture thread reports every transaction and writes rows at boundaries. The reader threads register chunks and bring
their rows. Neither waits for the other, except while the lock is held.
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
from snapshot.chunk import ChunkSpec, Form, JoinedChunk, Rows
from snapshot.keyless_rule import CopyFilter
from snapshot.log_writer import LogWriter
from snapshot.merger import Merger
from snapshot.sweep import Bounds
from snapshot.window import TransactionKeys, Verdict

_BUSY_WAIT_S: Final = 0.005  # delay until a chunk is noticed on a silent stream
_JOIN_ROWS: Final = 2000  # per call; delays the stream by about 10 ms


@runtime_checkable
class CopyTranscoder(Protocol):
    """A transcoder for COPY lines, such as `cdc.encode.json_transcoder.Transcoder`."""

    def copied(self, text: bytes, drop: Container[bytes], stamp: Stamp) -> tuple[int, int]:
        """Add records for COPY lines, except those with a key in `drop`; return their count and bytes."""

    def key_of(self, line: bytes) -> bytes:
        """Return the key of a COPY line, in the form of the log."""

    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:
        """See `cdc.contracts.Transcoding.remove`."""


@dataclass(slots=True)
class _Current:
    """The transaction that is being streamed. `marks` are the buffer lengths up to which its keys are collected."""

    xid: int
    whole: bool
    marks: dict[str, list[int]]
    keys: dict[str, set[bytes]] = field(default_factory=dict)
    partial: dict[str, set[bytes]] = field(default_factory=dict)
    truncated: set[str] = field(default_factory=set)


class HandOver:
    """Implements `cdc.contracts.Snapshots` for the capture thread; other threads use `merging`."""

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
        """Create the hand-over.

        Args:
            merger: the state of all snapshots.
            plan: plans a relation that is read before the stream announces it.
            epoch: epoch of the log, for the stamps of rows that join.
            reach: returns where the topic of a table ends with the commit that is under way.
            copied: filters rows of tables without a key that are in the log already.
            check: raises the error with which a reader thread ended.
        """
        self.boundary = self._notes_boundary = Lsn(0)
        self.joined: Callable[[int], None] = lambda _: None
        self.chunk_joined: Callable[[JoinedChunk], None] | None = None
        self._check = check
        self._requested: Form | None = None
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
        self._current: _Current | None = None
        self._tracked: frozenset[str] = frozenset()
        self._refresh()

    @contextmanager
    def merging(self) -> Iterator[Merger]:
        """Lock the merger. Any thread may call this; do not block inside."""
        with self._lock:
            try:
                yield self._merger
            finally:
                self._refresh()

    @property
    def active(self) -> bool:
        """Whether a snapshot is active."""
        return bool(self._tracked)

    def key_of(self, form: Form, stop: threading.Event) -> Callable[[bytes], bytes] | None:
        """Return the function that makes the key of a COPY line. Waits for the capture thread, which plans the table.

        Returns None if `stop` is set first.
        """
        while form not in self._planned and not stop.is_set():
            with self._lock:
                self._answered.clear()
                self._requested = form
            self._answered.wait(IDLE_WAIT_S)
        planned = self._planned.get(form)
        return None if planned is None else _copying(planned).key_of

    # Only the capture thread calls the methods below.

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
        if self._current is not None and table in self._tracked:
            self._current.marks.setdefault(table, _lengths(buffer))

    def begun(self, xid: int, *, whole: bool) -> None:
        """See `cdc.contracts.Snapshots.begun`."""
        if self._copied.active:
            self._copied.begun(xid)
        if not self._tracked:
            return
        marks = {table: _lengths(self._buffers[table]) for table in self._tracked if table in self._buffers}
        self._current = _Current(xid, whole, marks)

    def truncated(self, table: str) -> None:
        """See `cdc.contracts.Snapshots.truncated`."""
        if self._current is not None:
            self._current.truncated.add(table)

    def gather(self) -> None:
        """See `cdc.contracts.Snapshots.gather`."""
        self._copied.gather()
        if self._current is None:
            return
        self._collect(self._current)
        for marks in self._current.marks.values():
            marks[:] = [0] * len(marks)

    def ended(self) -> None:
        """See `cdc.contracts.Snapshots.ended`."""
        self._copied.ended()
        current, self._current = self._current, None
        if current is None:
            return
        self._collect(current)
        if not current.whole:
            touch = TransactionKeys(current.xid, unknown=None)
        elif current.keys or current.truncated:
            touch = TransactionKeys(current.xid, current.keys, current.partial, frozenset(current.truncated))
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
            return self._requested is not None or self._merger.due(boundary)

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
            if self._requested is not None:
                self._copying(self._requested, boundary)
                self._requested = None
                self._answered.set()
            row_count, byte_count = self._merger.chunks.join(
                boundary, LogWriter(put, keys, remove), rows_max=_JOIN_ROWS
            )
            chunks = self._merger.chunks.joined
        self.joined(row_count - removed_count)
        if self.chunk_joined is not None:
            for chunk in chunks:
                self.chunk_joined(chunk)
        return Joined(row_count, byte_count, self._new)

    def owe(self, holes: Sequence[IncompleteRecord]) -> bool:
        """Read rows later by key whose records are about to be published without all their values.

        The same commit records the keys. Until the rows are read, the table is `snapshotting` in the cut index, because
        a reader cannot find the values under a changed key. Returns False, and requests nothing, if one of the rows
        cannot be read later.
        """
        rows: dict[tuple[str, int], dict[bytes, IncompleteKey]] = {}
        for hole in holes:
            names = (hole.relation.columns[index].name for index in hole.key_columns)
            one = IncompleteKey(hole.record_key, dict(zip(names, hole.key, strict=True)))
            rows.setdefault((hole.relation.table, hole.relation.oid), {})[one.key] = one
        with self.merging() as merger:
            incomplete = {table: list(keys.values()) for table, keys in rows.items()}
            return merger.requests.read_incomplete(incomplete, self.boundary)

    def notes(self) -> SnapshotNotes:
        """See `cdc.contracts.Snapshots.notes`."""
        self._notes_boundary = self.boundary
        if not self._tracked and not self._merger.notes_pending:
            return SnapshotNotes()
        with self._lock:
            notes = self._merger.notes()
        if self._current is not None and (self._current.keys or self._current.truncated):
            notes = replace(notes, pending=(*notes.pending, self._current.xid))
        return notes

    def noted(self, notes: SnapshotNotes) -> None:
        """See `cdc.contracts.Snapshots.noted`."""
        if notes.records or notes.signals is not None or notes.sweeps:
            with self._lock:
                self._merger.noted(notes, self._reach)
                self._merger.sweeps.mark(self._notes_boundary, self._reach)

    def _remove(self, form: Form, keys: Sequence[bytes], at: Truncation) -> int:
        """Delete keys with the records that a TRUNCATE at this position would write."""
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
                    f"{form.relation.table} can no longer be captured; capture restarts without it",
                    hint="this takes a moment and loses no change; `cdc status` shows the reason",
                    table=form.relation.table,
                )
            self._planned[form] = planned
            self._new.append(planned)
        return _copying(planned)

    def _collect(self, current: _Current) -> None:
        for table, marks in current.marks.items():
            buffer = self._buffers[table]
            for index, records in enumerate(buffer.partitions):
                first, marks[index] = marks[index], len(records)
                if first == len(records) or table in current.truncated:
                    continue  # a TRUNCATE drops every row of a chunk
                new = {at: key for at, (key, _, _) in enumerate(records[first:], first) if key is not None}
                current.keys.setdefault(table, set()).update(new.values())
                if buffer.incomplete or table in current.partial:
                    partial = current.partial.setdefault(table, set())
                    for at, key in new.items():
                        (partial.add if (index, at) in buffer.incomplete else partial.discard)(key)

    def _refresh(self) -> None:
        self._tracked = self._merger.tables.live


def _copying(planned: PlannedRelation) -> CopyTranscoder:
    transcoder = planned.transcoder
    assert isinstance(transcoder, CopyTranscoder)
    return transcoder


def _lengths(buffer: TopicBuffer) -> list[int]:
    return [len(records) for records in buffer.partitions]
