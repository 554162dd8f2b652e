"""Plans snapshots: when a table may be read, which chunks are left, and when it is complete. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cdc.lsn import Lsn
from snapshot.chunk import ChunkSpec, Form, Leaf, missing_ranges
from snapshot.open_chunks import OpenChunks
from snapshot.sweep_set import Sweeps
from snapshot.table_set import TableSet
from snapshot.table_state import LeafState, TableState
from snapshot.window import Window

CHUNK_BYTES: Final = 8 << 20  # of heap and TOAST; larger chunks are no faster, but need more memory and drop more keys


class Plans:
    """The plans of one merger's tables. Not thread-safe."""

    def __init__(
        self,
        tables: TableSet,
        window: Window,
        chunks: OpenChunks,
        sweeps: Sweeps,
        counts: Counter[str],
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """Counts ``planned_again`` in `counts`."""
        self._tables = tables
        self._window = window
        self._chunks = chunks
        self._sweeps = sweeps
        self._counts = counts
        self._chunk_bytes = chunk_bytes

    def begun(self) -> dict[str, int]:
        """Return the tables that wait for `suspect`, with the numbers of their snapshots."""
        return {
            name: table.number
            for name, table in self._tables.items()
            if table.state == "begun" and not table.sweep_from
        }

    def suspect(self, begun: Mapping[str, int], xids: Iterable[int]) -> None:
        """Record the transactions that were open when the tables in `begun` were certainly in the stream.

        Skips tables whose snapshot was stopped or begun again since `begun` was read.
        """
        names = [name for name, number in self.begun().items() if begun.get(name) == number]
        self._window.suspect(xids, names)
        for name in names:
            self._tables[name].state = "suspected"
            self._tables.note(name)

    def tables_to_plan(self) -> list[str]:
        """Return tables whose leaves may be read: every transaction that may have unknown keys of theirs is visible."""
        return [
            name
            for name, table in self._tables.items()
            if table.state == "suspected" and not self._window.suspects(name)
        ]

    def tables_to_check(self) -> list[str]:
        """Return tables that are read completely and whose leaves must be compared with the plan."""
        return [name for name, table in self._tables.items() if table.read]

    def plan(self, name: str, form: Form, leaves: Sequence[Leaf], at: Lsn) -> None:
        """Plan a table with its present leaves. Chunks of a leaf stay done if its file node is the same.

        A table without chunks left is complete then.
        """
        table = self._tables[name]
        known = table.done(form)
        self._chunks.give_up(name)
        checked = table.state == "planned"
        table.form, table.recorded, table.state = form, {}, "planned"
        table.leaves = {}
        for leaf in () if table.keyed else leaves:
            filenode, done = known.get(leaf.oid, (leaf.filenode, ()))
            if filenode != leaf.filenode:
                done = ()
            todo = deque(missing_ranges(done, leaf.block_count, self._step(leaf)))
            table.leaves[leaf.oid] = LeafState(leaf, done, todo)
        if table.read:
            table.state = "complete"
            # `ended` tells which DDL came before a full read, so a read of selected rows does not change it.
            table.ended = table.ended if table.selective else at
            table.end()
        elif checked:
            self._counts["planned_again"] += 1
        self._tables.note(name)
        self._sweeps.begin_when_read(name)

    def next_chunk(self) -> ChunkSpec | None:
        """Return the next chunk to read; one table is finished before the next starts."""
        for name, table in self._tables.items():
            if table.state != "planned" or table.form is None or table.paused:
                continue
            for leaf in table.leaves.values():
                if leaf.todo:
                    return ChunkSpec(name, table.form, leaf.leaf, leaf.todo.popleft(), condition=table.condition)
            if table.scanned and (table.repair or table.incomplete) and not table.repairing:
                spec = self._by_key(name, table, table.form)
                table.repairing = spec is not None
                if spec is not None:
                    return spec
            candidates = self._sweeps.next(name, table.form)
            if candidates is not None:
                return candidates
        return None

    def _by_key(self, name: str, table: TableState, form: Form) -> ChunkSpec | None:
        """Return keys that no pending transaction has changed; rows of others would be dropped."""
        unseen = self._window.unseen(name)
        if unseen is None or unseen.everything:
            return None
        keys = tuple(sorted(table.repair - unseen.keys)[: table.keys_max])
        if keys:
            return ChunkSpec(name, form, keys=keys)
        keys = tuple(sorted(table.incomplete.keys() - unseen.keys)[: table.keys_max])
        columns = tuple(table.incomplete[key].columns for key in keys)
        return ChunkSpec(name, form, keys=keys, named=columns) if keys else None

    def _step(self, leaf: Leaf) -> int:
        """Return the blocks per chunk, from the average bytes per block of the leaf."""
        return max(1, self._chunk_bytes * max(1, leaf.block_count) // max(1, leaf.size))
