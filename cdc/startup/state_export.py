"""Exports what capture needs to continue on another Kafka cluster, while capture is stopped. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from cdc import __version__
from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import UsageError
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.log_reader import LogReader
from cdc.model.log_record import LogRecord
from cdc.model.progress_record import Identity
from cdc.model.snapshot_record import SnapshotRecord
from cdc.model.state_file import Digest, Digesting, StateFile
from cdc.model.stop_record import stop_key
from cdc.model.topic_names import cuts_topic, progress_topic, signals_topic
from cdc.progress.record_format import audit_key, decode, encode, sentinel_key, signals_key, snapshot_key
from cdc.progress.restore import Partition, Restored, recorded_position
from cdc.replication.connect import Connection, connect
from cdc.replication.slot import held, slot_facts
from cdc.startup.start_facts import hides_commits

Progressed = Callable[[str], None]
"""Receives the topic that is read next."""

_BROKER_ANSWER_S: Final = 5.0


def export_state(config: Config, clock: Clock, progressed: Progressed) -> StateFile:
    """Return the state of a stopped capture, with a digest of every partition of its topics.

    Raises:
        UsageError: nothing was captured yet, a snapshot is not complete, a large transaction is half captured, or the
            newest commits are not visible yet.
        SlotHeld: capture runs.
    """
    with (
        closing(connect(config.source.dsn, application_name=f"cdc {config.name} state")) as sql,
        LogReader(config.kafka, client_id="tailrace-state") as reader,
    ):
        _refuse_running(config, sql)
        admin = TopicAdmin(config.kafka)
        admin.broker_facts(timeout_s=_BROKER_ANSWER_S)
        _refuse_hidden(config, reader, admin)
        before = recorded_position(reader, config.name)
        identity = _exportable(before, config)
        records = _records(config, reader)
        topics = sorted(copied_topics(config.name, identity))
        found = admin.describe(topics)
        there = [
            topic for topic in topics if (facts := found[topic]) and facts.topic_id == identity.topic_ids.get(topic)
        ]
        digests: list[Digest] = []
        for topic in there:
            progressed(topic)
            digests += [digest for digest, _ in read_topic(reader, topic, lambda _: None).values()]
        if recorded_position(reader, config.name).progress != before.progress:
            raise UsageError("capture ran during the export", hint="stop it, then export again")
        _refuse_running(config, sql)
    at = datetime.fromtimestamp(clock.wall_s(), UTC).isoformat(timespec="seconds")
    return StateFile(config.name, __version__, at, records, tuple(digests))


def copied_topics(name: str, identity: Identity) -> set[str]:
    """Return the topics whose records must be on the other cluster; the import writes the control topics."""
    return set(identity.topic_ids) - {progress_topic(name), cuts_topic(name), signals_topic(name)}


def read_topic(
    reader: LogReader, topic: str, each: Callable[[list[LogRecord]], None]
) -> dict[Partition, tuple[Digest, int]]:
    """Read a topic and return digest and end offset of each partition; `each` receives all records of a partition."""
    found: dict[Partition, tuple[Digest, int]] = {}
    for at, (low, high) in sorted(reader.end_offsets([topic]).items()):
        digesting = Digesting(*at)
        for batch in reader.read({at: low}, {at: high}):
            digesting.add(batch)
            each(batch)
        found[at] = digesting.done(), high
    return found


def _refuse_running(config: Config, sql: Connection) -> None:
    facts = slot_facts(sql, config.slot)
    if facts.active_pid is not None:
        raise held(facts)


def _refuse_hidden(config: Config, reader: LogReader, admin: TopicAdmin) -> None:
    """Refuse a log whose end is not visible: the state would be older than the slot, and the import would refuse it."""
    topic = progress_topic(config.name)
    if admin.describe([topic])[topic] is not None and hides_commits(reader, admin, config.name):
        raise UsageError(
            "Kafka does not show the newest commits of capture yet",
            hint="start capture, which ends open transactions of its predecessors, stop it, then export again",
            command="cdc run",
            topic=topic,
        )


def _exportable(found: Restored, config: Config) -> Identity:
    if found.progress is None or found.identity is None:
        raise UsageError(f"nothing was captured under the name {config.name!r} yet", hint="there is no state to export")
    if found.progress.next_ordinal:
        raise UsageError(
            "capture stopped inside a large transaction, a part of which is in the topics",
            hint="start capture, and stop it after that transaction",
            command="cdc run",
        )
    return found.identity


def _records(config: Config, reader: LogReader) -> dict[bytes, bytes]:
    """Return the records to take along. Offsets of signals and the audit mean nothing on another cluster."""
    name, topic = config.name, progress_topic(config.name)
    left = {sentinel_key(name), signals_key(name), audit_key(name), stop_key(name)}
    newest: Mapping[bytes, tuple[int, bytes]] = reader.last_records(topic)
    found = {key: value for key, (_, value) in sorted(newest.items()) if key not in left}
    for key, value in found.items():
        if key.startswith(snapshot_key(name)):
            found[key] = encode(_complete(decode(value, SnapshotRecord, topic)))
    return found


def _complete(record: SnapshotRecord) -> SnapshotRecord:
    """Return the record without conditions and keys, which are row values."""
    if record.state != "complete" or record.owed or record.repair or record.absent or record.sweep:
        raise UsageError(
            f"the snapshot of {record.table} is not complete",
            hint="start capture and wait for it, then export again",
            command="cdc snapshot status",
            table=record.table,
        )
    return replace(record, where="")
