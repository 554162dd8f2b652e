"""Checks of the sinks: store, consumer group, own topics, rights in Kafka. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Final

from cdc.config.settings import Applied, Config, Warehouse
from cdc.doctor.finding import Finding, Group, Level
from cdc.doctor.sink_rights import MissingRights, missing_group_rights, missing_lake_rights, missing_topic_rights
from cdc.doctor.view_checks import examine_collations, examine_views
from cdc.errors import ConfigError, TailraceError
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.group_offsets import GroupAdmin
from cdc.model.topic_names import dead_letters_topic, sink_group, sink_state_topic
from cdc.publish.topic_rules import Problem, check, create_command, dead_letters_want, sink_state_want
from cdc.publish.weak_topics import accepted, grouped
from cdc.run.extras import missing_extra
from sinks.checkups import store_checkup

_LAKE: Final = "sinks.warehouse.checkup"


def examine_sinks(config: Config, timeout_s: float | None) -> list[Finding]:
    """Return the findings about every sink. Raises ConfigError.

    `timeout_s`: for answers of Kafka; None if Kafka does not answer, which is already a finding.
    """
    found: list[Finding] = []
    for name, settings in sorted(config.sinks.items()):
        if isinstance(settings, Applied):
            found += _until_error(_store(config, name, settings), name)
            if timeout_s is not None:
                found += _until_error(_log(config, name, settings, timeout_s), name)
        elif isinstance(settings, Warehouse):
            found += _until_error(_lake(config, name, settings, timeout_s), name)
    return found


def _lake(config: Config, name: str, settings: Warehouse, timeout_s: float | None) -> Iterator[Finding]:
    lake = import_module(_LAKE)
    for level, what, message, command in lake.checkup(config, settings):
        yield _of(name, Level(level), what, message, command)
    yield from examine_collations(config, name, settings)
    if timeout_s is None:
        return
    if lake.has_views(settings):
        yield from examine_views(config, name, settings)
    admin = TopicAdmin(config.kafka, client_id="cdc-doctor")
    views = lake.published(settings)
    state = f"topic {sink_state_topic(config.name, name)}"
    for lacking in missing_lake_rights(config, name, settings, views, admin, timeout_s=timeout_s):
        # A lake runs without its state topic, but cannot report its state there.
        yield _refused(name, lacking, Level.WARNING if lacking.what == state else Level.ERROR)


def _until_error(findings: Iterator[Finding], name: str) -> Iterator[Finding]:
    """Yield the findings; an error that ends them becomes the last finding."""
    try:
        yield from findings
    except ConfigError:
        raise
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        yield _of(name, Level.ERROR, "sink", f"{missing.message}; {missing.hint}", missing.command)
    except TailraceError as error:
        hint = f"; {error.hint}" if error.hint else ""
        yield _of(name, Level.ERROR, "sink", f"{error.message}{hint}", error.command)


def _store(config: Config, name: str, settings: Applied) -> Iterator[Finding]:
    for level, what, message, command in store_checkup(config, name, settings):
        yield _of(name, Level(level), what, message, command)


def _log(config: Config, name: str, settings: Applied, timeout_s: float) -> Iterator[Finding]:
    kafka, group = config.kafka, sink_group(config.name, name)
    groups, admin = GroupAdmin(kafka, client_id="cdc-doctor"), TopicAdmin(kafka, client_id="cdc-doctor")
    refused = [*missing_group_rights(config, name, groups)]
    if not refused:
        count = len(groups.members(group))
        yield _of(name, Level.OK, "sink_group", f"group {group}: {count} worker{'s' if count != 1 else ''} running")
    refused += missing_topic_rights(config, name, settings, admin, timeout_s=timeout_s)
    for lacking in refused:
        yield _refused(name, lacking)
    if refused:
        return  # the settings of these topics cannot be read
    wants = (
        sink_state_want(sink_state_topic(config.name, name), kafka),
        dead_letters_want(dead_letters_topic(config.name, name), kafka, row_bytes_max=config.capture.row_bytes_max),
    )
    facts = admin.describe([want.spec.topic for want in wants], timeout_s=timeout_s)
    problems: list[Problem] = []
    for want in wants:
        topic, there = want.spec.topic, facts[want.spec.topic]
        if there is None:
            if not kafka.create_topics:
                text = f"topic {topic!r} does not exist, and kafka.create_topics is false"
                yield _of(name, Level.ERROR, "sink_topic", text, create_command(want.spec, kafka))
            continue
        problems += check(want, there, kafka=kafka)
    for level, refused_ones in ((Level.ERROR, True), (Level.WARNING, False)):
        same = grouped((one.setting, one) for one in problems if one.refused is refused_ones)
        for weak in same:
            if not accepted(weak.setting, kafka):
                yield _of(name, level, "sink_topic", str(weak), weak.command)


def _refused(name: str, lacking: MissingRights, level: Level = Level.ERROR) -> Finding:
    check_name = "sink_group" if lacking.what.startswith("group") else "sink_topic"
    text = f"the Kafka user may not {' and '.join(lacking.operations)} {lacking.what}"
    if level is Level.WARNING:
        text += ": the sink cannot report its state"
    return _of(name, level, check_name, text, lacking.command)


def _of(name: str, level: Level, what: str, message: str, command: str = "") -> Finding:
    return Finding(group=Group.SINKS, level=level, check=what, message=f"{name}: {message}", command=command)
