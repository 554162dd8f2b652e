"""The rules that forbid a start: one function each, which takes facts and returns the error or None. Pure.

`cdc.startup.source_identity` and `cdc.startup.topic_check` raise these errors. `cdc.startup.judgement` applies the
rules in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from cdc.config.settings import Config, Kafka
from cdc.errors import BrokerRefused, ProgressDamaged, SourceDiverged, SourceGap, SourceRefused, TailraceError
from cdc.kafka.client_options import transaction_timeout_ms
from cdc.kafka.cluster_facts import BrokerFacts
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.failover import FAILOVER_SINCE
from cdc.model.left_out import LeftOut
from cdc.model.progress_record import Identity
from cdc.model.timeline import TimelineSwitch
from cdc.model.topic_names import progress_topic
from cdc.progress.restore import Restored
from cdc.publish.topic_setup import REPAIR, topic_lost
from cdc.replication.catalog_queries import SourceIdentity
from cdc.replication.publication import PublicationFacts, publishable
from cdc.replication.slot import SlotFacts, creation_statement
from cdc.replication.table_shape import SourceTable
from cdc.startup.promotion import LEVEL, divergence

WalEnd: TypeAlias = Callable[[], Lsn]
"""Returns where the next WAL record goes. Called only if an error needs it."""

_NAMED_MAX: Final = 5  # tables that a message names
MAJOR_MIN: Final = 15
ORIGINS_SINCE: Final = 160000  # https://www.postgresql.org/docs/16/protocol-logical-replication.html
RESNAPSHOT_HINT: Final = (
    "changes of that range are lost; the command creates a new slot and reads every table again, into the same topics"
)


def error_of(check: Callable[[], object]) -> TailraceError | None:
    """Return the error that `check` raises, or None."""
    try:
        check()
    except TailraceError as error:
        return error
    return None


def server_unfit(config: Config, identity: SourceIdentity, settings: Mapping[str, str]) -> TailraceError | None:
    """The server cannot decode the WAL, or not in the configured way."""
    major = identity.server_version_num // 10000
    if identity.in_recovery:
        return SourceRefused(
            "this server is a standby; capture needs the primary",
            hint="connect to the primary, or add target_session_attrs=primary to source.dsn",
        )
    if major < MAJOR_MIN:
        return SourceRefused(
            f"PostgreSQL {major} is too old: capture needs {MAJOR_MIN} or later", hint="upgrade the server"
        )
    if settings.get("wal_level") != "logical":
        return SourceRefused(
            f"wal_level is {settings.get('wal_level')!r}; logical decoding needs 'logical'",
            hint="set it and restart PostgreSQL",
            command="alter system set wal_level = 'logical';",
        )
    if config.source.origin != "any" and identity.server_version_num < ORIGINS_SINCE:
        return SourceRefused(
            f"PostgreSQL {major} cannot leave out changes that have an origin; this requires 16 or later",
            hint='remove the line source.origin = "none" from the configuration, or upgrade the server',
        )
    if config.source.failover and major < FAILOVER_SINCE:
        return SourceRefused(
            f"PostgreSQL {major} cannot synchronise a slot to standbys; this requires {FAILOVER_SINCE} or later",
            hint="remove the line source.failover = true from the configuration, or upgrade the server",
        )
    return None


def keys_unknown(config: Config, tables: Sequence[SourceTable]) -> TailraceError | None:
    """source.keys names a table that is not captured."""
    unknown = sorted(config.source.keys.keys() - {table.table for table in tables if not table.unpublishable})
    if not unknown:
        return None
    return SourceRefused(
        f"source.keys names {unknown[0]!r}, which is not a captured table",
        hint="correct the name or remove the line; without it the table is captured under another key",
        command="cdc doctor",
        table=unknown[0],
    )


def nothing_to_capture(
    tables: Sequence[SourceTable], left_out: Sequence[LeftOut], *, script: bool = False
) -> TailraceError | None:
    """Every selected table is left out. `script`: the publication does not exist, so no table can join later."""
    if tables:
        return None
    if not left_out:
        return error_of(lambda: publishable([]))
    first = left_out[0]
    script = script and first.reason == "not_published"
    hint = f"the statement is for {first.by}" if first.by else "capture other tables"
    return SourceRefused(
        f"none of the {len(left_out)} tables that source.tables selects can be captured: "
        + "; ".join(f"{one.table}: {one.problem}" for one in left_out[:_NAMED_MAX]),
        hint="a role with the owners' rights can publish them; the command prints a script" if script else hint,
        command="cdc doctor --sql" if script else first.statement,
        table=first.table,
    )


def no_free_slot(slot: SlotFacts, settings: Mapping[str, str], slots_used: int) -> TailraceError | None:
    """A slot must be created, and no slot is free."""
    most = int(settings.get("max_replication_slots", "0"))
    if slot.exists or slots_used < most:
        return None
    return SourceRefused(
        f"cannot create slot {slot.name!r}: all {most} replication slots are in use (max_replication_slots)",
        hint="drop an unused slot, or raise max_replication_slots and restart PostgreSQL",
        command="cdc slot list",
        slot=slot.name,
    )


def other_source(
    recorded: Identity, now: Identity | SourceIdentity, history: Sequence[TimelineSwitch], end_lsn: Lsn
) -> TailraceError | None:
    """The log belongs to another cluster, database or history. `history` is that of the current timeline."""
    for field in ("system_identifier", "database_oid"):
        was, found = getattr(recorded, field), getattr(now, field)
        if was != found:
            return SourceDiverged(
                f"the log belongs to a source with {field} {was}; this one has {found}",
                hint="the database was restored, or source.dsn leads to another server or database; recorded positions "
                f"are not valid here. Check source.dsn first. If it is right, {LEVEL}",
                command=REPAIR,
                field=field,
            )
    return divergence(list(history), recorded=recorded.timeline, now=now.timeline, end_lsn=end_lsn)


def unpublished(
    name: str, facts: PublicationFacts | None, restored: Restored, tables: Sequence[tuple[str, int]], wal_end: WalEnd
) -> TailraceError | None:
    """Changes were not published for a time: the publication was replaced, or lost a table.

    `tables` are names and oids of captured tables, and of those that would be captured if they were published.
    """
    recorded = restored.identity
    if recorded is None:
        return None
    what = ""
    if facts is None:
        what = f"publication {name!r} is gone"
    elif facts.oid != recorded.publication_oid:
        what = f"publication {name!r} was dropped and created again"
    else:
        for table, now_oid in tables:
            oid, member = recorded.tables.get(table, (0, 0))
            if oid == now_oid and facts.tables.get(oid) != member:
                what = f"publication {name!r} no longer has {table}, or did not have it for a time"
                break
    if not what:
        return None
    known, now = Lsn(restored.progress.verified_lsn) if restored.progress else None, wal_end()
    return SourceGap(
        f"{what}; changes between {known} and {now} may not be in the log",
        known_to=known,
        resumes_at=now,
        hint=RESNAPSHOT_HINT,
        command=REPAIR,
    )


def slot_lost(slot: SlotFacts, known_to: Lsn | None, wal_end: WalEnd) -> TailraceError | None:
    """The slot exists, and PostgreSQL removed WAL that it needs. `known_to` is None if capture never ran."""
    if not slot.exists or slot.usable:
        return None
    if known_to is None:
        return SourceGap(
            f"replication slot {slot.name!r} is lost ({slot.invalidation or slot.wal_status}); nothing was captured "
            "from it yet",
            hint="drop it; the next start creates a new one",
            command="cdc slot drop",
            slot=slot.name,
        )
    return _slot_gap(slot, f"is lost ({slot.invalidation or slot.wal_status})", known_to, wal_end)


def slot_unfit(
    config: Config, slot: SlotFacts, database: str, restored: Restored, wal_end: WalEnd
) -> TailraceError | None:
    """The slot is of another plugin or database, or is missing although the log or the configuration requires it."""
    if slot.exists and not slot.being_made and (slot.plugin != "pgoutput" or slot.database != database):
        return SourceRefused(
            f"slot {slot.name!r} belongs to plugin {slot.plugin!r} and database {slot.database!r}",
            hint="choose another name with source.slot",
            slot=slot.name,
        )
    if slot.exists:
        return None
    if restored.progress is not None:
        return _slot_gap(slot, "is gone", restored.known_to, wal_end)
    if config.source.create:
        return None
    return SourceRefused(
        f"slot {slot.name!r} does not exist, and source.create is false",
        hint="create it with this statement",
        command=creation_statement(slot.name, failover=config.source.failover),
        slot=slot.name,
    )


def wal_behind(position: StreamPosition, wal_end: Lsn) -> TailraceError | None:
    """The log has changes that the server does not have."""
    if wal_end >= position.end_lsn and wal_end > position.commit_lsn:  # the log may have a part of that transaction
        return None
    return SourceDiverged(
        f"the log reaches {max(position.end_lsn, position.commit_lsn)}, but the server's WAL ends at {wal_end}",
        hint=f"the database was restored from an older copy, or lost WAL that was not flushed; {LEVEL}",
        command=REPAIR,
    )


def topics_made_again(recorded: Mapping[str, str], now: Mapping[str, str]) -> TailraceError | None:
    """A recorded topic has another id now. Both arguments map topics to ids; only topics in both are compared."""
    again = [topic for topic, topic_id in recorded.items() if now.get(topic, topic_id) != topic_id]
    return topic_lost(again[0], more=len(again) - 1, found="was deleted and created again") if again else None


def slot_elsewhere(recorded: Identity, slot: SlotFacts, position: StreamPosition) -> TailraceError | None:
    """The slot is not the recorded one, or its position is beyond the end of the log."""
    if recorded.slot != slot.name:
        return ProgressDamaged(
            f"the log was written from slot {recorded.slot!r}, but the configuration names {slot.name!r}",
            hint="restore source.slot; another slot begins at another position",
            command=f'source.slot = "{recorded.slot}"',
            slot=slot.name,
        )
    if slot.confirmed_flush_lsn is None or slot.confirmed_flush_lsn <= position.end_lsn:
        return None
    return SourceGap(
        f"the slot is at {slot.confirmed_flush_lsn}, the log at {position.end_lsn}; what was committed in between is "
        "unknown",
        known_to=position.end_lsn,
        resumes_at=slot.confirmed_flush_lsn,
        hint="another program advanced the slot or created it again, or Kafka lost records by an unclean election of a "
        f"leader; {RESNAPSHOT_HINT}",
        command=REPAIR,
        slot=slot.name,
    )


def orphans(name: str, filled: Sequence[str]) -> TailraceError | None:
    """There is no recorded position, but data topics have records: events would be in the log twice."""
    if not filled:
        return None
    which = f"topic {filled[0]!r} has" if len(filled) == 1 else f"{len(filled)} topics ({filled[0]!r}, ...) have"
    return ProgressDamaged(
        f"topic {progress_topic(name)!r} holds no position, but {which} records: the progress topic was deleted, "
        "or another program writes there",
        hint="set another `name`: capture then starts from scratch, with its own slot and topics. Then drop the old "
        "slot (cdc slot list), or PostgreSQL keeps WAL for it",
        command=f'name = "{name[:36]}_2"',
        topic=filled[0],
    )


def brokers_unfit(kafka: Kafka, brokers: BrokerFacts, *, creates: bool) -> TailraceError | None:
    """The cluster cannot hold the topics that a start `creates`, or it ends transactions too early."""
    if creates and kafka.replication_factor > brokers.broker_count:
        return BrokerRefused(
            f"cannot create topics with kafka.replication_factor = {kafka.replication_factor}: the cluster has "
            f"{brokers.broker_count} broker{'s' if brokers.broker_count != 1 else ''}",
            hint="set kafka.replication_factor to at most the number of brokers, with kafka.allow_unreplicated below 3",
            command=f"kafka.replication_factor = {brokers.broker_count}",
        )
    longest, needed = brokers.configs.get("transaction.max.timeout.ms", ""), transaction_timeout_ms(kafka)
    if longest.isdigit() and int(longest) < needed:
        return BrokerRefused(
            f"transaction.max.timeout.ms of the brokers is {longest}; capture needs at least {needed}",
            hint="raise it on the brokers, or lower kafka.options.transaction.timeout.ms",
        )
    return None


def _slot_gap(slot: SlotFacts, what: str, known_to: Lsn | None, wal_end: WalEnd) -> SourceGap:
    now = wal_end()
    return SourceGap(
        f"replication slot {slot.name!r} {what}; what was committed between {known_to} and {now} is unknown",
        known_to=known_to,
        resumes_at=now,
        hint=RESNAPSHOT_HINT,
        command=REPAIR,
        slot=slot.name,
    )
