"""Runs capture and its snapshot against the server of `snapshot_server`, one small step at a time.

A history is a list of numbers; each number is a step of a writer, the stream, a reader or the server. At the end
everything finishes, and the log must fold to the table. A row that joins must never be older than the log's newest
record of its key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cdc.lsn import Lsn
from cdc.model.relation import Relation, ReplicaIdentity
from cdc.model.snapshot_record import SnapshotRecord
from cdc.model.visibility import PgSnapshot
from snapshot.chunk import Chunk, ChunkSpec, Form, Leaf, Rows
from snapshot.log_writer import LogWriter
from snapshot.merger import Merger
from snapshot.window import TransactionKeys, Verdict
from tests.property.obligations import LOG_IS_TABLE, NO_STALE_ROW, ONLY_GONE_DELETED, SNAPSHOT_ENDS, Violation, demand
from tests.property.snapshot_server import BLOCKS, KEYS, Op, Row, Server

TABLE: Final = "public.t"
FORM: Final = Form(Relation(1, "public", "t", ReplicaIdentity.DEFAULT, ()))
_FINISH_STEPS: Final = 400

Event: TypeAlias = tuple[int | None, tuple[int, int | None] | None]
"""(key, values) of one record. Without values: a delete; also without key: a TRUNCATE; large value None: not sent."""


@dataclass(slots=True)
class Reading:
    """A chunk that is being read; `rows` is set when its snapshot is taken."""

    chunk: Chunk
    rows: list[tuple[int, Row]] | None = None


@dataclass(slots=True)
class Kept:
    """The log, which is all that survives a crash."""

    events: list[Event] = field(default_factory=list)
    position: int = 0
    records: dict[str, SnapshotRecord] = field(default_factory=dict)
    pending: tuple[int, ...] = ()


class History:
    """One history; `seen` counts the situations that the rule exists for."""

    def __init__(
        self, first_xid: int, make: Callable[[], Merger], preamble: Sequence[int], *, reselect: bool = True
    ) -> None:
        """With `reselect`, values that are not sent are read again; otherwise the log lacks them."""
        self.seen: Counter[str] = Counter()
        self._reselect = reselect
        self.server = Server(first_xid)
        self._make = make
        self._first_xid = first_xid
        for step in preamble:
            self._write(step)
        self._publish()
        self.server.flushed = self.server.insert  # creating a slot flushes its position
        self.kept = Kept(position=self.server.insert)
        self._start()

    def run(self, steps: Sequence[int]) -> None:
        for step in steps:
            kind, rest = step % 32, step // 32
            if kind < 12:
                self._write(step)
            elif kind < 15:
                self._stream()
            elif kind < 18:
                self._coordinate()
            elif kind < 21:
                self._open()
            elif kind < 26:
                self._read(rest)
            elif kind < 29:
                self._join(1 + rest % 2)
            elif kind == 29:
                self._commit()
            elif kind == 30 and rest % 5 == 0:
                self._crash(server=bool(rest % 2))
            elif kind == 31 and rest % 4 < 2:
                self.server.rewrite(1 + rest % 2)
            elif kind == 31:
                self._truncate()

    def finish(self) -> None:
        """Commit all transactions, read the stream to its end, and complete the snapshot."""
        server = self.server
        for transaction in list(server.open.values()):
            server.commit(transaction)
        while server.hidden:
            server.show(0)
        server.flushed = server.insert
        for _ in range(_FINISH_STEPS):
            if not self.merger.active:
                break
            self._stream()
            self._coordinate()
            self._open()
            self._read(0)
            self._join(100)
            self._beside()
            server.abort(server.begin())  # advance xmax: an id that a crash freed is not visible until it is used again
        demand(SNAPSHOT_ENDS, not self.merger.active)
        self.seen.update(self.merger.counts)
        while self._position < server.insert:
            self._stream()
        self._commit()
        found = fold(self.kept.events)
        wanted = {key: (row.small, row.large) for key, row in server.rows().items()}
        demand(LOG_IS_TABLE, found == wanted, f"{found}, expected {wanted}")

    def _write(self, step: int) -> None:
        server, kind, rest = self.server, step % 32, step // 32
        open_ = list(server.open.values())
        if (kind == 0 or not open_) and len(open_) < 3:
            open_ = [*open_, server.begin()]
        transaction = open_[rest % len(open_)]
        if kind < 6:
            server.change(transaction, rest // 3 % 5, rest // 15 % KEYS, rest // 75 % BLOCKS)
        elif kind < 8:
            server.commit(transaction)
        elif kind < 10 and server.hidden:
            server.show(rest)
        elif kind == 10:
            server.flushed = server.insert
        elif kind == 11 and rest % 3 == 0:
            server.truncate(transaction)
        elif kind == 11 and rest % 3 == 1:
            server.abort(transaction)

    def _publish(self) -> None:
        """Create the slot, which waits for every open transaction."""
        for transaction in list(self.server.open.values()):
            self.server.commit(transaction)

    def _start(self) -> None:
        self.merger = self._make()
        self.merger.resume(self.kept.records, self.kept.pending)
        if TABLE not in self.kept.records:
            self.merger.requests.begin(TABLE, 1, Lsn(self.kept.position))
        self._position = self.kept.position
        self._buffer: list[Event] = []
        self._events = list(self.kept.events)
        self._said = fold(self._events, deleted=True)
        self._readings: list[Reading] = []
        self.server.readers.clear()

    def _stream(self) -> None:
        """Stream the next flushed transaction, or a keepalive."""
        for transaction in self.server.committed:
            if transaction.commit >= self._position and transaction.end <= self.server.flushed:
                ops = [op for op in transaction.ops if op.published]
                keys = {str(key).encode() for op in ops for key in (op.key, op.old) if key is not None}
                last = {str(op.key).encode(): self._whole(op) for op in ops if op.key is not None}
                partial = {key for key, whole in last.items() if not whole}
                truncated = frozenset({TABLE} if any(op.key is None for op in ops) else ())
                for op in ops:
                    self._emit(op)
                self._position = transaction.end
                if (keys or truncated) and self.merger.active:
                    self.merger.streamed(
                        TransactionKeys(
                            transaction.xid & 0xFFFFFFFF,
                            {TABLE: keys} if keys else {},
                            {TABLE: partial} if partial else {},
                            truncated=truncated,
                        )
                    )
                return
        if all(one.commit < self._position or one.end > self.server.flushed for one in self.server.committed):
            pending = [one.commit for one in self.server.committed if one.end > self.server.flushed]
            self._position = max(self._position, min([self.server.flushed, *pending]))

    def _emit(self, op: Op) -> None:
        if op.old is not None:
            self._say((op.old, None))
        self._say((op.key, None if op.row is None else (op.row.small, op.row.large if self._sent(op) else None)))

    def _sent(self, op: Op) -> bool:
        """Whether its record has all values."""
        return self._whole(op)

    def _whole(self, op: Op) -> bool:
        return self._reselect or op.whole or op.row is None

    def _say(self, event: Event) -> None:
        self._buffer.append(event)
        _apply(self._said, event)

    def _coordinate(self) -> None:
        server, merger = self.server, self.merger
        merger.seen(self.look())
        if merger.plans.begun():
            merger.plans.suspect(merger.plans.begun(), self.suspected())
        for name in [*merger.plans.tables_to_plan(), *merger.plans.tables_to_check()]:
            if server.readable:
                leaf = Leaf(server.leaf, "public", "t", server.filenode, BLOCKS, BLOCKS * 8192)
                merger.plans.plan(name, FORM, [leaf], Lsn(self._position))

    def _open(self) -> None:
        spec = self.merger.plans.next_chunk() if len(self._readings) < BLOCKS else None
        if spec is not None:
            self._readings.append(Reading(self.merger.chunks.open(spec)))

    def _read(self, rest: int) -> None:
        if self._readings:
            reading = self._readings[rest % len(self._readings)]
            if reading.rows is None:
                self._take(reading)
            else:
                self._deliver(reading)

    def look(self) -> PgSnapshot:
        """Return a snapshot of the server."""
        return self.server.snapshot()

    def suspected(self) -> list[int]:
        """Return the transaction ids that hold a lock now."""
        return self.server.lock_holders()

    def _take(self, reading: Reading) -> None:
        server, chunk = self.server, reading.chunk
        if not server.readable:
            return
        snapshot = self.look()
        good = self.merger.chunks.taken(chunk, snapshot, Lsn(server.insert), server.filenode, FORM)
        if not good:
            self._readings.remove(reading)
            return
        first, end = chunk.spec.blocks
        reading.rows = [
            (key, row)
            for key, row in server.rows().items()
            if row.block >= first and (end is None or row.block < end)
            if chunk.spec.leaf is not None or str(key).encode() in chunk.spec.keys
        ]
        server.readers.add(chunk.number)
        self.seen["id beyond 32 bits"] += snapshot.xmax > 1 << 32 and self._first_xid < 1 << 32

    def _deliver(self, reading: Reading) -> None:
        assert reading.rows is not None
        self._readings.remove(reading)
        self.server.readers.discard(reading.chunk.number)
        self.merger.chunks.arrived(reading.chunk, reading.rows, len(reading.rows))

    def _join(self, rows_max: int) -> None:
        self.merger.chunks.join(Lsn(self._position), LogWriter(self._put, _keys, self._remove), rows_max=rows_max)

    def _put(self, spec: ChunkSpec, rows: Rows, verdict: Verdict) -> tuple[int, int]:
        joined = 0
        for key, row in rows:
            if str(key).encode() in verdict.keys:
                continue
            small, large = self._said.get(key, (row.small, row.large)) or (None, None)
            fresh = (small, large) in {(row.small, row.large), (row.small, None)}
            demand(NO_STALE_ROW, fresh, f"the log has {(small, large)} of key {key}, {row} joins")
            self._say((key, (row.small, row.large)))
            joined += 1
        return joined, joined

    def _remove(self, spec: ChunkSpec, absent: Sequence[bytes]) -> int:
        raise Violation(ONLY_GONE_DELETED, f"{absent} without a sweep")

    def _beside(self) -> None:
        """Run one step of other participants."""

    def _commit(self) -> None:
        notes = self.merger.notes()
        self._events += self._buffer
        self._buffer = []
        self.kept = Kept(list(self._events), self._position, {**self.kept.records, **notes.records}, notes.pending)
        self.merger.noted(notes, lambda _: {(TABLE, 0): len(self._events)})

    def _truncate(self) -> None:
        """Truncate the table when no lock is in the way."""
        server = self.server
        for reading in [reading for reading in self._readings if reading.rows is not None]:
            self._deliver(reading)
        for transaction in list(server.open.values()):
            server.commit(transaction)
        while server.hidden:
            server.show(0)
        transaction = server.begin()
        server.truncate(transaction)
        server.commit(transaction)
        server.show(0)
        server.flushed = server.insert

    def _crash(self, *, server: bool) -> None:
        self.seen["lost session"] += bool(self._readings)
        self.seen.update(self.merger.counts)
        if server:
            self.server.crash()
        self._start()


class Joined(History):
    """A history in which the table joins the publication of a running slot, amid open transactions."""

    def _publish(self) -> None:
        self.seen["joined in a transaction"] += any(one.ops for one in self.server.open.values())
        self.server.join_publication()


def _keys(_: ChunkSpec, rows: Rows) -> set[bytes]:
    return {str(key).encode() for key, _ in rows}


def fold(events: Sequence[Event], *, deleted: bool = False) -> dict[int, Any]:
    """Fold events to the final rows; with `deleted`, including deleted keys."""
    rows: dict[int, Any] = {}
    for event in events:
        _apply(rows, event)
    return rows if deleted else {key: values for key, values in rows.items() if values is not None}


def _apply(rows: dict[int, Any], event: Event) -> None:
    """Apply an event as a reader does, which keeps a large value that was not sent."""
    key, values = event
    if key is None:
        for known in rows:
            rows[known] = None
    elif values is None:
        rows[key] = None
    else:
        small, large = values
        before = rows.get(key)
        rows[key] = (small, before[1] if large is None and before is not None else large)
