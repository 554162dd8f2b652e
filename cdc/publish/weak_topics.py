"""Finds settings of existing topics that weaken what the log promises: durability, tombstones, erasure. Pure.

A start continues with them and reports them in log, status, doctor and metrics. `cdc.publish.topic_setup` refuses the
settings that a start cannot accept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from cdc.config.settings import Kafka
from cdc.kafka.cluster_facts import TopicFacts
from cdc.model.weak_setting import WeakSetting
from cdc.publish.topic_rules import Problem, TopicWant, check, check_replication

INTERNAL_TOPICS: Final = ("__transaction_state", "__consumer_offsets")
"""Kafka's own: without the first no transaction can end, without the second sinks do not know where they are."""

SETTINGS: Final = (
    "replication factor",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "retention.ms",
    "retention.bytes",
    "internal replication factor",
    "internal min.insync.replicas",
    "internal unclean.leader.election.enable",
)
"""Every setting that can be weak; the values of the metric's label are `label_of` of these."""


def weak_settings(
    wants: Sequence[TopicWant], topics: Mapping[str, TopicFacts | None], kafka: Kafka
) -> list[WeakSetting]:
    """Of `wants` and of INTERNAL_TOPICS, as far as they are in `topics`; one entry for the same weakness of many."""
    found: dict[tuple[str, str, str], list[Problem]] = {}
    for setting, problem in (*_ours(wants, topics, kafka), *_internal(topics, kafka)):
        found.setdefault((setting, problem.found, problem.wanted), []).append(problem)
    return [
        WeakSetting(
            setting=setting,
            found=value,
            wanted=wanted,
            topics=tuple(problem.topic for problem in problems),
            commands=tuple(problem.command for problem in problems),
        )
        for (setting, value, wanted), problems in found.items()
    ]


def label_of(setting: str) -> str:
    """A setting as a value of the metric's label."""
    return setting.replace(".", "_").replace(" ", "_")


def counted(weak: Iterable[WeakSetting]) -> dict[str, int]:
    """Topics by label; 0 for a setting that is nowhere weak."""
    counts = {label_of(setting): 0 for setting in SETTINGS}
    for one in weak:
        counts[label_of(one.setting)] += len(one.topics)
    return counts


def _ours(
    wants: Sequence[TopicWant], topics: Mapping[str, TopicFacts | None], kafka: Kafka
) -> Iterator[tuple[str, Problem]]:
    for want in wants:
        facts = topics.get(want.spec.topic)
        if facts is not None:
            yield from ((one.setting, one) for one in check(want, facts, kafka=kafka) if not one.refused)


def _internal(topics: Mapping[str, TopicFacts | None], kafka: Kafka) -> Iterator[tuple[str, Problem]]:
    for name in INTERNAL_TOPICS:
        facts = topics.get(name)
        if facts is not None:
            yield from ((f"internal {one.setting}", one) for one in check_replication(facts, kafka))
