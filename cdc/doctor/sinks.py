"""Looks at the sinks of one key at a time: the store, the group, the sink's own topics. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from cdc.config.settings import Applied, Cache, Config, Search
from cdc.doctor.finding import Finding, Group, Level
from cdc.errors import ConfigError, TailraceError
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.groupoffsets import GroupAdmin
from cdc.model.names import dead_letters_topic, sink_group, sink_state_topic
from cdc.publish.topic_rules import check, create_command, dead_letters_want, sink_state_want

_KINDS: Final[Mapping[type[Applied], str]] = {Search: "sinks.search.checkup", Cache: "sinks.cache.checkup"}
_READ: Final = "READ"
_BOTH: Final = frozenset({"READ", "WRITE"})


def examine_sinks(config: Config, timeout_s: float | None) -> list[Finding]:
    """What is to be said of each of them; a lake is looked at by its own commands. Raises ConfigError.

    `timeout_s` is for answers of Kafka; None: it does not answer, which was said already.
    """
    found: list[Finding] = []
    for name, settings in sorted(config.sinks.items()):
        if isinstance(settings, Applied):
            found += _told(_store(config, name, settings), name)
            if timeout_s is not None:
                found += _told(_log(config, name, timeout_s), name)
    return found


def _told(findings: Iterator[Finding], name: str) -> Iterator[Finding]:
    """What is said until something cannot be looked at, and that."""
    try:
        yield from findings
    except ConfigError:
        raise
    except TailraceError as error:
        hint = f"; {error.hint}" if error.hint else ""
        yield _of(name, Level.ERROR, "sink", f"{error.message}{hint}", error.command)


def _store(config: Config, name: str, settings: Applied) -> Iterator[Finding]:
    for level, what, message, command in import_module(_KINDS[type(settings)]).checkup(config, name, settings):
        yield _of(name, Level(level), what, message, command)


def _log(config: Config, name: str, timeout_s: float) -> Iterator[Finding]:
    group, kafka = sink_group(config.name, name), config.kafka
    groups = GroupAdmin(kafka, client_id="cdc-doctor")
    allowed = groups.operations(group)
    if allowed is not None and _READ not in allowed:
        text = f"our user may not READ the consumer group {group}"
        yield _of(name, Level.ERROR, "sink_group", text, f"kafka-acls.sh --add --operation Read --group {group} ...")
    else:
        count = len(groups.members(group))
        yield _of(name, Level.OK, "sink_group", f"group {group}: {count} worker{'s' if count != 1 else ''} now")
    admin = TopicAdmin(kafka, client_id="cdc-doctor")
    wants = (
        sink_state_want(sink_state_topic(config.name, name), kafka),
        dead_letters_want(
            dead_letters_topic(config.name, name), kafka, row_bytes_max=config.capture.row_bytes_max
        ),
    )  # fmt: skip
    topics = [want.spec.topic for want in wants]
    facts, operations = admin.describe(topics, timeout_s=timeout_s), admin.operations(topics, timeout_s=timeout_s)
    for want in wants:
        topic, there = want.spec.topic, facts[want.spec.topic]
        if there is None:
            if not kafka.create_topics:
                text = f"topic {topic!r} does not exist, and kafka.create_topics is false"
                yield _of(name, Level.ERROR, "sink_topic", text, create_command(want.spec, kafka))
            continue
        for problem in check(want, there, kafka=kafka):
            level = Level.ERROR if problem.refused else Level.WARNING
            yield _of(name, level, "sink_topic", str(problem), problem.command)
        missing = sorted(_BOTH - operations.get(topic, _BOTH))
        if missing:
            text = f"our user may not {' and '.join(missing)} topic {topic!r}"
            command = f"kafka-acls.sh --add {' '.join(f'--operation {one.title()}' for one in missing)} --topic {topic}"
            yield _of(name, Level.ERROR, "sink_topic", text, command)


def _of(name: str, level: Level, what: str, message: str, command: str = "") -> Finding:
    return Finding(group=Group.SINKS, level=level, check=what, message=f"{name}: {message}", command=command)
