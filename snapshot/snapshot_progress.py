"""How far snapshots are, for people: numbers of one moment, and what follows from several. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cdc.model.snapshot_record import Blocks
from snapshot.chunk import Chunk
from snapshot.table_state import TableState

_WINDOW_S: Final = 10.0  # rates are over this
_SAMPLE_S: Final = 0.5  # between two looks that are kept: 20 of them


@dataclass(frozen=True, slots=True)
class TableProgress:
    """A table at one moment.

    Attributes:
        state: of `snapshot.merger`: begun, suspected, planned, complete, stopped.
        number: of the snapshot, 1 for the first.
        again: the table was complete before.
        row_count, byte_count: in the log because of it.
        blocks_done, block_count: of all leaves that are planned.
        keys_left: that are still to be read by key.
        sweeping: every row is read; keys that the topic has from before a gap are looked for.
        searched: it is known which keys these are.
        chunks_read: that are being read.
        chunks_waiting: whose rows are there, and wait until the stream is as far.
        waits_for: 32-bit ids of transactions that must be visible before it is read.
    """

    table: str
    state: str
    paused: bool
    number: int
    again: bool
    row_count: int
    byte_count: int
    blocks_done: int
    block_count: int
    keys_left: int
    chunks_read: int
    chunks_waiting: int
    waits_for: frozenset[int]
    sweeping: bool = False
    searched: bool = False

    @property
    def shown(self) -> str:
        """The state in a word for people: waiting, reading, sweeping, paused, stopped, complete."""
        if self.paused:
            return "paused"
        if self.sweeping and self.state == "planned":
            return "sweeping"
        return {"begun": "waiting", "suspected": "waiting", "planned": "reading"}.get(self.state, self.state)

    @property
    def reading(self) -> bool:
        """Whether something is being done, or could be."""
        return self.shown in {"waiting", "reading", "sweeping"}


@dataclass(frozen=True, slots=True)
class WaitReasons:
    """What keeps everything waiting.

    Attributes:
        behind: the stream is too far behind the server.
        throttled: more rows were read than may be.
        blockers: by 32-bit transaction id, who holds it, for people.
        hindrances: by table, what has been in the way of reading it for long.
    """

    behind: bool = False
    throttled: bool = False
    blockers: Mapping[int, str] = field(default_factory=dict)
    hindrances: Mapping[str, str] = field(default_factory=dict)


class Rates:
    """Rows and blocks a second of each table, over the last seconds. One thread looks, any asks."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, dict[str, tuple[int, int, int]]]] = deque()

    def look(self, now_s: float, tables: Iterable[TableProgress]) -> None:
        """Take what is so now into account; may be called often."""
        if self._looks and now_s - self._looks[-1][0] < _SAMPLE_S:
            return
        found = {one.table: (one.number, one.row_count, one.blocks_done) for one in tables if one.reading}
        self._looks.append((now_s, found))
        while now_s - self._looks[0][0] > _WINDOW_S:
            self._looks.popleft()

    def of(self, now_s: float, one: TableProgress) -> tuple[float, float]:
        """Rows and blocks a second; 0 for a table that is not read, or was not for long enough."""
        if not one.reading:
            return 0.0, 0.0
        for at_s, tables in self._looks.copy():
            before = tables.get(one.table)
            if before is not None and before[0] == one.number and now_s - at_s >= _SAMPLE_S:
                span_s = now_s - at_s
                return max(0, one.row_count - before[1]) / span_s, max(0, one.blocks_done - before[2]) / span_s
        return 0.0, 0.0


def document(one: TableProgress, rates: tuple[float, float], pressure: WaitReasons) -> dict[str, Any]:
    """What /status says of a table."""
    rows_s, blocks_s = rates
    left = one.block_count - one.blocks_done
    return {
        "table": one.table,
        "state": one.shown,
        "number": one.number,
        "again": one.again,
        "rows": one.row_count,
        "bytes": one.byte_count,
        "blocks_done": one.blocks_done,
        "blocks": one.block_count,
        "keys_left": one.keys_left,
        "rows_per_second": round(rows_s, 1),
        "eta_seconds": round(left / blocks_s, 1) if one.shown == "reading" and left and blocks_s else None,
        "chunks_reading": one.chunks_read,
        "chunks_waiting": one.chunks_waiting,
        "waits_for": list(_reasons(one, pressure)),
    }


def _reasons(one: TableProgress, pressure: WaitReasons) -> Iterable[str]:
    if not one.reading:
        return
    if one.state == "begun":
        yield "a look at the transactions that are open"
    known = [pressure.blockers[xid] for xid in sorted(one.waits_for) if xid in pressure.blockers]
    yield from known
    if len(known) < len(one.waits_for):
        yield f"{len(one.waits_for) - len(known)} transactions that are not visible yet"
    if one.table in pressure.hindrances:
        yield f"PostgreSQL to let it be read: {pressure.hindrances[one.table]}"
    if pressure.behind:
        yield "the stream, which is behind the server"
    if one.state == "planned" and pressure.throttled:
        yield "snapshot.rows_per_s_max"
    if one.shown == "sweeping" and not one.searched:
        yield "its topic, which is read for keys that the table does not have"
    if one.chunks_waiting:
        yield f"the stream to pass the moment {one.chunks_waiting} chunks were read"


def table_progress(
    name: str, table: TableState, chunks: Iterable[Chunk], suspects: Callable[[str], frozenset[int]]
) -> TableProgress:
    """The table now. `chunks` are the open ones of all tables, `suspects` as of `snapshot.window.Window`."""
    mine = [chunk for chunk in chunks if chunk.spec.table == name]
    sweep = table.sweep
    return TableProgress(
        table=name,
        state=table.state,
        paused=table.paused,
        number=table.number,
        again=table.again,
        row_count=table.row_count,
        byte_count=table.byte_count,
        blocks_done=sum(done_count(leaf.done, leaf.leaf.block_count) for leaf in table.leaves.values()),
        block_count=sum(leaf.leaf.block_count for leaf in table.leaves.values()),
        keys_left=len(table.repair | table.owed.keys()) + (len(sweep.keys) + sweep.left if sweep else 0),
        sweeping=sweep is not None and sweep.following,
        searched=sweep is not None and sweep.offered,
        chunks_read=sum(not chunk.there for chunk in mine),
        chunks_waiting=sum(chunk.there for chunk in mine),
        waits_for=suspects(name) if table.state == "suspected" else frozenset(),
    )


def done_count(done: Iterable[Blocks], block_count: int) -> int:
    """Blocks of a leaf that are done; what was appended since it was planned does not count."""
    return sum(max(0, min(block_count, block_count if end is None else end) - first) for first, end in done)
