"""Continues capture on another Kafka cluster: checks the copied topics, then writes the recorded position there.

The slot of PostgreSQL stays as it is, so no change is lost. Offsets differ on the other cluster, because copying leaves
out markers of transactions. So the cut index begins again there: its first cut counts what the copied topics hold. The
log continues in a new epoch, by which a lake notices that its offsets mean nothing any more.

The constructor only reads. `run` writes everything in one Kafka transaction, while it holds the slot. It may be killed
at any point, and repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import OutcomeUnknown, SourceDiverged, SourceGap, TopicMismatch, TopicMissing, UsageError
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.cluster_facts import TopicFacts
from cdc.kafka.log_reader import LogReader
from cdc.kafka.sender import send
from cdc.lsn import Lsn
from cdc.model.change_records import Record, StreamPosition
from cdc.model.log_record import LogRecord
from cdc.model.outbox_record import OutboxRecord
from cdc.model.progress_record import Identity, Progress
from cdc.model.signal_record import SignalsRecord
from cdc.model.snapshot_record import SnapshotNotes, SnapshotRecord
from cdc.model.state_file import Digest, StateFile
from cdc.model.table_facts import CatalogScope, TableRecord
from cdc.model.topic_names import cuts_topic, partition_text, progress_topic, signals_topic
from cdc.progress.record_format import (
    accepted_key,
    catalog_key,
    decode,
    identity_key,
    outbox_key,
    progress_key,
    snapshot_key,
    table_key,
)
from cdc.progress.restore import Partition
from cdc.publish.ledger import roll
from cdc.publish.topic_rules import control_wants
from cdc.publish.topic_setup import ensure_topics, refuse_unfit_topics
from cdc.replication.connect import connect
from cdc.replication.slot import held, slot_facts
from cdc.replication.stream import ReplicationSession
from cdc.startup import start_rules
from cdc.startup.slot_setup import PostgresServer
from cdc.startup.source_identity import read_source, refuse
from cdc.startup.state_export import Progressed, copied_topics, read_topic
from cdc.startup.topic_check import data_wants
from cdc.startup.writer_claim import publisher_of

_BROKER_ANSWER_S: Final = 5.0
_WHERE: Final = "the exported state"


@dataclass(frozen=True, slots=True)
class Base:
    """The first count of a partition on the other cluster: its end, the number of its records, and their hash."""

    end: int
    record_count: int
    rolling: int


@dataclass(frozen=True, slots=True)
class Imported:
    """The result: the log continues at `at`, in `epoch`."""

    epoch: int
    at: Lsn


class StateImport:
    """One import. Close it."""

    def __init__(self, config: Config, clock: Clock, state: StateFile, progressed: Progressed) -> None:
        """Check everything. Raises what forbids the import; nothing has changed then.

        Raises:
            UsageError: the state belongs to another pipeline, or was imported before.
            TopicMismatch: a topic is not a complete copy.
            SourceGap, SourceDiverged: the slot or the database is not the one of the state.
            SlotHeld: capture runs.
        """
        self._config = config
        self._clock = clock
        self._state = state
        self._progress, self._recorded = _recorded(config, state)
        with ExitStack() as closing:
            self._sql = connect(config.source.dsn, application_name=f"cdc {config.name} state")
            closing.callback(self._sql.close)
            self._reader = closing.enter_context(LogReader(config.kafka, client_id="tailrace-state"))
            self._admin = TopicAdmin(config.kafka)
            self._admin.broker_facts(timeout_s=_BROKER_ANSWER_S)
            self._check_source()
            self._topics = self._checked_topics()
            self._bases = self._checked_copies(progressed)
            self._closing = closing.pop_all()

    def close(self) -> None:
        """Close the connections."""
        self._closing.close()

    @property
    def position(self) -> StreamPosition:
        """Where the stream continues."""
        return StreamPosition(Lsn(self._progress.end_lsn), Lsn(self._progress.commit_lsn))

    @property
    def topics(self) -> Mapping[str, int]:
        """Topic -> number of records in its copy."""
        found = dict.fromkeys(sorted(self._topics), 0)
        for (topic, _), base in self._bases.items():
            found[topic] += base.record_count
        return found

    @property
    def epoch(self) -> int:
        """The epoch in which the log continues."""
        return self._progress.epoch + 1

    def run(self) -> Imported:
        """Write the state. Raises SlotHeld while another process reads the slot, TopicMismatch if a topic has grown."""
        config = self._config
        with ExitStack() as closing:
            control = self._control_topics()
            signals = control.pop(signals_topic(config.name))
            session = ReplicationSession(config.source.dsn, application_name="cdc", clock=self._clock)
            closing.callback(session.close)
            session.start(config.slot, config.publication, self.position.end_lsn, origin=config.source.origin)

            publisher = publisher_of(config, self._clock, self.epoch)
            closing.callback(publisher.close)
            publisher.fence()
            self._refuse_imported()
            for at, base in self._bases.items():
                end = self._reader.end_offsets([at[0]])[at][1]
                if end != base.end:
                    raise _not_a_copy(at, f"it grew from offset {base.end} to {end}: copying has not ended")
                before = (base.end, base.record_count, f"{base.rolling:016x}")
                publisher.ledger.open(at, end_offset=end, before=before)
            facts = {**self._topics, **control}
            identity = replace(
                self._recorded,
                topic_ids={topic: one.topic_id for topic, one in facts.items()},
                partitions={topic: one.partition_count for topic, one in facts.items()},
            )
            for key, value in self._records(accepted_key(config.name, "")).items():
                send(config.kafka, progress_topic(config.name), key, value)
            publisher.introduce(identity, Lsn(0))
            publisher.note(self._scope(), self._tables())
            outbox = self._state.records.get(outbox_key(config.name))
            if outbox is not None:
                publisher.keep(decode(outbox, OutboxRecord, _WHERE))
            publisher.tables = dict.fromkeys(self._recorded.tables, "complete")
            ends = self._reader.end_offsets([signals_topic(config.name)])
            handled = SignalsRecord(topic_id=signals.topic_id, next_offset=max(high for _, high in ends.values()))
            notes = SnapshotNotes(records=self._snapshots(), signals=handled)
            publisher.commit(self.position, Lsn(self._progress.verified_lsn), notes)
        return Imported(self.epoch, self.position.end_lsn)

    def _check_source(self) -> None:
        config, recorded, position = self._config, self._recorded, self.position
        source = read_source(config, self._sql)
        server = PostgresServer(config, self._sql, threading.Event())
        history = server.history(source.identity.timeline)
        refuse(start_rules.other_source(recorded, source.identity, history, position.end_lsn))
        slot = slot_facts(self._sql, config.slot)
        if slot.active_pid is not None:
            raise held(slot)
        refuse(start_rules.slot_lost(slot, position.end_lsn, server.wal_end))
        if not slot.exists:
            raise SourceGap(
                f"slot {slot.name!r} is gone; what was committed after {position.end_lsn} cannot be streamed",
                known_to=position.end_lsn,
                hint="a new pipeline must read every table: choose another name and run it",
                command="cdc run",
                slot=slot.name,
            )
        refuse(start_rules.wal_behind(position, server.wal_end()))
        refuse(start_rules.slot_elsewhere(recorded, slot, position))

    def _checked_topics(self) -> dict[str, TopicFacts]:
        """Return the copied topics. Raises if one is missing, or is of the cluster that the state was exported from."""
        config, recorded = self._config, self._recorded
        wanted = sorted({digest.topic for digest in self._state.digests} & copied_topics(config.name, recorded))
        found = self._admin.describe(wanted)
        there = {topic: facts for topic, facts in found.items() if facts is not None}
        if any(recorded.topic_ids[topic] == facts.topic_id for topic, facts in there.items()):
            raise UsageError(
                "this is the Kafka cluster that the state was exported from",
                hint="set kafka.bootstrap to the new cluster",
                command="cdc config show kafka",
            )
        missing = [topic for topic in wanted if topic not in there]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise TopicMissing(
                f"topic {missing[0]!r}{more} is not on the new cluster",
                hint="copy it under the same name, with the same number of partitions; without its records the state "
                "cannot continue, and a new pipeline must read every table",
                topic=missing[0],
            )
        self._refuse_imported()
        wants = [
            *data_wants(config, read_source(config, self._sql).tables, None),
            *control_wants(config.name, config.kafka, row_bytes_max=config.capture.row_bytes_max),
        ]
        refuse_unfit_topics(
            wants, there, kafka=config.kafka, recorded_partitions=recorded.partitions, recorded_topic_ids={}
        )
        return there

    def _checked_copies(self, progressed: Progressed) -> dict[Partition, Base]:
        """Compare every partition with its digest, and count its records."""
        originals = {(one.topic, one.partition): one for one in self._state.digests}
        bases: dict[Partition, Base] = {}
        for topic in self._topics:
            progressed(topic)
            counts: dict[Partition, tuple[int, int]] = {}

            def count(batch: list[LogRecord], counts: dict[Partition, tuple[int, int]] = counts) -> None:
                if batch:
                    records: list[Record] = [(one.key, one.value, None) for one in batch]
                    number, rolling = counts.get(batch[0].topic_partition, (0, 0))
                    counts[batch[0].topic_partition] = number + len(records), roll(rolling, records)

            found = read_topic(self._reader, topic, count)
            for at in sorted({*found, *(one for one in originals if one[0] == topic)}):
                digest, end = found.get(at, (None, 0))
                _compare(at, originals.get(at), digest)
                bases[at] = Base(end, *counts.get(at, (0, 0)))
        return bases

    def _refuse_imported(self) -> None:
        """Raise if the new cluster has a recorded position or cuts already."""
        config = self._config
        topics = [progress_topic(config.name), cuts_topic(config.name)]
        there = [topic for topic, facts in self._admin.describe(topics).items() if facts is not None]
        ends = self._reader.end_offsets(there) if there else {}
        key, topic = progress_key(config.name), progress_topic(config.name)
        known = topic in there and key in self._reader.last_records(topic, keys=(key,))
        filled = sorted({topic for (topic, _), (low, high) in ends.items() if high > low and topic == topics[1]})
        if known or filled:
            where = topic if known else filled[0]
            raise UsageError(
                f"{where} on the new cluster has records",
                hint="the state was imported already, so start capture; or the topic was copied, and its offsets mean "
                "nothing here: delete it, and exclude it from copying",
                command="cdc status",
                topic=where,
            )

    def _control_topics(self) -> dict[str, TopicFacts]:
        config = self._config
        return ensure_topics(
            self._admin,
            control_wants(config.name, config.kafka, row_bytes_max=config.capture.row_bytes_max),
            kafka=config.kafka,
            create=config.kafka.create_topics,
            recorded_partitions={},
            recorded_topic_ids={},
        )

    def _records(self, prefix: bytes) -> dict[bytes, bytes]:
        return {key: value for key, value in self._state.records.items() if key.startswith(prefix)}

    def _snapshots(self) -> dict[str, SnapshotRecord]:
        found = self._records(snapshot_key(self._config.name)).values()
        return {one.table: one for one in (decode(value, SnapshotRecord, _WHERE) for value in found)}

    def _scope(self) -> CatalogScope | None:
        value = self._state.records.get(catalog_key(self._config.name))
        return None if value is None else decode(value, CatalogScope, _WHERE)

    def _tables(self) -> dict[str, TableRecord | None]:
        prefix = table_key(self._config.name, "")
        found = self._records(prefix)
        return {key.removeprefix(prefix).decode(): decode(value, TableRecord, _WHERE) for key, value in found.items()}


def _recorded(config: Config, state: StateFile) -> tuple[Progress, Identity]:
    if state.name != config.name:
        raise UsageError(
            f"the state is of pipeline {state.name!r}, the configuration of {config.name!r}",
            hint="topics, slot and position belong together: use the configuration of that pipeline",
        )
    values: Sequence[bytes | None] = [
        state.records.get(key) for key in (progress_key(config.name), identity_key(config.name))
    ]
    if None in values:
        raise UsageError("the exported state has no position", command="cdc state export FILE")
    progress = decode(values[0] or b"", Progress, _WHERE)
    identity = decode(values[1] or b"", Identity, _WHERE)
    if (identity.slot, identity.publication) != (config.slot, config.publication):
        raise SourceDiverged(
            f"the state belongs to slot {identity.slot!r} and publication {identity.publication!r}, the configuration "
            f"names {config.slot!r} and {config.publication!r}",
            hint="restore source.slot and source.publication",
            slot=config.slot,
        )
    if progress.next_ordinal:
        raise OutcomeUnknown("the exported state ends inside a transaction")
    return progress, identity


def _compare(at: Partition, original: Digest | None, copy: Digest | None) -> None:
    if original is None or copy is None:
        raise _not_a_copy(at, "the number of partitions differs, so keys are in other partitions")
    differs = original.differs(copy)
    if differs:
        raise _not_a_copy(at, differs)


def _not_a_copy(at: Partition, why: str) -> TopicMismatch:
    return TopicMismatch(
        f"{partition_text(*at)} is not a complete copy: {why}",
        hint="wait until copying has caught up and stop it; nothing else may write to the topic. Then import again",
        topic=at[0],
    )
