"""Finds rights in Kafka that the user of a sink lacks, with the commands that grant them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from cdc.clock import SystemClock
from cdc.config.settings import Applied, Config, Kafka, Warehouse
from cdc.config.sink_kinds import view_lakes
from cdc.errors import TailraceError
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.group_offsets import GroupAdmin
from cdc.kafka.log_reader import LogReader
from cdc.model.topic_names import (
    cuts_topic,
    dead_letters_topic,
    schema_topic,
    sink_group,
    sink_state_topic,
    view_cuts_topic,
    view_schema_topic,
    view_topic,
)
from sinks.state.schema_follower import SchemaFollower

_READ: Final = frozenset({"READ"})
_FOLLOW: Final = frozenset({"READ", "DESCRIBE_CONFIGS"})  # settings tell how long tombstones are kept
_OWN: Final = frozenset({"READ", "WRITE", "DESCRIBE_CONFIGS"})

RIGHTS_S: Final = 10.0


class MissingRights(NamedTuple):
    """Operations that are not allowed on a topic or group, and the command that allows them."""

    what: str
    operations: tuple[str, ...]
    command: str


def missing_group_rights(config: Config, sink: str, groups: GroupAdmin) -> Iterator[MissingRights]:
    """Check the group of the sink's workers; yields nothing if the broker does not report rights."""
    group = sink_group(config.name, sink)
    allowed = groups.operations(group)
    missing = _READ - allowed if allowed is not None else frozenset[str]()
    if missing:
        yield _lacking(config.kafka, "group", group, missing)


def missing_topic_rights(
    config: Config, sink: str, settings: Applied, admin: TopicAdmin, *, timeout_s: float
) -> Iterator[MissingRights]:
    """Check the sink's own topics and those that it reads; topics that do not exist are skipped."""
    lakes = view_lakes(config, settings.tables)
    own = [sink_state_topic(config.name, sink), dead_letters_topic(config.name, sink)]
    indices = [schema_topic(config.name), *(view_schema_topic(config.name, lake) for lake in lakes)]
    cuts = [cuts_topic(config.name), *(view_cuts_topic(config.name, lake) for lake in lakes)]
    wanted = dict.fromkeys(own, _OWN) | dict.fromkeys(cuts, _READ) | dict.fromkeys(indices, _READ)
    allowed = admin.operations(list(wanted), timeout_s=timeout_s)
    if all("READ" in allowed.get(topic, ()) for topic in indices[:1]):
        tables = _tables(config, settings.tables, lakes)
        wanted |= dict.fromkeys(tables, _FOLLOW)
        allowed |= admin.operations(tables, timeout_s=timeout_s) if tables else {}
    yield from _missing(config, wanted, allowed)


def missing_lake_rights(
    config: Config, sink: str, settings: Warehouse, views: Sequence[str], admin: TopicAdmin, *, timeout_s: float
) -> Iterator[MissingRights]:
    """Check the topics that a lake reads, its state topic, and the topics of its published views.

    Kafka offers no request for the rights on a transactional id.
    """
    name = config.name
    own = [view_cuts_topic(name, sink), view_schema_topic(name, sink), *(view_topic(name, view) for view in views)]
    own = [sink_state_topic(name, sink), *(own if views else ())]
    wanted = dict.fromkeys([cuts_topic(name), schema_topic(name)], _READ) | dict.fromkeys(own, _OWN)
    allowed = admin.operations(list(wanted), timeout_s=timeout_s)
    if "READ" in allowed.get(schema_topic(name), ()):
        tables = _tables(config, settings.tables, [])
        wanted |= dict.fromkeys(tables, _READ)
        allowed |= admin.operations(tables, timeout_s=timeout_s) if tables else {}
    yield from _missing(config, wanted, allowed)


def missing_rights(config: Config, topic: str, operations: AbstractSet[str], admin: TopicAdmin) -> list[MissingRights]:
    """Check the rights on one topic that exists."""
    allowed = admin.operations([topic], timeout_s=RIGHTS_S)
    return list(_missing(config, {topic: frozenset(operations)}, allowed))


def _missing(
    config: Config, wanted: Mapping[str, frozenset[str]], allowed: Mapping[str, AbstractSet[str]]
) -> Iterator[MissingRights]:
    for topic, operations in wanted.items():
        missing = operations - allowed[topic] if topic in allowed else frozenset[str]()
        if missing:
            yield _lacking(config.kafka, "topic", topic, missing)


def _tables(config: Config, patterns: Sequence[str], lakes: list[str]) -> list[str]:
    """Return the topics of the sink's tables, from the schema records; empty before capture ran."""
    with contextlib.suppress(TailraceError), LogReader(config.kafka, client_id="cdc-doctor") as reader:
        book = SchemaFollower(reader, config.name, patterns, SystemClock(), lakes=lakes)
        book.look()
        return sorted(book.tables())
    return []


def _lacking(kafka: Kafka, kind: str, name: str, operations: frozenset[str]) -> MissingRights:
    user = kafka.options.get("sasl.username")
    words = " ".join(f"--operation {operation.title().replace('_', '')}" for operation in sorted(operations))
    return MissingRights(
        f"{kind} {name}",
        tuple(sorted(operations)),
        f"kafka-acls.sh --bootstrap-server {kafka.bootstrap} --add "
        f"--allow-principal User:{user.reveal() if user is not None else '...'} {words} --{kind} {name}",
    )
