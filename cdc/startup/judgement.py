"""Judges whether a start of capture would run, wait or stop. Pure: facts in, verdict out.

`cdc.startup.protocol` raises the verdict's error before it changes anything; `cdc status` and `cdc doctor` show the
same verdict. `cdc.startup.start_facts` gathers the facts; `cdc.startup.start_rules` has the rules. Later steps of a
start raise errors of the same rules, because facts may change between two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cdc.config.settings import Config, Kafka
from cdc.errors import SourceRefused, TailraceError
from cdc.kafka.cluster_facts import BrokerFacts, TopicFacts
from cdc.lsn import Lsn
from cdc.model.left_out import LeftOut
from cdc.model.run_state import State
from cdc.model.timeline import TimelineSwitch
from cdc.model.weak_setting import WeakSetting
from cdc.progress.restore import Restored
from cdc.publish.topic_rules import TopicKind, TopicWant
from cdc.publish.topic_setup import refuse_missing, refuse_unfit_topics
from cdc.publish.weak_topics import weak_settings
from cdc.replication.catalog_queries import SourceIdentity
from cdc.replication.publication import (
    PublicationFacts,
    create_statement,
    refuse_uncreated,
    refuse_unfit,
)
from cdc.replication.slot import SlotFacts, held
from cdc.replication.table_shape import SourceTable
from cdc.startup import start_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What a start reads from Kafka.

    Attributes:
        brokers: the cluster.
        restored: the recorded position and identity.
        damage: why they cannot be read; None if they can.
        hidden: the progress topic may have newer records than `restored`: those of a transaction that is open, or whose
            markers are not written, although Kafka has acknowledged its commit. Fencing makes them visible.
        wants: every topic that a start would check or create.
        topics: the facts of each, None for one that does not exist.
        filled: topics with records; read only while there is no recorded position.
        internal: Kafka's own topics, except those that may not be described.
    """

    brokers: BrokerFacts
    restored: Restored
    damage: TailraceError | None
    hidden: bool = False
    wants: Sequence[TopicWant]
    topics: Mapping[str, TopicFacts | None]
    filled: Sequence[str] = ()
    internal: Mapping[str, TopicFacts | None] = field(default_factory=dict)

    def weak(self, kafka: Kafka, made: Mapping[str, TopicFacts | None] | None = None) -> list[WeakSetting]:
        """Return weak settings of existing topics; `made` are those that a start has created since."""
        return weak_settings(self.wants, {**self.topics, **self.internal, **(made or {})}, kafka)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts:
    """What a start reads from PostgreSQL and Kafka before it changes anything.

    Attributes:
        tables: the tables that source.tables selects, including those that are left out.
        outbox: the table of the outbox, if there is one.
        left_out: those of `tables`, and the outbox, that a start leaves out: see `cdc.replication.eligibility`.
        replication_error: why a replication connection was refused; None if it was accepted or not tried.
        creating_refused: why the role may not create the publication; empty if it may, or the publication exists.
        history: of the server's timeline, as far as the log needs it.
        form_error: why `[encode]` does not fit the records in the topics; None when it does.
        log: None if Kafka does not answer; `log_error` is the reason.
    """

    identity: SourceIdentity
    settings: Mapping[str, str]
    slots_used: int
    tables: Sequence[SourceTable]
    outbox: SourceTable | None
    left_out: Sequence[LeftOut] = ()
    replication_error: TailraceError | None
    publication: PublicationFacts | None
    creating_refused: str = ""
    slot: SlotFacts
    wal_end: Lsn
    history: Sequence[TimelineSwitch] = ()
    form_error: TailraceError | None = None
    log: LogFacts | None = None
    log_error: TailraceError | None = None

    @property
    def published(self) -> list[SourceTable]:
        """The tables that are captured, and the outbox beside them."""
        out = {one.oid for one in self.left_out if one.reason not in _FOUND_LATE}
        every = {table.oid: table for table in (*self.tables, *([self.outbox] if self.outbox is not None else []))}
        return [table for oid, table in every.items() if oid not in out]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a start would end. `rule` names what decided; `error` is what `cdc run` raises, None if it runs."""

    rule: str = ""
    error: TailraceError | None = None

    @property
    def runs(self) -> bool:
        """Whether capture would stream."""
        return self.error is None

    @property
    def waits(self) -> bool:
        """Whether it would wait, and continue without an operator."""
        return self.error is not None and self.error.retry == "timed"

    @property
    def stops(self) -> bool:
        """Whether it would end in a state that needs an operator."""
        return self.error is not None and not self.waits

    @property
    def state(self) -> State | None:
        """The state that it would end or wait in; None if it runs."""
        return None if self.error is None else State(self.error.state or State.STOPPED)


_FOUND_LATE: Final = frozenset({"key_changed", "no_topic"})
"""Reasons that a start finds only after it has published the tables and claimed the log."""
_DATA_KINDS: Final = (TopicKind.DATA, TopicKind.KEYLESS)

Rule: TypeAlias = Callable[[Config, StartFacts], TailraceError | None]


def judge(config: Config, facts: StartFacts) -> Verdict:
    """Apply every rule in the order of a start. The first that forbids it decides."""
    in_order = [*_SOURCE_RULES, *(_LOG_RULES if facts.log is not None else _WITHOUT_LOG)]
    for name, rule in in_order:
        error = rule(config, facts)
        if error is not None:
            return Verdict(name, error)
    return Verdict() if facts.log is not None else Verdict("broker", facts.log_error)


def _server(config: Config, facts: StartFacts) -> TailraceError | None:
    return start_rules.server_unfit(config, facts.identity, facts.settings)


def _replication(_: Config, facts: StartFacts) -> TailraceError | None:
    return facts.replication_error


def _tables(_: Config, facts: StartFacts) -> TailraceError | None:
    """Refuse a start only if no table is left; a single table never refuses it."""
    return start_rules.nothing_to_capture(facts.published, facts.left_out, script=facts.publication is None)


def _keys(config: Config, facts: StartFacts) -> TailraceError | None:
    return start_rules.keys_unknown(config, facts.tables)


def _lost_slot_alone(_: Config, facts: StartFacts) -> TailraceError | None:
    return start_rules.slot_lost(facts.slot, facts.slot.confirmed_flush_lsn, lambda: facts.wal_end)


def _damage(_: Config, facts: StartFacts) -> TailraceError | None:
    return _log(facts).damage


def _orphans(config: Config, facts: StartFacts) -> TailraceError | None:
    return None if _restored(facts).progress is not None else start_rules.orphans(config.name, _log(facts).filled)


def _other_source(_: Config, facts: StartFacts) -> TailraceError | None:
    restored = _restored(facts)
    if restored.identity is None:
        return None
    return start_rules.other_source(restored.identity, facts.identity, facts.history, restored.known_to or Lsn(0))


def _unpublished(config: Config, facts: StartFacts) -> TailraceError | None:
    lacking = [one for one in facts.left_out if one.reason == "not_published"]
    selected = [(table.table, table.oid) for table in facts.published]
    selected += [(one.table, one.oid) for one in lacking]
    return start_rules.unpublished(
        config.publication, facts.publication, _restored(facts), selected, lambda: facts.wal_end
    )


def _publication(config: Config, facts: StartFacts) -> TailraceError | None:
    """Refuse a publication that must be created and may not be, or that leaves out kinds of changes."""
    name, found, wanted = config.publication, facts.publication, facts.published
    version_num = facts.identity.server_version_num
    uncreated = start_rules.error_of(
        lambda: refuse_uncreated(found, name, wanted, version_num, create=config.source.create)
    )
    if uncreated is not None:
        return uncreated
    if found is not None:
        unfit = start_rules.error_of(lambda: refuse_unfit(found, wanted))
        if unfit is not None:
            return unfit
    if found is not None or not facts.creating_refused:
        return None
    return SourceRefused(
        f"publication {name!r} does not exist, and {facts.creating_refused}",
        hint="run this as a superuser, or as its owner who owns the tables too",
        command=create_statement(name, wanted, version_num),
        publication=name,
    )


def _brokers(config: Config, facts: StartFacts) -> TailraceError | None:
    log = _log(facts)
    creates = any(log.topics.get(want.spec.topic) is None for want in log.wants)
    return start_rules.brokers_unfit(config.kafka, log.brokers, creates=creates)


def new_topic_errors(config: Config, log: LogFacts) -> dict[str, TailraceError | None]:
    """Return, by topic of the tables that are new since the last start, why it is unusable; None if it is usable."""
    recorded = log.restored.identity
    if recorded is None:
        return {}
    new = [want for want in log.wants if want.kind in _DATA_KINDS and want.spec.topic not in recorded.topic_ids]
    return {want.spec.topic: _topics_error(config, log, [want]) for want in new}


def _topics(config: Config, facts: StartFacts) -> TailraceError | None:
    """Check all topics, except those of new tables without a usable topic, which are left out."""
    log = _log(facts)
    errors = new_topic_errors(config, log)
    fit = [want for want in log.wants if errors.get(want.spec.topic) is None]
    if not any(want.kind in _DATA_KINDS for want in fit):
        return next((error for error in errors.values() if error is not None), None)
    return _topics_error(config, log, fit)


def _topics_error(config: Config, log: LogFacts, wants: Sequence[TopicWant]) -> TailraceError | None:
    identity, kafka = log.restored.identity, config.kafka
    partitions, ids = (identity.partitions, identity.topic_ids) if identity is not None else ({}, {})
    there = {name: found for name, found in log.topics.items() if found is not None}
    recorded, create = {*partitions, *ids}, kafka.create_topics
    return start_rules.error_of(
        lambda: refuse_missing(wants, log.topics, kafka=kafka, create=create, recorded=recorded)
    ) or start_rules.error_of(
        lambda: refuse_unfit_topics(wants, there, kafka=kafka, recorded_partitions=partitions, recorded_topic_ids=ids)
    )


def _slot(config: Config, facts: StartFacts) -> TailraceError | None:
    restored = _restored(facts)
    return (
        start_rules.slot_lost(facts.slot, restored.known_to, lambda: facts.wal_end)
        or start_rules.slot_unfit(config, facts.slot, facts.identity.database, restored, lambda: facts.wal_end)
        or start_rules.no_free_slot(facts.slot, facts.settings, facts.slots_used)
    )


def _position(_: Config, facts: StartFacts) -> TailraceError | None:
    restored = _restored(facts)
    if restored.identity is None or restored.position is None:
        return None
    behind = start_rules.wal_behind(restored.position, facts.wal_end)
    if behind is not None or _log(facts).hidden:  # a slot ahead of what is visible may be where the log really ends
        return behind
    return start_rules.slot_elsewhere(restored.identity, facts.slot, restored.position)


def _held(_: Config, facts: StartFacts) -> TailraceError | None:
    return held(facts.slot) if facts.slot.active_pid is not None or facts.slot.being_made else None


def _forms(_: Config, facts: StartFacts) -> TailraceError | None:
    return facts.form_error


def _no_table_fits(_: Config, facts: StartFacts) -> TailraceError | None:
    out = {one.oid for one in facts.left_out}
    return start_rules.nothing_to_capture([table for table in facts.published if table.oid not in out], facts.left_out)


def _log(facts: StartFacts) -> LogFacts:
    assert facts.log is not None, "the rules of the log are applied only when Kafka has answered"
    return facts.log


def _restored(facts: StartFacts) -> Restored:
    return _log(facts).restored


_SOURCE_RULES: Final[Sequence[tuple[str, Rule]]] = (
    ("server", _server),
    ("replication_connection", _replication),
    ("tables", _tables),
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
    ("slot", _held),  # before facts that its reader may change
    ("log", _position),
    ("format", _forms),
    ("tables", _no_table_fits),
)
