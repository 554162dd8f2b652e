"""Creates and checks the topics of a start, and reads where each partition ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cdc.config.settings import Config
from cdc.errors import BrokerRefused, ConfigError, TopicMismatch, TopicMissing
from cdc.kafka.cluster_facts import TopicFacts
from cdc.model.left_out import LeftOut, no_topic
from cdc.model.progress_record import Identity
from cdc.model.topic_names import (
    data_topic,
    heartbeat_topic,
    message_topic,
    parse_partition,
    partition_text,
    refused_events_topic,
    transaction_topic,
)
from cdc.progress.restore import Restored, TopicReader
from cdc.publish.ledger import Ledger, Partition
from cdc.publish.topic_rules import TopicWant, control_wants, data_want, events_want, refused_want, side_want
from cdc.publish.topic_setup import TopicDirectory, ensure_topics
from cdc.replication.table_shape import SourceTable
from cdc.startup import start_rules
from outbox.event_topics import EventTopics


def control_topics(config: Config, admin: TopicDirectory) -> dict[str, TopicFacts]:
    """Return the topics that progress is read from. They are compared with the recorded ones after it is read."""
    return ensure_topics(
        admin,
        control_wants(config.name, config.kafka, row_bytes_max=config.capture.row_bytes_max),
        kafka=config.kafka,
        create=config.kafka.create_topics,
        recorded_partitions={},
        recorded_topic_ids={},
    )


def data_topics(
    config: Config, admin: TopicDirectory, tables: Sequence[SourceTable], recorded: Identity | None
) -> dict[str, TopicFacts]:
    """Return the topics of all tables and those beside them, created or checked against the recorded ones."""
    return ensure_topics(
        admin,
        data_wants(config, tables, recorded),
        kafka=config.kafka,
        create=config.kafka.create_topics,
        recorded_partitions=recorded.partitions if recorded else {},
        recorded_topic_ids=recorded.topic_ids if recorded else {},
    )


def data_wants(config: Config, tables: Sequence[SourceTable], recorded: Identity | None) -> list[TopicWant]:
    """Return the required form of all tables' topics and those beside them. Raises ConfigError for a reserved name."""
    wants = [
        data_want(
            data_topic(config.name, table.namespace, table.name),
            config.kafka,
            row_bytes_max=config.capture.row_bytes_max,
            compacted=bool(table.key),
        )
        for table in tables
    ]
    wants += [
        side_want(topic, config.kafka, row_bytes_max=config.capture.row_bytes_max) for topic in side_topics(config)
    ]
    return [*wants, *(event_want(config, topic) for topic in recorded_event_topics(config, tables, recorded))]


def without_topic(
    config: Config, admin: TopicDirectory, tables: Iterable[SourceTable], recorded: Identity
) -> list[LeftOut]:
    """Return new tables whose topics are unfit, or missing and may not be created."""
    found = []
    for table in tables:
        topic = data_topic(config.name, table.namespace, table.name)
        if topic in recorded.topic_ids:
            continue
        size = config.capture.row_bytes_max
        want = data_want(topic, config.kafka, row_bytes_max=size, compacted=bool(table.key))
        try:
            ensure_topics(
                admin,
                [want],
                kafka=config.kafka,
                create=config.kafka.create_topics,
                recorded_partitions=recorded.partitions,
                recorded_topic_ids=recorded.topic_ids,
            )
        except TopicMismatch as error:
            found.append(no_topic(table.table, table.oid, error))
    return found


def recorded_event_topics(config: Config, tables: Iterable[SourceTable], recorded: Identity | None) -> list[str]:
    """Return the recorded topics of events and refused events. Raises ConfigError if a table's topic is one."""
    if config.outbox is None:
        return []
    names = EventTopics.of(config.name, config.outbox)
    captured = {data_topic(config.name, table.namespace, table.name): table.table for table in tables}
    taken = sorted(topic for topic in captured if names.type_of(topic) is not None)
    if taken:
        raise ConfigError(
            f"the topic of {captured[taken[0]]} would be {taken[0]!r}, which outbox.topic reserves for events",
            hint="give event topics another name, or leave the table out of source.tables",
            command='[outbox] topic = "{name}.outbox.{aggregate_type}"',
            table=captured[taken[0]],
        )
    refused = refused_events_topic(config.name)
    return sorted(
        topic
        for topic in (recorded.topic_ids if recorded else {})
        if topic == refused or names.type_of(topic) is not None
    )


def event_want(config: Config, topic: str) -> TopicWant:
    """Return the required form of a topic of events."""
    assert config.outbox is not None
    size = config.capture.row_bytes_max
    if topic == refused_events_topic(config.name):
        return refused_want(topic, config.kafka, row_bytes_max=size)
    return events_want(topic, config.kafka, config.outbox, row_bytes_max=size)


def side_topics(config: Config) -> list[str]:
    """Return the configured topics of transactions, messages and heartbeats."""
    asked = {
        heartbeat_topic(config.name): config.capture.heartbeat_interval_s > 0,
        transaction_topic(config.name): config.capture.transactions,
        message_topic(config.name): config.capture.messages,
    }
    return [topic for topic, wanted in asked.items() if wanted]


def refuse_orphans(name: str, restored: Restored, reader: TopicReader, data: Mapping[str, TopicFacts]) -> None:
    """Raise if there is no recorded position but data topics have records: events would be in the log twice."""
    if restored.progress is not None:
        return
    error = start_rules.orphans(name, filled_topics(reader, list(data)))
    if error is not None:
        raise error


def filled_topics(reader: TopicReader, topics: Sequence[str]) -> list[str]:
    """Return those of `topics` that have records, by name."""
    ends = reader.end_offsets(topics) if topics else {}
    return sorted({topic for (topic, _), (_, high) in ends.items() if high > 0})


class LedgerTopics:
    """Opens topics in the publisher's ledger, with the end of each partition and its count from the cut index.

    A topic that is not written to now (its table has left, or it was turned off) keeps its counts until it is deleted.
    """

    def __init__(
        self, config: Config, admin: TopicDirectory, reader: TopicReader, ledger: Ledger, restored: Restored
    ) -> None:
        self._config = config
        self._admin = admin
        self._reader = reader
        self._ledger = ledger
        self._restored = restored
        self._counts: dict[str, int] = {}
        self._facts: dict[str, TopicFacts] = {}

    def begin(self, topics: Iterable[str]) -> None:
        """Open these topics at a start, and let the ledger keep the counts of all others.

        A full map of the cut index must not leave out a count, except that of a deleted topic. The count would start
        again when its table comes back, and readers could not tell that from continued counting.
        """
        self.open_all(topics)
        resting = {at: count for at, count in self._recorded() if at[0] not in self._counts}
        ends = self._ends_of(sorted({topic for topic, _ in resting}))
        for partition, count in resting.items():
            if partition[0] in ends:
                self._ledger.rest(partition, end_offset=ends[partition[0]].get(partition, count[0]), before=count)

    def open_all(self, topics: Iterable[str]) -> None:
        """Open every partition of these topics."""
        for partition, (_, high) in self._reader.end_offsets(list(topics)).items():
            topic, index = partition
            before = self._restored.accounts.get(partition_text(topic, index))
            self._ledger.open(partition, end_offset=high, before=before)
            self._counts[topic] = max(self._counts.get(topic, 0), index + 1)

    def open_topic(self, topic: str, compacted: bool) -> int:  # noqa: FBT001 - see cdc.capture.table_planner.OpenTopic
        """See `cdc.capture.table_planner.OpenTopic`. Creates the topic of a table that appeared after the start."""
        if topic not in self._counts:
            size = self._config.capture.row_bytes_max
            self.open_wanted(data_want(topic, self._config.kafka, row_bytes_max=size, compacted=compacted))
        return self._counts[topic]

    def facts(self, topic: str) -> TopicFacts | None:
        """Return the facts of a topic that was opened while capture runs."""
        return self._facts.get(topic)

    def exists(self, topic: str) -> bool:
        """Return whether Kafka has the topic now. From any thread."""
        return self._admin.describe([topic]).get(topic) is not None

    def known(self, topic: str) -> bool:
        """Return whether the topic's partitions are open."""
        return topic in self._counts

    def reach(self, topic: str) -> dict[Partition, int]:
        """See `cdc.publish.ledger.Ledger.reach`."""
        return self._ledger.reach(topic)

    @property
    def topics(self) -> list[str]:
        """The topics whose partitions are open."""
        return list(self._counts)

    def open_wanted(self, want: TopicWant) -> TopicFacts:
        """Create or check a topic, and open every partition of it."""
        config, topic = self._config, want.spec.topic
        recorded = self._restored.identity
        found = ensure_topics(
            self._admin,
            [want],
            kafka=config.kafka,
            create=config.kafka.create_topics,
            recorded_partitions=recorded.partitions if recorded else {},
            recorded_topic_ids=recorded.topic_ids if recorded else {},
        )
        self.open_all([topic])
        self._facts[topic] = found[topic]
        return found[topic]

    def _recorded(self) -> Iterator[tuple[Partition, tuple[int, int, str]]]:
        for text, count in self._restored.accounts.items():
            yield parse_partition(text), count

    def _ends_of(self, topics: Sequence[str]) -> dict[str, dict[Partition, int]]:
        """Return where the partitions of each topic end, except topics that were deleted, or deleted and created again.

        Empty for a topic that may not be described: its counts stay unchanged.
        """
        try:
            return self._existing_ends(topics)
        except (TopicMismatch, BrokerRefused) as error:
            if len(topics) == 1 and isinstance(error, TopicMissing) and self._admin.describe(topics)[topics[0]]:
                raise  # the topic exists; the broker's metadata is behind
            if len(topics) == 1:  # deleted meanwhile, or the user may not describe it
                return {} if isinstance(error, TopicMismatch) else {topics[0]: {}}
        return {topic: ends for one in topics for topic, ends in self._ends_of([one]).items()}

    def _existing_ends(self, topics: Sequence[str]) -> dict[str, dict[Partition, int]]:
        recorded = self._restored.identity.topic_ids if self._restored.identity else {}
        found = self._admin.describe(topics) if topics else {}
        there = {name for name, facts in found.items() if facts and recorded.get(name) in {None, facts.topic_id}}
        ends: dict[str, dict[Partition, int]] = {topic: {} for topic in there}
        for partition, (_, high) in self._reader.end_offsets(sorted(there)).items() if there else ():
            ends[partition[0]][partition] = high
        return ends
