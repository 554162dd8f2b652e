"""The chunks that are being read or wait to join the log. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cdc.lsn import Lsn
from cdc.model.visibility import PgSnapshot
from snapshot.chunk import Chunk, ChunkSpec, Form, JoinedChunk, Rows, halves, with_range
from snapshot.log_writer import LogWriter
from snapshot.sweep_set import Sweeps
from snapshot.table_set import TableSet
from snapshot.window import Verdict, Window


class OpenChunks:
    """The open chunks of one merger. Not thread-safe."""

    def __init__(self, tables: TableSet, window: Window, sweeps: Sweeps, counts: Counter[str]) -> None:
        """Counts rows ``joined`` and ``dropped``, chunks ``refused``, ``sliced`` and ``emptied``, and others."""
        self._tables = tables
        self._window = window
        self._sweeps = sweeps
        self._counts = counts
        self._open: dict[int, Chunk] = {}
        self._numbers = 0
        self.joined: list[JoinedChunk] = []
        """The chunks that the last `join` has finished."""

    def __iter__(self) -> Iterator[Chunk]:
        """Iterate over the open chunks."""
        return iter(list(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    @property
    def size(self) -> int:
        """Bytes of rows that have arrived and not joined."""
        return sum(chunk.size for chunk in self)

    def open(self, spec: ChunkSpec) -> Chunk:
        """Register a chunk. Take its snapshot only after this returns."""
        self._numbers += 1
        chunk = Chunk(self._numbers, spec)
        self._open[chunk.number] = chunk
        self._window.register(chunk.number, spec.table)
        return chunk

    def taken(self, chunk: Chunk, snapshot: PgSnapshot, l_hi: Lsn, filenode: int | None, form: Form) -> bool:
        """Record what the chunk's transaction saw first. Returns False if the chunk is given up: do not read its rows.

        `filenode` is the present one of the leaf; None without a leaf.
        """
        if chunk.number not in self._open:
            return False
        leaf = chunk.spec.leaf
        if form != chunk.spec.form or (leaf is not None and filenode != leaf.filenode):
            self._plan_again(chunk.spec.table)
            return False
        if not self._window.taken(chunk.number, snapshot, l_hi):
            self._counts["refused"] += 1
            self.give_back(chunk)
            return False
        return True

    def arrived(self, chunk: Chunk, rows: Rows, size: int) -> None:
        """Record all rows of the chunk."""
        if chunk.number in self._open:
            chunk.rows, chunk.size, chunk.arrived = rows, size, True
            self._window.arrived(chunk.number)

    def give_back(self, chunk: Chunk, *, halve: bool = False) -> None:
        """Give a chunk up, so that its blocks or keys are read later; with `halve` in two chunks."""
        if self._open.pop(chunk.number, None) is None:
            return
        self._window.forget(chunk.number)
        spec, table = chunk.spec, self._tables[chunk.spec.table]
        if spec.sweep:
            self._sweeps.give_back(spec, halve=halve)
        elif spec.leaf is None:
            table.repairing = False
            if halve:
                table.keys_max = max(1, len(spec.keys) // 2)
            self._sweeps.begin_when_read(spec.table)  # the stream may have brought the keys meanwhile
        else:
            pieces = halves(spec.blocks, spec.leaf.block_count) if halve else [spec.blocks]
            table.leaves[spec.leaf.oid].todo.extendleft(reversed(pieces))

    def plan_again(self, chunk: Chunk) -> None:
        """Plan a chunk's table again: the table, or a partition, no longer exists under its name."""
        if chunk.number in self._open:
            self._plan_again(chunk.spec.table)

    def give_up(self, name: str) -> None:
        """Give up every chunk of a table."""
        for chunk in [chunk for chunk in self if chunk.spec.table == name]:
            del self._open[chunk.number]
            self._window.forget(chunk.number)
        table = self._tables.get(name)
        if table is not None:
            table.repairing = False
            if table.sweep is not None:
                table.sweep.give_back()

    def may_join(self, boundary: Lsn) -> bool:
        """Whether rows may join at `boundary`."""
        return any(self._window.may_join(number, boundary) for number in self._open)

    def waits(self, boundary: Lsn) -> bool:
        """Whether rows have arrived but `boundary` is too early for them."""
        return any(self._window.waits(number, boundary) for number in self._open)

    def join(self, boundary: Lsn, log: LogWriter, *, rows_max: int) -> tuple[int, int]:
        """Write rows at `boundary`, after checking at most about `rows_max`; return how many joined, and their bytes.

        The result includes keys that a sweep deletes.
        """
        row_count = byte_count = 0
        self.joined = []
        for chunk in self:
            if rows_max <= 0:
                break
            if not self._window.may_join(chunk.number, boundary):
                continue
            verdict = self._window.verdict(chunk.number)
            if verdict is None:
                self._counts["refused"] += 1
                self.give_back(chunk)
                continue
            part = chunk.rows[chunk.checked : chunk.checked + rows_max]
            rows, size = (0, 0) if verdict.everything or not part else log.put(chunk.spec, part, verdict)
            chunk.checked += len(part)
            chunk.row_count += rows
            self._tables[chunk.spec.table].byte_count += size
            self._counts.update(joined=rows, dropped=len(part) - rows)
            rows_max -= len(part)
            row_count += rows
            byte_count += size
            if chunk.checked < len(chunk.rows):
                self._counts["sliced"] += 1
                continue
            if chunk.spec.sweep:
                count, size = self._sweeps.judge(chunk, verdict, log)
                row_count += count
                byte_count += size
            self._record_absent(chunk, verdict, log)
            self._done(chunk, verdict)
        return row_count, byte_count

    def _record_absent(self, chunk: Chunk, verdict: Verdict, log: LogWriter) -> None:
        """Record requested keys that the table does not have, unless a transaction has changed them."""
        spec, table = chunk.spec, self._tables[chunk.spec.table]
        if table.keyed and spec.keys and not spec.named and not spec.sweep and not verdict.everything:
            table.absent |= set(spec.keys) - verdict.keys - log.keys(spec, chunk.rows)

    def _done(self, chunk: Chunk, verdict: Verdict) -> None:
        spec, table = chunk.spec, self._tables[chunk.spec.table]
        del self._open[chunk.number]
        self._window.forget(chunk.number)
        table.row_count += chunk.row_count
        self.joined.append(JoinedChunk(spec.table, table.number, chunk.began_s, chunk.row_count, chunk.size))
        self._counts["emptied"] += verdict.everything
        if spec.sweep:
            assert table.sweep is not None
            table.sweep.judged(spec.keys)
        elif spec.leaf is None:
            table.repairing = False
            self._counts["repaired"] += len(spec.keys)
            read = set() if verdict.everything else set(spec.keys) - verdict.keys
            table.repair -= read
            table.incomplete = {key: one for key, one in table.incomplete.items() if key not in read}
        else:
            leaf = table.leaves[spec.leaf.oid]
            leaf.done = with_range(leaf.done, spec.blocks)
        self._tables.note(spec.table)
        self._sweeps.begin_when_read(spec.table)

    def _plan_again(self, name: str) -> None:
        self._counts["planned_again"] += 1
        self.give_up(name)
        self._tables[name].give_up_plan()
