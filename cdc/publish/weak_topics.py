"""Finds settings of existing topics that weaken durability, tombstones or erasure. Pure.

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
"""Kafka's own topics. Without the first no transaction can end; without the second sinks lose their offsets."""

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
"""Every setting that can be weak. `label_of` turns them into values of the metric's label."""


def weak_settings(
    wants: Sequence[TopicWant], topics: Mapping[str, TopicFacts | None], kafka: Kafka
) -> list[WeakSetting]:
    """Return the weak settings of `wants` and INTERNAL_TOPICS, as far as `topics` has them, grouped by weakness."""
    return grouped((*_ours(wants, topics, kafka), *_internal(topics, kafka)))


def grouped(problems: Iterable[tuple[str, Problem]]) -> list[WeakSetting]:
    """Return one entry for all topics that differ in the same way. Each problem comes with the name of its setting."""
    found: dict[tuple[str, str, str], list[Problem]] = {}
    for setting, problem in problems:
        found.setdefault((setting, problem.found, problem.wanted), []).append(problem)
    return [
        WeakSetting(
            setting=setting,
            found=value,
            wanted=wanted,
            topics=tuple(problem.topic for problem in same),
            commands=tuple(problem.command for problem in same),
        )
        for (setting, value, wanted), same in found.items()
    ]


def accepted(setting: str, kafka: Kafka) -> bool:
    """Return whether the configuration accepts a weak setting: few replicas, which one finding of doctor states."""
    return kafka.allow_unreplicated and setting.endswith("replication factor")


def label_of(setting: str) -> str:
    """Return a setting as a value of the metric's label."""
    return setting.replace(".", "_").replace(" ", "_")


def counted(weak: Iterable[WeakSetting]) -> dict[str, int]:
    """Return the number of topics by label; 0 for a setting that is not weak anywhere."""
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
