"""Up to where compaction may have removed records of a partition: what is missing there says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from cdc.audit.expected_counts import Partition
from cdc.clock import Clock
from cdc.errors import BrokerRefused
from cdc.kafka.cluster_facts import TopicFacts

_CLOCKS_APART: Final = 20
"""One part in so many of the compaction lag, and a minute, is left to the clocks of broker, writer and this machine."""
_MINUTE_MS: Final = 60_000


class Times(Protocol):
    """What is needed of a reader; `cdc.kafka.log_reader.LogReader` is one."""

    def offsets_for_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int | None]:
        """The first offset whose record is not older; None where there is none."""


class Settings(Protocol):
    """What is needed of an admin; `cdc.kafka.admin.TopicAdmin` is one."""

    def describe(self, topics: Iterable[str]) -> Mapping[str, TopicFacts | None]:
        """Facts of each topic, None for one that is not there."""


class CompactionHorizon:
    """Asks the broker, each time anew: what was out of reach of the cleaner may be within it a moment later.

    The cleaner leaves a segment alone, and all behind it, while its newest record is younger than the lag
    (https://kafka.apache.org/documentation/#topicconfigs_min.compaction.lag.ms).
    """

    def __init__(self, times: Times, settings: Settings, clock: Clock) -> None:
        self._times = times
        self._settings = settings
        self._clock = clock

    def reaches(self, partition: Partition, high: int) -> int:
        """No record at this offset or behind it can have been compacted away; `high` is the partition's end.

        0 for a topic that is not compacted, `high` where nothing is sure.
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
