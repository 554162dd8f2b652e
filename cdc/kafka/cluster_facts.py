"""Values that describe topics, groups and the cluster. Independent of the Kafka client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""(topic, partition)."""

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
"""The topic settings that our guarantees depend on; `TopicFacts.configs` has exactly these."""


class AssignedMember(NamedTuple):
    """A member of a group and its partitions; `instance` is its group.instance.id, empty for a dynamic member."""

    member: str
    instance: str
    places: frozenset[TopicPartition]


class GroupAssignment(NamedTuple):
    """Which member of a group has which partitions. `stable`: the group is not rebalancing."""

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
        topic_id: as `kafka-topics.sh --describe` prints it; changes when the topic is recreated.
        replication_factor: of the partition with the fewest replicas.
        offline: partitions without a leader.
        configs: the effective values of `READ_CONFIGS`, set by topic, broker or default.
    """

    topic: str
    topic_id: str
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]
    offline: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """The cluster. `configs` are those of one broker; empty if the ACLs do not allow reading them."""

    cluster_id: str
    broker_count: int
    configs: Mapping[str, str]
