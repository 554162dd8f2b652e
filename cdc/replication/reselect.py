"""Completes records whose update did not include large (TOASTed) values, by reading the values from the tables.

A value counts only if the event's transaction is visible in the snapshot that it was read in. Otherwise the row would
be that of an earlier event, or of another row with the same key. Capture waits a moment for that. But a commit that
waits for a standby may stay invisible for hours. Then the record is published as it is, and its row is owed: it is read
by key once everything that it depends on is visible, and joins the stream like rows of a snapshot.

A value may be newer than the event, never older. A row that is gone stays incomplete; the change that removed it is
further on in the stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from cdc.clock import Clock
from cdc.contracts import ReselectObserver
from cdc.model.incomplete_record import IncompleteRecord, IncompleteRecords
from cdc.replication.key_read import ReadDeferred, ReadRequest, ReadResult
from cdc.telemetry import log

_PAUSE_FIRST_S: Final = 0.005  # between the commit record and its visibility there are microseconds
_PAUSE_MAX_S: Final = 0.5  # unless a standby is away
_REPORT_S: Final = 2.0
_PATIENCE_S: Final = 1.0  # then the stream continues and the values follow; a standby that is up answers sooner
_HURRIED_S: Final = 0.05  # after a batch that had to continue without values


Read = Callable[[Sequence[ReadRequest], frozenset[int]], Sequence[ReadResult]]
"""Reads rows by key: `cdc.replication.key_read.read_by_key` on a connection."""


Owe = Callable[[Sequence[IncompleteRecord]], bool]
"""Promises that the rows of these records are read and published later. Returns False if not all can be promised."""


@dataclass(slots=True)
class _Waits:
    """The waiting of one `fill`: since when, how long it may last, and whether it was reported."""

    began_s: float
    patience_s: float
    pause_s: float = _PAUSE_FIRST_S
    reported: bool = False


class Reselector:
    """Implements `cdc.contracts.Reselect`. One thread."""

    def __init__(
        self,
        read: Read,
        holes: IncompleteRecords,
        clock: Clock,
        stop: threading.Event,
        *,
        observer: ReselectObserver,
        healthy: Callable[[], object],
        owe: Owe,
    ) -> None:
        """`healthy` raises if waiting is pointless."""
        self._read = read
        self._holes = holes
        self._clock = clock
        self._stop = stop
        self._observer = observer
        self._healthy = healthy
        self._owe = owe
        self._owing = False

    @property
    def pending(self) -> bool:
        """See `cdc.contracts.Reselect.pending`."""
        return bool(self._holes.waiting)

    def fill(self) -> bool:
        """See `cdc.contracts.Reselect.fill`. Tries once even if a stop was requested before."""
        waits = _Waits(self._clock.monotonic_s(), _HURRIED_S if self._owing else _PATIENCE_S)
        holes, owed = self._holes.waiting, 0
        gone_count = query_count = 0
        while holes:
            groups = _by_table(holes)
            asks = [_ask(group) for group in groups]
            try:
                answers = self._read(asks, frozenset(hole.xid for hole in holes))
            except ReadDeferred as reason:
                late, others = _split(holes, reason.unseen)
                if self._clock.monotonic_s() - waits.began_s >= waits.patience_s and self._owe(late):
                    self._report_owed(reason, late)
                    owed += len(late)
                    holes = others
                elif not self._wait(reason, waits):
                    return False
                continue
            gone_count = sum(map(self._fill, groups, asks, answers))
            query_count = sum(bool(answer.columns) for answer in answers)
            break
        if waits.reported:
            log.get().info("reselect_resumed", waited_s=round(self._clock.monotonic_s() - waits.began_s, 1))
            self._observer.reselect_waits(None)
        self._observer.reselected(row_count=len(holes), gone_count=gone_count, query_count=query_count)
        self._holes.waiting.clear()
        self._owing = owed > 0
        return True

    def _wait(self, reason: ReadDeferred, waits: _Waits) -> bool:
        """Wait a moment before the next attempt. Returns False if a stop was requested."""
        if not waits.reported and self._clock.monotonic_s() - waits.began_s >= _REPORT_S:
            waits.reported = True
            log.get().warning("reselect_waiting", **log.error_fields(reason.error))
            self._observer.reselect_waits(reason.error)
        self._healthy()
        pause_s, waits.pause_s = waits.pause_s, min(2 * waits.pause_s, _PAUSE_MAX_S)
        return not self._clock.wait(self._stop, pause_s)

    def _report_owed(self, reason: ReadDeferred, holes: Sequence[IncompleteRecord]) -> None:
        self._observer.reselect_owed(len(holes))
        if not self._owing:
            self._owing = True
            tables = sorted({hole.relation.table for hole in holes})
            log.get().warning("reselect_owed", tables=tables[:10], rows=len(holes), **log.error_fields(reason.error))

    def _fill(self, holes: Sequence[IncompleteRecord], ask: ReadRequest, answer: ReadResult) -> int:
        """Add the values to the records of one table. Returns how many rows are gone."""
        places = {key: index for index, key in enumerate(ask.keys)}
        filled_count = size = 0
        for hole in holes:
            row = answer.rows.get(places[hole.key])
            if row is not None:
                found = {index: text for index, text in zip(answer.columns, row, strict=True) if index in hole.missing}
                hole.fill(found)
                filled_count += 1
                size += sum(len(text or b"") for text in found.values())
        if filled_count:
            self._holes.learn(ask.relation.oid, size, filled_count)
        return len(holes) - filled_count


def _split(
    holes: Sequence[IncompleteRecord], unseen: Collection[int]
) -> tuple[list[IncompleteRecord], list[IncompleteRecord]]:
    """Return the records that must wait and those that can be completed. Without `unseen`, all must wait."""
    if not unseen:
        return list(holes), []
    return [hole for hole in holes if hole.xid in unseen], [hole for hole in holes if hole.xid not in unseen]


def _by_table(holes: Sequence[IncompleteRecord]) -> list[list[IncompleteRecord]]:
    """Group records by table and form."""
    groups: dict[int, list[IncompleteRecord]] = {}
    for hole in holes:
        groups.setdefault(id(hole.relation), []).append(hole)
    return list(groups.values())


def _ask(holes: Sequence[IncompleteRecord]) -> ReadRequest:
    first = holes[0]
    columns = tuple(sorted({index for hole in holes for index in hole.missing}))
    return ReadRequest(first.relation, first.key_columns, columns, list(dict.fromkeys(hole.key for hole in holes)))
