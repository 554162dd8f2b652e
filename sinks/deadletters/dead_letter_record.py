"""The format of a dead letter: the record as it was, with additional headers in front of its own. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from cdc.errors import SinkUnfit
from cdc.model.change_records import Headers
from cdc.model.event_envelope import decode_envelope
from cdc.model.log_record import LogRecord
from sinks.contract import TopicPartition

REASON_MAX: Final = 1000  # characters; a store may return a long text
PREFIX: Final = "__dlq."

_NAMES: Final = tuple(
    PREFIX + name
    for name in ("topic", "partition", "offset", "timestamp_ms", "position", "error", "reason", "parked_at_ms")
)
BEHIND: Final = "blocked"
"""The error of a dead letter that the store has not seen: an earlier record of its key was refused."""


class DeadLetter(NamedTuple):
    """A dead letter.

    Attributes:
        at: its offset in the dead-letter topic.
        record: the record as it was in its own topic.
        position: ``epoch/commit_lsn/ordinal`` of the event; empty for a tombstone.
        error: error class; ``blocked`` when an earlier record of the key was refused.
        reason: as given by the store.
        parked_at_ms: when it was parked, by the worker's clock.
    """

    at: int
    record: LogRecord
    position: str
    error: str
    reason: str
    parked_at_ms: int

    @property
    def place(self) -> TopicPartition:
        """The partition that the record came from."""
        return self.record[0], self.record[1]


def headers_of(record: LogRecord, error: str, reason: str, parked_at_ms: int) -> Headers:
    """Return the headers of a dead letter."""
    topic, partition, offset, timestamp_ms, _, value, headers = record
    texts = (topic, partition, offset, timestamp_ms, _position(value), error, reason[:REASON_MAX], parked_at_ms)
    ours = [(name, str(text).encode()) for name, text in zip(_NAMES, texts, strict=True)]
    return [*ours, *(headers or [])]


def parse_dead_letter(found: LogRecord) -> DeadLetter:
    """Read a record of the dead-letter topic. Raises SinkUnfit for any other record."""
    where, _, at, _, key, value, headers = found
    ours, theirs = (headers or [])[: len(_NAMES)], (headers or [])[len(_NAMES) :]
    try:
        said = dict(ours)
        topic, partition, offset, timestamp_ms, position, error, reason, parked_at_ms = (
            said[name].decode() for name in _NAMES
        )
        record = LogRecord(topic, int(partition), int(offset), int(timestamp_ms), key, value, theirs or None)
        return DeadLetter(at, record, position, error, reason, int(parked_at_ms))
    except (KeyError, ValueError):
        raise SinkUnfit(
            f"record {at} of {where} is not a dead letter",
            hint="another program, or another version of Tailrace, wrote to the topic",
            topic=where,
            offset=at,
        ) from None


def _position(value: bytes | None) -> str:
    if value is None:
        return ""
    try:
        source = decode_envelope(value).source
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return f"{source.epoch}/{source.commit_lsn}/{source.ordinal}"
