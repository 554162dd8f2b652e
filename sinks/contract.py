"""The contract between the runner and a store that takes one key at a time: search, cache, and kinds of other packages.

A `Target` writes to one kind of store. The runner passes it the newest record of each key, and the target returns what
became of each. The target must be idempotent: repeated, reordered or concurrent writes lead to the same state. For that
it stores with each key the offset of the record, and never lets a lower offset win. So the offset is a version. It
grows strictly per key, because a key never changes its partition, and a replay repeats the same offsets.

The lake applies whole cuts and does not implement this contract (`sinks/warehouse`).
docs/contributing/add-a-sink.md builds a target step by step.
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
    """The topic of a table, identified so that a store can recognise it later.

    Attributes:
        topic_id: Kafka's id. A topic that was deleted and created again has another id, and its offsets restart at 0.
        table: ``schema.table``.
        key: the key's columns.
    """

    topic: str
    topic_id: str
    partition_count: int
    table: str
    key: tuple[str, ...]


class Change(NamedTuple):
    """The state that a key must get: its newest record among those that were folded.

    Attributes:
        offset: of that record; the version.
        key: as the topic has it, a JSON object.
        row: the row as a JSON object, bytes; None: the key was deleted.
        kept: columns that `row` lacks because the update did not change them (`source.unchanged`), and that no earlier
            record of the same row in this batch has. A store that has the key keeps its own values for them.
        schema_id: of the row; "" for a deleted key.
        epoch, commit_lsn, ts_ms: of the event; ts_ms is its commit time.
        lacks: columns of `source.unchanged` in a row that begins with this change: no value for them is known yet.
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

    DONE = "the store has it"
    OVERTAKEN = "the store already had this or a newer record of the key"
    LATER = "the store cannot take it now: retry this key"
    REFUSED = "the store will never take it: a dead letter"


class Outcome(NamedTuple):
    """The verdict on a change; `error` is an error class (``mapper_parsing_exception``), `reason` a text.

    Neither may contain a value of the row.
    """

    verdict: Verdict
    error: str = ""
    reason: str = ""


class StoredKey(NamedTuple):
    """A key as the store has it, for comparison.

    Attributes:
        key: as the topic has it; None when another program wrote the entry.
        name: the key's name in the store.
        version: the offset of the record that the store has.
        content: values by column, equal to `Verifiable.content` of the change except for its kept columns; None for the
            version mark of a deleted key.
    """

    key: bytes | None
    name: str
    version: int
    content: Content | None


Content: TypeAlias = Mapping[str, object]
"""The columns of a row that the store has; a store may keep only a part of a row."""


class Target(Protocol):
    """A store. Several threads call `apply` at once, with disjoint keys; one thread calls everything else.

    A subclass inherits `prepare`, `save_positions` and `saved_positions` for a store that accepts all schemas and never
    loses an acknowledged write.
    """

    def open(self, topics: Sequence[Topic]) -> None:
        """Find or create what holds these topics. Called again after each change of the assignment.

        Raises SinkStale when the store holds another history of the topic, SinkUnfit when rights or settings do not
        fit, SinkUnreachable.
        """

    def prepare(self, schema: SchemaRecord) -> None:
        """Called before the first row of a schema. Raises SinkUnfit when the store cannot hold such rows."""

    def apply(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        """Write the changes; return the outcomes in the same order.

        Readers see a change that is DONE, unless the store has a refresh of its own (`Verifiable.refresh`). It
        survives a crash as far as the store promises; see `saved_positions` for stores that can lose writes.

        Raises SinkUnreachable when the fate of all changes is unknown: the runner passes the same changes again.
        SinkStale, SinkUnfit.
        """

    def save_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        """Note that everything below these offsets is applied. For stores that can lose acknowledged writes."""

    def saved_positions(self) -> Mapping[TopicPartition, int] | None:
        """Return the offsets noted last; called at each assignment and after SinkUnreachable.

        The runner applies everything from there again, and reads a missing partition from its beginning. None: the
        store never loses an acknowledged write.
        """
        return None

    def close(self) -> None:
        """End the connections. May be called twice."""


class TargetFactory(Protocol):
    """Makes the target of a sink: the object behind an entry point of the group ``tailrace.sinks``."""

    def __call__(self, pipeline: str, sink: str, options: Mapping[str, str]) -> Target:
        """Return the target, without connecting yet.

        Args:
            pipeline: `name` in the configuration.
            sink: NAME of ``[sinks.NAME]``. Keep the data of each pipeline and sink apart in the store.
            options: ``[sinks.NAME.options]`` as texts, secrets included: never log them.

        Raises SinkUnfit for missing or invalid options.
        """


@runtime_checkable
class Verifiable(Target, Protocol):
    """A `Target` that `cdc verify` can compare with the topics, and repair."""

    def refresh(self, topics: Iterable[str]) -> None:
        """Return when readers see everything that was applied before this call."""

    def content(self, change: Change) -> Content | None:
        """Return the `StoredKey.content` that the store has after this change; `Change.kept` is not compared."""

    def stored_keys(self, topic: str) -> Iterator[StoredKey]:
        """Yield every key of a topic that the store has, in any order; may include version marks of deleted keys."""

    def read_keys(self, topic: str, keys: Sequence[bytes]) -> Sequence[StoredKey | None]:
        """Read these keys; None for a key that is not there."""

    def remove(self, topic: str, held: Sequence[StoredKey]) -> None:
        """Remove entries that the topic does not have, unless they changed since they were read."""

    def repair_keys(self, changes: Sequence[Change], seen: Sequence[StoredKey | None]) -> None:
        """Write like `apply`, but also over an equal or later version, unless the key differs from `seen` by now.

        For keys whose content or version the topic disproves (`cdc verify --repair`). The rows are as complete as the
        log is, so the store need not keep the columns in `kept`.
        """


class AllowedDifference(Enum):
    """Why the store may differ from the topic for a key."""

    ACCEPTED = "the settings of the sink allow this state"
    EXPIRED = "the row expired or was evicted: readers know that it may be missing"
    UNKNOWN = "the store no longer has the version mark that would tell"


@runtime_checkable
class Lossy(Protocol):
    """A `Target` that may lack rows by its settings also implements this; `cdc verify` calls it."""

    def allowed_difference(
        self, change: Change | None, held: StoredKey | None, now_ms: int
    ) -> AllowedDifference | None:
        """Return why a key may differ from `change`, its last one (None: the topic has none); None: it may not.

        Rows without a version mark have version -1 and no key.
        """


class ParkedKey(NamedTuple):
    """A blocked key with its refused record and all later records, in log order."""

    place: TopicPartition
    key: bytes
    records: Sequence[LogRecord]


class DeadLetters(Protocol):
    """Keeps the records that the store will never take. After the first one, all later records of its key follow.

    Called by the runner's own thread. Everything is durable when a call returns, so offsets may be committed.
    """

    def assigned(self, places: Iterable[TopicPartition]) -> None:
        """Load the blocked keys of these partitions, before their first record; forget those of all others.

        Raises BrokerUnreachable, TopicMismatch.
        """

    def blocks(self, place: TopicPartition, key: bytes) -> bool:
        """Whether the key is blocked, so that this record must be parked too."""

    def park(self, place: TopicPartition, key: bytes, records: Sequence[LogRecord], outcome: Outcome) -> None:
        """Block the key and keep the records, in this order.

        Raises SinkUnfit when a partition has too many blocked keys, or `on_refused` is "stop"; BrokerUnreachable.
        """

    def retries(self) -> Sequence[ParkedKey]:
        """Return the keys of assigned partitions that an operator wants retried, or skipped (without records)."""

    def settled(self, parked: ParkedKey, outcome: Outcome) -> None:
        """Record the outcome of a retry: DONE and OVERTAKEN unblock the key, REFUSED leaves it blocked."""
