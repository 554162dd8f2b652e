"""Which keys may be applied now: one request at a time for each key, in the order of the log. Pure.

Every key has a lane. Its records wait there while one request of it is under way, and go together in the next one. So
a key that is slow, or asked again and again, holds up no other, and never comes into two requests. Records are kept as
they were read until they are done with: a dead letter needs all of them.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cdc.model.log_record import LogRecord
from sinks.contract import ParkedKey, TopicPartition

RECORD_OVERHEAD_BYTES: Final = 400
"""Of a record beside key and value, as Python keeps it: a tuple, numbers, two bytes objects, its place in a list."""


@dataclass(slots=True, eq=False)
class KeyQueue:
    """One key.

    Attributes:
        waiting: records that are not in a request, oldest first.
        flying: records in the request under way.
        parked: a dead letter that is tried again, before anything that waits.
        under_way: a request has the key.
        left: its partition was given up meanwhile, so that the request's answer means nothing any more.
        attempts: requests in a row that came back without a final answer.
        ready_at_s: of a key that is delayed: not asked before.
    """

    place: TopicPartition
    key: bytes
    waiting: list[LogRecord] = field(default_factory=list)
    flying: list[LogRecord] = field(default_factory=list)
    parked: ParkedKey | None = None
    under_way: bool = False
    left: bool = False
    attempts: int = 0
    ready_at_s: float = 0.0

    @property
    def asked(self) -> Sequence[LogRecord]:
        """What the request under way is about."""
        return self.flying if self.parked is None else self.parked.records


class Load(NamedTuple):
    """What is held of a partition, or of all."""

    record_count: int = 0
    byte_count: int = 0


class Bounds(NamedTuple):
    """How much may be held. One partition may have half of it, so that one that stands still leaves room for others."""

    records_max: int = 100_000
    bytes_max: int = 64 << 20


def weight(record: LogRecord) -> int:
    """Bytes that a record is counted as."""
    return len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES


def full_partitions(
    held: Mapping[TopicPartition, Load],
    places: Iterable[TopicPartition],
    paused: Collection[TopicPartition],
    bounds: Bounds,
) -> set[TopicPartition]:
    """Of which partitions no more may be read now. A paused one is read on when a quarter of the room is free again."""
    total = Load(sum(one.record_count for one in held.values()), sum(one.byte_count for one in held.values()))
    nothing = Load()

    def is_full(load: Load, share: float, *, was: bool) -> bool:
        part = share * (0.75 if was else 1.0)
        return load.record_count >= bounds.records_max * part or load.byte_count >= bounds.bytes_max * part

    return {
        place
        for place in places
        if is_full(total, 1.0, was=place in paused) or is_full(held.get(place, nothing), 0.5, was=place in paused)
    }


class KeyQueues:
    """All keys that have something to do."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[TopicPartition, bytes], KeyQueue] = {}
        self._ready: OrderedDict[tuple[TopicPartition, bytes], KeyQueue] = OrderedDict()
        self._delayed: list[tuple[float, int, KeyQueue]] = []
        self._delays = 0
        self._held: dict[TopicPartition, list[int]] = {}
        self._flying: dict[TopicPartition, int] = {}

    @property
    def held(self) -> dict[TopicPartition, Load]:
        """What is held of each partition, requests under way included."""
        return {place: Load(*counts) for place, counts in self._held.items()}

    @property
    def ready(self) -> bool:
        """Whether `take` has something now, delayed keys apart."""
        return bool(self._ready)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do and nothing under way."""
        return not self._lanes

    def flying(self, places: Collection[TopicPartition]) -> int:
        """Keys of these partitions that are under way."""
        return sum(self._flying.get(place, 0) for place in places)

    def holds(self, place: TopicPartition, key: bytes) -> bool:
        """Whether a record of the key would wait behind others."""
        lane = self._lanes.get((place, key))
        return lane is not None and (not lane.left or bool(lane.waiting))

    def add(self, record: LogRecord) -> None:
        """A record behind all others of its key."""
        place, key = record.topic_partition, record.key
        assert key is not None, "records without a key are not applied"
        name = (place, key)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = self._ready[name] = KeyQueue(place, key)
        lane.waiting.append(record)
        counts = self._held.setdefault(place, [0, 0])
        counts[0] += 1
        counts[1] += weight(record)

    def retry(self, parked: ParkedKey) -> bool:
        """Try a dead letter again, as a key of its own; False while the key is busy."""
        name = (parked.place, parked.key)
        if name in self._lanes:
            return False
        self._lanes[name] = self._ready[name] = KeyQueue(parked.place, parked.key, parked=parked)
        return True

    def take(self, now_s: float, *, records_max: int, bytes_max: int) -> list[KeyQueue]:
        """The next request: keys that wait longest first, each with all its records; they are under way from now on.

        `bytes_max` counts the newest value of each key; a larger one goes alone. Empty when no key is ready.
        """
        self.wake(now_s)
        taken: list[KeyQueue] = []
        left = bytes_max
        while self._ready and len(taken) < records_max:
            name, lane = next(iter(self._ready.items()))
            records = lane.waiting if lane.parked is None else lane.parked.records
            needed = len(records[-1].value or b"")
            if taken and needed > left:
                break
            left -= needed
            del self._ready[name]
            if lane.parked is None:
                lane.flying, lane.waiting = lane.waiting, []
            lane.under_way = True
            self._flying[lane.place] = self._flying.get(lane.place, 0) + 1
            taken.append(lane)
        return taken

    def done(self, lane: KeyQueue) -> list[LogRecord]:
        """The request of this key is over, whatever came of it; its records, if they still concern us.

        What came meanwhile is ready now.
        """
        finished = self._landed(lane)
        lane.attempts = 0
        self._go_on(lane)
        return finished

    def again(self, lane: KeyQueue, at_s: float, *, counts: bool = True) -> None:
        """The same once more, with what came meanwhile, not before `at_s`. `counts`: as an attempt."""
        if lane.left:
            self.done(lane)
            return
        parked, records = lane.parked, lane.flying
        self._landed(lane, forget=False)
        lane.parked, lane.waiting[:0] = parked, records
        lane.attempts += counts
        lane.ready_at_s = at_s
        self._delays += 1
        heapq.heappush(self._delayed, (at_s, self._delays, lane))

    def close_off(self, lane: KeyQueue) -> list[LogRecord]:
        """The key is given up: its records, those that wait too, if they still concern us."""
        if lane.left:
            return self.done(lane)
        records = self._landed(lane)
        self._forget(lane.place, lane.waiting)
        records += lane.waiting
        del self._lanes[lane.place, lane.key]
        return records

    def drop(self, places: Collection[TopicPartition]) -> None:
        """Forget these partitions. A request under way stays known, so that its key does not come into a second one."""
        for name in [name for name in self._lanes if name[0] in places]:
            lane = self._lanes[name]
            lane.waiting, lane.attempts = [], 0
            self._ready.pop(name, None)
            if lane.under_way:
                lane.left = True
            else:
                del self._lanes[name]
        for place in places:
            self._held.pop(place, None)

    def wake(self, now_s: float) -> None:
        """Delayed keys whose time has come are ready."""
        while self._delayed and self._delayed[0][0] <= now_s:
            at_s, _, lane = heapq.heappop(self._delayed)
            name = (lane.place, lane.key)
            if self._lanes.get(name) is lane and lane.ready_at_s == at_s and not lane.under_way:
                self._ready[name] = lane

    def next_s(self) -> float | None:
        """When the first delayed key is ready; None when none is delayed."""
        return self._delayed[0][0] if self._delayed else None

    def _landed(self, lane: KeyQueue, *, forget: bool = True) -> list[LogRecord]:
        """Nothing of the key is under way any more; its records, none of a partition that was given up."""
        assert lane.under_way, "an answer comes once for each request"
        self._flying[lane.place] -= 1
        records, left = lane.flying, lane.left
        lane.flying, lane.under_way, lane.left, lane.parked = [], False, False, None
        if left:
            return []
        if forget:
            self._forget(lane.place, records)
        return records

    def _go_on(self, lane: KeyQueue) -> None:
        if lane.waiting:
            self._ready[lane.place, lane.key] = lane
        else:
            del self._lanes[lane.place, lane.key]

    def _forget(self, place: TopicPartition, records: Sequence[LogRecord]) -> None:
        counts = self._held.setdefault(place, [0, 0])
        for record in records:
            counts[0] -= 1
            counts[1] -= weight(record)


class Pace:
    """How many keys a request has: half as many after the store was overloaded, slowly more again when it is not."""

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self._now = records_max

    @property
    def records(self) -> int:
        """Keys in the next request."""
        return self._now

    def overloaded(self) -> None:
        """The store had no room."""
        self._now = max(1, self._now // 2)

    def went_well(self) -> None:
        """A whole request was taken."""
        self._now = min(self._records_max, self._now + max(1, self._now // 8))
