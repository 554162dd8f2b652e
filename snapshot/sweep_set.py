"""The sweeps of all tables: when each begins, what the stream changes, and which keys it deletes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from cdc.lsn import Lsn
from snapshot.chunk import Chunk, ChunkSpec, Form
from snapshot.log_writer import LogWriter
from snapshot.sweep import Bounds, Sweep
from snapshot.table_set import TableSet
from snapshot.table_state import TableState
from snapshot.window import TransactionKeys, Verdict


class Sweeps:
    """The sweeps of one merger. Not thread-safe."""

    def __init__(self, tables: TableSet, counts: Counter[str]) -> None:
        """Counts deleted keys as ``swept``."""
        self._tables = tables
        self._counts = counts
        self._awaiting: set[str] = set()  # tables with `sweep_from`, which are checked at every boundary

    def due(self) -> dict[str, Sweep]:
        """Return the sweeps whose topic can be read, or must be read again."""
        return {
            name: table.sweep
            for name, table in self._tables.items()
            if table.live and table.sweep is not None and table.sweep.following and table.sweep.until is not None
        }

    def going_on(self, name: str, sweep: Sweep) -> bool:
        """Whether this still is the sweep of the table, and is not lost."""
        return self._of(name) is sweep and not sweep.lost

    def begin_again(self, name: str, sweep: Sweep) -> None:
        """Start a lost sweep again; ignored if the table has another sweep."""
        if self._of(name) is sweep:
            sweep.begin()
            self._tables.note(name)

    def end(self, name: str, sweep: Sweep) -> None:
        """Finish a sweep without candidates left; ignored if it is lost or the table has another one."""
        if self.going_on(name, sweep):
            sweep.done = True

    def begin_when_read(self, name: str) -> None:
        """Start the sweep of a table if every row is read, and request a commit, which the sweep needs."""
        table = self._tables[name]
        if table.absent and table.sweep is None:
            table.sweep = Sweep((), among=frozenset(table.absent))
        if table.sweep is not None and not table.sweep.turn and table.complete_but_for_sweep:
            table.sweep.begin()
            self._tables.note(name)

    def unbounded(self) -> dict[str, int]:
        """Return the tables whose sweeps wait for a commit of everything streamed so far, with their turns."""
        return {
            name: table.sweep.turn
            for name, table in self._tables.items()
            if table.sweep is not None and table.sweep.unbounded
        }

    def bound(self, name: str, turn: int, until: Bounds) -> None:
        """Record that this commit is under way; `until` is the end of the table's topic with it."""
        sweep = self._of(name)
        if sweep is not None:
            sweep.bound(turn, until)

    def await_position(self, name: str) -> None:
        """Watch for the position `sweep_from` of a table, if it has one."""
        if self._tables[name].sweep_from:
            self._awaiting.add(name)

    def note_reached(self, boundary: Lsn) -> None:
        """Request a commit for tables whose position is reached; `mark` needs it."""
        for name, table in self._awaited():
            if table.sweep_from <= boundary and name not in self._tables.changed:
                self._tables.note(name)

    def awaits(self, boundary: Lsn) -> bool:
        """Whether a table waits for a position above `boundary`."""
        return any(table.sweep_from > boundary for _, table in self._awaited())

    def mark(self, boundary: Lsn, bounds: Callable[[str], Bounds]) -> None:
        """Record that a commit of everything up to `boundary` is under way.

        Tables that waited for a position up to there sweep their topics up to `bounds`.
        """
        for name, table in list(self._awaited()):
            if table.sweep_from > boundary:
                continue
            marks = tuple(end for _, end in sorted(bounds(name).items()))
            table.sweep_from = Lsn(0)
            table.sweep = Sweep(marks) if any(marks) else None
            self._awaiting.discard(name)
            self._tables.note(name)

    def _awaited(self) -> Iterator[tuple[str, TableState]]:
        for name in self._awaiting:
            table = self._tables.get(name)
            if table is not None and table.live and table.sweep_from:
                yield name, table

    def streamed(self, name: str, touch: TransactionKeys) -> None:
        """Record a transaction that was streamed up to its end."""
        sweep = self._of(name)
        if sweep is None or not sweep.following:
            return
        if touch.hides(name) or name in touch.truncated:
            sweep.lose()
        else:
            sweep.streamed(touch.keys.get(name, ()))

    def next(self, name: str, form: Form) -> ChunkSpec | None:
        """Return a chunk of candidates to look up, or None."""
        sweep = self._of(name)
        keys = None if sweep is None else sweep.take()
        return ChunkSpec(name, form, keys=keys, sweep=True) if keys else None

    def give_back(self, spec: ChunkSpec, *, halve: bool) -> None:
        """Return the candidates of a chunk that was given up; with `halve`, use smaller chunks from now on."""
        sweep = self._of(spec.table)
        if sweep is not None:
            sweep.give_back(len(spec.keys) // 2 if halve else None)

    def judge(self, chunk: Chunk, verdict: Verdict, log: LogWriter) -> tuple[int, int]:
        """Delete candidates that the table does not have; return their number and bytes.

        Keys that a transaction has changed are left to the stream. After a TRUNCATE these are all keys.
        """
        sweep = self._of(chunk.spec.table)
        if sweep is None or verdict.everything:
            return 0, 0
        absent = sweep.absent(chunk.spec.keys, log.keys(chunk.spec, chunk.rows) | verdict.keys)
        self._counts["swept"] += len(absent)
        return len(absent), log.remove(chunk.spec, absent) if absent else 0

    def _of(self, name: str) -> Sweep | None:
        return self._tables[name].sweep if name in self._tables else None
