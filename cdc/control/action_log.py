"""Writes and reads the records of actions in the topic ``<name>.__actions``. Needs Kafka only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdc.config.settings import Config
from cdc.control.action_record import ActionRecord, decode, encode
from cdc.errors import TopicMissing
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.log_reader import LogReader
from cdc.kafka.sender import send
from cdc.model.topic_names import actions_topic
from cdc.publish.topic_rules import actions_want
from cdc.publish.topic_setup import ensure_topics

WRITE_S: Final = 5.0  # for each of two requests: an answer over HTTP waits for it
READ_S: Final = 10.0
_PARTITION: Final = 0


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest records, the oldest first. `unreadable`: how many more were written by another program."""

    records: tuple[ActionRecord, ...] = ()
    unreadable: int = 0


def write(config: Config, record: ActionRecord) -> int:
    """Write a record durably and return its offset; create the topic if it is missing.

    Raises TopicMissing if it may not be created (`kafka.create_topics`), BrokerRefused, BrokerUnreachable.
    """
    topic, key, value = actions_topic(config.name), config.name.encode(), encode(record)
    try:
        return send(config.kafka, topic, key, value, timeout_s=WRITE_S)
    except TopicMissing:
        ensure_topics(
            TopicAdmin(config.kafka),
            [actions_want(topic, config.kafka)],
            kafka=config.kafka,
            create=config.kafka.create_topics,
            recorded_partitions={},
            recorded_topic_ids={},
        )
        return send(config.kafka, topic, key, value, timeout_s=WRITE_S)


def read_newest(config: Config, limit: int) -> Newest:
    """Return the newest `limit` records; none when no action was ever recorded.

    Raises BrokerUnreachable, BrokerRefused.
    """
    topic = actions_topic(config.name)
    at = (topic, _PARTITION)
    with LogReader(config.kafka, client_id="tailrace-actions", answer_s=READ_S) as reader:
        try:
            reader.partitions([topic])
        except TopicMissing:
            return Newest()
        low, high = reader.end_offsets([topic])[at]
        start = max(low, high - limit)
        values = [record.value for batch in reader.read({at: start}, {at: high}) for record in batch]
    found = [decode(value) for value in values]
    records = tuple(record for record in found if record is not None)
    return Newest(records, len(found) - len(records))
