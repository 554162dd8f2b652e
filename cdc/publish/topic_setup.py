"""Creates missing topics and checks existing ones, before the first record is written.

`cdc.publish.topic_rules` defines what a topic must be. The admin client is passed in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from cdc.config.settings import Kafka
from cdc.errors import ConfigError, TopicMismatch, TopicMissing
from cdc.kafka.cluster_facts import TopicFacts, TopicSpec
from cdc.publish.topic_rules import REPLICATION_MIN, Problem, TopicWant, check, collision, create_command

PROBLEMS_SHOWN_MAX: Final = 5
_DELETED: Final = "was deleted"
REPAIR: Final = "cdc slot recreate --resnapshot"


class TopicDirectory(Protocol):
    """The part of `cdc.kafka.admin.TopicAdmin` that is needed."""

    def describe(self, topics: Iterable[str]) -> Mapping[str, TopicFacts | None]:
        """Return the facts of each topic; None for one that does not exist."""

    def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create topics and return when they can be described. An existing topic is left unchanged."""


def ensure_topics(
    admin: TopicDirectory,
    wants: Sequence[TopicWant],
    *,
    kafka: Kafka,
    create: bool,
    recorded_partitions: Mapping[str, int],
    recorded_topic_ids: Mapping[str, str],
) -> dict[str, TopicFacts]:
    """Create missing topics where that is allowed, adopt existing ones, and return the facts of all.

    A recorded topic that does not exist is never created again: its records are lost, and recorded positions would
    refer to nothing. Raises TopicMissing for that, TopicMismatch for a refused `Problem`, ConfigError for a replication
    factor that is not allowed. At most three requests, however many topics there are.
    """
    found = dict(admin.describe([want.spec.topic for want in wants]))
    missing = [want for want in wants if found.get(want.spec.topic) is None]
    refuse_missing(wants, found, kafka=kafka, create=create, recorded={*recorded_partitions, *recorded_topic_ids})
    if missing:
        admin.create([want.spec for want in missing])
        found.update(admin.describe([want.spec.topic for want in missing]))
    there = {name: facts for name, facts in found.items() if facts is not None}
    deleted = [want.spec.topic for want in wants if want.spec.topic not in there]
    if deleted:
        what = f"topic {deleted[0]!r} was deleted while it was checked, or a broker does not know it yet"
        raise TopicMissing(what, topic=deleted[0])
    refuse_unfit_topics(
        wants, there, kafka=kafka, recorded_partitions=recorded_partitions, recorded_topic_ids=recorded_topic_ids
    )
    return there


def refuse_missing(
    wants: Sequence[TopicWant],
    found: Mapping[str, TopicFacts | None],
    *,
    kafka: Kafka,
    create: bool,
    recorded: Collection[str],
) -> None:
    """Raise TopicMissing or ConfigError for a topic that does not exist and may not be created. Pure."""
    missing = [want for want in wants if found.get(want.spec.topic) is None]
    lost = [want.spec.topic for want in missing if want.spec.topic in recorded]
    if lost:
        raise topic_lost(lost[0], more=len(lost) - 1)
    if missing:
        _refuse_creation(missing, [want.spec.topic for want in wants], kafka, create=create)


def refuse_unfit_topics(
    wants: Sequence[TopicWant],
    there: Mapping[str, TopicFacts],
    *,
    kafka: Kafka,
    recorded_partitions: Mapping[str, int],
    recorded_topic_ids: Mapping[str, str],
) -> None:
    """Raise TopicMismatch for topics that were deleted and created again, or that differ too far from `wants`. Pure."""
    again = [name for name, facts in there.items() if recorded_topic_ids.get(name, facts.topic_id) != facts.topic_id]
    if again:
        raise topic_lost(again[0], more=len(again) - 1, found="was deleted and created again")
    problems = [
        problem
        for want in wants
        if want.spec.topic in there
        for problem in check(
            want,
            there[want.spec.topic],
            kafka=kafka,
            recorded_partitions=recorded_partitions.get(want.spec.topic),
        )
    ]
    _refuse([problem for problem in problems if problem.refused])


def topic_lost(topic: str, *, more: int = 0, found: str = _DELETED) -> TopicMismatch:
    """Return the error for a recorded topic that does not exist, or was replaced by another one of the same name."""
    others = f" (and {more} more)" if more else ""
    kind = TopicMissing if found == _DELETED else TopicMismatch
    return kind(
        f"topic {topic!r}{others} {found}: the records it had are lost",
        hint="the command creates what is missing and reads every table again, into the same topics",
        command=REPAIR,
        topic=topic,
        found=found,
        wanted="the recorded topic",
    )


def _refuse_creation(missing: Sequence[TopicWant], names: Collection[str], kafka: Kafka, *, create: bool) -> None:
    spec = missing[0].spec
    same = collision(names)
    if same is not None:
        raise TopicMismatch(
            f"topics {same[0]!r} and {same[1]!r} differ only by . and _, which Kafka does not distinguish",
            hint="leave one of the tables out (source.tables), or rename it",
            topic=same[1],
            found=same[0],
            wanted=same[1],
        )
    if not create:
        raise TopicMissing(
            f"topic {spec.topic!r}{_and_more(len(missing))} does not exist, and kafka.create_topics is false",
            hint="create it, or set kafka.create_topics = true",
            command=create_command(spec, kafka),
            topic=spec.topic,
            found=None,
            wanted="the topic",
        )
    if kafka.replication_factor < REPLICATION_MIN and not kafka.allow_unreplicated:
        raise ConfigError(
            f"kafka.replication_factor is {kafka.replication_factor}, must be at least {REPLICATION_MIN}: "
            "the loss of one broker could lose events",
            hint="set kafka.replication_factor = 3, or kafka.allow_unreplicated = true if you accept that",
            topic=spec.topic,
        )


def _refuse(problems: Sequence[Problem]) -> None:
    if not problems:
        return
    first = problems[0]
    shown = "; ".join(str(problem) for problem in problems[:PROBLEMS_SHOWN_MAX])
    more = f"; and {len(problems) - PROBLEMS_SHOWN_MAX} more" if len(problems) > PROBLEMS_SHOWN_MAX else ""
    raise TopicMismatch(
        f"{shown}{more}",
        hint=first.hint,
        command=first.command,
        topic=first.topic,
        setting=first.setting,
        found=first.found,
        wanted=first.wanted,
    )


def _and_more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
