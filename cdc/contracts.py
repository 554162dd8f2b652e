"""The seams of the service: what the pipeline needs of PostgreSQL and of Kafka, and nothing more.

`cdc.run.app` is the only place that knows which class stands behind a contract.
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
    """An open START_REPLICATION. One reader thread; `confirm` may be called from it at any time.

    The stream answers the server's keepalives by itself, whatever the reader does: a stalled broker never costs
    the connection.
    """

    def read(self, wait_s: float) -> list[bytes]:
        """CopyData payloads that are readable now, in order, at most a bounded number of them.

        Waits up to `wait_s` for the first; an empty list means there is nothing to read. A payload belongs to the
        caller. Raises SourceUnreachable when the connection broke or fell silent, SourceGap when the slot is lost.
        """

    def confirm(self, lsn: Lsn) -> None:
        """Everything below `lsn` is durable: PostgreSQL may forget it. Lower values are ignored.

        What this stream has not received is not acknowledged yet: the log may be ahead of it, when another daemon
        went on between the two readings of a start. Say it again later.
        """

    def request_reply(self) -> None:
        """Have the server say where it is, soon. May be called again and again."""


class Publisher(Protocol):
    """The one writer of the log. After any error it is dead: make a new one and start over.

    A batch may come in several `write`s, then `submit` and `settle`; nothing is visible before it is committed,
    everything after. One batch at a time: between `submit` and `settle` nothing may be written.
    """

    @property
    def is_open(self) -> bool:
        """Whether something was written that is not committed."""

    @property
    def retire_reason(self) -> str | None:
        """Why no other transaction may follow on this producer: something about the last one was odd."""

    def write(self, buffers: Sequence[TopicBuffer], schemas: Sequence[SchemaRecord]) -> None:
        """Hand records to Kafka and empty the buffers; schemas go first. Opens a Kafka transaction if none is."""

    def submit(self, position: StreamPosition, verified: Lsn, notes: SnapshotNotes = NO_NOTES) -> None:
        """Begin to make everything written, the progress, what is noted of snapshots and the cut durable together."""

    @property
    def settling(self) -> bool:
        """Whether what was submitted is still under way: `settle` would wait."""

    def settle(self) -> None:
        """Wait for what was submitted; returns only when the commit is *known*.

        Raises OutcomeUnknown when it is not, ProducerFenced when a newer producer took over.
        """


class Transcoding(Protocol):
    """Turns row messages of one relation into records. A frame is a whole CopyData payload."""

    def insert(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """An Insert message."""

    def update(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        """An Update message. Returns how many bytes `Reselect` is expected to add to its record."""

    def delete(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        """A Delete message."""

    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:
        """Keys, as the topic has them in a partition, that a TRUNCATE removes; returns the bytes of the records."""


class PlannedRelation(Protocol):
    """How the rows of one relation travel from now on."""

    @property
    def buffer(self) -> TopicBuffer:
        """Where its records gather; the same object for the same topic."""

    @property
    def transcoder(self) -> Transcoding:
        """What makes the records."""

    @property
    def schemas(self) -> Sequence[SchemaRecord]:
        """Schema records that must be in the log before its next row; empty when they are."""


class Stage(Protocol):
    """Takes some of what the stream brings: it becomes records of topics of the stage's own, beside the tables'.

    They are part of the same batch and Kafka transaction as everything else. Called by the capture thread.
    """

    def take(self, relation: Relation) -> Transcoding | None:
        """What makes records of the rows of a relation; None: it is none of the stage's.

        Raises SourceRefused for a table it cannot read, SourceUnreachable when capture must start over for it.
        """

    def message(self, prefix: str, content: bytes, stamp: Stamp, ordinal: int, *, transactional: bool) -> int | None:
        """Take a logical message; returns the bytes of its records, None when it is none of the stage's."""

    def gather(self) -> Sequence[TopicBuffer]:
        """Records are about to be handed over: buffers that were not returned before. Topics are made here.

        Raises TopicMismatch, BrokerError.
        """


class RelationPlanner(Protocol):
    """Decides what becomes of a relation when the stream first shows it or shows it changed."""

    def plan(self, relation: Relation, at: Lsn) -> PlannedRelation | None:
        """Find key and types, make or check the topic. None leaves the relation out.

        Raises SourceRefused for a table without a usable key, TopicMismatch for a topic that is not ours.
        """


class SchemaRegistry(Protocol):
    """Gives the schemas of Avro their ids, which are part of every record's bytes."""

    def register(self, topic: str, schemas: AvroSchemas, table: str) -> AvroIds:
        """The ids of the schemas of a topic's keys and values; what is not registered is, if it is compatible.

        Nothing is registered when one of them is not. `table` is for messages. Raises RegistryUnreachable,
        RegistryRefused.
        """


class LiveKeys(Protocol):
    """Which keys a compacted topic has."""

    def of(self, topic: str) -> AbstractContextManager[Iterator[tuple[int, list[bytes]]]]:
        """(partition, some keys that are not deleted), in order of the keys; everything we committed counts.

        Memory does not depend on how many there are. Raises BrokerUnreachable, TopicMismatch.
        """


class Reselect(Protocol):
    """Completes buffered records with values that the stream does not have, by reading them from the tables."""

    @property
    def pending(self) -> bool:
        """Whether a buffered record lacks something; then none may be handed to the publisher."""

    def fill(self) -> bool:
        """Complete all of them; what is not in its table any more stays out, a later event says so.

        Waits a moment while a transaction of theirs is not visible yet, so no Kafka transaction may be open meanwhile;
        then they stay as they are, and their rows join later, whole. Where that cannot be promised it waits on. Returns
        False when told to stop while it waited: then nothing may be published, and nothing is lost.

        Raises SourceRefused when the role may not read a table, SourceUnreachable, RowRefused.
        """


class Joined(NamedTuple):
    """What joined at a boundary, and tables that had not been planned before."""

    row_count: int
    byte_count: int
    planned: Sequence[PlannedRelation]


class Snapshots(Protocol):
    """Rows of tables as they were read beside the stream, which join it at boundaries of source transactions.

    Called by the capture thread. To know which of its rows are stale it is told of every transaction: `begun`, then
    `ended`, and `gather` before buffers are emptied. None of it costs anything while no snapshot is taken.
    """

    @property
    def wait_s(self) -> float:
        """How long the stream may be waited for: something may come from here sooner."""

    @property
    def notes_pending(self) -> bool:
        """Whether `notes` has something new, also without rows."""

    def watch(self, table: str, buffer: TopicBuffer) -> None:
        """From now on rows of the table come into this buffer."""

    def begun(self, xid: int, *, whole: bool) -> None:
        """A transaction begins. Not `whole`: a part of it is in the log already and does not come again."""

    def truncated(self, table: str) -> None:
        """The transaction empties the table."""

    def gather(self) -> None:
        """The buffers are about to be emptied."""

    def ended(self) -> None:
        """The transaction is in the buffers, up to its end."""

    def due(self, boundary: Lsn) -> bool:
        """Whether rows may join at a boundary, or at one behind it."""

    def waits(self, boundary: Lsn) -> bool:
        """Whether rows wait for a boundary further on."""

    def join(self, boundary: Lsn, at_us: int) -> Joined:
        """Put rows into the buffers, a bounded number. `at_us` is the time of the boundary, since 1970.

        Raises RowRefused, SourceRefused.
        """

    def notes(self) -> SnapshotNotes:
        """What the log must say with the rows that are in the buffers now."""

    def noted(self, notes: SnapshotNotes) -> None:
        """They are part of a commit that is under way."""


class ReselectObserver(Protocol):
    """Told what was read again; for metrics and status. Must not block or raise."""

    def reselected(self, *, row_count: int, gone_count: int, query_count: int) -> None:
        """So many rows lacked values, so many of them are not in their tables any more."""

    def reselect_owed(self, row_count: int) -> None:
        """So many rows go out without their values, and are read when their transactions are visible."""

    def reselect_waits(self, cause: TailraceError | None) -> None:
        """It has waited for some seconds; None: it goes on."""


class BatchObserver(Protocol):
    """Told what happened; for metrics and status. Must not block or raise."""

    def published(self, stats: BatchStats, position: StreamPosition, commit_s: float) -> None:
        """A Kafka transaction of `stats` is committed and the log reaches `position`."""

    def caught_up(self) -> None:
        """Nothing more was readable."""

    def truncated(self, topic: str, keys: int) -> None:
        """A TRUNCATE removed so many keys from a topic."""


class SideWriter(Protocol):
    """Something that capture writes of its own accord, beside what the stream says, with a commit of the pipeline."""

    def due(self) -> bool:
        """Whether it has something to write, so that a commit is wanted although the stream brings nothing."""

    def write(self, position: StreamPosition) -> bool:
        """A commit up to `position` is about to be made: hand over what there is. Returns whether a buffer got it."""

    def written(self) -> None:
        """What was handed over, if anything, is durable. May raise to end capture."""


class DdlObserver(Protocol):
    """Told of DDL whose rows the stream does not show; for logs, metrics and status. Must not block or raise."""

    def ddl_found(self, told: Sequence[DdlFinding], unsettled: Sequence[DdlFinding]) -> None:
        """`told` are new; `unsettled` are all that nobody has accepted, `told` among them."""

    def ddl_accepted(self, table: str, count: int) -> None:
        """So many findings of a table are settled."""


class OutboxObserver(Protocol):
    """Told what became of the outbox's events, once it is durable; for metrics and status. Must not block or raise."""

    def outbox_routed(self, events: int, refused: Mapping[str, int], ignored: int) -> None:
        """So many were published, so many refused by reason, so many updates of rows passed over."""


class HeartbeatObserver(Protocol):
    """Told of heartbeat statements on the source; for logs and metrics. Must not block or raise."""

    def heartbeat_returned(self, seconds: float) -> None:
        """What one wrote is in the log, so long after it began."""

    def heartbeat_failed(self, cause: TailraceError | None) -> None:
        """One could not be run; None: they can again."""
