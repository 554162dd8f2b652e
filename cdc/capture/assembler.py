"""Turns CopyData payloads of the stream into records in topic buffers and a stream position.

A state machine without I/O: `feed` takes payloads and returns why it stopped. It knows transactions, the skip rule and
ordinals. The stream does not contain the key and topic of a relation, so it stops with `Unplanned` at a new one.

Positions come from Commit messages and from keepalives between transactions, never from rows: row LSNs go up and down,
and a read may end in a row whose LSN is below the commit before it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from cdc.capture.no_snapshots import NoSnapshots
from cdc.capture.side_topics import SideTopics
from cdc.contracts import Snapshots, Stage, Transcoding
from cdc.encode.envelope import stamp as make_stamp
from cdc.errors import DecodeError, SourceRefused
from cdc.lsn import Lsn
from cdc.model.change_records import BatchStats, Stamp, StreamPosition, Truncation
from cdc.model.load_reading import LOAD_PREFIX
from cdc.model.relation import Relation
from cdc.wire import frame as wire_frame
from cdc.wire import pgoutput

_ENVELOPE_BYTES: Final = 420  # what the envelope adds to a row, measured on the benchmark's table; for limits only
_SKIP_ALL: Final = 1 << 62  # no transaction has as many rows
_START: Final = struct.Struct(">Q").unpack_from
_NONE: Final = NoSnapshots()


@dataclass(frozen=True, slots=True)
class BatchFull:
    """`feed` stopped because the batch is full: commit it before feeding on."""


_FULL: Final = BatchFull()


class Unplanned(NamedTuple):
    """`feed` stopped before a relation that is not planned: call `plan` before feeding on."""

    relation: Relation


class DescribedAgain(NamedTuple):
    """`feed` stopped after the stream described a planned relation again, unchanged: it may have had another name."""

    relation: Relation


class Truncated(NamedTuple):
    """`feed` stopped after a TRUNCATE: remove the tables' keys (`removed`), then call `pass_truncate`."""

    tables: Sequence[Truncation]


Stop: TypeAlias = BatchFull | Unplanned | DescribedAgain | Truncated


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The size at which a batch ends at the next boundary.

    A source transaction larger than twice the limits is spread over several Kafka transactions.
    """

    rows: int
    bytes: int


class Assembler:
    """Takes payloads and fills topic buffers. One thread.

    Attributes:
        position: how far the buffers reach, in the form of the progress record.
        row_count, byte_count, transaction_count, truncate_ignored_count: of what was fed since `taken()`.
        boundary_us: time of `position` at a boundary, in microseconds since 1970; 0: unknown.
    """

    def __init__(
        self,
        start: StreamPosition,
        *,
        epoch: int,
        caps: BatchLimits,
        on_truncate: Literal["delete", "stop", "ignore"],
        side: SideTopics,
        snapshots: Snapshots = _NONE,
        stages: Sequence[Stage] = (),
    ) -> None:
        self.position = start
        self.row_count = 0
        self.byte_count = 0
        self.transaction_count = 0
        self.truncate_ignored_count = 0
        self.commit_us = 0
        self._removing = False
        self._epoch = epoch
        self._caps = caps
        self._on_truncate = on_truncate
        self._side = side
        self._snapshots = snapshots
        self.boundary_us = 0
        self._numbers = side if side.numbers else None
        self._start = start
        self._taken = start
        self._transcoders: dict[bytes, Transcoding | None] = {}
        self._relations: dict[bytes, Relation] = {}
        self._owners: dict[str, bytes] = {}
        self._fed_again = b""
        """The relation that was planned last, whose description is fed again."""
        self._stages = stages
        self._routed: set[bytes] = set()
        self._open: pgoutput.Begin | None = None
        self._stamp: Stamp | None = None
        self._ordinal = 0
        self._skip_below = 0

    @property
    def in_transaction(self) -> bool:
        """Whether a source transaction is partly read."""
        return self._open is not None

    @property
    def full(self) -> bool:
        """Whether the batch has reached its limits."""
        return self._over(self.row_count, self.byte_count)

    @property
    def at_boundary(self) -> bool:
        """Whether `position` is a boundary between source transactions and nothing of the next one was read."""
        return self._open is None and not self.position.next_ordinal

    @property
    def filled(self) -> bool:
        """Whether a buffer has records that were not taken."""
        return self.row_count > 0 or self._side.count > 0

    @property
    def advanced(self) -> bool:
        """Whether `position` is beyond the one last taken."""
        return self.position != self._taken

    def plan(self, relation: Relation, transcoder: Transcoding | None, *, routed: bool = False) -> None:
        """Set the encoder for the rows of a relation; None leaves them out.

        `routed`: the rows go to a stage only. A TRUNCATE then has no topic to empty, and the events are not counted as
        events of their transaction.
        """
        oid = relation.oid.to_bytes(4, "big")
        self._routed.discard(oid)
        if routed:
            self._routed.add(oid)
        self._relations[oid] = relation
        self._owners[relation.table] = oid
        self._transcoders[oid] = transcoder
        self._fed_again = oid

    def stats(self) -> BatchStats:
        """Return the counts of what was fed since `taken`."""
        return BatchStats(
            self.row_count, self.byte_count, self.transaction_count, self.commit_us, self.truncate_ignored_count
        )

    def taken(self) -> None:
        """The buffers are durable up to `position`: reset the counts."""
        self._taken = self.position
        self.row_count = self.byte_count = self.transaction_count = self.truncate_ignored_count = 0
        self._side.count = 0

    def reach(self) -> StreamPosition:
        """Return how far the buffers reach, also inside a transaction, whose rest is then spread over later batches."""
        begun = self._ordinal > 0 or self._removing
        if self._open is not None and begun and self._ordinal >= self._skip_below - 1:
            self.position = StreamPosition(self.position.end_lsn, self._open.commit_lsn, self._ordinal + 1)
            self._side.opened()
        return self.position

    @property
    def row_position(self) -> tuple[Lsn, int] | None:
        """Commit LSN and ordinal of the row that was taken last; None outside a transaction."""
        return None if self._open is None else (self._open.commit_lsn, self._ordinal)

    def step_back(self) -> None:
        """The last row was refused and is in no buffer: exclude it, so that everything before it can be committed."""
        self._ordinal -= 1

    def removed(self, count: int, size: int) -> bool:
        """Add deletes of keys of truncated tables to the batch. Returns whether the batch is full."""
        self._removing = True
        self.joined(count, size)
        return self.full

    def joined(self, count: int, size: int) -> None:
        """Add rows, and their bytes, that another component put into the buffers."""
        self.row_count += count
        self.byte_count += size

    def pass_truncate(self, tables: Sequence[Truncation]) -> None:
        """Finish a TRUNCATE: the delete of every key is in the buffers or in the log."""
        self._ordinal += 1
        for one in tables:
            self._write_truncate(one)
        self._removing = False

    def feed(self, frames: list[bytes], at: int = 0, *, hasten: bool = False) -> tuple[int, Stop | None]:
        """Take frames from index `at` on. Returns the index of the first frame not taken, and why it stopped there.

        Stops before a relation that is not planned, after one that is, after a TRUNCATE, after a commit when the batch
        is full or with `hasten`, and inside a transaction that alone exceeds twice the limits (BatchFull and
        `in_transaction`).

        Raises:
            DecodeError: the bytes do not follow the protocol.
            RowRefused: a row cannot be published.
            SourceRefused: a TRUNCATE, with `source.on_truncate = "stop"`.
        """
        transcoders, numbers = self._transcoders, self._numbers
        rows, size = self.row_count, self.byte_count
        rows_spread, size_spread = 2 * self._caps.rows, 2 * self._caps.bytes
        index = at
        try:
            for index in range(at, len(frames)):
                frame = frames[index]
                tag = frame[25] if len(frame) > 25 and frame[0] == 119 else 0
                if tag == 73 or tag == 85 or tag == 68:
                    self._ordinal = ordinal = self._ordinal + 1
                    transcoder = transcoders.get(frame[26:30])
                    if ordinal < self._skip_below:
                        if numbers is not None and transcoder is not None and frame[26:30] not in self._routed:
                            numbers.passed(self._relations[frame[26:30]])
                        continue
                    stamp = self._stamp
                    if transcoder is None or stamp is None:
                        self._not_ours(frame)
                        continue
                    if numbers is not None and frame[26:30] not in self._routed:
                        stamp = numbers.numbered(stamp, self._relations[frame[26:30]])
                    if tag == 73:
                        transcoder.insert(frame, stamp, ordinal)
                    elif tag == 85:
                        size += transcoder.update(frame, stamp, ordinal)
                    else:
                        transcoder.delete(frame, stamp, ordinal)
                    rows += 1
                    size += len(frame) + _ENVELOPE_BYTES
                    if rows >= rows_spread or size >= size_spread:
                        return index + 1, _FULL
                elif tag == 77:
                    size += self._message(frame)
                    if size >= (self._caps.bytes if self._open is None else size_spread):
                        return index + 1, _FULL
                elif (stop := self._other(frame, tag)) is not None:
                    if isinstance(stop, Unplanned):
                        return index, stop
                    if isinstance(stop, Truncated | DescribedAgain) or self._over(rows, size) or hasten:
                        return index + 1, stop
        finally:
            self.row_count, self.byte_count = rows, size
        return len(frames), None

    def _over(self, rows: int, size: int) -> bool:
        return rows >= self._caps.rows or size >= self._caps.bytes

    def _not_ours(self, frame: bytes) -> None:
        """Accept a row of a relation that is left out; raise for one of a relation that was never announced."""
        pgoutput.decode(frame[wire_frame.PAYLOAD_OFFSET :])
        if self._open is None:
            raise DecodeError(chr(frame[25]), 0, detail="is outside a transaction")
        if frame[26:30] not in self._transcoders:
            raise DecodeError(chr(frame[25]), 1, detail="belongs to a relation that was not announced")

    def _other(self, frame: bytes, tag: int) -> Stop | None:
        """Handle a message that is not a row. Returns a reason to stop; after a commit, one if the batch is full."""
        if tag == 0:
            self._keepalive(frame)
            return None
        message = pgoutput.decode(frame[wire_frame.PAYLOAD_OFFSET :])
        if isinstance(message, pgoutput.Commit):
            self._commit(message)
            return _FULL
        if isinstance(message, pgoutput.Begin):
            self._begin(message)
        elif isinstance(message, Relation):
            oid = frame[26:30]
            if self._relations.get(oid) != message or self._owners[message.table] != oid:
                return Unplanned(message)
            if self._fed_again != oid:
                return DescribedAgain(message)
            self._fed_again = b""
        elif isinstance(message, pgoutput.Truncate):
            return self._truncate(message, *_START(frame, 1))
        return None

    def _keepalive(self, frame: bytes) -> None:
        keepalive = wire_frame.parse(frame)
        if isinstance(keepalive, wire_frame.XLogData):
            raise DecodeError("w", wire_frame.PAYLOAD_OFFSET, need=1, have=0)
        # A keepalive must not move a position inside a spread transaction: its first part would be published twice.
        between = self._open is None and not self.position.next_ordinal
        if between and keepalive.wal_end > self.position.end_lsn:
            self.position = StreamPosition(keepalive.wal_end, self.position.commit_lsn)
            self.boundary_us = max(self.boundary_us, keepalive.sent_us)

    def _begin(self, begin: pgoutput.Begin) -> None:
        """Open a transaction and decide how much of it the log already has.

        It has everything whose commit record starts below the start position. The comparison is strict (`<`), because a
        commit record can start exactly where the previous one ended.
        """
        if self._open is not None:
            raise DecodeError("B", 0, detail="is inside a transaction")
        self._open = begin
        self._ordinal = 0
        self._stamp = make_stamp(begin, self._epoch)
        start = self._start
        if begin.commit_lsn < start.end_lsn:
            self._skip_below = _SKIP_ALL
        elif begin.commit_lsn < self.position.end_lsn:
            raise DecodeError("B", 1, detail=f"commits at {begin.commit_lsn}, before {self.position.end_lsn}")
        elif start.next_ordinal and begin.commit_lsn == start.commit_lsn:
            self._skip_below = start.next_ordinal
        else:
            self._skip_below = 0
        self._side.begin(begin, written=self._skip_below > 0)
        self._snapshots.begun(begin.xid, whole=self._skip_below == 0)

    def _commit(self, commit: pgoutput.Commit) -> None:
        begin = self._open
        if begin is None or begin.commit_lsn != commit.commit_lsn:
            raise DecodeError("C", 0, detail="does not belong to the open transaction")
        if self._skip_below < _SKIP_ALL:
            self._side.end()
        self._open = None
        self._stamp = None
        self._skip_below = 0
        self.commit_us = self.boundary_us = commit.commit_us
        self._snapshots.ended()
        if commit.end_lsn > self.position.end_lsn:
            self.position = StreamPosition(commit.end_lsn, commit.commit_lsn)
        self.transaction_count += 1

    def _truncate(self, truncate: pgoutput.Truncate, lsn: int) -> Truncated | None:
        if self._open is None or self._stamp is None:
            raise DecodeError("T", 0, detail="is outside a transaction")
        self._ordinal += 1
        oids = [oid.to_bytes(4, "big") for oid in truncate.relation_oids]
        passed = self._ordinal < self._skip_below
        if not passed and not self._transcoders.keys() >= set(oids):
            raise DecodeError("T", 1, detail="names a relation that was not announced")
        kept = [oid for oid in oids if self._transcoders.get(oid) is not None and oid not in self._routed]
        ours = [self._relations[oid] for oid in kept]
        events = [self._truncation(relation, self._stamp, lsn) for relation in ours]
        for relation in ours:
            self._snapshots.truncated(relation.table)
        if passed or not ours:
            return None
        if self._on_truncate == "delete":
            self._ordinal -= 1  # nothing of it is in the log until its keys are removed
            return Truncated(events)
        if self._on_truncate == "ignore":
            self.truncate_ignored_count += 1
            for event in events:
                self._write_truncate(event)
            return None
        tables = [relation.table for relation in ours]
        raise SourceRefused(
            f"{', '.join(tables)} was truncated at {self._open.commit_lsn}; the stream has no events for its rows",
            hint="let capture delete every key of the topic, or ignore the TRUNCATE and keep the old keys",
            command='[source] on_truncate = "delete"',
            tables=tables,
            commit_lsn=self._open.commit_lsn,
        )

    def _truncation(self, relation: Relation, stamp: Stamp, lsn: int) -> Truncation:
        if self._numbers is not None:
            stamp = self._numbers.numbered(stamp, relation)
        return Truncation(relation.oid, stamp, lsn, self._ordinal)

    def _write_truncate(self, event: Truncation) -> None:
        relation = self._relations[event.relation.to_bytes(4, "big")]
        self._side.truncate(relation, event.stamp, event.lsn, event.ordinal)

    def _message(self, frame: bytes) -> int:
        """Take a logical message. It has an ordinal whether or not it is published, so that rows keep their ordinals.

        A message outside transactions is a point in the WAL. The position moves just behind the beginning of its
        record, so the server does not send it again. Returns the bytes put into a buffer.
        """
        message, (lsn,) = pgoutput.decode(frame[wire_frame.PAYLOAD_OFFSET :]), _START(frame, 1)
        assert isinstance(message, pgoutput.LogicalMessage)
        if message.transactional is not (self._open is not None):
            raise DecodeError("M", 1, detail="is transactional outside a transaction, or the reverse")
        if self._open is not None:
            self._ordinal += 1
            if self._ordinal >= self._skip_below and self._stamp is not None:
                return self._take_message(message, self._stamp, lsn, self._ordinal)
            return 0
        if message.lsn < self.position.end_lsn or self.position.next_ordinal:
            return 0
        size = self._take_message(message, make_stamp(pgoutput.Begin(message.lsn, 0, 0), self._epoch), lsn, 1)
        if size:
            self.position = StreamPosition(Lsn(message.lsn + 1), self.position.commit_lsn)
        return size

    def _take_message(self, message: pgoutput.LogicalMessage, stamp: Stamp, lsn: int, ordinal: int) -> int:
        """Pass the message to a stage that takes it, else to the message topic."""
        if message.prefix == LOAD_PREFIX:
            return 0
        for stage in self._stages:
            taken = stage.message(message.prefix, message.content, stamp, ordinal, transactional=message.transactional)
            if taken is not None:
                self._side.count += 1
                return taken
        return self._side.message(message, stamp, lsn, ordinal)
