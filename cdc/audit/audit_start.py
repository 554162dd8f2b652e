"""Where an audit begins, and the record that says how far the last one came."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from cdc.audit.auditor import Auditor, AuditReader
from cdc.config.settings import Kafka
from cdc.cutindex.lookup import newest_epoch
from cdc.kafka.sender import send
from cdc.model.audit_record import AuditRecord
from cdc.model.topic_names import progress_topic
from cdc.progress.record_format import audit_key, decode, encode

FIRST_EPOCH = 1


class PlaceReader(AuditReader, Protocol):
    """What is needed of a reader; `cdc.kafka.log_reader.LogReader` is one."""

    def last_records(self, topic: str, *, keys: Collection[bytes] | None = None) -> dict[bytes, tuple[int, bytes]]:
        """Offset and value of the newest committed record of each key, up to the topic's end now."""


def recorded(reader: PlaceReader, name: str) -> AuditRecord | None:
    """How far the last audit came; None before the first one. Raises ProgressDamaged, TopicMismatch."""
    topic, key = progress_topic(name), audit_key(name)
    found = reader.last_records(topic, keys=(key,)).get(key)
    return None if found is None else decode(found[1], AuditRecord, topic)


def record(kafka: Kafka, name: str, auditor: Auditor) -> None:
    """Note how far this audit came. Needs the right to write to the progress topic. Raises BrokerError."""
    reached = auditor.report.reached
    if reached is not None:
        value = AuditRecord(epoch=reached.epoch, end_lsn=int(reached.end_lsn), cuts_offset=auditor.cuts_offset)
        send(kafka, progress_topic(name), audit_key(name), encode(value))


def resume_offset(reader: PlaceReader, name: str) -> int | None:
    """Where the next audit begins in the cut index: behind the last one, and in the newest epoch. None: at its start.

    What lies before an epoch is levelled by the repair that began it. The repair's own cut accounts for everything
    that was in the topics by then, so damage that led to it is not told again.
    """
    epoch, first = newest_epoch(reader, name)
    place = recorded(reader, name)
    behind_repair = first + 1 if epoch > FIRST_EPOCH else None
    if place is not None and place.epoch == epoch:
        return max(place.cuts_offset, behind_repair or 0)
    return behind_repair
