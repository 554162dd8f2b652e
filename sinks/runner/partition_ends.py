"""Keeps the known ends of a worker's partitions current while it does not read up to them.

A worker learns the end of a partition when it has read everything. Until then its lag would only count what it holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

from cdc.clock import Clock
from sinks.contract import TopicPartition
from sinks.runner.partition_progress import Partition

ASK_EVERY_S: Final = 5.0
ASK_S: Final = 1.0  # the worker does nothing else meanwhile, so a broker that is slow must not hold it up for long


class Ends(Protocol):
    """The part of `cdc.kafka.group_member.GroupConsumer` that is needed here."""

    def ends(self, places: Iterable[TopicPartition], ask_s: float) -> Mapping[TopicPartition, int]: ...  # noqa: D102


class PartitionEnds:
    """Updates `Partition.high`. An end that is not available remains as it was: the lag is a report, no decision."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked_s = -ASK_EVERY_S

    def look(
        self, group: Ends, partitions: Mapping[TopicPartition, Partition], stopped: Collection[TopicPartition]
    ) -> None:
        """Update the partitions that are not read to the end. `stopped`: those that are not fetched."""
        fetched = [place for place, one in partitions.items() if place not in stopped and not one.is_level]
        found = dict(group.ends(fetched, 0.0)) if fetched else {}
        now_s = self._clock.monotonic_s()
        if stopped and now_s - self._asked_s >= ASK_EVERY_S:
            self._asked_s = now_s
            found |= group.ends(stopped, ASK_S)
        for place, end in found.items():
            partitions[place].high = max(partitions[place].high, end)
