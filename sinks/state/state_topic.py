"""The state topic of a sink, ``<name>.__blocked.<sink>``: compacted, one partition, keys and values are JSON.

Keys are objects. Those with ``control`` are of the runner (``{"control":"pause"}``, see `sinks.state.pause_records`),
the others of dead letters. Whoever reads ignores what it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from cdc.config.settings import Config
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.durable_writer import RecordWriter
from cdc.kafka.log_reader import LogReader
from cdc.model.topic_names import sink_group, sink_state_topic
from cdc.publish.topic_rules import sink_state_want
from cdc.publish.topic_setup import ensure_topics

Entry: TypeAlias = tuple[bytes, bytes | None]
"""(key, value); None takes the key away."""

_PARTITION: Final = 0


def ensure_state_topic(config: Config, sink: str) -> str:
    """Make the topic when it is not there; its name. Raises TopicMismatch when another of that name is unusable."""
    topic = sink_state_topic(config.name, sink)
    ensure_topics(
        TopicAdmin(config.kafka),
        [sink_state_want(topic, config.kafka)],
        kafka=config.kafka,
        create=config.kafka.create_topics,
        recorded_partitions={},
        recorded_topic_ids={},
    )
    return topic


class StateTopic:
    """Reads and writes the state of a sink. One thread. Several may be open at once, on any machine.

    Opening makes the topic. Raises TopicMismatch, BrokerRefused, BrokerUnreachable everywhere.
    """

    def __init__(self, config: Config, sink: str) -> None:
        self.topic = ensure_state_topic(config, sink)
        client_id = f"{sink_group(config.name, sink)}.state"
        self._reader = LogReader(config.kafka, client_id=client_id)
        self._writer = RecordWriter(config.kafka, client_id=client_id)
        self._next: int | None = None

    def load(self) -> dict[bytes, bytes]:
        """Everything that is kept now, by key; `new` goes on behind it."""
        kept: dict[bytes, bytes] = {}
        for key, value in self.stream():
            if value is None:
                kept.pop(key, None)
            else:
                kept[key] = value
        return kept

    def stream(self) -> Iterator[Entry]:
        """All there is, oldest first, one at a time; exhaust it, and `new` goes on behind it."""
        self._next = None
        yield from self._read()

    def new(self) -> list[Entry]:
        """What was written since the last `load` or `new`, by anybody, oldest first; without either, all there is."""
        return list(self._read())

    def put(self, entries: Sequence[Entry]) -> list[int]:
        """Write entries, in this order; they are durable when this returns, with these offsets."""
        return self._writer.write([(self.topic, _PARTITION, key, value, None) for key, value in entries])

    def close(self) -> None:
        """End the connections. May be called twice."""
        self._writer.close()
        self._reader.close()

    def _read(self) -> Iterator[Entry]:
        place = (self.topic, _PARTITION)
        low, high = self._reader.end_offsets([self.topic])[place]
        start = low if self._next is None else max(low, self._next)
        for batch in self._reader.read({place: start}, {place: high}):
            yield from ((record.key, record.value) for record in batch if record.key is not None)
        self._next = high
