"""Defines the interfaces that the capture pipeline needs of PostgreSQL and Kafka.

Only `cdc.run.app` and `cdc.startup` know which class implements which interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from cdc.errors import TailraceError
from cdc.lsn import Lsn
from cdc.model.change_records import BatchStats, Stamp, StreamPosition, TopicBuffer, Truncation
from cdc.model.progress_record import AvroIds, AvroSchemas, SchemaRecord
from cdc.model.relation import Relation
from cdc.model.snapshot_record import NO_NOTES, SnapshotNotes
from cdc.model.table_facts import DdlFinding


class ReplicationStream(Protocol):
    """An open START_REPLICATION. One thread reads; `confirm` may be called from that thread at any time.

    The stream answers the server's keepalives in a thread of its own. A stalled broker therefore never costs the
    connection.
    """

    def read(self, wait_s: float) -> list[bytes]:
        """Return the CopyData payloads that are readable now, in order, a bounded number of them.

        Waits up to `wait_s` for the first payload. An empty list means that nothing was readable. The caller owns the
        payloads.

        Raises SourceUnreachable if the connection broke or the server stopped answering, SourceGap if the slot is lost.
        """

    def confirm(self, lsn: Lsn) -> None:
        """Report that everything below `lsn` is durable, so that PostgreSQL may discard it. A lower value is ignored.

        A position beyond what this stream has received is acknowledged later: call `confirm` again. The log can be
        ahead of the stream if another daemon continued between the two reads of a start.
        """

    def request_reply(self) -> None:
        """Ask the server to report its WAL position soon. May be called repeatedly."""


class Publisher(Protocol):
    """The only writer of the log. After any error it is unusable: the caller creates a new one and starts over.

    A batch consists of one or more `write` calls, then `submit`, and later `settle`. Readers see all of it or nothing,
    and batches in the order of `submit`. A few batches may be under way; nothing may be written unless `ready`.
    """

    @property
    def is_open(self) -> bool:
        """Whether records were written that are not submitted."""

    @property
    def retire_reason(self) -> str | None:
        """Why the publisher must not begin another transaction; None if it may. Set after an irregular commit."""

    @property
    def ready(self) -> bool:
        """Whether a batch may be written now: the one before is delivered, and not all producers are busy."""

    @property
    def full(self) -> bool:
        """Whether all producers are busy, so that `settle` must come before the next batch."""

    def wait_delivered(self) -> None:
        """Wait until the last submitted batch is delivered. Raises as `settle`."""

    def write(self, buffers: Sequence[TopicBuffer], schemas: Sequence[SchemaRecord]) -> None:
        """Hand records to Kafka, schema records first, and empty the buffers. Begins a transaction if none is open."""

    def submit(self, position: StreamPosition, verified: Lsn, notes: SnapshotNotes = NO_NOTES) -> None:
        """Begin to commit everything written, with position, snapshot records (`notes`) and cut, as one unit."""

    @property
    def settling(self) -> bool:
        """Whether the oldest submitted commit is still under way, so that `settle` would wait."""

    def settle(self) -> None:
        """Wait for the oldest submitted commit. Returns only when the commit is *known*.

        Raises OutcomeUnknown if it is not known, ProducerFenced if a newer producer took over.
        """

    def check(self) -> None:
        """Ask Kafka for an answer, between batches. Raises BrokerUnreachable if none arrives within seconds."""


class Transcoding(Protocol):
    """Turns the row messages of one relation into records. A frame is a whole CopyData payload."""

    def insert(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """Encode an Insert message."""

    def update(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        """Encode an Update message. Returns how many bytes `Reselect` is expected to add to the record."""

    def delete(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """Encode a Delete message."""

    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:
        """Write the deletes of a TRUNCATE for keys of one partition, as the topic has them. Returns their bytes."""


class PlannedRelation(Protocol):
    """How the rows of one relation are encoded and where the records go."""

    @property
    def buffer(self) -> TopicBuffer:
        """The buffer that collects its records. The same topic always has the same buffer."""

    @property
    def transcoder(self) -> Transcoding:
        """The encoder of its rows."""

    @property
    def schemas(self) -> Sequence[SchemaRecord]:
        """Schema records that must precede its next row in the log; empty if the log has them."""


class Stage(Protocol):
    """Turns part of the stream into records of its own topics, beside those of tables. The outbox router is one."""

    def take(self, relation: Relation) -> Transcoding | None:
        """Return the encoder for the rows of a relation; None if the stage does not handle it.

        Raises SourceRefused for a table that it cannot read, SourceUnreachable if capture must start over to include
        it.
        """

    def message(self, prefix: str, content: bytes, stamp: Stamp, ordinal: int, *, transactional: bool) -> int | None:
        """Take a logical message. Returns the bytes of its records; None if the stage does not handle it."""

    def gather(self) -> Sequence[TopicBuffer]:
        """Return the buffers that were not returned before, right before records are handed to Kafka. Creates topics.

        Raises TopicMismatch, BrokerError.
        """


class RelationPlanner(Protocol):
    """Decides how the rows of a relation are encoded when the stream first shows it or shows a change of it."""

    def plan(self, relation: Relation, at: Lsn) -> PlannedRelation | None:
        """Find key and types, and create or check the topic. None leaves the relation out.

        Raises SourceRefused for a table without a usable key, TopicMismatch for a topic that is not the recorded one.
        """


class SchemaRegistry(Protocol):
    """Assigns ids to Avro schemas. The id is part of every record's bytes."""

    def register(self, topic: str, schemas: AvroSchemas, table: str) -> AvroIds:
        """Return the ids of a topic's key and value schemas. Registers a schema that is new and compatible.

        If one of them is not compatible, none is registered. `table` is used in messages. Raises RegistryUnreachable,
        RegistryRefused.
        """


class LiveKeys(Protocol):
    """Finds the keys that a compacted topic has."""

    def of(self, topic: str) -> AbstractContextManager[Iterator[tuple[int, list[bytes]]]]:
        """Yield (partition, some live keys), in key order, counting every record that this capture has committed.

        Memory does not depend on the number of keys. Raises BrokerUnreachable, TopicMismatch.
        """


class Reselect(Protocol):
    """Completes buffered records with values that the stream does not contain, by reading them from the tables."""

    @property
    def pending(self) -> bool:
        """Whether a buffered record is incomplete. Until it is completed, no record may be handed to the publisher."""

    def fill(self) -> bool:
        """Complete all incomplete records. A value whose row is gone stays absent; a later event explains it.

        Waits a moment while a transaction is committed but not yet visible, so no Kafka transaction may be open. After
        that, the records stay incomplete and their rows follow later, whole. If that cannot be promised, it keeps
        waiting. Returns False if a stop was requested meanwhile; then nothing may be published, and nothing is lost.

        Raises SourceRefused if the role may not read a table, SourceUnreachable, RowRefused.
        """


class Joined(NamedTuple):
    """What was added to the buffers at a boundary, and tables that were planned for the first time."""

    row_count: int
    byte_count: int
    planned: Sequence[PlannedRelation]


class Snapshots(Protocol):
    """Adds rows that snapshots have read to the stream, between source transactions.

    The capture thread calls it. To know which rows are stale it is informed of every transaction: `begun`, then
    `ended`, and `gather` before buffers are emptied. This costs nothing while no snapshot is taken.
    """

    @property
    def wait_s(self) -> float:
        """How long `read` may wait for the stream before rows of a snapshot may be ready."""

    @property
    def notes_pending(self) -> bool:
        """Whether `notes` has something new, also without rows."""

    def watch(self, table: str, buffer: TopicBuffer) -> None:
        """Register the buffer that receives the rows of a table from now on."""

    def begun(self, xid: int, *, whole: bool) -> None:
        """A transaction begins. Not `whole`: the log already has a part of it, which is not sent again."""

    def truncated(self, table: str) -> None:
        """The transaction truncates the table."""

    def gather(self) -> None:
        """The buffers are about to be emptied."""

    def ended(self) -> None:
        """The transaction is in the buffers, up to its end."""

    def due(self, boundary: Lsn) -> bool:
        """Whether rows may join at this boundary or a later one."""

    def waits(self, boundary: Lsn) -> bool:
        """Whether rows wait for a later boundary."""

    def join(self, boundary: Lsn, at_us: int) -> Joined:
        """Add a bounded number of rows to the buffers. `at_us` is the time of the boundary in microseconds since 1970.

        Raises RowRefused, SourceRefused.
        """

    def notes(self) -> SnapshotNotes:
        """Return the snapshot state that must be committed together with the rows now in the buffers."""

    def noted(self, notes: SnapshotNotes) -> None:
        """The notes are part of a commit that is under way."""


class ReselectObserver(Protocol):
    """Receives the results of re-reading values; for metrics and status. Must not block or raise."""

    def reselected(self, *, row_count: int, gone_count: int, query_count: int) -> None:
        """`row_count` rows lacked values; `gone_count` of them are no longer in their tables."""

    def reselect_owed(self, row_count: int) -> None:
        """`row_count` rows were published without their values, which are read once their transactions are visible."""

    def reselect_waits(self, cause: TailraceError | None) -> None:
        """It has waited for some seconds; None: it continues."""


class BatchObserver(Protocol):
    """Receives the results of the pipeline; for metrics and status. Must not block or raise."""

    def published(self, stats: BatchStats, position: StreamPosition, commit_s: float) -> None:
        """A Kafka transaction of `stats` is committed; the log reaches `position`."""

    def caught_up(self) -> None:
        """Nothing more was readable."""

    def truncated(self, topic: str, keys: int) -> None:
        """A TRUNCATE removed `keys` keys from a topic."""


class SideWriter(Protocol):
    """Writes records that do not come from the stream, such as heartbeats, with a commit of the pipeline.

    Going through the pipeline's commit, they share its Kafka transaction with progress and cut. So they never claim
    more than the log holds. A cut of such a commit may have no new position.
    """

    def due(self) -> bool:
        """Whether it has something to write, so that a commit is needed even if the stream brings nothing."""

    def write(self, position: StreamPosition) -> bool:
        """Hand over its records; a commit up to `position` follows. Returns whether it put records into a buffer."""

    def written(self) -> None:
        """What the oldest `write` that was not reported yet handed over is durable. May raise to end capture.

        Also called, without a `write`, for a commit that such writers have no part in.
        """


class DdlObserver(Protocol):
    """Receives DDL findings that the stream does not show; for logs, metrics and status. Must not block or raise."""

    def ddl_found(self, new: Sequence[DdlFinding], unsettled: Sequence[DdlFinding]) -> None:
        """`unsettled` are all findings that are not accepted; `new` are those of them that were just found."""

    def ddl_accepted(self, table: str, count: int) -> None:
        """`count` findings of a table were settled."""


class OutboxObserver(Protocol):
    """Receives the counts of outbox events once they are durable; for metrics and status. Must not block or raise."""

    def outbox_routed(self, events: int, refused: Mapping[str, int], ignored: int) -> None:
        """`events` were published, `refused` were refused by reason, and `ignored` updates of rows were skipped."""


class HeartbeatObserver(Protocol):
    """Receives the results of heartbeat statements on the source; for logs and metrics. Must not block or raise."""

    def heartbeat_returned(self, seconds: float) -> None:
        """The log has what a statement wrote, `seconds` after the statement began."""

    def heartbeat_failed(self, cause: TailraceError | None) -> None:
        """A statement could not be run; None: statements work again."""
