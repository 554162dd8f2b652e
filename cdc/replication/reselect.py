"""Fills holes: values that an update left alone are read from the tables (DESIGN section 4, "TOAST").

A value is taken only when the event's transaction is visible in the snapshot it was read in; before that the row would
be that of an earlier event, or of another row that had the key. Until then it waits, and capture with it: commits
become visible in no other order for readers of the log, and with synchronous replication the next ones wait for the
same standby. What is read may be newer than the event, never older; a row that is gone is left as it is, because what
made it go is further on in the stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from cdc.clock import Clock
from cdc.contracts import ReselectObserver
from cdc.model.hole import Hole, Holes
from cdc.replication.keyread import Answer, Ask, NotYet
from cdc.telemetry import log

_PAUSE_FIRST_S: Final = 0.005  # between the commit record and its visibility there are microseconds
_PAUSE_MAX_S: Final = 0.5  # unless a standby is away
_TELL_S: Final = 2.0


Read = Callable[[Sequence[Ask], frozenset[int]], Sequence[Answer]]
"""`cdc.replication.keyread.read_by_key` on a connection."""


class Reselector:
    """See `cdc.contracts.Reselect`. One thread."""

    def __init__(
        self,
        read: Read,
        holes: Holes,
        clock: Clock,
        stop: threading.Event,
        *,
        observer: ReselectObserver,
        healthy: Callable[[], object],
    ) -> None:
        """`healthy` raises when there is no sense in waiting on."""
        self._read = read
        self._holes = holes
        self._clock = clock
        self._stop = stop
        self._observer = observer
        self._healthy = healthy

    @property
    def pending(self) -> bool:
        """See `cdc.contracts.Reselect.pending`."""
        return bool(self._holes.waiting)

    def fill(self) -> bool:
        """See `cdc.contracts.Reselect.fill`. Looks once also when told to stop before."""
        groups = _by_table(self._holes.waiting)
        asks = [_ask(holes) for holes in groups]
        answers = self._answers(asks, frozenset(hole.xid for hole in self._holes.waiting))
        if answers is None:
            return False
        gone_count = sum(map(self._fill, groups, asks, answers))
        self._observer.reselected(
            row_count=len(self._holes.waiting),
            gone_count=gone_count,
            query_count=sum(bool(answer.columns) for answer in answers),
        )
        self._holes.waiting.clear()
        return True

    def _answers(self, asks: Sequence[Ask], xids: frozenset[int]) -> Sequence[Answer] | None:
        """Look until it can be read; None when told to stop."""
        began_s, pause_s, told = self._clock.monotonic_s(), _PAUSE_FIRST_S, False
        while True:
            try:
                answers = self._read(asks, xids)
            except NotYet as reason:
                waited_s = self._clock.monotonic_s() - began_s
                if not told and waited_s >= _TELL_S:
                    told = True
                    log.get().warning("reselect_waiting", **log.error_fields(reason.error))
                    self._observer.reselect_waits(reason.error)
                self._healthy()
                if self._clock.wait(self._stop, pause_s):
                    return None
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
                continue
            if told:
                log.get().info("reselect_resumed", waited_s=round(self._clock.monotonic_s() - began_s, 1))
                self._observer.reselect_waits(None)
            return answers

    def _fill(self, holes: Sequence[Hole], ask: Ask, answer: Answer) -> int:
        """Hand the values to the records of one table; returns how many rows are gone."""
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


def _by_table(holes: Sequence[Hole]) -> list[list[Hole]]:
    """Those of the same form of the same table together."""
    groups: dict[int, list[Hole]] = {}
    for hole in holes:
        groups.setdefault(id(hole.relation), []).append(hole)
    return list(groups.values())


def _ask(holes: Sequence[Hole]) -> Ask:
    first = holes[0]
    columns = tuple(sorted({index for hole in holes for index in hole.missing}))
    return Ask(first.relation, first.key_columns, columns, list(dict.fromkeys(hole.key for hole in holes)))
