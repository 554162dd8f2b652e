"""Which keys may be applied now: one request at a time for each key, in the order of the log. Pure.

Every key has a lane. Its records wait there while one request of it is under way, and go together in the next one. So
a key that is slow, or asked again and again, holds up no other, and never comes into two requests. Records are kept as
they were read until they are done with: a dead letter needs all of them.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cdc.progress.restore import LogRecord
from sinks.contract import Place

RECORD_OVERHEAD_BYTES: Final = 400
"""Of a record beside key and value, as Python keeps it: a tuple, numbers, two bytes objects, its place in a list."""


@dataclass(slots=True, eq=False)
class Lane:
    """One key.

    Attributes:
        waiting: records that are not in a request, oldest first.
        flying: records in the request under way; empty: none is.
        attempts: requests in a row that came back without a final answer.
        ready_at_s: not asked before; 0: at once.
        left: its partition was given up while a request was under way, whose answer means nothing any more.
    """

    place: Place
    key: bytes
    waiting: list[LogRecord] = field(default_factory=list)
    flying: list[LogRecord] = field(default_factory=list)
    attempts: int = 0
    ready_at_s: float = 0.0
    left: bool = False


class Load(NamedTuple):
    """What is held."""

    record_count: int
    byte_count: int


def weight(record: LogRecord) -> int:
    """Bytes that a record is counted as."""
    return len(record[4] or b"") + len(record[5] or b"") + RECORD_OVERHEAD_BYTES


class Lanes:
    """All keys that have something to do."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[Place, bytes], Lane] = {}
        self._ready: OrderedDict[tuple[Place, bytes], Lane] = OrderedDict()
        self._delayed: list[tuple[float, int, Lane]] = []
        self._delays = 0
        self._records = 0
        self._bytes = 0
        self._flying = 0

    @property
    def load(self) -> Load:
        """Records and bytes of all lanes, those under way included."""
        return Load(self._records, self._bytes)

    @property
    def flying_count(self) -> int:
        """Keys under way."""
        return self._flying

    def holds(self, place: Place, key: bytes) -> bool:
        """Whether something of the key waits or is under way."""
        lane = self._lanes.get((place, key))
        return lane is not None and not lane.left

    def add(self, record: LogRecord) -> None:
        """A record behind all others of its key."""
        place, key = (record[0], record[1]), record[4]
        assert key is not None, "records without a key are not applied"
        name = (place, key)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(place, key)
            self._ready[name] = lane
        lane.left = False
        lane.waiting.append(record)
        self._records += 1
        self._bytes += weight(record)

    def occupy(self, place: Place, key: bytes) -> Lane | None:
        """Put a key under way that has nothing waiting, for what somebody else brings; None when it is busy."""
        name = (place, key)
        if name in self._lanes:
            return None
        lane = self._lanes[name] = Lane(place, key)
        self._flying += 1
        return lane

    def take(
        self, now_s: float, *, records_max: int, bytes_max: int, cost: Callable[[Lane], int] | None = None
    ) -> list[Lane]:
        """The next request: keys that wait longest first, each with all its records; they are under way from now on.

        `bytes_max` counts the newest value of each key; a larger one goes alone. Empty when no key is ready.
        """
        self._wake(now_s)
        size = cost or _newest_bytes
        taken: list[Lane] = []
        left = bytes_max
        while self._ready and len(taken) < records_max:
            name, lane = next(iter(self._ready.items()))
            needed = size(lane)
            if taken and needed > left:
                break
            left -= needed
            del self._ready[name]
            lane.flying, lane.waiting = lane.waiting, []
            taken.append(lane)
        self._flying += len(taken)
        return taken

    def done(self, lane: Lane) -> list[LogRecord]:
        """The request's records of this key are finished; returns them. What came meanwhile is ready now."""
        finished = self._landed(lane)
        self._forget(finished)
        lane.attempts = 0
        if lane.waiting:
            self._ready[lane.place, lane.key] = lane
        else:
            del self._lanes[lane.place, lane.key]
        return [] if lane.left else finished

    def again(self, lane: Lane, at_s: float, *, counts: bool = True) -> None:
        """The same records once more, with what came meanwhile, not before `at_s`. `counts`: as an attempt."""
        records = self._landed(lane)
        if lane.left:
            self._forget(records)
            if not lane.waiting:
                del self._lanes[lane.place, lane.key]
                return
            lane.left = False
            records = []
        lane.waiting[:0] = records
        lane.attempts += counts
        lane.ready_at_s = at_s
        self._delays += 1
        heapq.heappush(self._delayed, (at_s, self._delays, lane))

    def close_off(self, lane: Lane) -> list[LogRecord]:
        """The key is given up: returns its records, those that wait too, and forgets it."""
        records = self._landed(lane)
        records += lane.waiting
        self._forget(records)
        del self._lanes[lane.place, lane.key]
        return [] if lane.left else records

    def drop(self, places: Collection[Place]) -> None:
        """Forget what waits of these partitions. A request under way stays known, so that its key is not asked twice."""
        for name in [name for name in self._lanes if name[0] in places]:
            lane = self._lanes[name]
            self._forget(lane.waiting)
            lane.waiting = []
            lane.attempts = 0
            self._ready.pop(name, None)
            if self._is_flying(lane):
                lane.left = True
            else:
                del self._lanes[name]

    def next_s(self) -> float | None:
        """When the first delayed key is ready; None when none is delayed."""
        return self._delayed[0][0] if self._delayed else None

    @property
    def ready(self) -> bool:
        """Whether `take` has something now, delayed keys apart."""
        return bool(self._ready)
