"""Makes sure that every topic is there and is what it must be, before the first record (DESIGN section 4).

Asks and creates through an admin that is handed in; what a topic must be is `cdc.publish.topic_rules`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from cdc.config.settings import Kafka
from cdc.errors import ConfigError, TopicMismatch, TopicMissing
from cdc.kafka.facts import TopicFacts, TopicSpec
from cdc.publish.topic_rules import REPLICATION_MIN, Problem, TopicWant, check, collision, create_command

PROBLEMS_SHOWN_MAX: Final = 5


class TopicDirectory(Protocol):
    """What `ensure_topics` needs of `cdc.kafka.admin.TopicAdmin`."""

    def describe(self, topics: Iterable[str]) -> Mapping[str, TopicFacts | None]:
        """Facts of each topic, None for one that is not there."""

    def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create topics and return when they can be described; one that exists is left as it is."""


def ensure_topics(
    admin: TopicDirectory,
    wants: Sequence[TopicWant],
    *,
    kafka: Kafka,
    create: bool,
    recorded_partitions: Mapping[str, int],
    recorded_topic_ids: Mapping[str, str],
) -> dict[str, TopicFacts]:
    """Create what is missing and may be created, adopt the rest; returns the facts of every wanted topic.

    A recorded topic that is not there is never made again: its records are gone, and positions without them would
    be a lie. Raises TopicMissing for that, TopicMismatch for each refused `Problem`, ConfigError for a replication
    factor that is not allowed. Three requests at most, however many topics.
    """
    names = [want.spec.topic for want in wants]
    found = dict(admin.describe(names))
    missing = [want for want in wants if found.get(want.spec.topic) is None]
    recorded = {*recorded_partitions, *recorded_topic_ids}
    _refuse_lost([want for want in missing if want.spec.topic in recorded], kafka)
    if missing:
        _refuse_creation(missing, names, kafka, create=create)
        admin.create([want.spec for want in missing])
        found.update(admin.describe([want.spec.topic for want in missing]))
    there = {name: facts for name, facts in found.items() if facts is not None}
    problems: list[Problem] = []
    for want in wants:
        topic = want.spec.topic
        if topic not in there:
            raise TopicMissing(f"topic {topic!r} was deleted while it was checked", topic=topic)
        problems += check(
            want,
            there[topic],
            kafka=kafka,
            recorded_partitions=recorded_partitions.get(topic),
            recorded_topic_id=recorded_topic_ids.get(topic),
        )
    _refuse([problem for problem in problems if problem.refused])
    return there


def _refuse_lost(lost: Sequence[TopicWant], kafka: Kafka) -> None:
    if not lost:
        return
    topic = lost[0].spec.topic
    raise TopicMissing(
        f"topic {topic!r}{_and_more(len(lost))} is recorded and not there: found nothing, wanted the recorded topic",
        hint="its records are lost; restore it, or start again under another name, which takes a new snapshot",
        command=f"kafka-topics.sh --bootstrap-server {kafka.bootstrap} --list",
        topic=topic,
        found=None,
        wanted="the recorded topic",
    )


def _refuse_creation(missing: Sequence[TopicWant], names: Collection[str], kafka: Kafka, *, create: bool) -> None:
    spec = missing[0].spec
    same = collision(names)
    if same is not None:
        raise TopicMismatch(
            f"topics {same[0]!r} and {same[1]!r} differ only by . and _, which Kafka does not tell apart",
            hint="leave one of the tables out (source.tables), or rename it",
            topic=same[1],
            found=same[0],
            wanted=same[1],
        )
    if not create:
        raise TopicMissing(
            f"topic {spec.topic!r}{_and_more(len(missing))} is not there, and kafka.create_topics is false",
            hint="create it, or set kafka.create_topics = true",
            command=create_command(spec, kafka),
            topic=spec.topic,
            found=None,
            wanted="the topic",
        )
    if kafka.replication_factor < REPLICATION_MIN and not kafka.allow_unreplicated:
        raise ConfigError(
            f"kafka.replication_factor is {kafka.replication_factor}, must be at least {REPLICATION_MIN}: "
            f"losing one broker could lose events",
            hint="set kafka.replication_factor = 3, or kafka.allow_unreplicated = true if that is what you want",
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
        hint="mend the topic with the command, or have capture write under another name",
        command=first.command,
        topic=first.topic,
        setting=first.setting,
        found=first.found,
        wanted=first.wanted,
    )


def _and_more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
