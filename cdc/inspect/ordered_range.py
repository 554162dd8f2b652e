"""Decides where an ordered read begins and ends, and checks that the log still has what lies between.

It ends at a boundary of the cut index, which has every source transaction completely or not at all. It begins at the
beginning of the log, at an LSN, or behind the last event of a resume token. Does not access PostgreSQL.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from cdc.clock import Clock
from cdc.cutindex.index_reader import (
    IndexedCut,
    bounds,
    counts_of,
    cuts_between,
    first_cut,
    from_full_map,
    last_before,
    newest_cut,
)
from cdc.cutindex.log_start import AtLsn, Beginning
from cdc.errors import CutNotReached, TopicMismatch, TopicMissing, UsageError
from cdc.inspect.resume_token import Boundary, ReadState, shown, stale_token
from cdc.lsn import Lsn
from cdc.model.progress_record import CUTS_WINDOW
from cdc.model.topic_names import cuts_topic
from cdc.progress.restore import Partition, RecordReader

OrderedStart: TypeAlias = Beginning | AtLsn | ReadState
"""Where to begin: at the first event that the log has, at an LSN, or behind the last event of a token."""

_POLL_S: Final = 0.5  # between two searches for a cut; each one reads the end of the index
_MARKERS_POLL_S: Final = 0.05
_MARKERS_S: Final = 30.0  # how long the markers of a commit may be missing in a partition before it counts as too short


@dataclass(frozen=True, slots=True)
class OrderedRange:
    """What an ordered read reads.

    Attributes:
        state: where it begins.
        index_from: the first offset of the cut index.
        starts: the first offset of each partition.
        target: the boundary where it ends.
        ends: where each partition ends there; the same partitions as in `starts`.
        skip_before: (epoch, LSN): events before it are left out.
        stop_at: (epoch, LSN): the read ends before the first event at or behind it.
    """

    state: ReadState
    index_from: int
    starts: Mapping[Partition, int]
    target: Boundary
    ends: Mapping[Partition, int]
    skip_before: tuple[int, int] | None = None
    stop_at: tuple[int, int] | None = None


class RangeFinder:
    """Finds ranges in the log of one pipeline."""

    def __init__(self, reader: RecordReader, name: str, clock: Clock) -> None:
        self._reader = reader
        self._topic = cuts_topic(name)
        self._clock = clock

    def target(self, until: Lsn | None, wait_s: float) -> Boundary:
        """Return the boundary that has everything committed before `until`; None: the newest one.

        Waits at most `wait_s` seconds for it. Raises CutNotReached.
        """
        ends_s, never = self._clock.monotonic_s() + wait_s, threading.Event()
        while True:
            found = self._newest() if until is None else self._reaching(until)
            if found is not None:
                return _boundary(found)
            if self._clock.monotonic_s() >= ends_s:
                raise self._not_reached(until, wait_s)
            self._clock.wait(never, _POLL_S)

    def range(
        self, start: OrderedStart, target: Boundary, topics: Collection[str], until: Lsn | None = None
    ) -> OrderedRange:
        """Return the range from `start` to `target`, of these topics.

        Raises UsageError for a start that is not in the log or behind the target, TopicMismatch for a topic that was
        deleted, recreated or lost records, and for an index that has lost its beginning.
        """
        low, _ = bounds(self._reader, self._topic)
        ends = self._map_at(target.offset, low)
        ends = {at: end for at, end in ends.items() if at[0] in topics}
        skip_before: tuple[int, int] | None = None
        state = start if isinstance(start, ReadState) else ReadState()
        if isinstance(start, AtLsn):
            epoch = target.epoch
            skip_before = (epoch, start.lsn)
            if start.lsn > target.end_lsn:
                raise UsageError(
                    f"the start {start.lsn} is behind the end of the read at {Lsn(target.end_lsn)}",
                    hint="choose an earlier start, or a later cut",
                )
            before = self._boundary_before(start.lsn, epoch, low)
            state = ReadState(before)
        stop_at = None if until is None else (target.epoch, int(until))
        known = {} if state.boundary is None else self._map_at(self._checked(state.boundary, low, target), low)
        starts = self._starts(ends, known, state, from_beginning=state.boundary is None)
        return OrderedRange(state, low, starts, target, ends, skip_before, stop_at)

    def _newest(self) -> IndexedCut | None:
        low, high = bounds(self._reader, self._topic)
        for start in dict.fromkeys((max(low, high - CUTS_WINDOW), low)):
            found = None
            for one in cuts_between(self._reader, self._topic, start, high):
                found = one if one.cut.next_ordinal == 0 else found
            if found is not None:
                return found
        return None

    def _reaching(self, lsn: Lsn) -> IndexedCut | None:
        """Return the first boundary of the newest epoch that reaches an LSN."""
        low, high = bounds(self._reader, self._topic)
        newest = newest_cut(self._reader, self._topic, low, high)
        if newest is None or newest.cut.end_lsn < lsn:
            return None
        epoch = newest.cut.epoch
        before = last_before(self._reader, self._topic, low, high, (epoch, lsn))
        cuts = cuts_between(self._reader, self._topic, low if before is None else before, high)
        for one in cuts:
            if one.cut.epoch == epoch and one.cut.next_ordinal == 0 and one.cut.end_lsn >= lsn:
                return one
        return None

    def _boundary_before(self, lsn: Lsn, epoch: int, low: int) -> Boundary | None:
        """Return the last boundary before an LSN; None if the index does not reach back.

        Boundaries at the LSN itself are not before it: rows of a snapshot that join there lie between them.
        """
        high = bounds(self._reader, self._topic)[1]
        found = last_before(self._reader, self._topic, low, high, (epoch, lsn))
        end = low if found is None else found + 1
        while cuts := from_full_map(self._reader, self._topic, low, end):
            for one in reversed(cuts):
                if one.cut.next_ordinal == 0 and (one.cut.epoch, one.cut.end_lsn) < (epoch, lsn):
                    return _boundary(one)
            end = cuts[0].offset
        return None

    def _map_at(self, offset: int, low: int) -> dict[Partition, int]:
        """Return where each partition ends at the cut with this offset in the index."""
        cuts = from_full_map(self._reader, self._topic, low, offset + 1)
        if not cuts:
            raise TopicMismatch(
                f"{self._topic} has no full map up to its record {offset}: retention has removed its beginning",
                hint="capture writes such a map every 10 s; choose a later cut, or try again later",
                topic=self._topic,
            )
        found: dict[Partition, int] = {}
        for one in cuts:
            found.update((at, count.next_offset) for at, count in counts_of(one.cut).items())
        return found

    def _checked(self, boundary: Boundary, low: int, target: Boundary) -> int:
        """Return the offset of a token's boundary, if the index still has it."""
        if boundary.offset < low:
            raise stale_token(f"its {shown(boundary)} is no longer in the cut index, which begins at {low}")
        if not from_full_map(self._reader, self._topic, low, boundary.offset + 1):
            raise stale_token(f"the cut index, which begins at {low}, has no full map up to its {shown(boundary)}")
        found = first_cut(self._reader, self._topic, boundary.offset, boundary.offset + 1)
        if found is None or _boundary(found) != boundary:
            raise stale_token(f"its {shown(boundary)} is not in the cut index; the topics were recreated")
        if boundary.offset > target.offset:
            raise UsageError(
                f"the resume token is behind the end of the read: {shown(boundary)} and {shown(target)}",
                hint="choose a later cut",
                command="cdc tail --ordered --from TOKEN --until now",
            )
        return boundary.offset

    def _starts(
        self, ends: Mapping[Partition, int], known: Mapping[Partition, int], state: ReadState, *, from_beginning: bool
    ) -> dict[Partition, int]:
        held = self._bounds(ends)
        passed = state.pairs()
        starts: dict[Partition, int] = {}
        for at, end in ends.items():
            low, high = held[at]
            start = passed.get(at, known.get(at, low if from_beginning else 0))
            if start > high:
                raise _other_topic(at, f"it ends at offset {high}, and the read continues at {start}")
            if start < low and start < end:
                raise TopicMismatch(
                    f"records {start} to {min(low, end) - 1} of {at[0]}-{at[1]} are no longer in the log",
                    hint="retention or another program deleted them; start from the beginning to read what is left",
                    command="cdc tail --ordered --from beginning --until now",
                    topic=at[0],
                    partition=at[1],
                )
            starts[at] = start
        return starts

    def _bounds(self, ends: Mapping[Partition, int]) -> dict[Partition, tuple[int, int]]:
        """Return the first offset and the end of each partition; waits for the markers of the last commits."""
        topics = sorted({topic for topic, _ in ends})
        until_s, never = self._clock.monotonic_s() + _MARKERS_S, threading.Event()
        while True:
            try:
                found = self._reader.end_offsets(topics)
            except TopicMissing as error:
                raise TopicMissing(
                    f"{error.message}, but the log has events of it up to this cut",
                    hint="it was deleted; name the tables to read without it",
                    command="cdc tail --ordered TABLE --until now",
                    **error.facts,
                ) from error
            late = _first_late(ends, found)
            if late is None:
                return found
            if self._clock.monotonic_s() >= until_s:
                raise _other_topic(late, f"it ends at offset {found.get(late, (0, 0))[1]}, and the cut at {ends[late]}")
            self._clock.wait(never, _MARKERS_POLL_S)

    def _not_reached(self, until: Lsn | None, wait_s: float) -> CutNotReached:
        if until is None:
            return CutNotReached(
                "the log has no complete cut yet", hint="start capture first", command="cdc status", topic=self._topic
            )
        newest = self._newest()
        at = "has no cut yet" if newest is None else f"is complete up to {Lsn(newest.cut.end_lsn)}"
        return CutNotReached(
            f"the log does not reach {until} after {wait_s:g} s: it {at}",
            hint="check that capture runs and is not behind; `--until now` reads what is there",
            command="cdc status",
            lsn=until,
        )


def _boundary(one: IndexedCut) -> Boundary:
    return Boundary(one.offset, one.cut.epoch, one.cut.end_lsn)


def _first_late(ends: Mapping[Partition, int], found: Mapping[Partition, tuple[int, int]]) -> Partition | None:
    late: Sequence[Partition] = [at for at, end in ends.items() if found.get(at, (0, 0))[1] < end]
    return min(late, default=None)


def _other_topic(at: Partition, why: str) -> TopicMismatch:
    topic, partition = at
    return TopicMismatch(
        f"{topic}-{partition} is not the partition of the cut index: {why}",
        hint="the topic was recreated, or another program deleted its records",
        command="cdc audit",
        topic=topic,
        partition=partition,
    )
