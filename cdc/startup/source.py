"""What a start needs of PostgreSQL: tables, publication, slot; and whether this is the source the log belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cdc.config.outboxcheck import literal_pattern
from cdc.config.settings import Config
from cdc.errors import ProgressDamaged, SourceDiverged, SourceGap, SourceRefused, SourceUnreachable
from cdc.kafka.facts import TopicFacts
from cdc.lsn import Lsn
from cdc.model.event import StreamPosition
from cdc.model.failover import FAILOVER_SINCE
from cdc.model.leftout import LeftOut
from cdc.model.progress import Identity
from cdc.progress.restore import Restored
from cdc.replication import catalog
from cdc.replication.catalog import SourceIdentity
from cdc.replication.connect import Connection, connect_replication
from cdc.replication.eligibility import judge, not_addable
from cdc.replication.publication import Ensured, PublicationFacts, publication_facts, publishable
from cdc.replication.session import ServerIdentity
from cdc.replication.slot import SlotFacts, creation, held
from cdc.replication.table import SourceTable
from cdc.startup.promoted import REPAIR, follow_promotion
from cdc.startup.server import SourceServer
from cdc.telemetry import log

ANEW: Final = (
    "the range cannot be had from the WAL any more; the command makes a new slot and has every table read anew, into "
    "the same topics"
)
_LEVEL: Final = "the command has every table read anew, into the same topics, and deletes there what it does not have"

_NAMED_MAX: Final = 5  # tables a message names
_ORIGINS_SINCE: Final = 160000  # https://www.postgresql.org/docs/16/protocol-logical-replication.html


@dataclass(slots=True)
class Source:
    """What the first look at PostgreSQL found; nothing is changed by it.

    Attributes:
        tables: those that are captured.
        left_out: those that source.tables selects and that cannot be captured.
    """

    sql: Connection
    identity: SourceIdentity
    tables: list[SourceTable]
    outbox: SourceTable | None = None
    left_out: list[LeftOut] = field(default_factory=list)

    def leave_out(self, found: Sequence[LeftOut]) -> None:
        """Do not capture these; the others are captured."""
        oids = {one.oid for one in found}
        self.tables = [table for table in self.tables if table.oid not in oids]
        if self.outbox is not None and self.outbox.oid in oids:
            self.outbox = None
        self.left_out += found

    @property
    def published(self) -> list[SourceTable]:
        """All that must be in the publication: the tables, and the outbox beside them."""
        apart = self.outbox is not None and all(table.oid != self.outbox.oid for table in self.tables)
        return [*self.tables, self.outbox] if apart and self.outbox is not None else self.tables


def look_at_source(config: Config, sql: Connection) -> Source:
    """Find database and tables. Raises SourceRefused for what cannot be captured as configured."""
    if catalog.pooled(sql):
        # Most poolers pass no replication on: find out before anything is made that would then hold WAL.
        connect_replication(config.source.dsn).close()
    identity = catalog.source_identity(sql)
    wal_level = catalog.wal_settings(sql).get("wal_level")
    if wal_level != "logical":
        raise SourceRefused(
            f"wal_level is {wal_level!r}; logical decoding needs 'logical'",
            hint="set it and restart PostgreSQL",
            command="alter system set wal_level = 'logical';",
        )
    if config.source.origin != "any" and identity.server_version_num < _ORIGINS_SINCE:
        raise SourceRefused(
            f"PostgreSQL {identity.server_version_num // 10000} cannot leave out what has an origin",
            hint='it can from 16 on; take the line source.origin = "none" out of the configuration',
        )
    if config.source.failover and identity.server_version_num // 10000 < FAILOVER_SINCE:
        raise SourceRefused(
            f"PostgreSQL {identity.server_version_num // 10000} cannot synchronise a slot to standbys",
            hint=f"it can from {FAILOVER_SINCE} on; take the line source.failover = true out of the configuration",
        )
    selected = catalog.tables_matching(sql, config.source.tables, config.source.keyless, config.source.keys)
    outbox = outbox_table(config, sql)
    unknown = sorted(config.source.keys.keys() - {table.table for table in selected})
    if unknown:
        raise SourceRefused(
            f"source.keys names {unknown[0]!r}, which is no captured table",
            hint="a table under another key than was meant would keep it: take the line out, or mend its name",
            command="cdc doctor",
            table=unknown[0],
        )
    source = Source(sql, identity, selected, outbox)
    facts = publication_facts(sql, config.publication)
    if facts is not None or config.source.create:  # else the start is refused, with the statement that creates it
        source.leave_out(judge(source.published, facts, name=config.publication, create=config.source.create).left_out)
    refuse_nothing_to_capture(source, script=facts is None)
    return source


def refuse_nothing_to_capture(source: Source, *, script: bool = False) -> None:
    """Raise SourceRefused when no table is left. With `script` there is no publication that a table could join."""
    if source.published:
        return
    if not source.left_out:
        publishable([])
    first = source.left_out[0]
    script = script and first.reason == "not_published"
    hint = f"the statement is for {first.by}" if first.by else "capture other tables"
    raise SourceRefused(
        f"none of {len(source.left_out)} tables of source.tables can be captured: "
        + "; ".join(f"{one.table}: {one.problem}" for one in source.left_out[:_NAMED_MAX]),
        hint="a role with the rights of the owners can publish them; the command prints a script" if script else hint,
        command="cdc doctor --sql" if script else first.statement,
        table=first.table,
    )


def outbox_table(config: Config, sql: Connection) -> SourceTable | None:
    """The outbox, if one is configured and there is a table. Raises SourceRefused for one that cannot be published."""
    if config.outbox is None:
        return None
    found = catalog.tables_matching(sql, [literal_pattern(config.outbox.table)])
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
    """Have the tables published.

    Once capture has run, the publication must be the one it ran with, and must still have the tables it had: what
    was written to a table while it was not published is not in the stream. Raises SourceGap when it may have been,
    and SourceDiverged for a source that is not the log's at all.
    """
    name, recorded = config.publication, restored.identity
    if recorded is not None:
        _refuse_other_source(server, recorded, source.identity, restored.position)  # before anything is made there
        facts = server.publication()
        if facts is None:
            raise _unpublished(server, restored, f"publication {name!r} is gone")
        if facts.oid != recorded.publication_oid:
            raise _unpublished(server, restored, f"publication {name!r} was dropped and made again")
        selected = [(table.table, table.oid) for table in source.published]
        selected += [(one.table, one.oid) for one in source.left_out if one.reason == "not_published"]
        for named, now in selected:
            oid, member = recorded.tables.get(named, (0, 0))
            if oid == now and facts.tables.get(oid) != member:
                what = f"publication {name!r} does not have {named} any more, or not all the time"
                raise _unpublished(server, restored, what)
    ensured = server.publish(source.published)
    leave_out_refused(source, ensured, name)
    refuse_nothing_to_capture(source)
    if recorded is not None:
        for table in ensured.added:
            log.get().info("table_joined", table=table.table)
    return ensured.facts


def leave_out_refused(source: Source, ensured: Ensured, publication: str) -> None:
    """Do not capture tables that the server refused to add to the publication."""
    by_oid = {table.oid: table for table in source.published}
    source.leave_out([not_addable(by_oid[oid], publication, why) for oid, why in ensured.refused.items()])


def _refuse_other_source(
    server: SourceServer, recorded: Identity, now: Identity | SourceIdentity, position: StreamPosition | None
) -> None:
    for fact in ("system_identifier", "database_oid"):
        was, found = getattr(recorded, fact), getattr(now, fact)
        if was != found:
            raise SourceDiverged(
                f"the log belongs to a source with {fact} {was}; this one has {found}",
                hint="it was restored, or is another server or database: positions of the log mean nothing "
                f"here. See that source.dsn is the right one first; if it is, {_LEVEL}",
                command=REPAIR,
                field=fact,
            )
    if now.timeline < server.timeline():
        raise SourceUnreachable("a standby was promoted while this start looked at the source")
    end_lsn = position.end_lsn if position is not None else Lsn(0)
    follow_promotion(server.history, recorded=recorded.timeline, now=now.timeline, end_lsn=end_lsn)


def find_or_make_slot(config: Config, source: Source, server: SourceServer, restored: Restored) -> SlotFacts:
    """The slot as it is before we stream from it; made when this is the very first start."""
    facts = server.slot()
    if facts.exists and (facts.invalidation or not facts.usable):
        raise _gap(config, restored, server, f"is lost ({facts.invalidation or facts.wal_status})")
    if facts.being_made:
        raise held(facts)
    if facts.exists:
        if facts.plugin != "pgoutput" or facts.database != source.identity.database:
            raise SourceRefused(
                f"slot {config.slot!r} is for plugin {facts.plugin!r} and database {facts.database!r}",
                hint="choose another name with source.slot",
                slot=config.slot,
            )
        return facts
    if restored.progress is not None:
        raise _gap(config, restored, server, "is gone")
    if not config.source.create:
        raise SourceRefused(
            f"slot {config.slot!r} does not exist, and source.create is false",
            hint="have it created",
            command=creation(config.slot, failover=config.source.failover),
            slot=config.slot,
        )
    log.get().info("slot_creating", slot=config.slot)
    facts = server.make_slot()
    log.get().info("slot_created", slot=config.slot, lsn=str(facts.confirmed_flush_lsn))
    return facts


def _gap(config: Config, restored: Restored, server: SourceServer, what: str) -> SourceGap:
    known = restored.position.end_lsn if restored.position else None
    now = server.wal_end()
    return SourceGap(
        f"replication slot {config.slot!r} {what}; what was committed between {known} and {now} is unknown",
        known_to=known,
        resumes_at=now,
        hint=ANEW,
        command=REPAIR,
        slot=config.slot,
    )


def _unpublished(server: SourceServer, restored: Restored, what: str) -> SourceGap:
    known = Lsn(restored.progress.verified_lsn) if restored.progress else None
    now = server.wal_end()
    return SourceGap(
        f"{what}; changes between {known} and {now} may not be in the log",
        known_to=known,
        resumes_at=now,
        hint=ANEW,
        command=REPAIR,
    )


def identity_now(
    config: Config,
    source: Source,
    publication: PublicationFacts,
    server: ServerIdentity,
    topics: Mapping[str, TopicFacts],
    recorded: Identity | None,
) -> Identity:
    """Whose positions the log will hold from now on. Topics of tables that left are remembered: they may come back."""
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
    """Is this the source, are these the topics, that the log's positions belong to?"""
    recorded = restored.identity
    if recorded is None:
        return
    _refuse_other_source(server, recorded, now, position)
    wal_end = server.wal_end()  # after `position`: others may have gone on with newer WAL while this one stood still
    if wal_end < position.end_lsn or wal_end <= position.commit_lsn:  # the log may have a part of its last transaction
        reached = max(position.end_lsn, position.commit_lsn)
        raise SourceDiverged(
            f"the log reaches {reached}, the server's WAL only {wal_end}",
            hint=f"the database was restored from an older copy, or lost WAL that was not flushed; {_LEVEL}",
            command=REPAIR,
        )
    for topic, topic_id in recorded.topic_ids.items():
        if topic in now.topic_ids and now.topic_ids[topic] != topic_id:
            raise ProgressDamaged(f"topic {topic!r} was deleted and made again", topic=topic)
    if recorded.slot == now.slot and slot.confirmed_flush_lsn is not None:
        if slot.confirmed_flush_lsn > position.end_lsn:
            raise SourceGap(
                f"the slot stands at {slot.confirmed_flush_lsn}, the log at {position.end_lsn}: what was committed "
                "between is unknown",
                known_to=position.end_lsn,
                resumes_at=slot.confirmed_flush_lsn,
                hint=f"somebody advanced the slot or made it again; {ANEW}",
                command=REPAIR,
                slot=now.slot,
            )
    elif recorded.slot != now.slot:
        raise ProgressDamaged(
            f"the log was written from slot {recorded.slot!r}, the configuration says {now.slot!r}",
            hint="set source.slot back; another slot begins elsewhere",
            slot=now.slot,
        )
