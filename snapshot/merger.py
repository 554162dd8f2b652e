"""The state of all snapshots: which tables, which pieces are left, which chunks are open, what joins where. Pure.

The way of a table: begun (nobody knows which transactions were open) -> suspected (they are known, and waited for) ->
planned (leaves and blocks) -> read, chunk by chunk, by any number of workers at once -> checked (the leaves still lie
where they lay) -> complete. A leaf that was rewritten, truncated or attached meanwhile is planned again, whole. After a
gap it is swept, too (`snapshot.sweep`), before it is checked, and so are keys that were asked for and that it does not
have. It may be paused on the way. Stopped, a table is complete
again if it ever was, else stopped until somebody begins it anew.

Everything in `snapshot.window` dies with the replication session; what is done is in the log.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from cdc.lsn import Lsn
from cdc.model.signal_record import SignalsRecord
from cdc.model.snapshot_record import IncompleteKey, SnapshotNotes, SnapshotRecord
from cdc.model.visibility import PgSnapshot
from snapshot.chunk import Chunk, ChunkSpec, Form, Leaf, Rows, added, halved, missing
from snapshot.condition import Condition
from snapshot.log_writer import LogWriter
from snapshot.snapshot_progress import TableProgress, table_progress
from snapshot.sweep import Bounds, Sweep
from snapshot.sweep_set import Sweeps
from snapshot.table_state import LeafState, RowSelection, State, TableState, condition_of
from snapshot.window import TransactionKeys, Verdict, Window

OWED_MAX: Final = 1000  # of a table; they are in its record, which is written anew whenever they change
OWED_BYTES_MAX: Final = 128 << 10
CHUNK_BYTES: Final = 8 << 20  # of heap and out-of-line values; larger is no faster, but memory and keys to drop


class Merger:
    """One per replication session. Not thread-safe.

    Attributes:
        counts: what happened: rows ``joined``, ``dropped``; chunks ``emptied`` by a TRUNCATE, ``refused`` because keys
            are not known, ``sliced``; tables ``planned_again``; keys ``repaired``, ``swept`` (deleted).
        sweeps: those of its tables.
    """

    def __init__(self, window: Window | None = None, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.window = window or Window()
        self.counts: Counter[str] = Counter()
        self._tables: dict[str, TableState] = {}
        self._awaiting: set[str] = set()  # tables with `sweep_from`; asked at every boundary
        self._open: dict[int, Chunk] = {}
        self._numbers = 0
        self._chunk_bytes = chunk_bytes
        self._changed: dict[str, SnapshotRecord] = {}
        self._signals: SignalsRecord | None = None
        self.sweeps = Sweeps(self._tables, self.counts, self._note)

    @property
    def active(self) -> bool:
        """Whether transactions must be told to `streamed`."""
        return any(table.live for table in self._tables.values())

    @property
    def tracked(self) -> frozenset[str]:
        """The tables whose transactions must be."""
        return frozenset(name for name, table in self._tables.items() if table.live)

    @property
    def incomplete(self) -> frozenset[str]:
        """The tables of which rows from before capture may be missing in the log."""
        return frozenset(name for name, table in self._tables.items() if table.record(name).cut_state != "complete")

    @property
    def states(self) -> dict[str, State]:
        """Of every table there is or was a snapshot of."""
        return {name: table.state for name, table in self._tables.items()}

    @property
    def open_bytes(self) -> int:
        """Of rows that have arrived and not joined."""
        return sum(chunk.size for chunk in self._open.values())

    @property
    def open_count(self) -> int:
        """Chunks that are being read, or wait."""
        return len(self._open)

    def resume(self, records: Mapping[str, SnapshotRecord], pending: Iterable[int]) -> None:
        """Go on after a restart. What `pending` touched is not known any more."""
        self._tables.update((name, TableState.resumed(record)) for name, record in records.items())
        self._awaiting.update(name for name, table in self._tables.items() if table.sweep_from)
        if self.active:
            self.window.suspect(pending)

    def begin(
        self, name: str, relation: int, at: Lsn, marks: tuple[int, ...] = (), *, sweep_from: Lsn | None = None
    ) -> None:
        """Begin a snapshot of a table; `suspect` must follow, with ids that are read after this returns.

        With `marks` it is swept in the end (`snapshot.sweep`), as it is when a snapshot before this one was to be.
        With `sweep_from` another table had the name: the snapshot waits until the stream has reached that LSN, and
        every key that the topic has by then is swept.
        """
        before = self._tables.get(name)
        self._give_up(name)
        table = TableState(relation, before.number + 1 if before else 1, "begun", at)
        marks = marks or (before.marks if before else ())
        table.sweep_from = sweep_from or (before.sweep_from if before else Lsn(0))
        table.swept = max(table.sweep_from, before.swept if before else Lsn(0))
        table.sweep = Sweep(marks) if marks and not table.sweep_from else None
        if table.sweep_from:
            self._awaiting.add(name)
        self._tables[name] = table

    def covers(self, name: str, relation: int, lsn: Lsn) -> bool:
        """Whether the snapshot is of this table and sweeps what another one left in the topic up to `lsn`."""
        table = self._tables.get(name)
        return table is not None and table.relation == relation and table.swept >= lsn

    def relation(self, name: str) -> int:
        """The pg_class.oid that its snapshot is of; 0 without one."""
        table = self._tables.get(name)
        return 0 if table is None else table.relation

    def ended(self, name: str) -> Lsn:
        """Where the log was when the snapshot was complete; 0 before."""
        return self._tables[name].ended

    def abandon(self, name: str) -> None:
        """The table is not one that can be read."""
        self._give_up(name)
        self._tables.pop(name, None)

    def order(self, name: str, relation: int, at: Lsn, wanted: RowSelection) -> None:
        """As `begin` because somebody asked for it, which the log has from now on."""
        before = self._tables.get(name)
        self.begin(name, relation, at)
        table = self._tables[name]
        table.asked, table.keyed = True, bool(wanted.keys)
        table.where, table.condition = wanted.where, condition_of(wanted.where)
        table.repair = set(wanted.keys)
        if before is not None and (before.state == "complete" or before.again):
            table.again, table.ended = True, before.ended
        self._note(name)

    def owe(self, rows: Mapping[tuple[str, int], Collection[IncompleteKey]], at: Lsn) -> bool:
        """Have rows read, by table and its oid, whose records lack values. False: not all can be, so none is.

        Not of a table whose rows from before capture are nobody's business, which its record would say it has; nor more
        than a record may hold. `suspect` must follow, as after `begin`.
        """
        for (name, relation), keys in rows.items():
            table = self._tables.get(name)
            if table is None or table.state == "stopped" or table.relation != relation:
                return False
            owed = table.owed.keys() | {one.key for one in keys}
            if len(owed) > OWED_MAX or sum(map(len, owed)) > OWED_BYTES_MAX:
                return False
        for (name, relation), keys in rows.items():
            if not self._tables[name].live:
                self.order(name, relation, at, RowSelection())
                self._tables[name].keyed = True
            self._tables[name].owed |= {one.key: one for one in keys}
            self._note(name)
        return True

    def pause(self, name: str, *, paused: bool) -> None:
        """Begin no chunk of it until it goes on. What it is told of transactions meanwhile keeps its blocks done."""
        self._tables[name].paused = paused
        self._note(name)

    def stop(self, name: str) -> None:
        """Read no more of it. What is done is forgotten: while nobody is told of transactions it does not stay so.

        What its topic lacks is read all the same, where that is all it lacks.
        """
        self._give_up(name)
        table = self._tables[name]
        if table.again and table.owed:
            table.only_owed()
        else:
            table.state = "complete" if table.again else "stopped"
            table.end()
        self._note(name)

    def acted(self, signals: SignalsRecord) -> None:
        """Everything up to there was acted on: it goes into the log with what that changed."""
        self._signals = signals

    def selective(self, name: str) -> bool:
        """Whether only some rows of a table are wanted."""
        return self._tables[name].selective

    def condition(self, name: str) -> Condition | None:
        """Which rows of a table are wanted; None for all."""
        return self._tables[name].condition

    def progress(self) -> list[TableProgress]:
        """How far every table is that there is or was a snapshot of."""
        chunks, suspects = self._open.values(), self.window.suspects
        return [table_progress(name, table, chunks, suspects) for name, table in self._tables.items()]

    def begun(self) -> dict[str, int]:
        """Tables that wait for `suspect`, and the number of the snapshot that was begun."""
        return {
            name: table.number
            for name, table in self._tables.items()
            if table.state == "begun" and not table.sweep_from
        }

    def suspect(self, begun: Mapping[str, int], xids: Iterable[int]) -> None:
        """Ids of all transactions that were open when these tables were sure to be in the stream.

        Tables that were stopped, or begun anew, since `begun` was asked are left as they are.
        """
        names = [name for name, number in self.begun().items() if begun.get(name) == number]
        self.window.suspect(xids, names)
        for name in names:
            self._tables[name].state = "suspected"
            self._note(name)

    def tables_to_plan(self) -> list[str]:
        """Tables whose leaves may be looked at: no transaction that may hide keys of theirs is left unseen."""
        return [
            name
            for name, table in self._tables.items()
            if table.state == "suspected" and not self.window.suspects(name)
        ]

    def tables_to_check(self) -> list[str]:
        """Tables that are read, whose leaves must be looked at once more."""
        return [name for name, table in self._tables.items() if table.read]

    def plan(self, name: str, form: Form, leaves: Sequence[Leaf], at: Lsn) -> None:
        """The leaves as they are now. What is done of those that lie where they lay stays done.

        A table whose blocks are all done by that is complete.
        """
        table = self._tables[name]
        known = table.done(form)
        self._give_up(name)
        checked = table.state == "planned"
        table.form, table.recorded, table.state = form, {}, "planned"
        table.leaves = {}
        for leaf in () if table.keyed else leaves:
            filenode, done = known.get(leaf.oid, (leaf.filenode, ()))
            if filenode != leaf.filenode:
                done = ()
            todo = deque(missing(done, leaf.block_count, self._step(leaf)))
            table.leaves[leaf.oid] = LeafState(leaf, done, todo)
        if table.read:
            table.state = "complete"
            table.ended = table.ended if table.selective else at  # DDL before that has its rows read again
            table.end()
        elif checked:
            self.counts["planned_again"] += 1
        self._note(name)
        self.sweeps.begin_when_read(name)

    def next(self) -> ChunkSpec | None:
        """A piece of work that nobody has; tables are finished one after the other."""
        for name, table in self._tables.items():
            if table.state != "planned" or table.form is None or table.paused:
                continue
            for leaf in table.leaves.values():
                if leaf.todo:
                    return ChunkSpec(name, table.form, leaf.leaf, leaf.todo.popleft(), condition=table.condition)
            if table.scanned and (table.repair or table.owed) and not table.repairing:
                spec = self._by_key(name, table, table.form)
                table.repairing = spec is not None
                if spec is not None:
                    return spec
            candidates = self.sweeps.next(name, table.form)
            if candidates is not None:
                return candidates
        return None

    def _by_key(self, name: str, table: TableState, form: Form) -> ChunkSpec | None:
        """Keys that may be read: all that touched them has been seen. Others would only be dropped."""
        unseen = self.window.unseen(name)
        if unseen is None or unseen.everything:
            return None
        keys = tuple(sorted(table.repair - unseen.keys)[: table.keys_max])
        if keys:
            return ChunkSpec(name, form, keys=keys)
        keys = tuple(sorted(table.owed.keys() - unseen.keys)[: table.keys_max])
        return ChunkSpec(name, form, keys=keys, named=tuple(table.owed[key].columns for key in keys)) if keys else None

    def open(self, spec: ChunkSpec) -> Chunk:
        """Register a chunk; its snapshot is taken after this returns."""
        self._numbers += 1
        chunk = Chunk(self._numbers, spec)
        self._open[chunk.number] = chunk
        self.window.register(chunk.number, spec.table)
        return chunk

    def taken(self, chunk: Chunk, snapshot: PgSnapshot, l_hi: Lsn, filenode: int | None, form: Form) -> bool:
        """What the chunk's transaction saw first. False: give the transaction up, the work is seen to.

        `filenode` is that of its leaf, now; None when it has none.
        """
        if chunk.number not in self._open:
            return False
        leaf = chunk.spec.leaf
        if form != chunk.spec.form or (leaf is not None and filenode != leaf.filenode):
            self._plan_again(chunk.spec.table)
            return False
        if not self.window.taken(chunk.number, snapshot, l_hi):
            self.counts["refused"] += 1
            self.give_back(chunk)
            return False
        return True

    def arrived(self, chunk: Chunk, rows: Rows, size: int) -> None:
        """All rows of the chunk."""
        if chunk.number in self._open:
            chunk.rows, chunk.size, chunk.there = rows, size, True
            self.window.arrived(chunk.number)

    def give_back(self, chunk: Chunk, *, halve: bool = False) -> None:
        """The chunk came to nothing; somebody else may have its blocks, with `halve` in two pieces."""
        if self._open.pop(chunk.number, None) is None:
            return
        self.window.forget(chunk.number)
        spec, table = chunk.spec, self._tables[chunk.spec.table]
        if spec.sweep:
            self.sweeps.give_back(spec, halve=halve)
        elif spec.leaf is None:
            table.repairing = False
            if halve:
                table.keys_max = max(1, len(spec.keys) // 2)
            self.sweeps.begin_when_read(spec.table)  # what it was to read may have been streamed meanwhile
        else:
            pieces = halved(spec.blocks, spec.leaf.block_count) if halve else [spec.blocks]
            table.leaves[spec.leaf.oid].todo.extendleft(reversed(pieces))

    def plan_again(self, chunk: Chunk) -> None:
        """The table of a chunk, or a partition of it, does not exist under its name any more."""
        if chunk.number in self._open:
            self._plan_again(chunk.spec.table)

    def _plan_again(self, name: str) -> None:
        """The table is not what it was when it was planned."""
        self.counts["planned_again"] += 1
        self._give_up(name)
        self._tables[name].give_up_plan()

    def due(self, boundary: Lsn) -> bool:
        """Whether rows may join at `boundary`."""
        for name, table in self._awaited():
            if table.sweep_from <= boundary and name not in self._changed:
                self._note(name)  # so that a commit follows, which `mark` needs
        return any(self.window.may_join(number, boundary) for number in self._open)

    def waits(self, boundary: Lsn) -> bool:
        """Whether rows have arrived for which `boundary` is too early."""
        awaited = any(table.sweep_from > boundary for _, table in self._awaited())
        return awaited or any(self.window.waits(number, boundary) for number in self._open)

    @property
    def notes_pending(self) -> bool:
        """Whether a record changed since it was noted."""
        return bool(self._changed) or self._signals is not None

    def join(self, boundary: Lsn, place: LogWriter, *, rows_max: int) -> tuple[int, int]:
        """Have rows placed at `boundary`, at most so many looked at; returns how many joined, and their bytes.

        Keys that a sweep deletes are counted with them.
        """
        row_count = byte_count = 0
        for chunk in list(self._open.values()):
            if rows_max <= 0:
                break
            if not self.window.may_join(chunk.number, boundary):
                continue
            verdict = self.window.verdict(chunk.number)
            if verdict is None:
                self.counts["refused"] += 1
                self.give_back(chunk)
                continue
            part = chunk.rows[chunk.joined : chunk.joined + rows_max]
            rows, size = (0, 0) if verdict.everything or not part else place.put(chunk.spec, part, verdict)
            chunk.joined += len(part)
            chunk.row_count += rows
            self._tables[chunk.spec.table].byte_count += size
            self.counts.update(joined=rows, dropped=len(part) - rows)
            rows_max -= len(part)
            row_count += rows
            byte_count += size
            if chunk.joined < len(chunk.rows):
                self.counts["sliced"] += 1
                continue
            if chunk.spec.sweep:
                count, size = self.sweeps.judge(chunk, verdict, place)
                row_count += count
                byte_count += size
            self._miss(chunk, verdict, place)
            self._done(chunk, verdict)
        return row_count, byte_count

    def notes(self) -> SnapshotNotes:
        """What the log must say beside the rows that have joined until now."""
        pending = tuple(sorted(self.window.pending)) if self.active else ()
        return SnapshotNotes(pending, dict(self._changed), self._signals, self.sweeps.unbounded())

    def noted(self, notes: SnapshotNotes, bounds: Callable[[str], Bounds]) -> None:
        """These are on their way into the log, and `bounds` says how far the topic of a table reaches with them."""
        for name, turn in notes.sweeps.items():
            self.sweeps.bound(name, turn, bounds(name))
        for name, record in notes.records.items():
            if self._changed.get(name) is record:
                del self._changed[name]
        if self._signals is notes.signals:
            self._signals = None

    def mark(self, boundary: Lsn, bounds: Callable[[str], Bounds]) -> None:
        """A commit is on its way that has everything up to `boundary`: what awaits that is swept up to `bounds`."""
        for name, table in list(self._awaited()):
            if table.sweep_from > boundary:
                continue
            marks = tuple(end for _, end in sorted(bounds(name).items()))
            table.sweep_from = Lsn(0)
            table.sweep = Sweep(marks) if any(marks) else None
            self._awaiting.discard(name)
            self._note(name)

    def _awaited(self) -> Iterator[tuple[str, TableState]]:
        for name in self._awaiting:
            table = self._tables.get(name)
            if table is not None and table.live and table.sweep_from:
                yield name, table

    def streamed(self, touch: TransactionKeys) -> None:
        """A transaction was streamed up to its end."""
        self.window.streamed(touch)
        for name, table in self._tables.items():
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
            if not table.scanned:  # after that, the log has all values of a row that lacked none by then
                table.repair |= partial
            if table.repair != before:
                self._note(name)
                self.sweeps.begin_when_read(name)

    def seen(self, snapshot: PgSnapshot) -> None:
        """A snapshot taken just now."""
        self.window.seen(snapshot)

    def _miss(self, chunk: Chunk, verdict: Verdict, place: LogWriter) -> None:
        """Note the keys that were asked for and that the table does not have, unless the stream has seen to them."""
        spec, table = chunk.spec, self._tables[chunk.spec.table]
        if table.keyed and spec.keys and not spec.named and not spec.sweep and not verdict.everything:
            table.absent |= set(spec.keys) - verdict.keys - place.keys(spec, chunk.rows)

    def _done(self, chunk: Chunk, verdict: Verdict) -> None:
        spec, table = chunk.spec, self._tables[chunk.spec.table]
        del self._open[chunk.number]
        self.window.forget(chunk.number)
        table.row_count += chunk.row_count
        self.counts["emptied"] += verdict.everything
        if spec.sweep:
            assert table.sweep is not None
            table.sweep.judged(spec.keys)
        elif spec.leaf is None:
            table.repairing = False
            self.counts["repaired"] += len(spec.keys)
            read = set() if verdict.everything else set(spec.keys) - verdict.keys
            table.repair -= read
            table.owed = {key: one for key, one in table.owed.items() if key not in read}
        else:
            leaf = table.leaves[spec.leaf.oid]
            leaf.done = added(leaf.done, spec.blocks)
        self._note(spec.table)
        self.sweeps.begin_when_read(spec.table)

    def _give_up(self, name: str) -> None:
        for chunk in [chunk for chunk in self._open.values() if chunk.spec.table == name]:
            del self._open[chunk.number]
            self.window.forget(chunk.number)
        if name in self._tables:
            table = self._tables[name]
            table.repairing = False
            if table.sweep is not None:
                table.sweep.give_back()

    def _note(self, name: str) -> None:
        self._changed[name] = self._tables[name].record(name)

    def _step(self, leaf: Leaf) -> int:
        """Blocks of a chunk, by what a block of this leaf holds on average."""
        return max(1, self._chunk_bytes * max(1, leaf.block_count) // max(1, leaf.size))
