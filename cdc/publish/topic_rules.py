"""Defines the settings of every kind of topic, and how far an existing topic may differ from them. Pure.

The partition count and the id of a topic are part of the log's identity. With another partition count keys would move.
A topic with another id is not the one that the recorded positions refer to.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cdc.config.settings import Kafka, Outbox
from cdc.kafka.cluster_facts import TopicFacts, TopicSpec
from cdc.model.topic_names import cuts_topic, progress_topic, schema_topic, signals_topic

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
COMPACTION_LAG_MS: Final = DAY_MS  # the audit window: every record stays for so long, and audits can count it
TOMBSTONE_MS: Final = 7 * DAY_MS  # how long a reader may take to bootstrap without missing a delete
CUTS_RETENTION_MS: Final = TOMBSTONE_MS + DAY_MS  # longer than any tombstone that a cut counts
SEGMENT_MS: Final = HOUR_MS  # compaction never touches the active segment
CONTROL_BYTES_MAX: Final = 4 << 20  # a progress record of 20,000 topics, at 130 bytes each for id and partition count
PROGRESS_SEGMENT_BYTES: Final = 8 << 20  # all of it is read at each start; not below max.message.bytes
DEAD_LETTERS_MS: Final = 90 * DAY_MS  # how long an operator has to fix what a store refuses
DEAD_LETTER_BYTES: Final = 64 << 10  # room for headers beside a record of the largest size
REPLICATION_MIN: Final = 3  # with acks=all and min.insync.replicas=2, one broker can be lost without losing a record


class TopicKind(StrEnum):
    """The purpose of a topic, which decides its settings."""

    DATA = "data"
    KEYLESS = "keyless data"
    EVENTS = "events"
    REFUSED = "refused events"
    PROGRESS = "progress"
    CUTS = "cuts"
    SCHEMA = "schema"
    SIGNALS = "signals"
    SINK_STATE = "sink state"
    DEAD_LETTERS = "dead letters"
    ACTIONS = "actions"

    @property
    def single(self) -> bool:
        """Whether the topic has one partition because its records need one order."""
        return self in {
            TopicKind.PROGRESS,
            TopicKind.CUTS,
            TopicKind.SCHEMA,
            TopicKind.SIGNALS,
            TopicKind.SINK_STATE,
            TopicKind.DEAD_LETTERS,
            TopicKind.ACTIONS,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWant:
    """The required form of a topic: `spec` is how it is created; `check` decides how far an existing one may differ."""

    kind: TopicKind
    spec: TopicSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One difference between a topic and its required form. `refused`: capture does not start with it."""

    topic: str
    setting: str
    found: str
    wanted: str
    command: str
    refused: bool = True
    hint: str = "correct the topic with this command"

    def __str__(self) -> str:
        return f"topic {self.topic!r}: {self.setting} is {self.found}, must be {self.wanted}"


def message_bytes_max(row_bytes_max: int) -> int:
    """Return `max.message.bytes` of topics and producer: the row limit, but never too small for progress and cuts."""
    return max(row_bytes_max, CONTROL_BYTES_MAX)


def data_want(topic: str, kafka: Kafka, *, row_bytes_max: int, compacted: bool = True) -> TopicWant:
    """Return the required form of a table's topic; `compacted` unless the table has no key."""
    size = {"max.message.bytes": str(message_bytes_max(row_bytes_max))}
    configs = (
        {**_COMPACTED, **_bounded(kafka), **size}
        if compacted
        else {**_DELETED, "retention.ms": str(TOMBSTONE_MS), **size}
    )
    return _want(
        TopicKind.DATA if compacted else TopicKind.KEYLESS, topic, kafka, configs, partition_count=kafka.partitions
    )


def side_want(topic: str, kafka: Kafka, *, row_bytes_max: int) -> TopicWant:
    """Return that of ``<name>.transaction``, ``.message`` or ``.heartbeat``. One partition: their order counts."""
    size = {"max.message.bytes": str(message_bytes_max(row_bytes_max))}
    return _want(TopicKind.KEYLESS, topic, kafka, {**_DELETED, "retention.ms": str(TOMBSTONE_MS), **size})


def events_want(topic: str, kafka: Kafka, outbox: Outbox, *, row_bytes_max: int) -> TopicWant:
    """Return that of a topic of outbox events. Events are facts, not state: they expire and are not compacted."""
    size = {"max.message.bytes": str(message_bytes_max(row_bytes_max))}
    retention = {"retention.ms": str(outbox.retention_s * 1000 or -1), "retention.bytes": "-1"}
    count = outbox.partitions or kafka.partitions
    return _want(TopicKind.EVENTS, topic, kafka, {**_DELETED, **retention, **size}, partition_count=count)


def refused_want(topic: str, kafka: Kafka, *, row_bytes_max: int) -> TopicWant:
    """Return that of ``<name>.__refused``: events that could not be published, kept as long as dead letters."""
    size = str(message_bytes_max(row_bytes_max) + DEAD_LETTER_BYTES)
    configs = {**_DELETED, "retention.ms": str(DEAD_LETTERS_MS), "retention.bytes": "-1", "max.message.bytes": size}
    return _want(TopicKind.REFUSED, topic, kafka, configs, partition_count=kafka.partitions)


def control_wants(name: str, kafka: Kafka, *, row_bytes_max: int) -> list[TopicWant]:
    """Return those of ``<name>.__progress``, ``.__cuts``, ``.__schema`` and ``.__signals``."""
    size = {"max.message.bytes": str(message_bytes_max(row_bytes_max))}
    progress = {
        **_COMPACTED,
        "min.compaction.lag.ms": "0",
        "segment.bytes": str(PROGRESS_SEGMENT_BYTES),
        "max.message.bytes": str(CONTROL_BYTES_MAX),
    }
    cuts = {**_DELETED, "retention.ms": str(CUTS_RETENTION_MS), "retention.bytes": "-1", **size}
    return [
        _want(TopicKind.PROGRESS, progress_topic(name), kafka, progress),
        _want(TopicKind.CUTS, cuts_topic(name), kafka, cuts),
        _want(TopicKind.SCHEMA, schema_topic(name), kafka, {**_COMPACTED, **size}),
        _want(
            TopicKind.SIGNALS,
            signals_topic(name),
            kafka,
            {**_DELETED, "retention.ms": str(TOMBSTONE_MS), "max.message.bytes": str(CONTROL_BYTES_MAX)},
        ),
    ]


def view_log_wants(cuts: str, schemas: str, kafka: Kafka) -> list[TopicWant]:
    """Return those of ``<name>.__cuts.<lake>``, whose last record never expires, and ``<name>.__schema.<lake>``."""
    size = {"max.message.bytes": str(CONTROL_BYTES_MAX)}
    return [
        _want(TopicKind.SINK_STATE, cuts, kafka, {**_COMPACTED, **size}),
        _want(TopicKind.SCHEMA, schemas, kafka, {**_COMPACTED, **size}),
    ]


def sink_state_want(topic: str, kafka: Kafka) -> TopicWant:
    """Return that of ``<name>.__blocked.<sink>``: a sink's own state, with keys of rows; only the newest counts."""
    configs = {
        **_COMPACTED,
        **_bounded(kafka),
        "min.compaction.lag.ms": "0",
        "segment.bytes": str(PROGRESS_SEGMENT_BYTES),
        "max.message.bytes": str(CONTROL_BYTES_MAX),
    }
    return _want(TopicKind.SINK_STATE, topic, kafka, configs)


def dead_letters_want(topic: str, kafka: Kafka, *, row_bytes_max: int) -> TopicWant:
    """Return that of ``<name>.__dlq.<sink>``: its records have room for the original record and headers."""
    size = str(message_bytes_max(row_bytes_max) + DEAD_LETTER_BYTES)
    configs = {**_DELETED, "retention.ms": str(DEAD_LETTERS_MS), "retention.bytes": "-1", "max.message.bytes": size}
    return _want(TopicKind.DEAD_LETTERS, topic, kafka, configs)


def actions_want(topic: str, kafka: Kafka) -> TopicWant:
    """Return that of ``<name>.__actions``: what operators did, which never expires."""
    configs = {**_DELETED, "retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": str(CONTROL_BYTES_MAX)}
    return _want(TopicKind.ACTIONS, topic, kafka, configs)


def check(
    want: TopicWant,
    facts: TopicFacts,
    *,
    kafka: Kafka,
    recorded_partitions: int | None = None,
) -> list[Problem]:
    """Return every relevant difference between `want` and an existing topic, the refused ones first.

    A data topic is adopted with its partition count, unless another one is recorded.
    """
    topic = want.spec.topic
    problems = [
        *_check_partitions(want, facts, recorded_partitions),
        *check_replication(facts, kafka),
    ]
    for setting, found in facts.configs.items():
        wanted = want.spec.configs.get(setting)
        rule = _RULES.get(setting)
        if wanted is not None and rule is not None and not rule.holds(found, wanted):
            problems.append(
                Problem(
                    topic=topic,
                    setting=setting,
                    found=found,
                    wanted=rule.words.format(wanted),
                    command=_alter_command(kafka, topic, setting, wanted),
                    refused=setting in _REFUSED or (setting == "retention.ms" and want.kind is TopicKind.CUTS),
                )
            )
    return sorted(problems, key=lambda problem: not problem.refused)


def collision(topics: Collection[str]) -> tuple[str, str] | None:
    """Return two names that differ only by ``.`` and ``_``, which Kafka's metrics do not distinguish, or None."""
    seen: dict[str, str] = {}
    for topic in topics:
        other = seen.setdefault(topic.replace(".", "_"), topic)
        if other != topic:
            return other, topic
    return None


def create_command(spec: TopicSpec, kafka: Kafka) -> str:
    """Return the command that creates a topic by hand with the same settings."""
    configs = " ".join(f"--config {name}={value}" for name, value in spec.configs.items())
    return (
        f"kafka-topics.sh --bootstrap-server {kafka.bootstrap} --create --topic {spec.topic} "
        f"--partitions {spec.partition_count} --replication-factor {spec.replication_factor} {configs}"
    )


@dataclass(frozen=True, slots=True)
class _Rule:
    """How a setting of an existing topic is compared, and the text for the required value."""

    compare: Callable[[int, int], bool] | None
    words: str

    def holds(self, found: str, wanted: str) -> bool:
        if found == wanted:
            return True
        return self.compare is not None and self.compare(_number(found), _number(wanted))


def _number(text: str) -> int:
    """Read a number; -1 means "no limit" in every setting compared here."""
    return 1 << 63 if text == "-1" else int(text)


_EXACTLY: Final = _Rule(compare=None, words="{}")
_AT_LEAST: Final = _Rule(compare=operator.ge, words="at least {}")
_AT_MOST: Final = _Rule(compare=operator.le, words="at most {}")
_RULES: Final[Mapping[str, _Rule]] = {
    "cleanup.policy": _EXACTLY,  # "compact,delete" would delete rows that did not change for long
    "max.message.bytes": _AT_LEAST,
    "min.compaction.lag.ms": _AT_LEAST,
    "max.compaction.lag.ms": _AT_MOST,
    "delete.retention.ms": _AT_LEAST,
    "retention.ms": _AT_LEAST,
    "retention.bytes": _AT_LEAST,
}
_REFUSED: Final = frozenset({"cleanup.policy", "max.message.bytes"})
_COMPACTED: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(COMPACTION_LAG_MS),
    "delete.retention.ms": str(TOMBSTONE_MS),
    "segment.ms": str(SEGMENT_MS),
}
# With the producer's time, a broker refuses every record from a machine whose clock is an hour ahead of its own.
_BROKERS_TIME: Final[Mapping[str, str]] = {"message.timestamp.type": "LogAppendTime"}
_DELETED: Final[Mapping[str, str]] = {"cleanup.policy": "delete", "segment.ms": str(SEGMENT_MS)}


def _bounded(kafka: Kafka) -> dict[str, str]:
    """Return the limit after which replaced or deleted rows and keys leave a compacted topic.

    Readers are not affected: with or without it, a tombstone stays for at least min.compaction.lag.ms +
    delete.retention.ms. Topics without rows do not need it: progress is compacted all the time, and the cut index is
    not compacted.
    """
    lag_s = kafka.compaction_lag_max_s
    return {"max.compaction.lag.ms": str(lag_s * 1000)} if lag_s else {}


def _want(
    kind: TopicKind, topic: str, kafka: Kafka, configs: Mapping[str, str], *, partition_count: int = 1
) -> TopicWant:
    durable = {"min.insync.replicas": "2"} if kafka.replication_factor >= REPLICATION_MIN else {}
    spec = TopicSpec(
        topic=topic,
        partition_count=partition_count,
        replication_factor=kafka.replication_factor,
        configs={**configs, **durable, "unclean.leader.election.enable": "false", **_BROKERS_TIME},
    )
    return TopicWant(kind=kind, spec=spec)


def _check_partitions(want: TopicWant, facts: TopicFacts, recorded_partitions: int | None) -> Iterable[Problem]:
    partitions = 1 if want.kind.single else recorded_partitions
    if partitions is not None and facts.partition_count != partitions:
        yield Problem(
            topic=want.spec.topic,
            setting="partition count",
            found=str(facts.partition_count),
            wanted=f"{partitions}{'' if want.kind.single else ', as recorded: keys would move to other partitions'}",
            command="",
            hint="partitions cannot be removed: set another `name`, and capture starts from scratch in new topics",
        )


def check_replication(facts: TopicFacts, kafka: Kafka) -> Iterable[Problem]:
    """Yield weak replication settings, with which the loss of a broker can lose records or stop capture."""
    if facts.replication_factor < REPLICATION_MIN:
        accepted = "" if kafka.allow_unreplicated else " (or kafka.allow_unreplicated = true)"
        yield Problem(
            topic=facts.topic,
            setting="replication factor",
            found=str(facts.replication_factor),
            wanted=f"at least {REPLICATION_MIN}{accepted}",
            command=f"kafka-reassign-partitions.sh --bootstrap-server {kafka.bootstrap} --execute "
            "--reassignment-json-file <more-replicas.json>",
            refused=not kafka.allow_unreplicated,
        )
    if facts.replication_factor > 1 and facts.configs.get("min.insync.replicas") == "1":
        yield Problem(
            topic=facts.topic,
            setting="min.insync.replicas",
            found="1",
            wanted="at least 2",
            command=_alter_command(kafka, facts.topic, "min.insync.replicas", "2"),
            refused=False,
        )
    if _number(facts.configs.get("min.insync.replicas", "0")) >= facts.replication_factor >= REPLICATION_MIN:
        yield Problem(
            topic=facts.topic,
            setting="min.insync.replicas",
            found=facts.configs["min.insync.replicas"],
            wanted=f"less than its {facts.replication_factor} replicas: while one broker is down, nothing is written",
            command=_alter_command(kafka, facts.topic, "min.insync.replicas", "2"),
            refused=False,
        )
    if facts.configs.get("unclean.leader.election.enable") == "true":
        yield Problem(
            topic=facts.topic,
            setting="unclean.leader.election.enable",
            found="true",
            wanted="false: a replica that lags may become leader and drop committed records",
            command=_alter_command(kafka, facts.topic, "unclean.leader.election.enable", "false"),
            refused=False,
        )


def _alter_command(kafka: Kafka, topic: str, setting: str, value: str) -> str:
    return (
        f"kafka-configs.sh --bootstrap-server {kafka.bootstrap} --alter --entity-type topics --entity-name {topic} "
        f"--add-config {setting}={value}"
    )
