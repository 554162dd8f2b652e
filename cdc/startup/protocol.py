"""Starts capture, step by step. `start` and `cdc.startup.claim_log` use the same numbers.

0. judge the facts of PostgreSQL and Kafka (`cdc.startup.judgement`): what forbids the start is raised here;
1. read progress, without fencing other producers;
2. open the stream there and read nothing: the slot is the lock, so another running capture is not disturbed;
3. fence: no older producer with this transactional id can commit from now on;
4. write a sentinel and read progress up to it: it can only be newer than in step 1;
5. compare identity, and the slot's confirmed_flush_lsn before step 2, with the recorded ones;
6. write the first cut, and stream with the skip rule. If tables without a key must be copied, that happens before the
   stream, and the start begins again after it.

A failed start leaves nothing behind except what it created on purpose: publication, slot, topics.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import partial
from typing import Final, Protocol, runtime_checkable

from cdc.capture.ddl_watch import DdlWatch
from cdc.capture.pipeline import Parts, Pipeline
from cdc.capture.table_planner import TablePlanner
from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.encode.plain_rows import COMPILED
from cdc.errors import OutcomeUnknown, ProducerFenced, SourceGap
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.incomplete_record import IncompleteRecords
from cdc.model.progress_record import SchemaRecord
from cdc.model.snapshot_record import SnapshotNotes
from cdc.model.topic_names import schema_topic
from cdc.patterns import matches
from cdc.progress.restore import recorded_outbox, recorded_signals, recorded_snapshots
from cdc.publish.live_keys import SpooledKeys
from cdc.publish.publisher import KafkaPublisher
from cdc.publish.weak_topics import counted
from cdc.replication import catalog_queries
from cdc.replication.catalog_watch import CatalogWatch, Watched
from cdc.replication.connect import Connection, connect, deadline, sever
from cdc.replication.generated_columns import left_out
from cdc.replication.publication import PublicationFacts
from cdc.replication.slot import SlotFacts, slot_facts
from cdc.replication.stream import ReplicationSession
from cdc.startup.audit_setup import audit_follower
from cdc.startup.claim_log import Claim, StartConnections, claim_log
from cdc.startup.ddl_setup import catalog_of, ddl_watch
from cdc.startup.heartbeat_setup import heartbeats
from cdc.startup.identity_record import IdentityRecord
from cdc.startup.judgement import judge
from cdc.startup.keyless_copy import Copier, KeylessTables, transaction_s, untouched
from cdc.startup.outbox_copy import route_existing
from cdc.startup.outbox_setup import OutboxStage, needs_copy, prune_until
from cdc.startup.pipeline_parts import (
    ANSWER_S,
    assembler_of,
    planner_of,
    reselector_of,
    side_topics_of,
    spans_of,
    traced,
)
from cdc.startup.slot_setup import PostgresServer
from cdc.startup.snapshot_setup import Snapshots
from cdc.startup.source_identity import Source, read_source, refuse, refuse_nothing_to_capture
from cdc.startup.start_facts import describe_internal, gather
from cdc.startup.table_joins import EitherEvent, TableJoins
from cdc.startup.topic_check import LedgerTopics
from cdc.startup.writer_claim import publisher_of
from cdc.telemetry import log
from cdc.telemetry.capture_status import Status

_AHEAD_BYTES: Final = 2 << 20  # for readers beside a running capture, whose memory is bounded as a whole


@runtime_checkable
class Adjustable(Protocol):
    """A part of a running capture that takes over some new settings."""

    def adopt(self, config: Config) -> None:
        """Take over what `config` has for it, from any thread."""


class RunningCapture:
    """A pipeline, and everything that must be closed with it."""

    def __init__(
        self,
        parts: Parts,
        session: ReplicationSession,
        sql: Connection,
        slot: str,
        watch: CatalogWatch,
        joins: TableJoins,
        snapshots: Snapshots,
        closing: ExitStack,
    ) -> None:
        self._joins = joins
        self._pipeline = Pipeline(parts)
        self._adjustable = [one for one in (snapshots, *parts.asides) if isinstance(one, Adjustable)]
        self._watch = watch
        self._session = session
        self._sql = sql
        self._slot = slot
        self._closing = closing

    def run(self, stop: threading.Event) -> None:
        """Capture until `stop`, an error, or a table for which capture must start over.

        A takeover and a timed-out transaction of this process both look like fencing to the producer. While this
        process's walsender still holds the slot, no other process can have taken over. Then it was a timeout, and
        starting over is right.
        """
        try:
            self._pipeline.run(EitherEvent(stop, self._joins.over.is_set))
        except ProducerFenced as error:
            if slot_facts(self._sql, self._slot).active_pid == self._session.identity.backend_pid:
                raise OutcomeUnknown("a Kafka transaction took longer than transaction.timeout.ms") from error
            raise
        except SourceGap as error:
            self._watch.name_gap(self._sql, error)
            raise

    def adopt(self, config: Config) -> None:
        """Take over the settings of `cdc.config.reloadable`, from any thread."""
        for one in self._adjustable:
            one.adopt(config)

    def close(self) -> None:
        """Close stream, producer and watch. What is not committed never will be."""
        self._closing.close()


def start(config: Config, status: Status, clock: Clock, stop: threading.Event) -> RunningCapture:
    """Bring capture up to the first committed cut, or raise what forbids it, with everything closed again.

    `stop` ends the long waits: for transactions that block slot or copy, and for the copy itself.
    """
    while True:
        running = _start(config, status, clock, stop)
        if running is not None:
            return running


def _start(config: Config, status: Status, clock: Clock, stop: threading.Event) -> RunningCapture | None:
    """Make one attempt. None: tables were copied, by a producer whose transactions may take longer than they should."""
    with ExitStack() as closing:
        sql = connect(config.source.dsn, application_name="cdc")
        closing.callback(sql.close)
        reader = closing.enter_context(LogReader(config.kafka))
        admin = TopicAdmin(config.kafka)
        facts = gather(config, sql, reader, admin)
        refuse(judge(config, facts).error)  # before anything is created
        source = read_source(config, sql)
        source.leave_out([one for one in facts.left_out if one.reason == "not_readable"])
        claim = claim_log(config, source, _connections(config, source, reader, admin, clock, stop, closing))  # 1 to 5
        restored, position, epoch = claim.restored, claim.position, claim.epoch
        session, publisher, publication = claim.session, claim.publisher, claim.publication

        made = {**claim.data, **describe_internal(admin)}  # the first transaction creates Kafka's own topics
        weak = facts.log.weak(config.kafka, made) if facts.log is not None else []
        status.topics.topics_checked([one.document for one in weak], counted(weak))
        ddl = ddl_watch(config, sql, reader, publisher, clock, epoch=epoch, observer=status, closing=closing)
        accounts = LedgerTopics(config, admin, reader, publisher.ledger, restored)
        seen_to = catalog_queries.current_wal(sql)
        accounts.begin([*claim.data, schema_topic(config.name)])
        holes = IncompleteRecords()
        planner = planner_of(config, source, accounts, reader, closing, epoch=epoch, holes=holes)
        identity, schemas = _introduced(source, claim, planner)
        outbox = _outbox(config, source, accounts, reader, publisher, identity, status)
        beats = heartbeats(config, clock, status, closing, epoch=epoch)
        read = recorded_snapshots(reader, config.name)
        keyless = KeylessTables(config, source.tables, read, untouched(reader, restored))
        copies = keyless.copies()
        snapshots = Snapshots(
            config, clock, source.tables, restored, read, planner, copies, accounts, epoch=epoch, seen_to=seen_to
        )
        closing.callback(snapshots.close)
        joins = TableJoins(config, source, planner, snapshots, accounts, publisher, identity, ddl, clock, status)
        watch = _watch(config, source, publication, clock, status, session, ddl, outbox, joins)
        closing.callback(watch.close)
        publisher.tables = snapshots.states() | keyless.states()
        identity.write()
        publisher.write([], schemas)
        _first_cut(publisher, position, watch, keyless.noted(snapshots.hand_over.notes(), position), ddl)  # 6
        copier = Copier(config, clock, stop, sql, publisher, planner, status, watch.verified, position, epoch)
        if keyless.copied_by(copier) or (outbox is not None and route_existing(outbox, copier)):
            return None
        snapshots.start(sql, ddl, status, recorded_signals(reader, config.name), claim.signals.topic_id)
        status.columns_left_out(left_out(source.tables, publication, source.identity.server_version_num))
        _report_started(config, status, position, epoch, tables=len(source.tables), first=restored.progress is None)
        spans = spans_of(config, status, clock, snapshots.hand_over)
        side = side_topics_of(config, source.identity.database, spans)
        stages = traced([outbox] if outbox else [], spans)
        parts = Parts(
            stream=session,
            publisher=publisher,
            assembler=assembler_of(config, position, epoch, side, snapshots.hand_over, outbox),
            planner=planner,
            live_keys=SpooledKeys(partial(LogReader, config.kafka, ahead_bytes=_AHEAD_BYTES), publisher.ledger),
            reselect=reselector_of(sql, holes, clock, stop, status, watch, snapshots.hand_over),
            observer=status,
            clock=clock,
            verified=watch.verified,
            batch_age_max_s=config.capture.batch_age_max_s,
            side_buffers=[*side.buffers, *(beat.buffer for beat in beats)],
            asides=[ddl, joins, *beats, *stages, *audit_follower(config, clock, status.audit, closing), *spans],
            stages=[stage.router for stage in stages],
            shown=ddl.shown,
            snapshots=snapshots.hand_over,
        )
        prune_until(config, source.outbox, partial(_acknowledged, status, watch), clock, status.outbox, closing)
        return RunningCapture(parts, session, sql, config.slot, watch, joins, snapshots, closing.pop_all())
    raise AssertionError("unreachable")


def _connections(
    config: Config,
    source: Source,
    reader: LogReader,
    admin: TopicAdmin,
    clock: Clock,
    stop: threading.Event,
    closing: ExitStack,
) -> StartConnections[ReplicationSession]:
    return StartConnections(
        server=PostgresServer(config, source.sql, stop),
        reader=reader,
        admin=admin,
        stream=partial(_session, config, clock, closing),
        publisher=partial(_publisher, config, clock, source, reader, closing),
        clock=clock,
    )


def _introduced(
    source: Source, claim: Claim[ReplicationSession], planner: TablePlanner
) -> tuple[IdentityRecord, list[SchemaRecord]]:
    """Return identity and schema records of the tables. Leaves out tables that do not fit their topics."""
    schemas = planner.introduce(source.tables, claim.publication.columns, claim.position.end_lsn)
    source.leave_out(list(planner.left_out.values()))
    refuse_nothing_to_capture(source)
    identity = IdentityRecord(claim.publisher, claim.identity, claim.restored.since_lsn)
    for table in planner.left_out:
        identity.table_left(table)
    return identity, schemas


def _acknowledged(status: Status, watch: CatalogWatch) -> Lsn:
    """Return the LSN below which nothing of the source is needed: it is in the log, and was published as configured."""
    position = status.position
    return Lsn(0) if position is None else min(position.end_lsn, watch.verified())


def _outbox(
    config: Config,
    source: Source,
    accounts: LedgerTopics,
    reader: LogReader,
    publisher: KafkaPublisher,
    identity: IdentityRecord,
    status: Status,
) -> OutboxStage | None:
    if config.outbox is None:
        return None
    record = recorded_outbox(reader, config.name)
    stage = OutboxStage(config, source.sql, source.outbox, record, accounts, publisher, identity, status.outbox)
    stage.skip()
    return stage


def _session(config: Config, clock: Clock, closing: ExitStack, at: Lsn, slot: SlotFacts) -> ReplicationSession:
    session = ReplicationSession(config.source.dsn, application_name="cdc", clock=clock)
    closing.callback(session.close)
    if config.source.failover and config.source.create and not slot.failover:
        session.synchronise(slot.name)
    session.start(config.slot, config.publication, at, origin=config.source.origin)
    return session


def _publisher(
    config: Config, clock: Clock, source: Source, reader: LogReader, closing: ExitStack, epoch: int
) -> KafkaPublisher:
    copying = needs_copy(config, source.outbox, recorded_outbox(reader, config.name))
    lasting_s = transaction_s(config, source.tables, recorded_snapshots(reader, config.name), outbox=copying)
    publisher = publisher_of(config, clock, epoch, transaction_s=lasting_s)
    closing.callback(publisher.close)
    return publisher


def _selected(config: Config, table: str) -> bool:
    of_outbox = config.outbox is not None and table == config.outbox.table
    return of_outbox or matches(table, config.source.tables)


def _first_cut(
    publisher: KafkaPublisher, position: StreamPosition, watch: CatalogWatch, notes: SnapshotNotes, ddl: DdlWatch
) -> None:
    ddl.write(position)
    publisher.commit(position, watch.verified(), notes)
    ddl.written()


def _report_started(
    config: Config, status: Status, position: StreamPosition, epoch: int, *, tables: int, first: bool
) -> None:
    status.reached(position)
    log.get().info(
        "capture_started",
        slot=config.slot,
        publication=config.publication,
        lsn=str(position.end_lsn),
        epoch=epoch,
        tables=tables,
        first_start=first,
        compiled=COMPILED,
    )


def _watch(
    config: Config,
    source: Source,
    publication: PublicationFacts,
    clock: Clock,
    status: Status,
    session: ReplicationSession,
    ddl: DdlWatch,
    outbox: OutboxStage | None,
    joins: TableJoins,
) -> CatalogWatch:
    watched = Watched(
        slot=config.slot,
        publication=config.publication,
        publication_oid=publication.oid,
        tables={table.oid: (table.table, publication.tables.get(table.oid, 0)) for table in source.published},
        replaceable=frozenset() if source.outbox is None else frozenset({source.outbox.oid}),
        selected=partial(_selected, config),
    )
    period_s = config.capture.catalog_check_s

    def cut_off() -> None:
        session.abandon()
        sever(source.sql)

    def checked(connection: Connection) -> None:
        with deadline(connection, ANSWER_S):
            joins.check(connection, watch)
            ddl.check(catalog_of(config, connection))
            if outbox is not None and not joins.outbox_left_out:
                outbox.check_unpublished(connection)
        ddl.settle()
        joins.settle()

    watch = CatalogWatch(
        config.source.dsn, watched, clock, period_s=period_s, seen=status.slot_seen, failed=cut_off, checked=checked
    )
    watch.start()
    return watch
