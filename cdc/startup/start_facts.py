"""Gathers the facts that `cdc.startup.judgement` judges, with a dozen queries and some requests to Kafka. Read-only.

The order matters beside a running capture: the slot is read before the log, and the end of the WAL after it, so that
neither appears to be ahead of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from cdc.config.settings import Config
from cdc.errors import BrokerError, BrokerRefused, ConfigError, ProgressDamaged, TailraceError
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.cluster_facts import BrokerFacts, TopicFacts
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.left_out import LeftOut
from cdc.model.snapshot_record import SnapshotRecord
from cdc.model.timeline import TimelineSwitch
from cdc.model.topic_names import data_topic, progress_topic
from cdc.model.weak_setting import WeakSetting
from cdc.progress.bounded_reader import BoundedReader
from cdc.progress.restore import Restored, TopicReader, recorded_position, recorded_snapshots
from cdc.publish.topic_rules import TopicKind, control_wants
from cdc.publish.weak_topics import INTERNAL_TOPICS
from cdc.replication import catalog_queries
from cdc.replication.catalog_queries import SourceIdentity, reading
from cdc.replication.connect import Connection, connect, connect_replication
from cdc.replication.eligibility import left_out_at_start, not_readable
from cdc.replication.publication import publication_facts
from cdc.replication.slot import slot_facts
from cdc.replication.table_shape import SourceTable
from cdc.replication.timeline_history import timeline_history
from cdc.startup.judgement import LogFacts, StartFacts, Verdict, judge
from cdc.startup.source_identity import outbox_table
from cdc.startup.topic_check import data_wants, filled_topics
from cdc.startup.topic_fit import with_changed_key, without_usable_topic
from snapshot.table_reader import unreadable

_NOTHING: Final = Restored(None, None, {}, Lsn(0), None)
_ANSWER_S: Final = 5.0
_ROWS: Final = frozenset({TopicKind.DATA, TopicKind.KEYLESS, TopicKind.EVENTS, TopicKind.REFUSED})

_ROLE: Final = """
select current_user::text, rolsuper or has_database_privilege(current_database(), 'create')
from pg_roles where rolname = current_user
"""
_SLOTS_USED: Final = "select count(*) from pg_replication_slots"


class StartForecast(NamedTuple):
    """How `cdc run` would end now, weak settings of existing topics, and the tables that it would leave out.

    `left_out` is None when the source cannot be read, `log` when Kafka or the source cannot.
    """

    verdict: Verdict
    weak: Sequence[WeakSetting] = ()
    left_out: Sequence[LeftOut] | None = None
    log: LogFacts | None = None


def forecast_start(config: Config, *, application_name: str) -> StartForecast:
    """Return the forecast. Raises ConfigError only."""
    try:
        admin = TopicAdmin(config.kafka, client_id="tailrace-status")
        with (
            connect(config.source.dsn, application_name=application_name) as sql,
            LogReader(config.kafka, client_id="tailrace-status") as reader,
        ):
            facts = gather(config, sql, BoundedReader(reader, _ANSWER_S), admin)
            weak = facts.log.weak(config.kafka) if facts.log is not None else ()
            return StartForecast(judge(config, facts), weak, facts.left_out, facts.log)
    except ConfigError:
        raise
    except TailraceError as error:
        return StartForecast(Verdict("source", error))


def gather(config: Config, sql: Connection, reader: TopicReader, admin: TopicAdmin) -> StartFacts:
    """Return the current facts. Unreachable Kafka is one of them; for PostgreSQL it raises a TailraceError.

    Also raises SourceRefused for an outbox that cannot be captured.
    """
    source = config.source
    identity = catalog_queries.source_identity(sql)
    tables = catalog_queries.tables_matching(sql, source.tables, source.keyless, source.keys)
    outbox = outbox_table(config, sql)
    published = [*tables, outbox] if outbox is not None else tables
    publication = publication_facts(sql, config.publication)
    with reading("count replication slots"):
        used = sql.execute(_SLOTS_USED).fetchone()
    assert used is not None
    slot = slot_facts(sql, config.slot)
    name, create = config.publication, source.create
    left_out = left_out_at_start(published, publication, name=name, create=create)
    out = {one.oid for one in left_out}
    captured = [table for table in tables if table.oid not in out]
    log, log_error = _answer_of(config, captured, reader, admin)
    form_error: TailraceError | None = None
    if log is not None:
        changed, form_error = with_changed_key(config, sql, captured, publication, reader, log)
        lacking = without_usable_topic(config, captured, log)
        left_out = (*left_out, *_not_readable(config, sql, captured, reader, log), *changed, *lacking)
    return StartFacts(
        identity=identity,
        settings=catalog_queries.wal_settings(sql),
        slots_used=used[0],
        tables=tables,
        outbox=outbox,
        left_out=left_out,
        replication_error=None if slot.active_pid is not None else replication_error(config),
        publication=publication,
        creating_refused=_creating_refused(sql) if publication is None else "",
        slot=slot,
        wal_end=Lsn(0) if identity.in_recovery else catalog_queries.current_wal(sql),
        history=_history(config, identity, log),
        form_error=form_error,
        log=log,
        log_error=log_error,
    )


def _answer_of(
    config: Config, tables: Sequence[SourceTable], reader: TopicReader, admin: TopicAdmin
) -> tuple[LogFacts | None, TailraceError | None]:
    """Return what Kafka answers, or the error."""
    try:
        brokers = admin.broker_facts(timeout_s=_ANSWER_S)
        return _log_facts(config, tables, reader, admin, brokers), None
    except BrokerError as error:
        return None, error


def _log_facts(
    config: Config, tables: Sequence[SourceTable], reader: TopicReader, admin: TopicAdmin, brokers: BrokerFacts
) -> LogFacts:
    name = config.name
    wants = control_wants(name, config.kafka, row_bytes_max=config.capture.row_bytes_max)
    progress = progress_topic(name)
    there = admin.describe([progress])[progress] is not None
    restored, damage, hidden = _NOTHING, None, False
    if there:
        hidden = hides_commits(reader, admin, name)  # before the position is read
        try:
            restored = recorded_position(reader, name)
        except ProgressDamaged as error:
            damage = error
    wants += data_wants(config, tables, restored.identity)
    topics = admin.describe([want.spec.topic for want in wants])
    filled: list[str] = []
    if restored.progress is None:
        data = [want.spec.topic for want in wants if want.kind in _ROWS and topics[want.spec.topic] is not None]
        filled = filled_topics(reader, data)
    internal = describe_internal(admin)
    return LogFacts(
        brokers=brokers,
        restored=restored,
        damage=damage,
        hidden=hidden,
        wants=wants,
        topics=topics,
        filled=filled,
        internal=internal,
    )


def hides_commits(reader: TopicReader, admin: TopicAdmin, name: str) -> bool:
    """Whether the progress topic may have newer records than a reader sees now: see `LogFacts.hidden`."""
    topic = progress_topic(name)
    written = admin.written_to((topic, 0), timeout_s=_ANSWER_S)
    return reader.end_offsets([topic])[topic, 0][1] < written


def describe_internal(admin: TopicAdmin) -> dict[str, TopicFacts | None]:
    """Return the facts of Kafka's own topics; empty if the user may not describe them."""
    try:
        return admin.describe(INTERNAL_TOPICS)
    except BrokerRefused:
        return {}


def replication_error(config: Config) -> TailraceError | None:
    """Try a replication connection: this is the only way to check pg_hba.conf, rights and poolers."""
    try:
        connect_replication(config.source.dsn, application_name="cdc").close()
    except ConfigError:
        raise
    except TailraceError as error:
        return error
    return None


def _creating_refused(sql: Connection) -> str:
    """Return why the role may not create a publication; empty if it may."""
    with reading("read rights on the database"):
        row = sql.execute(_ROLE).fetchone()
    assert row is not None
    role, may_create = row
    return "" if may_create else f"role {role!r} has no CREATE on the database"


def _history(config: Config, identity: SourceIdentity, log: LogFacts | None) -> Sequence[TimelineSwitch]:
    recorded = log.restored.identity if log is not None else None
    if recorded is None or identity.in_recovery or identity.system_identifier != recorded.system_identifier:
        return ()
    return timeline_history(config.source.dsn, identity.timeline) if identity.timeline > recorded.timeline else ()


def _not_readable(
    config: Config, sql: Connection, tables: Sequence[SourceTable], reader: TopicReader, log: LogFacts
) -> list[LeftOut]:
    """Return tables without a key that a start would copy first, and whose rows the role may not read."""
    keyless = [table for table in tables if not table.key and config.snapshot.wants(table.table)]
    refused = unreadable(sql, keyless)
    if not refused:
        return []
    exists = log.topics.get(progress_topic(config.name)) is not None
    records = recorded_snapshots(reader, config.name) if exists and log.damage is None else {}
    wanted = [table for table in keyless if table.table in refused and not _copied(table, records.get(table.table))]
    topics = {table.table: data_topic(config.name, table.namespace, table.name) for table in wanted}
    filled = filled_topics(reader, [topic for topic in topics.values() if log.topics.get(topic) is not None])
    return [not_readable(table, refused[table.table]) for table in wanted if topics[table.table] not in filled]


def _copied(table: SourceTable, record: SnapshotRecord | None) -> bool:
    return record is not None and record.relation == table.oid and record.state == "complete"
