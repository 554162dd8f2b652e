"""Checks of Kafka: number of brokers, topic settings, limits. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cdc.config.settings import Config
from cdc.doctor.finding import Finding, Group, Level
from cdc.kafka.client_options import transaction_timeout_ms
from cdc.kafka.cluster_facts import BrokerFacts, TopicFacts
from cdc.model import units
from cdc.model.topic_names import data_topic
from cdc.publish.topic_rules import (
    REPLICATION_MIN,
    TopicWant,
    check,
    collision,
    control_wants,
    create_command,
    data_want,
)
from cdc.publish.weak_topics import accepted, grouped, weak_settings
from cdc.replication.table_shape import SourceTable

_NAMED_MAX: Final = 3


def wanted_topics(config: Config, tables: Sequence[SourceTable]) -> list[TopicWant]:
    """Return every topic that capture would write to."""
    kafka, size = config.kafka, config.capture.row_bytes_max
    data = [
        data_want(
            data_topic(config.name, table.namespace, table.name), kafka, row_bytes_max=size, compacted=bool(table.key)
        )
        for table in tables
        if not table.problem
    ]
    return [*control_wants(config.name, kafka, row_bytes_max=size), *data]


def check_broker(
    facts: BrokerFacts, wants: Sequence[TopicWant], topics: Mapping[str, TopicFacts | None], config: Config
) -> list[Finding]:
    """Run all checks. `topics` has every wanted topic (None: does not exist) and Kafka's internal ones."""
    return [
        *_cluster(facts, config),
        *_limits(facts, config),
        *_missing(facts, wants, topics, config),
        *_existing(wants, topics, config),
        *_leaderless(topics),
    ]


def _cluster(facts: BrokerFacts, config: Config) -> Iterator[Finding]:
    count = f"{facts.broker_count} broker{'s' if facts.broker_count != 1 else ''}"
    yield _ok("broker", f"Kafka cluster {facts.cluster_id}, {count}")
    factor = config.kafka.replication_factor
    if factor >= REPLICATION_MIN:
        return
    if config.kafka.allow_unreplicated:
        copies = "one copy" if factor == 1 else f"{factor} copies"
        text = f"topics have {copies}: losing a broker can lose events (kafka.allow_unreplicated)"
        yield _finding(Level.WARNING, "replication_factor", text)
        return
    text = f"kafka.replication_factor is {factor}: losing a broker loses events"
    command = "kafka.replication_factor = 3, or kafka.allow_unreplicated = true"
    yield _finding(Level.ERROR, "replication_factor", text, command)


def _limits(facts: BrokerFacts, config: Config) -> Iterator[Finding]:
    longest = facts.configs.get("transaction.max.timeout.ms", "")
    needed = transaction_timeout_ms(config.kafka)
    if longest.isdigit() and int(longest) < needed:
        text = f"transaction.max.timeout.ms of the brokers is {longest}; it must be at least {needed}"
        yield _finding(Level.ERROR, "transaction_timeout", text)


def _missing(
    facts: BrokerFacts, wants: Sequence[TopicWant], topics: Mapping[str, TopicFacts | None], config: Config
) -> Iterator[Finding]:
    lacking = [want for want in wants if topics.get(want.spec.topic) is None]
    same = collision([want.spec.topic for want in wants])
    if same is not None:
        text = f"topics {same[0]!r} and {same[1]!r} differ only by . and _, which Kafka does not distinguish"
        yield _finding(Level.ERROR, "topic_collision", text, "exclude one of the tables in source.tables")
    if not lacking:
        return
    if not config.kafka.create_topics:
        for want in lacking:
            text = f"topic {want.spec.topic!r} does not exist, and kafka.create_topics is false"
            yield _finding(Level.ERROR, "topic_missing", text, create_command(want.spec, config.kafka))
        return
    factor = config.kafka.replication_factor
    if factor > facts.broker_count:
        there = "there is one broker" if facts.broker_count == 1 else f"there are {facts.broker_count} brokers"
        text = f"topics cannot be created with {factor} replicas: {there}"
        command = (
            f"kafka.replication_factor = {facts.broker_count} and kafka.allow_unreplicated = true, for a test only"
        )
        yield _finding(Level.ERROR, "replication_factor", text, command)
    else:
        lacks = f"{units.count(len(lacking), 'topic')} {'does' if len(lacking) == 1 else 'do'} not exist yet"
        yield _ok("topics", f"{lacks}; `cdc run` creates {'it' if len(lacking) == 1 else 'them'}")


def _existing(wants: Sequence[TopicWant], topics: Mapping[str, TopicFacts | None], config: Config) -> Iterator[Finding]:
    there = [(want, facts) for want in wants if (facts := topics.get(want.spec.topic)) is not None]
    refused = [one for want, facts in there for one in check(want, facts, kafka=config.kafka) if one.refused]
    for same in grouped((one.setting, one) for one in refused):
        yield _finding(Level.ERROR, "topic", str(same), same.command)
    for weak in weak_settings(wants, topics, config.kafka):
        if not accepted(weak.setting, config.kafka):
            yield _finding(Level.WARNING, "topic_weak", str(weak), weak.command)
    if there:
        yield _ok("topics_adopted", f"{len(there)} topics exist and keep their partitions")


def _leaderless(topics: Mapping[str, TopicFacts | None]) -> Iterator[Finding]:
    """Report partitions whose brokers are down: capture and sinks wait for them, so a start does not get far."""
    found = [facts for facts in topics.values() if facts is not None and facts.offline]
    if not found:
        return
    count = sum(facts.offline for facts in found)
    names = ", ".join(repr(facts.topic) for facts in found[:_NAMED_MAX])
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    what = f"{units.count(count, 'partition')} of {names}{more} {'has' if count == 1 else 'have'} no leader"
    text = f"{what}: nothing can be written to or read from them; start the brokers that hold their replicas"
    yield _finding(Level.ERROR, "topic_offline", text, "cdc why")


def _ok(name: str, message: str) -> Finding:
    return Finding(group=Group.BROKER, level=Level.OK, check=name, message=message)


def _finding(level: Level, name: str, message: str, command: str = "") -> Finding:
    return Finding(group=Group.BROKER, level=level, check=name, message=message, command=command)
