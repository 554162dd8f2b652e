"""Decides which keys are applied next: at most one request per key at a time, in log order. Pure.

Each key has a queue. New records wait in it while a request for the key is under way, and go together into the next
one. So a key that is slow or retried delays no other key, and is never in two requests at once. Records are kept as
they were read until they are finished, because a dead letter needs all of them.
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
"""Memory of a record besides key and value: a tuple, numbers, two bytes objects and a list entry in Python."""


@dataclass(slots=True, eq=False)
class KeyQueue:
    """The records of one key.

    Attributes:
        waiting: records that are not in a request, oldest first.
        flying: records in the request under way.
        parked: a dead letter to retry, before the waiting records.
        under_way: a request contains the key.
        left: the partition was revoked during the request, so the response is ignored. The key stays known until then:
            the partition may be assigned again at once, and the key must not be in two requests.
        attempts: consecutive requests without a final verdict.
        ready_at_s: a delayed key is not requested before.
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
        """The records of the request under way."""
        return self.flying if self.parked is None else self.parked.records


class Load(NamedTuple):
    """Records and bytes held for one partition, or for all."""

    record_count: int = 0
    byte_count: int = 0


class Bounds(NamedTuple):
    """How much may be held. One partition may use half, so that a stalled partition leaves room for the others."""

    records_max: int = 100_000
    bytes_max: int = 64 << 20


def weight(record: LogRecord) -> int:
    """Bytes counted for a record."""
    return len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES


def full_partitions(
    held: Mapping[TopicPartition, Load],
    places: Iterable[TopicPartition],
    paused: Collection[TopicPartition],
    bounds: Bounds,
) -> set[TopicPartition]:
    """Return the partitions to pause. A paused partition resumes when a quarter of its room is free again."""
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
    """All keys with waiting records or a request under way."""

    def __init__(self) -> None:
        self._queues: dict[tuple[TopicPartition, bytes], KeyQueue] = {}
        self._ready: OrderedDict[tuple[TopicPartition, bytes], KeyQueue] = OrderedDict()
        self._delayed: list[tuple[float, int, KeyQueue]] = []
        self._delays = 0
        self._held: dict[TopicPartition, list[int]] = {}
        self._flying: dict[TopicPartition, int] = {}

    @property
    def held(self) -> dict[TopicPartition, Load]:
        """What is held for each partition, including requests under way."""
        return {place: Load(*counts) for place, counts in self._held.items()}

    @property
    def ready(self) -> bool:
        """Whether `take` would return something now, not counting delayed keys."""
        return bool(self._ready)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._queues

    def flying(self, places: Collection[TopicPartition]) -> int:
        """Return how many keys of these partitions are under way."""
        return sum(self._flying.get(place, 0) for place in places)

    def holds(self, place: TopicPartition, key: bytes) -> bool:
        """Whether a new record of the key would wait behind others."""
        queue = self._queues.get((place, key))
        return queue is not None and (not queue.left or bool(queue.waiting))

    def add(self, record: LogRecord) -> None:
        """Append a record to the queue of its key."""
        place, key = record.topic_partition, record.key
        assert key is not None, "records without a key are not applied"
        name = (place, key)
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = self._ready[name] = KeyQueue(place, key)
        queue.waiting.append(record)
        counts = self._held.setdefault(place, [0, 0])
        counts[0] += 1
        counts[1] += weight(record)

    def retry(self, parked: ParkedKey) -> bool:
        """Queue a dead letter for a retry; False while the key is busy."""
        name = (parked.place, parked.key)
        if name in self._queues:
            return False
        self._queues[name] = self._ready[name] = KeyQueue(parked.place, parked.key, parked=parked)
        return True

    def take(self, now_s: float, *, records_max: int, bytes_max: int) -> list[KeyQueue]:
        """Return the keys of the next request, those waiting longest first, each with all its records.

        They are under way from now on. `bytes_max` counts the newest value of each key; a larger value goes alone.
        Empty when no key is ready.
        """
        self.wake(now_s)
        taken: list[KeyQueue] = []
        left = bytes_max
        while self._ready and len(taken) < records_max:
            name, queue = next(iter(self._ready.items()))
            records = queue.waiting if queue.parked is None else queue.parked.records
            needed = len(records[-1].value or b"")
            if taken and needed > left:
                break
            left -= needed
            del self._ready[name]
            if queue.parked is None:
                queue.flying, queue.waiting = queue.waiting, []
            queue.under_way = True
            self._flying[queue.place] = self._flying.get(queue.place, 0) + 1
            taken.append(queue)
        return taken

    def done(self, queue: KeyQueue) -> list[LogRecord]:
        """Finish the request of this key; return its records, none if the partition was revoked.

        Records that arrived during the request are ready now.
        """
        finished = self._landed(queue)
        queue.attempts = 0
        self._go_on(queue)
        return finished

    def again(self, queue: KeyQueue, at_s: float, *, counts: bool = True) -> None:
        """Retry the request, with records that arrived since, not before `at_s`. `counts`: it counts as an attempt."""
        if queue.left:
            self.done(queue)
            return
        parked, records = queue.parked, queue.flying
        self._landed(queue, forget=False)
        queue.parked, queue.waiting[:0] = parked, records
        queue.attempts += counts
        queue.ready_at_s = at_s
        self._delays += 1
        heapq.heappush(self._delayed, (at_s, self._delays, queue))

    def close_off(self, queue: KeyQueue) -> list[LogRecord]:
        """Give the key up; return its records, waiting ones included, none if the partition was revoked."""
        if queue.left:
            return self.done(queue)
        records = self._landed(queue)
        self._forget(queue.place, queue.waiting)
        records += queue.waiting
        del self._queues[queue.place, queue.key]
        return records

    def drop(self, places: Collection[TopicPartition]) -> None:
        """Forget these partitions. A request under way stays known, so that its key is never in two requests."""
        for name in [name for name in self._queues if name[0] in places]:
            queue = self._queues[name]
            queue.waiting, queue.attempts = [], 0
            self._ready.pop(name, None)
            if queue.under_way:
                queue.left = True
            else:
                del self._queues[name]
        for place in places:
            self._held.pop(place, None)

    def wake(self, now_s: float) -> None:
        """Make delayed keys ready whose time has come."""
        while self._delayed and self._delayed[0][0] <= now_s:
            at_s, _, queue = heapq.heappop(self._delayed)
            name = (queue.place, queue.key)
            if self._queues.get(name) is queue and queue.ready_at_s == at_s and not queue.under_way:
                self._ready[name] = queue

    def next_s(self) -> float | None:
        """Return when the first delayed key is ready; None: no key is delayed."""
        return self._delayed[0][0] if self._delayed else None

    def _landed(self, queue: KeyQueue, *, forget: bool = True) -> list[LogRecord]:
        """End the request of the key; return its records, none if the partition was revoked."""
        assert queue.under_way, "a request is answered once"
        self._flying[queue.place] -= 1
        records, left = queue.flying, queue.left
        queue.flying, queue.under_way, queue.left, queue.parked = [], False, False, None
        if left:
            return []
        if forget:
            self._forget(queue.place, records)
        return records

    def _go_on(self, queue: KeyQueue) -> None:
        if queue.waiting:
            self._ready[queue.place, queue.key] = queue
        else:
            del self._queues[queue.place, queue.key]

    def _forget(self, place: TopicPartition, records: Sequence[LogRecord]) -> None:
        counts = self._held.setdefault(place, [0, 0])
        for record in records:
            counts[0] -= 1
            counts[1] -= weight(record)


class Pace:
    """Limits the keys per request: halved when the store is overloaded, slowly raised again when it is not."""

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self._now = records_max

    @property
    def records(self) -> int:
        """Keys in the next request."""
        return self._now

    def overloaded(self) -> None:
        """Halve the limit: the store was overloaded."""
        self._now = max(1, self._now // 2)

    def went_well(self) -> None:
        """Raise the limit: the store accepted a whole request."""
        self._now = min(self._records_max, self._now + max(1, self._now // 8))
