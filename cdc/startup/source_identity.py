"""Reads tables, publication and slot for a start, and checks that this source is the one the log belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cdc.config.outbox_check import literal_pattern
from cdc.config.settings import Config
from cdc.errors import SourceRefused, SourceUnreachable, TailraceError
from cdc.kafka.cluster_facts import TopicFacts
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.left_out import LeftOut
from cdc.model.progress_record import Identity
from cdc.progress.restore import Restored
from cdc.replication import catalog_queries
from cdc.replication.catalog_queries import SourceIdentity
from cdc.replication.connect import Connection, connect_replication
from cdc.replication.eligibility import left_out_at_start, not_addable
from cdc.replication.publication import Ensured, PublicationFacts, publication_facts
from cdc.replication.slot import SlotFacts, held
from cdc.replication.stream import ServerIdentity
from cdc.replication.table_shape import SourceTable
from cdc.startup import start_rules
from cdc.startup.promotion import note_promotion
from cdc.startup.slot_setup import SourceServer
from cdc.telemetry import log


@dataclass(slots=True)
class Source:
    """What the first queries to PostgreSQL found. Nothing was changed.

    Attributes:
        tables: the captured tables.
        left_out: tables that source.tables selects and that cannot be captured.
    """

    sql: Connection
    identity: SourceIdentity
    tables: list[SourceTable]
    outbox: SourceTable | None = None
    left_out: list[LeftOut] = field(default_factory=list)

    def leave_out(self, found: Sequence[LeftOut]) -> None:
        """Exclude these tables from capture."""
        oids = {one.oid for one in found}
        self.tables = [table for table in self.tables if table.oid not in oids]
        if self.outbox is not None and self.outbox.oid in oids:
            self.outbox = None
        self.left_out += found

    @property
    def published(self) -> list[SourceTable]:
        """Everything that must be in the publication: the tables and the outbox."""
        apart = self.outbox is not None and all(table.oid != self.outbox.oid for table in self.tables)
        return [*self.tables, self.outbox] if apart and self.outbox is not None else self.tables


def refuse(error: TailraceError | None) -> None:
    """Raise the error, if there is one."""
    if error is not None:
        raise error


def read_source(config: Config, sql: Connection) -> Source:
    """Read database and tables. Raises SourceRefused for what cannot be captured as configured."""
    if catalog_queries.pooled(sql):
        # Most poolers do not forward replication. Check that before a slot is created, which would hold WAL.
        connect_replication(config.source.dsn).close()
    identity = catalog_queries.source_identity(sql)
    refuse(start_rules.server_unfit(config, identity, catalog_queries.wal_settings(sql)))
    selected = catalog_queries.tables_matching(sql, config.source.tables, config.source.keyless, config.source.keys)
    outbox = outbox_table(config, sql)
    refuse(start_rules.keys_unknown(config, selected))
    source = Source(sql, identity, selected, outbox)
    facts = publication_facts(sql, config.publication)
    name, create = config.publication, config.source.create
    source.leave_out(left_out_at_start(source.published, facts, name=name, create=create))
    refuse(start_rules.nothing_to_capture(source.published, source.left_out, script=facts is None))
    return source


def refuse_nothing_to_capture(source: Source) -> None:
    """Raise SourceRefused if no table is left."""
    refuse(start_rules.nothing_to_capture(source.published, source.left_out))


def outbox_table(config: Config, sql: Connection) -> SourceTable | None:
    """Return the outbox table, if it is configured and exists. Raises SourceRefused if it cannot be published."""
    if config.outbox is None:
        return None
    found = catalog_queries.tables_matching(sql, [literal_pattern(config.outbox.table)])
    if not found:
        return None
    table = found[0]
    if table.problem:
        raise SourceRefused(
            f"the outbox {table.table} cannot be captured: {table.problem}",
            hint="PostgreSQL would refuse every DELETE there once it is published; give it a primary key",
            command="cdc doctor",
            table=table.table,
        )
    return table


def publish_tables(config: Config, source: Source, server: SourceServer, restored: Restored) -> PublicationFacts:
    """Add the tables to the publication.

    Once capture has run, the publication must be the one that it ran with, and must still have its tables: the stream
    has nothing that was written to a table while it was not published. Raises SourceGap if that may have happened, and
    SourceDiverged for a source that the log does not belong to.
    """
    name, recorded = config.publication, restored.identity
    if recorded is not None:
        _refuse_other_source(server, recorded, source.identity, restored.position)  # before anything is changed there
        facts = server.publication()
        missing = [one for one in source.left_out if one.reason == "not_published"]
        selected = [(table.table, table.oid) for table in source.published]
        selected += [(one.table, one.oid) for one in missing]
        # A table that was dropped since `source` was read is not in the publication. Its rows are gone, not missing.
        there = server.existing([oid for _, oid in selected])
        selected = [(table, oid) for table, oid in selected if oid in there]
        refuse(start_rules.unpublished(name, facts, restored, selected, server.wal_end))
    ensured = server.publish(source.published)
    if ensured.altered:
        log.get().info("publication_altered", publication=name, statement=ensured.altered)
    leave_out_refused(source, ensured, name)
    refuse_nothing_to_capture(source)
    if recorded is not None:
        for table in ensured.added:
            log.get().info("table_joined", table=table.table)
    return ensured.facts


def leave_out_refused(source: Source, ensured: Ensured, publication: str) -> None:
    """Leave out tables that the server refused to add to the publication."""
    by_oid = {table.oid: table for table in source.published}
    source.leave_out([not_addable(by_oid[oid], publication, why) for oid, why in ensured.refused.items()])


def _refuse_other_source(
    server: SourceServer, recorded: Identity, now: Identity | SourceIdentity, position: StreamPosition | None
) -> None:
    if now.timeline < server.timeline():
        raise SourceUnreachable("a standby was promoted while this start was reading the source")
    end_lsn = position.end_lsn if position is not None else Lsn(0)
    promoted = now.timeline > recorded.timeline and now.system_identifier == recorded.system_identifier
    history = server.history(now.timeline) if promoted else []
    refuse(start_rules.other_source(recorded, now, history, end_lsn))
    if now.timeline != recorded.timeline:
        note_promotion(history, recorded=recorded.timeline, now=now.timeline)


def find_or_make_slot(config: Config, source: Source, server: SourceServer, restored: Restored) -> SlotFacts:
    """Return the slot as it is before the stream is opened. The very first start creates it.

    The source's identity is checked before: a promoted standby without the slot and behind the log is DIVERGED, not a
    GAP.
    """
    facts = server.slot()
    refuse(start_rules.slot_lost(facts, restored.known_to, server.wal_end))
    if facts.being_made:
        raise held(facts)
    refuse(start_rules.slot_unfit(config, facts, source.identity.database, restored, server.wal_end))
    if facts.exists:
        return facts
    log.get().info("slot_creating", slot=config.slot)
    facts = server.make_slot()
    log.get().info("slot_created", slot=config.slot, lsn=str(facts.confirmed_flush_lsn))
    return facts


def identity_now(
    config: Config,
    source: Source,
    publication: PublicationFacts,
    server: ServerIdentity,
    topics: Mapping[str, TopicFacts],
    recorded: Identity | None,
) -> Identity:
    """Return the identity to record. Topics of tables that left stay recorded, because the tables may come back."""
    return Identity(
        system_identifier=server.system_identifier,
        timeline=server.timeline,
        database=source.identity.database,
        database_oid=source.identity.database_oid,
        slot=config.slot,
        publication=config.publication,
        publication_oid=publication.oid,
        server_version=source.identity.server_version_num,
        partitions=(recorded.partitions if recorded else {})
        | {name: facts.partition_count for name, facts in topics.items()},
        tables={table.table: (table.oid, publication.tables.get(table.oid, 0)) for table in source.published},
        topic_ids=(recorded.topic_ids if recorded else {}) | {name: facts.topic_id for name, facts in topics.items()},
    )


def check_identity(
    server: SourceServer, restored: Restored, now: Identity, slot: SlotFacts, position: StreamPosition
) -> None:
    """Check that this is the source, and these are the topics, that the recorded positions belong to."""
    recorded = restored.identity
    if recorded is None:
        return
    _refuse_other_source(server, recorded, now, position)
    # Read the end of the WAL after `position`: another capture may have advanced while this start was stalled.
    refuse(start_rules.wal_behind(position, server.wal_end()))
    refuse(start_rules.topics_made_again(recorded.topic_ids, now.topic_ids))
    refuse(start_rules.slot_elsewhere(recorded, replace(slot, name=now.slot), position))
