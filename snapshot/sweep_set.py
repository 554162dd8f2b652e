"""All sweeps of one merger: when each begins, what it is told of the stream and what it may delete. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

from snapshot.chunk import Chunk, ChunkSpec, Form
from snapshot.log_writer import LogWriter
from snapshot.sweep import Bounds, Sweep
from snapshot.table_state import TableState
from snapshot.window import TransactionKeys, Verdict

Note: TypeAlias = Callable[[str], None]
"""Have the record of a table go into the log anew, and so a commit follow."""


class Sweeps:
    """Of one merger. Not thread-safe."""

    def __init__(self, tables: Mapping[str, TableState], counts: Counter[str], note: Note) -> None:
        """`tables` is what the merger goes on to change; ``swept`` is counted in `counts`."""
        self._tables = tables
        self._counts = counts
        self._note = note

    def due(self) -> dict[str, Sweep]:
        """Tables of which candidates can be looked for in the topic, or that must be begun anew."""
        return {
            name: table.sweep
            for name, table in self._tables.items()
            if table.live and table.sweep is not None and table.sweep.following and table.sweep.until is not None
        }

    def going_on(self, name: str, sweep: Sweep) -> bool:
        """Whether the table still has that one, and it holds."""
        return self._of(name) is sweep and not sweep.lost

    def begin_again(self, name: str, sweep: Sweep) -> None:
        """What was offered of it does not hold any more; nothing if the table has another one."""
        if self._of(name) is sweep:
            sweep.begin()
            self._note(name)

    def end(self, name: str, sweep: Sweep) -> None:
        """No candidate is left; nothing if the table has another one, or it is lost."""
        if self.going_on(name, sweep):
            sweep.done = True

    def begin_when_read(self, name: str) -> None:
        """Begin to sweep a table of which every row is read, and have a commit follow."""
        table = self._tables[name]
        if table.absent and table.sweep is None:
            table.sweep = Sweep((), among=frozenset(table.absent))
        if table.sweep is not None and not table.sweep.turn and table.complete_but_for_sweep:
            table.sweep.begin()
            self._note(name)

    def unbounded(self) -> dict[str, int]:
        """Tables whose sweeps wait for a commit that has everything streamed so far, and the turn they are in."""
        return {
            name: table.sweep.turn
            for name, table in self._tables.items()
            if table.sweep is not None and table.sweep.unbounded
        }

    def bound(self, name: str, turn: int, until: Bounds) -> None:
        """That commit is on its way; with it the topic of the table reaches up to there."""
        sweep = self._of(name)
        if sweep is not None:
            sweep.bound(turn, until)

    def streamed(self, name: str, touch: TransactionKeys) -> None:
        """A transaction was streamed up to its end."""
        sweep = self._of(name)
        if sweep is None or not sweep.following:
            return
        if touch.hides(name) or name in touch.truncated:
            sweep.lose()
        else:
            sweep.streamed(touch.keys.get(name, ()))

    def next(self, name: str, form: Form) -> ChunkSpec | None:
        """Candidates of a table to be looked for, that nobody has."""
        sweep = self._of(name)
        keys = None if sweep is None else sweep.take()
        return ChunkSpec(name, form, keys=keys, sweep=True) if keys else None

    def give_back(self, spec: ChunkSpec, *, halve: bool) -> None:
        """Nobody looks for these any more; with `halve` they were too many for one chunk."""
        sweep = self._of(spec.table)
        if sweep is not None:
            sweep.give_back(len(spec.keys) // 2 if halve else None)

    def judge(self, chunk: Chunk, verdict: Verdict, place: LogWriter) -> tuple[int, int]:
        """Delete what the chunk looked for and did not find; a TRUNCATE, or whoever touched a key, has seen to it.

        Returns how many, and the bytes of that.
        """
        sweep = self._of(chunk.spec.table)
        if sweep is None or verdict.everything:
            return 0, 0
        absent = sweep.absent(chunk.spec.keys, place.keys(chunk.spec, chunk.rows) | verdict.keys)
        self._counts["swept"] += len(absent)
        return len(absent), place.remove(chunk.spec, absent) if absent else 0

    def _of(self, name: str) -> Sweep | None:
        return self._tables[name].sweep if name in self._tables else None
