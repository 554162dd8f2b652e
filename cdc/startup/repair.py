"""Repairs the log after GAP, DIVERGED or a lost topic: new slot, new epoch, every table read again and swept.

The steps are those of a start (`cdc.startup.protocol`), in its order: take the slot, fence, then commit everything in
one Kafka transaction. Before that commit the log is unchanged, and capture still refuses to run. After it, the next
start reads the tables. So a repair may be killed at any point, and repeated.

Records of the new epoch are behind all others, whatever their LSNs are. `snapshot.sweep` finds what was deleted in the
unknown range. A recorded topic that was deleted, or deleted and created again, is created or adopted as a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import Final

from msgspec.structs import replace

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import OutcomeUnknown, TopicMismatch, UsageError
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.outbox_record import OutboxRecord
from cdc.model.progress_record import Identity
from cdc.model.snapshot_record import SnapshotNotes, SnapshotRecord
from cdc.model.topic_names import cuts_topic, data_topic, schema_topic, signals_topic
from cdc.progress.recorded_catalog import recorded_catalog
from cdc.progress.restore import Restored, recorded_outbox, recorded_position, recorded_snapshots
from cdc.publish.ledger import Ledger
from cdc.publish.publisher import KafkaPublisher
from cdc.replication.connect import Connection, connect
from cdc.replication.publication import ensure_publication
from cdc.replication.slot import CreationWatch, SlotFacts, create_slot, drop_slot, held, slot_facts
from cdc.replication.stream import ReplicationSession
from cdc.replication.table_shape import SourceTable
from cdc.startup import start_rules
from cdc.startup.source_identity import identity_now, leave_out_refused, read_source, refuse
from cdc.startup.topic_check import LedgerTopics, control_topics, data_topics, filled_topics
from cdc.startup.writer_claim import publisher_of, read_behind_sentinel

_BROKER_ANSWER_S: Final = 5.0
_NAMED: Final = {
    "system_identifier": "cluster",
    "timeline": "timeline",
    "database": "database",
    "database_oid": "database's oid",
}


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result: the log continues at `at`, in `epoch`."""

    epoch: int
    at: Lsn
    slot: SlotFacts


class Repair:
    """One repair. The constructor only reads; `run` does the repair. Close it."""

    def __init__(self, config: Config, clock: Clock) -> None:
        """Raises UsageError if there is no log to repair, SlotHeld while another process reads from the slot."""
        self._config = config
        self._clock = clock
        with ExitStack() as closing:
            self._sql = connect(config.source.dsn, application_name=f"cdc {config.name} repair")
            closing.callback(self._sql.close)
            self._reader = closing.enter_context(LogReader(config.kafka, client_id="tailrace-repair"))
            self._admin = TopicAdmin(config.kafka)
            self._admin.broker_facts(timeout_s=_BROKER_ANSWER_S)
            self._source = read_source(config, self._sql)
            self._before = _restored(config, self._reader, self._admin)
            self._lost = _lost_topics(_identity(self._before), self._admin)
            self.slot = slot_facts(self._sql, config.slot)
            if self.slot.active_pid is not None:
                raise held(self.slot)
            self._closing = closing.pop_all()

    def close(self) -> None:
        """Close the connections."""
        self._closing.close()

    @property
    def known_to(self) -> Lsn:
        """The LSN that the log reaches."""
        assert self._before.position is not None
        return self._before.position.end_lsn

    @property
    def keyed(self) -> list[str]:
        """Tables that are read again and swept."""
        return [table.table for table in self._source.tables if table.key]

    @property
    def keyless(self) -> list[str]:
        """Tables whose topics keep their records: none can be taken back, so none may be published twice."""
        return [table.table for table in self._source.tables if not table.key]

    @property
    def lost(self) -> list[str]:
        """Recorded topics that were deleted, or deleted and created again; their records are gone."""
        return sorted(self._lost & {*_control(self._config), *self._data()})

    @property
    def left(self) -> list[str]:
        """Recorded tables that are no longer captured; their topics stay as they are."""
        captured = {table.table for table in self._source.published}
        return sorted(_identity(self._before).tables.keys() - captured)

    @property
    def others(self) -> list[str]:
        """The differences between the source and the one that the log was written from, as text."""
        recorded, now = _identity(self._before), self._source.identity
        return [
            f"{what} {getattr(now, field)}; the log belongs to {getattr(recorded, field)}"
            for field, what in _NAMED.items()
            if getattr(now, field) != getattr(recorded, field)
        ]

    def run(self, timeout_s: float, watch: CreationWatch) -> Repaired:
        """Do the repair, or raise what forbids it; then nothing has changed, except that the slot may be gone or new.

        `timeout_s` limits the wait for transactions that block the new slot, which `watch` reports.
        """
        config = self._config
        with ExitStack() as closing:
            published = self._source.published
            ensured = ensure_publication(self._sql, config.publication, published, config.source.create)
            publication = ensured.facts
            leave_out_refused(self._source, ensured, config.publication)
            tables = self._source.tables
            control = control_topics(config, self._admin)
            control.pop(signals_topic(config.name))
            data = data_topics(config, self._admin, tables, _without(_identity(self._before), self._lost))
            slot = _new_slot(self._sql, config, timeout_s, watch)
            assert slot.confirmed_flush_lsn is not None
            position = StreamPosition(slot.confirmed_flush_lsn)
            session = ReplicationSession(config.source.dsn, application_name="cdc", clock=self._clock)
            closing.callback(session.close)
            session.start(config.slot, config.publication, position.end_lsn, origin=config.source.origin)

            assert self._before.progress is not None
            epoch = self._before.progress.epoch + 1
            publisher = publisher_of(config, self._clock, epoch)
            closing.callback(publisher.close)
            publisher.fence()
            whole = cuts_topic(config.name) not in self._lost
            restored = read_behind_sentinel(config, self._reader, publisher, self._clock, whole=whole)
            if restored.progress is None or restored.progress.epoch != epoch - 1:
                raise OutcomeUnknown("another process changed the log meanwhile", hint="run the command again")
            if self.lost:  # counts of deleted records would contradict the topic, so all counts begin again here
                restored = replace_fields(restored, accounts={}, since_lsn=position.end_lsn)

            topics = {**control, **data}
            identity = identity_now(config, self._source, publication, session.identity, topics, restored.identity)
            accounts = LedgerTopics(config, self._admin, self._reader, publisher.ledger, restored)
            accounts.begin([*data, schema_topic(config.name)])
            publisher.ledger.take_as_is()
            publisher.introduce(identity, restored.since_lsn)
            if self.lost:
                self._forget_counts()
            self._commit(publisher, position)
            return Repaired(epoch, position.end_lsn, slot)

    def _commit(self, publisher: KafkaPublisher, position: StreamPosition) -> None:
        config, keyed = self._config, [table for table in self._source.tables if table.key]
        known = recorded_catalog(self._reader, config.name).tables
        before = recorded_snapshots(self._reader, config.name)
        # Earlier DDL does not matter, because every row is read again. The next check has nothing to compare with.
        publisher.note(None, {table.table: None for table in keyed if table.table in known})
        emptied = [table for table in self._source.tables if not table.key and self._topic(table) in self._lost]
        publisher.tables = dict.fromkeys(self.keyless, "complete") | {one.table: "snapshotting" for one in emptied}
        records = _records(config.name, keyed, before, publisher.ledger, position.end_lsn)
        records |= {
            one.table: SnapshotRecord(table=one.table, relation=one.oid, state="running", began_lsn=position.end_lsn)
            for one in emptied
            if config.snapshot.wants(one.table)
        }
        # An earlier copy has nothing of the new stream: the transaction ids that it saw may belong to others now.
        known_copies = {name: before[name] for name in self.keyless if name in before and name not in records}
        copied = {name: one for name, one in known_copies.items() if one.seen}
        self._keep_missed_events(publisher)
        records |= {name: replace(one, seen="", seen_to_lsn=0) for name, one in copied.items()}
        publisher.commit(position, position.end_lsn, SnapshotNotes(records=records))

    def _forget_counts(self) -> None:
        """Delete the cuts, which count records that are gone. Until the commit, the log is as after a long stop."""
        partition = (cuts_topic(self._config.name), 0)
        self._admin.delete_records(partition, self._reader.end_offsets([partition[0]])[partition][1])

    def _topic(self, table: SourceTable) -> str:
        return data_topic(self._config.name, table.namespace, table.name)

    def _data(self) -> list[str]:
        return [self._topic(table) for table in self._source.tables]

    def _keep_missed_events(self, publisher: KafkaPublisher) -> None:
        """Record that the outbox may have events of the unknown range: the next start compares rows with topics."""
        outbox, table = self._config.outbox, self._source.outbox
        if outbox is None or table is None or outbox.existing != "route":
            return
        if recorded_outbox(self._reader, self._config.name) is not None:
            publisher.keep(OutboxRecord(table=table.table, relation=table.oid, missed=True))


def _restored(config: Config, reader: LogReader, admin: TopicAdmin) -> Restored:
    try:
        restored = recorded_position(reader, config.name)
    except TopicMismatch:
        restored = None
    if restored is None or restored.progress is None:
        refuse(start_rules.orphans(config.name, _filled(config, reader, admin)))
        raise UsageError(
            f"nothing to repair: nothing was captured under the name {config.name!r} yet",
            hint="the first start creates the slot",
            command="cdc run",
        )
    return restored


def _filled(config: Config, reader: LogReader, admin: TopicAdmin) -> list[str]:
    """Return topics which show that capture has run, although there is no recorded position."""
    cuts = cuts_topic(config.name)
    return filled_topics(reader, [cuts]) if admin.describe([cuts])[cuts] is not None else []


def _control(config: Config) -> list[str]:
    return [cuts_topic(config.name), schema_topic(config.name)]


def _lost_topics(recorded: Identity, admin: TopicAdmin) -> frozenset[str]:
    """Return recorded topics that do not exist, or were replaced by other ones of the same name."""
    found = admin.describe(recorded.topic_ids)
    ids = {name: facts.topic_id for name, facts in found.items() if facts is not None}
    return frozenset(name for name, topic_id in recorded.topic_ids.items() if ids.get(name) != topic_id)


def _without(recorded: Identity, topics: Collection[str]) -> Identity:
    return replace(
        recorded,
        partitions={name: count for name, count in recorded.partitions.items() if name not in topics},
        topic_ids={name: topic_id for name, topic_id in recorded.topic_ids.items() if name not in topics},
    )


def _identity(restored: Restored) -> Identity:
    assert restored.identity is not None, "it is recorded together with progress"
    return restored.identity


def _new_slot(sql: Connection, config: Config, timeout_s: float, watch: CreationWatch) -> SlotFacts:
    name = config.slot
    if slot_facts(sql, name).exists:
        drop_slot(sql, name)
    create_slot(sql, name, timeout_s, watch, failover=config.source.failover)
    return slot_facts(sql, name)


def _records(
    name: str, tables: Sequence[SourceTable], before: Mapping[str, SnapshotRecord], ledger: Ledger, at: Lsn
) -> dict[str, SnapshotRecord]:
    """Return records that make the next start read each table again, and sweep up to its topic's current end."""
    found = {}
    for table in tables:
        ends = ledger.ends(data_topic(name, table.namespace, table.name))
        former = before.get(table.table)
        found[table.table] = SnapshotRecord(
            table=table.table,
            relation=table.oid,
            state="running",
            number=former.number + 1 if former is not None else 1,
            began_lsn=at,
            asked=True,
            begun=True,
            sweep=tuple(end for _, end in sorted(ends.items())),
        )
    return found
