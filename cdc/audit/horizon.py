"""Determines up to which offset compaction may have removed records; missing records below it are not damage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from cdc.audit.expected_counts import Partition
from cdc.clock import Clock
from cdc.errors import BrokerRefused
from cdc.kafka.cluster_facts import TopicFacts

_CLOCKS_APART: Final = 20
"""The margin for differing clocks of broker, writer and auditor: this fraction of the compaction lag, and a minute."""
_MINUTE_MS: Final = 60_000


class Times(Protocol):
    """The part of `cdc.kafka.log_reader.LogReader` that the horizon uses."""

    def offsets_for_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int | None]:
        """Return the first offset whose record is not older than `timestamp_ms`; None where there is none."""


class Settings(Protocol):
    """The part of `cdc.kafka.admin.TopicAdmin` that the horizon uses."""

    def describe(self, topics: Iterable[str]) -> Mapping[str, TopicFacts | None]:
        """Return the facts of each topic, None for one that does not exist."""


class CompactionHorizon:
    """Asks the broker on every call, because the limit of compaction moves with time.

    The cleaner skips a segment, and all later ones, while its newest record is younger than the lag
    (https://kafka.apache.org/documentation/#topicconfigs_min.compaction.lag.ms).
    """

    def __init__(self, times: Times, settings: Settings, clock: Clock) -> None:
        self._times = times
        self._settings = settings
        self._clock = clock

    def reaches(self, partition: Partition, high: int) -> int:
        """Return the offset from which on no record can have been compacted away; `high` is the end of the partition.

        0 for a topic that is not compacted, `high` where nothing is certain.
        """
        try:
            facts = self._settings.describe([partition[0]]).get(partition[0])
        except BrokerRefused:
            return high
        if facts is None or "cleanup.policy" not in facts.configs:
            return high
        if "compact" not in facts.configs["cleanup.policy"]:
            return 0
        lag_ms = int(facts.configs.get("min.compaction.lag.ms", "0"))
        since_ms = int(self._clock.wall_s() * 1000) - lag_ms + lag_ms // _CLOCKS_APART + _MINUTE_MS
        found = self._times.offsets_for_time([partition], max(since_ms, 0))[partition]
        return high if found is None else found
