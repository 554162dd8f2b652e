"""Reads the recorded state of capture: the position and identity of the log, and the newest counts of the cut index.

A start reads the state twice: before it holds the slot, to find where to begin streaming, and after it has fenced older
producers, up to a sentinel of its own. The second state can only be newer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from cdc.errors import ProgressDamaged
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.log_record import LogRecord
from cdc.model.outbox_record import OutboxRecord
from cdc.model.progress_record import CUTS_WINDOW, Cut, Identity, Progress, SchemaRecord, TopicForm
from cdc.model.signal_record import SignalsRecord
from cdc.model.snapshot_record import SnapshotRecord
from cdc.model.topic_names import cuts_topic, progress_topic, schema_topic
from cdc.progress.record_format import (
    decode,
    decode_schema,
    identity_key,
    outbox_key,
    progress_key,
    sentinel_key,
    signals_key,
    snapshot_key,
)

Partition: TypeAlias = tuple[str, int]

_Reached: TypeAlias = tuple[int, int, int, int, int]
_NOWHERE: Final[_Reached] = (0, 0, 0, 0, 0)


class RecordReader(Protocol):
    """The part of `cdc.kafka.log_reader.LogReader` that reads ranges of partitions. All raise TopicMismatch."""

    def end_offsets(self, topics: Iterable[str]) -> dict[Partition, tuple[int, int]]:
        """Return the first available offset of each partition, and the one after its last committed record."""

    def read(
        self, assignments: Mapping[Partition, int], until: Mapping[Partition, int] | None = None
    ) -> Iterator[list[LogRecord]]:
        """Yield the committed records between two offsets of each partition."""


class TopicReader(RecordReader, Protocol):
    """Reads ranges, and the newest records of a compacted topic."""

    def last_records(self, topic: str, *, keys: Collection[bytes] | None = None) -> dict[bytes, tuple[int, bytes]]:
        """Return offset and value of the newest committed record of each key, up to the topic's current end."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The recorded state of the log. `progress` is None if capture never ran.

    Attributes:
        accounts: (next offset, count, rolling hash) of each partition, from the cut index.
        since_lsn: where these counts began; 0: with the log.
        settled: the newest cut and the progress record are of the same commit. If not, one of the two topics was read
            before the commit was visible in it, and the caller reads again.
    """

    progress: Progress | None
    identity: Identity | None
    accounts: dict[str, tuple[int, int, str]]
    since_lsn: Lsn
    sentinel: bytes | None
    settled: bool = True

    @property
    def position(self) -> StreamPosition | None:
        """The position at which to resume."""
        if self.progress is None:
            return None
        found = self.progress
        return StreamPosition(Lsn(found.end_lsn), Lsn(found.commit_lsn), found.next_ordinal)

    @property
    def known_to(self) -> Lsn | None:
        """The LSN that the log reaches; None if capture never ran."""
        return None if self.progress is None else Lsn(self.progress.end_lsn)


def restore(reader: TopicReader, name: str) -> Restored:
    """Read progress, identity and cut index. Raises ProgressDamaged if only one of progress and identity exists."""
    found = recorded_position(reader, name)
    if found.progress is None:
        return found
    accounts, since_lsn, reached = _accounts(reader, name, Lsn(found.progress.end_lsn))
    settled = reached is None or reached == _place(found.progress)
    return Restored(found.progress, found.identity, accounts, since_lsn, found.sentinel, settled)


def recorded_position(reader: TopicReader, name: str) -> Restored:
    """Like `restore`, but reads only the progress topic: without the counts of the cut index."""
    topic = progress_topic(name)
    keys = (progress_key(name), identity_key(name), sentinel_key(name))
    newest = {key: value for key, (_, value) in reader.last_records(topic, keys=keys).items()}
    progress_bytes, identity_bytes, sentinel = (newest.get(key) for key in keys)
    if (progress_bytes is None) != (identity_bytes is None):
        raise ProgressDamaged(
            f"{topic} has a position without an identity, or an identity without a position",
            hint="another program wrote or deleted records there; the position cannot be trusted",
            topic=topic,
        )
    progress = None if progress_bytes is None else decode(progress_bytes, Progress, topic)
    identity = None if identity_bytes is None else decode(identity_bytes, Identity, topic)
    return Restored(progress, identity, {}, Lsn(0), sentinel)


def recorded_forms(reader: TopicReader, name: str) -> dict[str, TopicForm]:
    """Return the key and format of each table's topic, from its newest schema record."""
    topic = schema_topic(name)
    newest: dict[str, tuple[int, SchemaRecord]] = {}
    for offset, value in reader.last_records(topic).values():
        record = decode_schema(value, topic)
        if record.table not in newest or newest[record.table][0] < offset:
            newest[record.table] = (offset, record)
    return {table: record.form for table, (_, record) in newest.items()}


def recorded_snapshots(reader: TopicReader, name: str) -> dict[str, SnapshotRecord]:
    """Return the snapshot record of each table."""
    topic, prefix = progress_topic(name), snapshot_key(name)
    newest = reader.last_records(topic)
    records = [decode(value, SnapshotRecord, topic) for key, (_, value) in newest.items() if key.startswith(prefix)]
    return {record.table: record for record in records}


def recorded_signals(reader: TopicReader, name: str) -> SignalsRecord | None:
    """Return how far the signals topic was processed; None if it was never read."""
    topic, key = progress_topic(name), signals_key(name)
    found = reader.last_records(topic, keys=(key,)).get(key)
    return None if found is None else decode(found[1], SignalsRecord, topic)


def recorded_outbox(reader: TopicReader, name: str) -> OutboxRecord | None:
    """Return the record of the outbox; None if its rows were never read."""
    topic, key = progress_topic(name), outbox_key(name)
    found = reader.last_records(topic, keys=(key,)).get(key)
    return None if found is None else decode(found[1], OutboxRecord, topic)


def _accounts(
    reader: TopicReader, name: str, end_lsn: Lsn
) -> tuple[dict[str, tuple[int, int, str]], Lsn, _Reached | None]:
    """Return the counts of all partitions, where they began, and the position of the newest cut.

    They are the last full map with every later change applied. If the index has no full map any more, because capture
    was down for longer than its retention, they are empty: counting begins again at `end_lsn`, and the next full map
    records that. The position is None if retention has removed all cuts.
    """
    topic = cuts_topic(name)
    newest: _Reached | None = None
    for count in (CUTS_WINDOW, 1 << 62):
        low, values = _tail(reader, topic, count)
        cuts = [decode(value, Cut, topic) for value in values]
        newest = _place(cuts[-1]) if cuts else (None if low else _NOWHERE)
        full = max((index for index, cut in enumerate(cuts) if cut.full), default=None)
        if full is not None:
            accounts: dict[str, tuple[int, int, str]] = {}
            for cut in cuts[full:]:
                accounts.update(cut.changed)
            return accounts, Lsn(cuts[full].since_lsn), newest
    return {}, end_lsn, newest


def _place(record: Progress | Cut) -> _Reached:
    return record.epoch, record.end_lsn, record.commit_lsn, record.next_ordinal, record.verified_lsn


def _tail(reader: TopicReader, topic: str, count: int) -> tuple[int, list[bytes]]:
    """Return the first available offset, and the committed values among the last `count` offsets, oldest first."""
    partition = (topic, 0)
    low, high = reader.end_offsets([topic])[partition]
    batches = reader.read({partition: max(low, high - count)}, {partition: high})
    return low, [record.value for batch in batches for record in batch if record.value is not None]
