"""Detects orphaned partitions in a healthy consumer group, and chooses the worker that rejoins to get them assigned.

A cooperative rebalance has two rounds: in the first a worker gives partitions up, in the second other workers get them.
If a worker with an instance id is killed in between, its successor takes over its remaining partitions without a
rebalance. Then the second round never happens: the coordinator sees a stable group, and no worker reads the partitions
until a member joins or leaves (Kafka 4.3, librdkafka 2.16: `tests/contract/test_sink_unowned.py`).
Pure, except for the queries that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from cdc.clock import Clock
from cdc.errors import BrokerUnreachable
from cdc.kafka.cluster_facts import GroupAssignment, TopicFacts
from sinks.contract import TopicPartition

LOOK_EVERY_S: Final = 4.0
"""Between two checks. Two equal answers are needed, so a partition is orphaned for about ten seconds."""
AGAIN_S: Final = 60.0
"""After a worker was chosen: a rebalance of a large group takes time."""


class Dealing(Protocol):
    """What is needed of `cdc.kafka.group_offsets.GroupAssignmentReader`."""

    def look(self) -> GroupAssignment | None:
        """Return the assignment of the group, as answered to an earlier call; None without an answer. Never waits."""


class OrphanDetector:
    """Checks one group for one of its workers."""

    def __init__(
        self, dealing: Dealing, describe: Callable[[Iterable[str]], Mapping[str, TopicFacts | None]], clock: Clock
    ) -> None:
        """`describe`: see `sinks.runner.runner_contracts.Directory`."""
        self._dealing = dealing
        self._describe = describe
        self._clock = clock
        self._suspect: GroupAssignment | None = None
        self._whole: tuple[GroupAssignment, frozenset[str]] | None = None
        self._next_s = 0.0

    def look(self, member: str, topics: Iterable[str]) -> list[TopicPartition]:
        """Return the orphaned partitions for which this worker must rejoin; usually none.

        `topics` are all topics that the group reads. A broker that does not answer is queried again later. Raises
        other errors of `describe`.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return []
        dealt = self._dealing.look()
        if dealt is None:
            return []
        self._next_s = now_s + LOOK_EVERY_S
        try:
            left = self._left(dealt, frozenset(topics)) if dealt.stable else []
        except BrokerUnreachable:
            return []
        before, self._suspect = self._suspect, dealt if left else None
        if not left or dealt != before:
            return []
        self._suspect, self._next_s = None, now_s + AGAIN_S
        return left if member == chosen(dealt) else []

    def _left(self, dealt: GroupAssignment, topics: frozenset[str]) -> list[TopicPartition]:
        """Return the partitions without an owner. An assignment that was complete is not counted again."""
        if self._whole == (dealt, topics):
            return []
        owned = {place for owner in dealt.owners for place in owner.places}
        facts = self._describe(sorted(topics)).values()
        every = ((one.topic, partition) for one in facts if one is not None for partition in range(one.partition_count))
        left = sorted(place for place in every if place not in owned)
        self._whole = None if left else (dealt, topics)
        return left


def chosen(dealt: GroupAssignment) -> str:
    """Return the member that rejoins: the one with the fewest partitions, among those with an instance id."""
    looking = [owner for owner in dealt.owners if owner.instance]
    return min(looking, key=lambda owner: (len(owner.places), owner.member)).member if looking else ""
