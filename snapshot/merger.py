"""The state of all snapshots in one replication session, and how the stream changes it. Pure.

A table passes through these states:

1. begun: the transactions that were open at the beginning are not known yet.
2. suspected: they are known, and must become visible (`snapshot.chunk_plan`).
3. planned: its leaves are read in chunks by several threads (`snapshot.open_chunks`).
4. After a gap, or if requested keys were not found, it is swept (`snapshot.sweep`).
5. Its leaves are compared with the plan. A leaf that was rewritten, truncated or attached meanwhile is read again.
6. complete.

`snapshot.snapshot_requests` begins, pauses and stops snapshots. The rule that decides which rows join is in
`snapshot.window`. Only what is recorded in the log survives the session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from cdc.lsn import Lsn
from cdc.model.signal_record import SignalsRecord
from cdc.model.snapshot_record import SnapshotNotes, SnapshotRecord
from cdc.model.visibility import PgSnapshot
from snapshot.chunk_plan import CHUNK_BYTES, Plans
from snapshot.open_chunks import OpenChunks
from snapshot.snapshot_progress import TableProgress, table_progress
from snapshot.snapshot_requests import SnapshotRequests
from snapshot.sweep import Bounds
from snapshot.sweep_set import Sweeps
from snapshot.table_set import TableSet
from snapshot.table_state import State, TableState
from snapshot.window import TransactionKeys, Window


class Merger:
    """All snapshots of one replication session. Not thread-safe.

    Attributes:
        counts: statistics: rows ``joined``, ``dropped``; chunks ``emptied`` by a TRUNCATE, ``refused`` because keys are
            unknown, ``sliced``; tables ``planned_again``; keys ``repaired``, ``swept`` (deleted).
        tables: state of every table that has or had a snapshot.
        requests: begins and stops snapshots.
        plans: plans tables and selects chunks.
        chunks: open chunks.
        sweeps: sweeps of the tables.
    """

    def __init__(self, window: Window | None = None, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.window = window or Window()
        self.counts: Counter[str] = Counter()
        self.tables = TableSet()
        self.sweeps = Sweeps(self.tables, self.counts)
        self.chunks = OpenChunks(self.tables, self.window, self.sweeps, self.counts)
        self.plans = Plans(self.tables, self.window, self.chunks, self.sweeps, self.counts, chunk_bytes=chunk_bytes)
        self.requests = SnapshotRequests(self.tables, self.chunks, self.sweeps)
        self._signals: SignalsRecord | None = None

    @property
    def active(self) -> bool:
        """Whether transactions must be reported to `streamed`."""
        return any(table.live for table in self.tables.values())

    @property
    def incomplete(self) -> frozenset[str]:
        """The tables whose pre-capture rows may be missing in the log."""
        return frozenset(name for name, table in self.tables.items() if table.record(name).cut_state != "complete")

    @property
    def states(self) -> dict[str, State]:
        """The state of every table that has or had a snapshot."""
        return {name: table.state for name, table in self.tables.items()}

    def resume(self, records: Mapping[str, SnapshotRecord], pending: Iterable[int]) -> None:
        """Restore the state after a restart. The keys of `pending` transactions are unknown now."""
        for name, record in records.items():
            self.tables[name] = TableState.resumed(record)
            self.sweeps.await_position(name)
        if self.active:
            self.window.suspect(pending)

    def progress(self) -> list[TableProgress]:
        """Return the progress of every table that has or had a snapshot."""
        chunks = list(self.chunks)
        return [table_progress(name, table, chunks, self.window.suspects) for name, table in self.tables.items()]

    def streamed(self, touch: TransactionKeys) -> None:
        """Record a transaction that was streamed up to its end."""
        self.window.streamed(touch)
        for name, table in self.tables.items():
            if not table.live:
                continue
            self.sweeps.streamed(name, touch)
            if not (name in touch.keys or name in touch.truncated):
                continue
            before = set(table.repair)
            if name in touch.truncated:
                table.repair.clear()
            partial = set(touch.partial.get(name, ()))
            table.repair.difference_update(set(touch.keys.get(name, ())) - partial)
            if not table.scanned:  # after the scan, the log has all values of every row that was complete then
                table.repair |= partial
            if table.repair != before:
                self.tables.note(name)
                self.sweeps.begin_when_read(name)

    def seen(self, snapshot: PgSnapshot) -> None:
        """Record a snapshot that was taken just now."""
        self.window.seen(snapshot)

    def due(self, boundary: Lsn) -> bool:
        """Whether rows may join at `boundary`. Requests a commit for sweeps that waited for it."""
        self.sweeps.note_reached(boundary)
        return self.chunks.may_join(boundary)

    def waits(self, boundary: Lsn) -> bool:
        """Whether rows or sweeps wait for a later boundary than this one."""
        return self.sweeps.awaits(boundary) or self.chunks.waits(boundary)

    def acted(self, signals: SignalsRecord) -> None:
        """Record the handled signals, in the same commit as what they changed."""
        self._signals = signals

    @property
    def notes_pending(self) -> bool:
        """Whether records must be written to the log."""
        return bool(self.tables.changed) or self._signals is not None

    def notes(self) -> SnapshotNotes:
        """Return what the next commit must record beside the rows that have joined."""
        pending = tuple(sorted(self.window.pending)) if self.active else ()
        return SnapshotNotes(pending, dict(self.tables.changed), self._signals, self.sweeps.unbounded())

    def noted(self, notes: SnapshotNotes, bounds: Callable[[str], Bounds]) -> None:
        """Record that a commit with `notes` is under way; `bounds` returns the end of a table's topic with it."""
        for name, turn in notes.sweeps.items():
            self.sweeps.bound(name, turn, bounds(name))
        self.tables.noted(notes.records)
        if self._signals is notes.signals:
            self._signals = None
