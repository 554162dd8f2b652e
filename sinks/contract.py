"""What a sink of one key at a time is to its runner: search and cache (DESIGN section 8).

A `Target` is what one kind of store can do. It is told what keys are to be, newest record of each key only, and says
for each key what became of it. Whatever is repeated, reordered or done by two workers at once, it ends in the same
state: each key carries the offset of the record it is as of, and a lower one never wins. So an offset is a version.
It grows strictly per key, because a key never changes its partition, and it is the same on each replay.

The lake is no `Target`: it takes whole cuts (`sinks/warehouse`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from cdc.model.log_record import LogRecord
    from cdc.model.progress_record import SchemaRecord

TopicPartition: TypeAlias = tuple[str, int]
"""A partition of a topic."""


class Topic(NamedTuple):
    """A table's topic as a sink must find it again.

    Attributes:
        topic_id: Kafka's own; another one is another topic of the same name, whose offsets begin again.
        table: ``schema.table``.
        key: the key's columns.
    """

    topic: str
    topic_id: str
    partition_count: int
    table: str
    key: tuple[str, ...]


class Change(NamedTuple):
    """What a key is to be: its newest record among those that were folded.

    Attributes:
        offset: of that record, the version.
        key: as the topic has it, a JSON object.
        row: the row as a JSON object, bytes; None: the key is gone.
        kept: columns of `source.unchanged`, which are not in `row`, and which no earlier record of the same row gives:
            a store that holds the key keeps what it has for them.
        schema_id: of the row; "" for a key that is gone.
        epoch, commit_lsn, ts_ms: of the event; ts_ms is its commit time.
        lacks: columns of `source.unchanged` in a row that begins with this change: nothing has a value for them yet.
            The store must not take them from an older row of the key.
    """

    topic: str
    partition: int
    offset: int
    key: bytes
    row: bytes | None
    kept: tuple[str, ...]
    schema_id: str
    epoch: int
    commit_lsn: int
    ts_ms: int
    lacks: tuple[str, ...] = ()


class Verdict(Enum):
    """What became of a change. All but LATER are final."""

    DONE = "the store holds it"
    OVERTAKEN = "the store holds this or a newer record of the key"
    LATER = "the store has no room for it now: ask again, of this key alone"
    REFUSED = "the store will never take it: a dead letter"


class Outcome(NamedTuple):
    """The verdict on a change; `error` is a class of errors (``mapper_parsing_exception``), `reason` a text.

    Neither has a row's value in it.
    """

    verdict: Verdict
    error: str = ""
    reason: str = ""


class StoredKey(NamedTuple):
    """A key as a store has it, for comparison.

    Attributes:
        key: as the topic has it; None when the store has something there that was never written by us.
        name: what the store calls it.
        version: the offset it is as of.
        content: values by column, equal to `Target.content` of the change it came from but for the columns that were
            kept; None for a mark of a deleted key.
    """

    key: bytes | None
    name: str
    version: int
    content: Content | None


Content: TypeAlias = Mapping[str, object]
"""What a store has of a row, by column: all of it, or as much as its mode stores."""


class Target(Protocol):
    """A store. `apply` is called by several threads at once, with disjoint keys; all else by one."""

    def open(self, topics: Sequence[Topic]) -> None:
        """Find or make what holds these topics; again after an assignment changed.

        Raises SinkStale when it holds another history of the log, SinkUnfit when rights or settings do not fit,
        SinkUnreachable.
        """

    def prepare(self, schema: SchemaRecord) -> None:
        """Called before the first row of a schema. Raises SinkUnfit when the store cannot hold such rows."""

    def apply(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        """Make the keys what they are to be; outcomes in the same order.

        What is DONE survives the store's crash as far as it promises; see `positions` for one that promises little.

        Raises SinkUnreachable when nothing is known of any of them: the same changes come again. SinkStale, SinkUnfit.
        """

    def keep(self, positions: Mapping[TopicPartition, int]) -> None:
        """Everything below these offsets is applied; a store that may lose writes notes it beside them."""

    def positions(self) -> Mapping[TopicPartition, int] | None:
        """What was kept last, asked at each assignment and after SinkUnreachable: what lies behind is applied again.

        A place that is missing is read from its beginning. None: the store loses nothing it has acknowledged.
        """

    def refresh(self, topics: Iterable[str]) -> None:
        """Returns when readers see everything that was applied before this call."""

    def content(self, change: Change) -> Content | None:
        """`StoredKey.content` once the store holds this change; columns in `Change.kept` are not compared."""

    def held(self, topic: str) -> Iterator[StoredKey]:
        """Every key of a topic that the store has, in any order; marks of deleted keys may be among them."""

    def look(self, topic: str, keys: Sequence[bytes]) -> Sequence[StoredKey | None]:
        """These keys now; None for one that is not there."""

    def remove(self, topic: str, held: Sequence[StoredKey]) -> None:
        """Take away what the topic does not have, unless it changed since it was looked at."""

    def mend(self, changes: Sequence[Change], seen: Sequence[StoredKey | None]) -> None:
        """As `apply`, also over the same or a later version, unless the key is not as `seen` any more.

        For keys whose content or version the topic proves wrong (`cdc verify --repair`). `kept` has what the store need
        not keep: the rows are whole as far as the log is.
        """

    def close(self) -> None:
        """End the connections. May be called twice."""


class AllowedDifference(Enum):
    """Why a store need not have of a key what the topic says."""

    FINE = "it is as it may be"
    EXPIRED = "the row has had its time, or was evicted: readers know that it may be missing"
    UNTOLD = "the store has forgotten what would tell"


@runtime_checkable
class Lossy(Protocol):
    """What a store is beside `Target` that may lack rows by its settings (`cdc verify` asks it)."""

    def allowed_difference(
        self, change: Change | None, held: StoredKey | None, now_ms: int
    ) -> AllowedDifference | None:
        """Of a key that does not agree with `change`, its last one (None: the topic has none): why that may be so.

        None: it may not. Unmarked rows have -1 as their version and no key.
        """


class ParkedKey(NamedTuple):
    """A key of which a record was refused, and everything of it that came after; `records` in log order."""

    place: TopicPartition
    key: bytes
    records: Sequence[LogRecord]


class DeadLetters(Protocol):
    """Where the runner leaves records that the store will never take. A key stays behind its first one.

    Called by the runner's own thread. What it was told is durable when a call returns, so offsets may be committed.
    """

    def assigned(self, places: Iterable[TopicPartition]) -> None:
        """Learn which keys of these partitions are blocked; called before their first record. Others are forgotten.

        Raises BrokerUnreachable, TopicMismatch.
        """

    def blocks(self, place: TopicPartition, key: bytes) -> bool:
        """Whether a record of the key was parked, so that this one must be, too."""

    def park(self, place: TopicPartition, key: bytes, records: Sequence[LogRecord], outcome: Outcome) -> None:
        """Block the key and keep the records, in this order.

        Raises SinkUnfit when a partition has too many blocked keys, or `on_refused` is "stop"; BrokerUnreachable.
        """

    def retries(self) -> Sequence[ParkedKey]:
        """Keys that somebody wants tried again, or passed over (no records), of the partitions that are assigned."""

    def settled(self, parked: ParkedKey, outcome: Outcome) -> None:
        """What became of a retry: DONE and OVERTAKEN unblock the key, REFUSED leaves it as it was."""
