"""Decides where an audit begins, and reads and writes the record of the last audit."""

from __future__ import annotations

from cdc.audit.auditor import Auditor
from cdc.config.settings import Kafka
from cdc.cutindex.lookup import newest_epoch
from cdc.kafka.sender import send
from cdc.model.audit_record import AuditRecord
from cdc.model.topic_names import progress_topic
from cdc.progress.record_format import audit_key, decode, encode
from cdc.progress.restore import TopicReader

FIRST_EPOCH = 1


def read_audit_record(reader: TopicReader, name: str) -> AuditRecord | None:
    """Return how far the last audit came; None before the first one. Raises ProgressDamaged, TopicMismatch."""
    topic, key = progress_topic(name), audit_key(name)
    found = reader.last_records(topic, keys=(key,)).get(key)
    return None if found is None else decode(found[1], AuditRecord, topic)


def write_audit_record(kafka: Kafka, name: str, auditor: Auditor) -> None:
    """Record how far this audit came. Needs the right to write to the progress topic. Raises BrokerError."""
    reached = auditor.report.reached
    if reached is not None:
        value = AuditRecord(epoch=reached.epoch, end_lsn=int(reached.end_lsn), cuts_offset=auditor.cuts_offset)
        send(kafka, progress_topic(name), audit_key(name), encode(value))


def resume_offset(reader: TopicReader, name: str) -> int | None:
    """Return the offset in the cut index where the next audit begins; None for its start.

    The audit continues behind the last one, but not before the newest epoch. The repair that began the epoch made
    topics and tables equal, and its cut counts everything that was in the topics then. Older damage is therefore not
    reported again.
    """
    epoch, first = newest_epoch(reader, name)
    last = read_audit_record(reader, name)
    behind_repair = first + 1 if epoch > FIRST_EPOCH else None
    if last is not None and last.epoch == epoch:
        return max(last.cuts_offset, behind_repair or 0)
    return behind_repair
