"""The progress of snapshots for /status: counts, rates, and what each table waits for. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cdc.model.snapshot_record import Blocks
from snapshot.chunk import Chunk
from snapshot.table_state import TableState

_WINDOW_S: Final = 10.0  # of the rates
_SAMPLE_S: Final = 0.5  # between two samples: 20 in the window

THROTTLED: Final = "snapshot.rows_per_s_max"
"""The reason in `waits_for` of a snapshot that the setting limits."""


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The progress of one table.

    Attributes:
        state: see `snapshot.table_state.State`.
        number: number of the snapshot of this table, starting at 1.
        again: whether the table was complete before.
        row_count, byte_count: rows and bytes that the snapshot added to the log.
        blocks_done, block_count: of all planned leaves.
        keys_left: keys that must still be read by key.
        sweeping: every row is read; the topic is being searched for keys that the table does not have.
        searched: the topic was read, so the number of these keys is known.
        chunks_read: chunks that are being read.
        chunks_waiting: chunks whose rows have arrived and wait for the stream.
        waits_for: 32-bit ids of transactions that must become visible before the table is read.
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
        """Return the displayed state: waiting, reading, sweeping, paused, stopped or complete."""
        if self.paused:
            return "paused"
        if self.sweeping and self.state == "planned":
            return "sweeping"
        return {"begun": "waiting", "suspected": "waiting", "planned": "reading"}.get(self.state, self.state)

    @property
    def reading(self) -> bool:
        """Whether the snapshot is active."""
        return self.shown in {"waiting", "reading", "sweeping"}


@dataclass(frozen=True, slots=True)
class WaitReasons:
    """Why snapshots wait, beyond the state of one table.

    Attributes:
        behind: the stream is too far behind the server.
        throttled: `snapshot.rows_per_s_max` is exceeded.
        blockers: by 32-bit transaction id, a description of its session.
        obstacles: by table, what has prevented its read for a long time.
        slowed: how the load guard slows them down; empty at full speed.
    """

    behind: bool = False
    throttled: bool = False
    blockers: Mapping[int, str] = field(default_factory=dict)
    obstacles: Mapping[str, str] = field(default_factory=dict)
    slowed: str = ""


class Rates:
    """Rows and blocks per second of each table, over the last seconds. One thread samples, any thread reads."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, dict[str, tuple[int, int, int]]]] = deque()

    def sample(self, now_s: float, tables: Iterable[TableProgress]) -> None:
        """Add a sample, unless the previous one is too recent."""
        if self._samples and now_s - self._samples[-1][0] < _SAMPLE_S:
            return
        found = {one.table: (one.number, one.row_count, one.blocks_done) for one in tables if one.reading}
        self._samples.append((now_s, found))
        while now_s - self._samples[0][0] > _WINDOW_S:
            self._samples.popleft()

    def of(self, now_s: float, one: TableProgress) -> tuple[float, float]:
        """Return rows and blocks per second; 0 for a table that is not read, or not for long enough."""
        if not one.reading:
            return 0.0, 0.0
        for at_s, tables in self._samples.copy():
            before = tables.get(one.table)
            if before is not None and before[0] == one.number and now_s - at_s >= _SAMPLE_S:
                span_s = now_s - at_s
                return max(0, one.row_count - before[1]) / span_s, max(0, one.blocks_done - before[2]) / span_s
        return 0.0, 0.0


def document(one: TableProgress, rates: tuple[float, float], reasons: WaitReasons) -> dict[str, Any]:
    """Return the entry of a table in /status."""
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
        "waits_for": list(_reasons(one, reasons)),
    }


def _reasons(one: TableProgress, reasons: WaitReasons) -> Iterable[str]:
    if not one.reading:
        return
    if one.state == "begun":
        yield "the list of open transactions"
    known = [reasons.blockers[xid] for xid in sorted(one.waits_for) if xid in reasons.blockers]
    yield from known
    if len(known) < len(one.waits_for):
        yield f"{len(one.waits_for) - len(known)} transactions to become visible"
    if one.table in reasons.obstacles:
        yield f"PostgreSQL to allow the read: {reasons.obstacles[one.table]}"
    if reasons.behind:
        yield "the stream, which is behind the server"
    if one.state == "planned" and reasons.throttled:
        yield THROTTLED
    if one.state == "planned" and reasons.slowed:
        yield reasons.slowed
    if one.shown == "sweeping" and not one.searched:
        yield "a search of its topic for keys that the table does not have"
    if one.chunks_waiting:
        yield f"the stream to pass the position at which {one.chunks_waiting} chunks were read"


def table_progress(
    name: str, table: TableState, chunks: Iterable[Chunk], suspects: Callable[[str], frozenset[int]]
) -> TableProgress:
    """Return the progress of a table. `chunks` are the open ones of all tables; `suspects`: see `Window.suspects`."""
    own = [chunk for chunk in chunks if chunk.spec.table == name]
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
        keys_left=len(table.repair | table.incomplete.keys()) + (len(sweep.keys) + sweep.left if sweep else 0),
        sweeping=sweep is not None and sweep.following,
        searched=sweep is not None and sweep.offered,
        chunks_read=sum(not chunk.arrived for chunk in own),
        chunks_waiting=sum(chunk.arrived for chunk in own),
        waits_for=suspects(name) if table.state == "suspected" else frozenset(),
    )


def done_count(done: Iterable[Blocks], block_count: int) -> int:
    """Return how many of the planned blocks of a leaf are done; blocks appended after the plan do not count."""
    return sum(max(0, min(block_count, block_count if end is None else end) - first) for first, end in done)
