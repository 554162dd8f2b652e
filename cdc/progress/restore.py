"""Reads the restart state back: where the log is, whose it is, and what the cut index last said.

Two readings make a start: one before the slot is ours (it only tells where to begin streaming) and one after the
fence, up to a sentinel of our own, which can only be newer (DESIGN section 5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import msgspec

from cdc.errors import ProgressDamaged
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.log_record import LogRecord
from cdc.model.outbox_record import OutboxRecord
from cdc.model.progress_record import Cut, Identity, Progress, SchemaRecord, TopicForm
from cdc.model.signal_record import SignalsRecord
from cdc.model.snapshot_record import SnapshotRecord
from cdc.model.topic_names import cuts_topic, progress_topic, schema_topic
from cdc.progress.record_format import (
    decode,
    identity_key,
    outbox_key,
    progress_key,
    sentinel_key,
    signals_key,
    snapshot_key,
)

Partition: TypeAlias = tuple[str, int]

_Place: TypeAlias = tuple[int, int, int, int, int]
_NOWHERE: Final[_Place] = (0, 0, 0, 0, 0)
_TAIL: Final = 4096
"""Offsets of the cut index read at first: a full map comes every 1,000 records, each with a marker behind it."""


class TopicReader(Protocol):
    """What restoring needs of a Kafka reader; `cdc.kafka.log_reader.LogReader` is one."""

    def last_records(self, topic: str, *, keys: Collection[bytes] | None = None) -> dict[bytes, tuple[int, bytes]]:
        """Offset and value of the newest committed record of each key, up to the topic's end now."""

    def end_offsets(self, topics: Iterable[str]) -> dict[Partition, tuple[int, int]]:
        """First offset there is, and the one after the last committed record."""

    def read(
        self, assignments: Mapping[Partition, int], until: Mapping[Partition, int] | None = None
    ) -> Iterator[list[LogRecord]]:
        """Committed records between two offsets of each partition."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What the log says of itself. `progress` is None when capture never ran.

    `accounts` are those of the cut index, `since_lsn` where their counts began (0: with the log). `settled`: the newest
    cut says what progress says, as both are written together; if not, one of the two was read before it was all there.
    """

    progress: Progress | None
    identity: Identity | None
    accounts: dict[str, tuple[int, int, str]]
    since_lsn: Lsn
    sentinel: bytes | None
    settled: bool = True

    @property
    def position(self) -> StreamPosition | None:
        """Where to go on."""
        if self.progress is None:
            return None
        found = self.progress
        return StreamPosition(Lsn(found.end_lsn), Lsn(found.commit_lsn), found.next_ordinal)

    @property
    def known_to(self) -> Lsn | None:
        """How far the log is; None when capture never ran."""
        return None if self.progress is None else Lsn(self.progress.end_lsn)


def restore(reader: TopicReader, name: str) -> Restored:
    """Read progress, identity and cut index. Raises ProgressDamaged when one is there without the other."""
    found = recorded_position(reader, name)
    if found.progress is None:
        return found
    accounts, since_lsn, reached = _accounts(reader, name, Lsn(found.progress.end_lsn))
    settled = reached is None or reached == _place(found.progress)
    return Restored(found.progress, found.identity, accounts, since_lsn, found.sentinel, settled)


def recorded_position(reader: TopicReader, name: str) -> Restored:
    """As `restore`, from the progress topic alone: without the cut index, so without counts."""
    topic = progress_topic(name)
    keys = (progress_key(name), identity_key(name), sentinel_key(name))
    newest = {key: value for key, (_, value) in reader.last_records(topic, keys=keys).items()}
    progress_bytes, identity_bytes, sentinel = (newest.get(key) for key in keys)
    if (progress_bytes is None) != (identity_bytes is None):
        raise ProgressDamaged(
            f"{topic} has a position without an identity, or the other way round",
            hint="somebody wrote or deleted records there; the position cannot be trusted",
            topic=topic,
        )
    progress = None if progress_bytes is None else decode(progress_bytes, Progress, topic)
    identity = None if identity_bytes is None else decode(identity_bytes, Identity, topic)
    return Restored(progress, identity, {}, Lsn(0), sentinel)


def recorded_forms(reader: TopicReader, name: str) -> dict[str, TopicForm]:
    """What the topic of each table has, as its newest schema record says."""
    topic = schema_topic(name)
    newest: dict[str, tuple[int, SchemaRecord]] = {}
    for offset, value in reader.last_records(topic).values():
        try:
            record = msgspec.json.decode(value, type=SchemaRecord)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise ProgressDamaged(f"a schema record in {topic} is not readable", topic=topic) from None
        if record.table not in newest or newest[record.table][0] < offset:
            newest[record.table] = (offset, record)
    return {table: record.form for table, (_, record) in newest.items()}


def recorded_snapshots(reader: TopicReader, name: str) -> dict[str, SnapshotRecord]:
    """How far the snapshot of each table is."""
    topic, prefix = progress_topic(name), snapshot_key(name)
    newest = reader.last_records(topic)
    records = [decode(value, SnapshotRecord, topic) for key, (_, value) in newest.items() if key.startswith(prefix)]
    return {record.table: record for record in records}


def recorded_signals(reader: TopicReader, name: str) -> SignalsRecord | None:
    """How far signals were acted on; None: nobody ever looked."""
    topic, key = progress_topic(name), signals_key(name)
    found = reader.last_records(topic, keys=(key,)).get(key)
    return None if found is None else decode(found[1], SignalsRecord, topic)


def recorded_outbox(reader: TopicReader, name: str) -> OutboxRecord | None:
    """What is known of the outbox; None: its rows were never looked at."""
    topic, key = progress_topic(name), outbox_key(name)
    found = reader.last_records(topic, keys=(key,)).get(key)
    return None if found is None else decode(found[1], OutboxRecord, topic)


def _accounts(
    reader: TopicReader, name: str, end_lsn: Lsn
) -> tuple[dict[str, tuple[int, int, str]], Lsn, _Place | None]:
    """The newest map of all partitions, the last full one with every later change laid over it; since when; how far.

    Empty when the index holds no full map any more (capture was stopped for longer than its retention): counting
    then begins anew at `end_lsn`, and the next full map says so. The last is None when its retention has taken all.
    """
    topic = cuts_topic(name)
    newest: _Place | None = None
    for count in (_TAIL, 1 << 62):
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


def _place(record: Progress | Cut) -> _Place:
    return record.epoch, record.end_lsn, record.commit_lsn, record.next_ordinal, record.verified_lsn


def _tail(reader: TopicReader, topic: str, count: int) -> tuple[int, list[bytes]]:
    """The first offset there is, and committed values among the last `count` offsets, oldest first."""
    partition = (topic, 0)
    low, high = reader.end_offsets([topic])[partition]
    batches = reader.read({partition: max(low, high - count)}, {partition: high})
    return low, [record.value for batch in batches for record in batch if record.value is not None]
