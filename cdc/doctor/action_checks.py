"""Checks of the topic that records actions. Pure. Without it an action works, but says that it is not recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from cdc.config.settings import Config
from cdc.doctor.finding import Finding, Group, Level
from cdc.doctor.sink_rights import MissingRights
from cdc.kafka.cluster_facts import TopicFacts
from cdc.model.topic_names import actions_topic
from cdc.publish.topic_rules import actions_want, check, create_command

RIGHTS: AbstractSet[str] = frozenset({"READ", "WRITE", "DESCRIBE_CONFIGS"})


def check_actions(config: Config, facts: TopicFacts | None, missing: Sequence[MissingRights]) -> Iterator[Finding]:
    """Return what keeps actions from being recorded. `facts`: of the topic, None if it does not exist."""
    want = actions_want(actions_topic(config.name), config.kafka)
    topic = want.spec.topic
    if facts is None:
        if not config.kafka.create_topics:
            said = f"topic {topic!r} does not exist, and kafka.create_topics is false: actions are not recorded"
            yield _warning(said, create_command(want.spec, config.kafka))
        return
    for problem in check(want, facts, kafka=config.kafka):
        if problem.refused:
            yield _warning(str(problem), problem.command)
    for lacking in missing:
        operations = ", ".join(lacking.operations)
        yield _warning(f"{lacking.what} records actions, and the user lacks {operations}", lacking.command)


def _warning(message: str, command: str) -> Finding:
    return Finding(group=Group.BROKER, level=Level.WARNING, check="actions_topic", message=message, command=command)
