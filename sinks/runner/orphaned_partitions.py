"""Partitions that nobody has though every worker is well, and which worker joins anew so that they are dealt out again.

A cooperative rebalance has two rounds: in the first a worker is told what to give up, in the second others get it. A
worker with an instance id that is killed in between leaves such partitions: its successor gets what it was to keep, by
its id and without a round, so the second never comes. To the coordinator all is well, and they are read by nobody until
somebody comes or goes (Kafka 4.3, librdkafka 2.16: `tests/contract/test_sink_unowned.py`). Pure but for its questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from cdc.clock import Clock
from cdc.errors import BrokerUnreachable
from cdc.kafka.cluster_facts import GroupAssignment, TopicFacts
from sinks.contract import TopicPartition

LOOK_EVERY_S: Final = 4.0
"""After an answer: with two answers that say the same, nobody reads such a partition for about ten seconds."""
AGAIN_S: Final = 60.0
"""After somebody was chosen: a group of many workers takes its time."""


class Dealing(Protocol):
    """What is needed of `cdc.kafka.group_offsets.GroupAssignmentReader`."""

    def look(self) -> GroupAssignment | None:
        """What the group was dealt, as answered to an earlier call; None while there is no answer. Never waits."""


class OrphanDetector:
    """Looks at one group for one of its workers."""

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
        """The partitions for which this worker has to join anew; mostly none. `topics`: all that the group reads.

        A broker that does not answer is asked again later. Raises what else `describe` does.
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
        """Those of the topics that no member has. What was whole is not counted again."""
        if self._whole == (dealt, topics):
            return []
        owned = {place for owner in dealt.owners for place in owner.places}
        facts = self._describe(sorted(topics)).values()
        every = ((one.topic, partition) for one in facts if one is not None for partition in range(one.partition_count))
        left = sorted(place for place in every if place not in owned)
        self._whole = None if left else (dealt, topics)
        return left


def chosen(dealt: GroupAssignment) -> str:
    """The member that joins anew: of those with an instance id, which all look, the one with the least to lose."""
    looking = [owner for owner in dealt.owners if owner.instance]
    return min(looking, key=lambda owner: (len(owner.places), owner.member)).member if looking else ""
