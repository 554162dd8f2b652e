"""Would a start of capture run, wait or stop? One pure judgement: facts in, verdict out.

`cdc.startup.protocol` raises the verdict's error before it changes anything; `cdc status` and `cdc doctor` show the
same verdict. `cdc.startup.facts` gathers the facts. The rules are in `cdc.startup.rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cdc.config.settings import Config, Kafka
from cdc.errors import SourceRefused, TailraceError
from cdc.kafka.facts import BrokerFacts, TopicFacts
from cdc.lsn import Lsn
from cdc.model.state import State
from cdc.model.timeline import Switch
from cdc.model.weaksetting import WeakSetting
from cdc.progress.restore import Restored
from cdc.publish.topic_rules import TopicWant
from cdc.publish.topics import refuse_missing, refuse_unfit_topics
from cdc.publish.weak_topics import weak_settings
from cdc.replication.catalog import SourceIdentity
from cdc.replication.publication import (
    PublicationFacts,
    missing,
    names_of,
    publishable,
    refuse_uncreated,
    refuse_unfit,
    to_add,
)
from cdc.replication.slot import SlotFacts, held
from cdc.replication.table import SourceTable
from cdc.startup import rules


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What a start reads of Kafka.

    Attributes:
        brokers: the cluster.
        restored: the recorded position and identity.
        damage: why they cannot be read; None when they can.
        wants: every topic a start would check or create.
        topics: each of them as it is, None for one that does not exist.
        filled: topics with records, asked only while there is no recorded position.
        internal: Kafka's own topics; without those that may not be described.
    """

    brokers: BrokerFacts
    restored: Restored
    damage: TailraceError | None
    wants: Sequence[TopicWant]
    topics: Mapping[str, TopicFacts | None]
    filled: Sequence[str] = ()
    internal: Mapping[str, TopicFacts | None] = field(default_factory=dict)

    def weak(self, kafka: Kafka, made: Mapping[str, TopicFacts | None] | None = None) -> list[WeakSetting]:
        """Weak settings of the topics that exist; `made` are those that a start has created since."""
        return weak_settings(self.wants, {**self.topics, **self.internal, **(made or {})}, kafka)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts:
    """What a start reads of PostgreSQL and Kafka before it changes anything.

    Attributes:
        tables: what source.tables selects, also tables that cannot be captured.
        outbox: the table of the outbox, if there is one.
        replication_error: why a replication connection was refused; None when it was not, or was not tried.
        publishing_refused: why the role may not create the publication or add tables to it; empty when it may.
        unreadable: tables whose rows must be read and may not be, with the error of the read.
        history: of the server's timeline, as far as the log needs it.
        log: None when Kafka does not answer, for the reason `log_error`.
    """

    identity: SourceIdentity
    settings: Mapping[str, str]
    slots_used: int
    tables: Sequence[SourceTable]
    outbox: SourceTable | None
    replication_error: TailraceError | None
    publication: PublicationFacts | None
    publishing_refused: Mapping[str, str] = field(default_factory=dict)
    slot: SlotFacts
    wal_end: Lsn
    history: Sequence[Switch] = ()
    log: LogFacts | None = None
    log_error: TailraceError | None = None
    unreadable: Mapping[str, TailraceError] = field(default_factory=dict)

    @property
    def captured(self) -> list[SourceTable]:
        """The tables that PostgreSQL can publish."""
        return [table for table in self.tables if not table.unpublishable]

    @property
    def published(self) -> list[SourceTable]:
        """`captured`, and the outbox beside them."""
        outbox, captured = self.outbox, self.captured
        apart = outbox is not None and all(table.oid != outbox.oid for table in captured)
        return [*captured, outbox] if apart and outbox is not None else captured


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a start would end. `rule` names what decided; `error` is what `cdc run` raises, None: it runs."""

    rule: str = ""
    error: TailraceError | None = None

    @property
    def runs(self) -> bool:
        """Whether capture would stream."""
        return self.error is None

    @property
    def waits(self) -> bool:
        """Whether it would wait, and go on without an operator."""
        return self.error is not None and self.error.retry == "timed"

    @property
    def stops(self) -> bool:
        """Whether it would end in a state that needs an operator."""
        return self.error is not None and not self.waits

    @property
    def state(self) -> State | None:
        """The state it would end or wait in; None: it runs."""
        return None if self.error is None else State(self.error.state or State.STOPPED)


Rule: TypeAlias = Callable[[Config, StartFacts], TailraceError | None]


def judge(config: Config, facts: StartFacts) -> Verdict:
    """Apply every rule in the order of a start; the first that forbids it decides."""
    in_order = [*_SOURCE_RULES, *(_LOG_RULES if facts.log is not None else _WITHOUT_LOG)]
    for name, rule in in_order:
        error = rule(config, facts)
        if error is not None:
            return Verdict(name, error)
    return Verdict() if facts.log is not None else Verdict("broker", facts.log_error)


def _server(config: Config, facts: StartFacts) -> TailraceError | None:
    return rules.server_unfit(config, facts.identity, facts.settings)


def _replication(_: Config, facts: StartFacts) -> TailraceError | None:
    return facts.replication_error


def _tables(_: Config, facts: StartFacts) -> TailraceError | None:
    """A table without a key refuses the start; here a rule may name tables to leave out instead."""
    tables = [*facts.tables, facts.outbox] if facts.outbox is not None else facts.tables
    return rules.error_of(lambda: publishable(tables))


def _keys(config: Config, facts: StartFacts) -> TailraceError | None:
    return rules.keys_unknown(config, facts.tables)


def _lost_slot_alone(_: Config, facts: StartFacts) -> TailraceError | None:
    return rules.slot_lost(facts.slot, facts.slot.confirmed_flush_lsn, lambda: facts.wal_end)


def _damage(_: Config, facts: StartFacts) -> TailraceError | None:
    return _log(facts).damage


def _orphans(config: Config, facts: StartFacts) -> TailraceError | None:
    return None if _restored(facts).progress is not None else rules.orphans(config.name, _log(facts).filled)


def _other_source(_: Config, facts: StartFacts) -> TailraceError | None:
    restored = _restored(facts)
    if restored.identity is None:
        return None
    return rules.other_source(restored.identity, facts.identity, facts.history, restored.known_to or Lsn(0))


def _unpublished(config: Config, facts: StartFacts) -> TailraceError | None:
    restored = _restored(facts)
    return rules.unpublished(config.publication, facts.publication, restored, facts.published, lambda: facts.wal_end)


def _publication(config: Config, facts: StartFacts) -> TailraceError | None:
    """It must be created or extended, and may not be. Tables to leave out instead would be taken off `wanted` here."""
    name, found, wanted = config.publication, facts.publication, facts.published
    if not config.source.create and found is not None and facts.outbox is not None:
        wanted = [table for table in wanted if table.oid != facts.outbox.oid or table.oid in found.tables]
    version_num = facts.identity.server_version_num
    uncreated = rules.error_of(lambda: refuse_uncreated(found, name, wanted, version_num, create=config.source.create))
    if uncreated is not None:
        return uncreated
    if found is not None:
        unfit = rules.error_of(lambda: refuse_unfit(found, wanted))
        if unfit is not None:
            return unfit
    statements = to_add(found, name, wanted, version_num)
    lacking = missing(found, wanted)
    refused = facts.publishing_refused
    why = [refused[key] for key in ("", *(table.table for table in lacking)) if key in refused]
    if not statements or not why:
        return None
    what = f"lacks {names_of(lacking)}" if found is not None else "does not exist"
    return SourceRefused(
        f"publication {name!r} {what}, and {why[0]}",
        hint="run this as a superuser, or as its owner who owns the tables too",
        command=statements[0],
        publication=name,
    )


def _brokers(config: Config, facts: StartFacts) -> TailraceError | None:
    log = _log(facts)
    creates = any(log.topics.get(want.spec.topic) is None for want in log.wants)
    return rules.brokers_unfit(config.kafka, log.brokers, creates=creates)


def _topics(config: Config, facts: StartFacts) -> TailraceError | None:
    log, kafka = _log(facts), config.kafka
    identity = log.restored.identity
    partitions, ids = (identity.partitions, identity.topic_ids) if identity is not None else ({}, {})
    there = {name: found for name, found in log.topics.items() if found is not None}
    recorded = {*partitions, *ids}
    create = kafka.create_topics
    return rules.error_of(
        lambda: refuse_missing(log.wants, log.topics, kafka=kafka, create=create, recorded=recorded)
    ) or rules.error_of(
        lambda: refuse_unfit_topics(
            log.wants, there, kafka=kafka, recorded_partitions=partitions, recorded_topic_ids=ids
        )
    )


def _slot(config: Config, facts: StartFacts) -> TailraceError | None:
    restored = _restored(facts)
    return (
        rules.slot_lost(facts.slot, restored.known_to, lambda: facts.wal_end)
        or rules.slot_unfit(config, facts.slot, facts.identity.database, restored, lambda: facts.wal_end)
        or rules.no_free_slot(facts.slot, facts.settings, facts.slots_used)
    )


def _position(_: Config, facts: StartFacts) -> TailraceError | None:
    restored = _restored(facts)
    if restored.identity is None or restored.position is None:
        return None
    return rules.wal_behind(restored.position, facts.wal_end) or rules.slot_elsewhere(
        restored.identity, facts.slot, restored.position
    )


def _unreadable(_: Config, facts: StartFacts) -> TailraceError | None:
    """A snapshot would end in this. A rule that leaves tables out takes them out of `unreadable` too."""
    return next(iter(facts.unreadable.values()), None)


def _held(_: Config, facts: StartFacts) -> TailraceError | None:
    return held(facts.slot) if facts.slot.active_pid is not None or facts.slot.being_made else None


def _log(facts: StartFacts) -> LogFacts:
    assert facts.log is not None, "the rules of the log are applied only when Kafka has answered"
    return facts.log


def _restored(facts: StartFacts) -> Restored:
    return _log(facts).restored


_SOURCE_RULES: Final[Sequence[tuple[str, Rule]]] = (
    ("server", _server),
    ("replication_connection", _replication),
    ("key", _tables),
    ("keys", _keys),
)
_WITHOUT_LOG: Final[Sequence[tuple[str, Rule]]] = (("slot", _lost_slot_alone),)
_LOG_RULES: Final[Sequence[tuple[str, Rule]]] = (
    ("log", _damage),
    ("log", _orphans),
    ("log", _other_source),
    ("publication", _unpublished),
    ("publication", _publication),
    ("topic", _topics),
    ("replication_factor", _brokers),
    ("slot", _slot),
    ("slot", _held),  # before what its reader may change
    ("log", _position),
    ("select", _unreadable),
)
