"""Reads and writes the state topic of a sink, ``<name>.__blocked.<sink>``: compacted, one partition, JSON.

Keys are objects. Keys with ``control`` belong to the runner (``{"control":"pause"}``, see `sinks.state.pause_records`),
all others to dead letters. A reader ignores unknown keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol, TypeAlias

from cdc.config.settings import Config
from cdc.errors import SinkUnfit
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.durable_writer import RecordWriter
from cdc.kafka.log_reader import LogReader
from cdc.model.topic_names import sink_group, sink_state_topic
from cdc.publish.topic_rules import sink_state_want
from cdc.publish.topic_setup import ensure_topics

Entry: TypeAlias = tuple[bytes, bytes | None]
"""(key, value); None deletes the key."""

CONTROL_VERSION: Final = 1
"""Version of the runner's records (``control``); they leave it out for 1."""

_PARTITION: Final = 0


def check_control(found: object) -> None:
    """Raise SinkUnfit if a newer release wrote this value of a runner's record."""
    version = found.get("version", 1) if isinstance(found, dict) else 1
    if version != CONTROL_VERSION:
        raise SinkUnfit.of_newer_release("a record of the sink's state topic", version, CONTROL_VERSION)


class StateEntries(Protocol):
    """The part of `StateTopic` that its users need."""

    def load(self) -> dict[bytes, bytes]:
        """Return all current entries; `new` continues after them."""

    def new(self) -> list[Entry]:
        """Return the entries written since."""

    def put(self, entries: list[Entry]) -> list[int]:
        """Write entries durably."""


def ensure_state_topic(config: Config, sink: str) -> str:
    """Create the topic if it is missing; return its name. Raises TopicMismatch when the existing topic is unusable."""
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

    Creates the topic when opened. Every method raises TopicMismatch, BrokerRefused, BrokerUnreachable.
    """

    def __init__(self, config: Config, sink: str) -> None:
        self.topic = ensure_state_topic(config, sink)
        client_id = f"{sink_group(config.name, sink)}.state"
        self._reader = LogReader(config.kafka, client_id=client_id)
        self._writer = RecordWriter(config.kafka, client_id=client_id)
        self._next: int | None = None

    def load(self) -> dict[bytes, bytes]:
        """Return all current entries, by key; `new` continues after them."""
        kept: dict[bytes, bytes] = {}
        for key, value in self.stream():
            if value is None:
                kept.pop(key, None)
            else:
                kept[key] = value
        return kept

    def stream(self) -> Iterator[Entry]:
        """Yield all entries, oldest first; once exhausted, `new` continues after them."""
        self._next = None
        yield from self._read()

    def new(self) -> list[Entry]:
        """Return entries written by any process since the last `load` or `new`, oldest first; at first all entries."""
        return list(self._read())

    def put(self, entries: Sequence[Entry]) -> list[int]:
        """Write entries in this order; they are durable when this returns. Return their offsets."""
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
