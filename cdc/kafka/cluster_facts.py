"""What we ask of topics and what Kafka says about them, as values; nothing here knows a client (DESIGN section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from cdc.model.change_records import Headers

TopicPartition: TypeAlias = tuple[str, int]
"""(topic, partition)."""

LogRecord: TypeAlias = tuple[str, int, int, int, bytes | None, bytes | None, Headers | None]
"""(topic, partition, offset, timestamp in ms, key, value, headers) of a committed record."""

READ_CONFIGS: Final = (
    "cleanup.policy",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "message.timestamp.type",
    "delete.retention.ms",
    "segment.ms",
    "segment.bytes",
    "max.message.bytes",
    "retention.ms",
    "retention.bytes",
    "min.insync.replicas",
    "unclean.leader.election.enable",
)
"""The topic settings our promises rest on; `TopicFacts.configs` has these and no others."""


class AssignedMember(NamedTuple):
    """A member of a group and its partitions; `instance` is empty for one whose name does not stay over restarts."""

    member: str
    instance: str
    places: frozenset[TopicPartition]


class GroupAssignment(NamedTuple):
    """Which member of a group has which partitions. `stable`: nobody is coming or going."""

    stable: bool
    owners: frozenset[AssignedMember]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic to create: `configs` as Kafka spells them."""

    topic: str
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A topic that exists.

    Attributes:
        topic_id: as `kafka-topics.sh --describe` prints it; changes when the topic is made again.
        replication_factor: of the partition that has the fewest replicas.
        configs: those of `READ_CONFIGS`, in effect, wherever they come from (topic, broker, default).
    """

    topic: str
    topic_id: str
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """The cluster. `configs` are those of one broker; empty where the ACLs do not let us read them."""

    cluster_id: str
    broker_count: int
    configs: Mapping[str, str]
