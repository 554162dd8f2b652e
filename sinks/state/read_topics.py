"""Which partitions a sink has ever committed, and of which topic: kept in its state topic, since Kafka forgets.

When a topic is deleted the broker deletes the offsets of all groups in it, and those of a group that is away for
longer than `offsets.retention.minutes` (7 days). Without offsets a sink would look as if it had never been, and begin
anew in a store that holds another log, or rows whose deletes are gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import SinkStale
from cdc.kafka.group_member import CommittedOffset
from cdc.kafka.group_offsets import GroupAdmin
from cdc.model.topic_names import sink_group
from sinks.contract import TopicPartition
from sinks.state.offset_metadata import SinkNames, mark_of, metadata, topic_recreated
from sinks.state.state_topic import Entry, StateTopic

_READ: Final = "read"


class StateEntries(Protocol):
    """What is needed of `sinks.state.state_topic.StateTopic`."""

    def load(self) -> dict[bytes, bytes]:
        """Everything that is kept now."""

    def put(self, entries: list[Entry]) -> list[int]:
        """Write entries durably."""


class ReadPartitions:
    """A worker's side. One thread."""

    def __init__(self, state: StateEntries) -> None:
        self._state = state
        self._known = _places(state.load())

    def reload(self) -> None:
        """Read what other workers have written: before partitions begin."""
        self._known = _places(self._state.load())

    def check(self, place: TopicPartition, topic_id: str, why: SinkNames) -> None:
        """A partition begins that has no committed offset. Raises SinkStale when it had one."""
        known = self._known.get(place)
        if known is None:
            return
        if known != topic_id:
            raise topic_recreated(why, place[0], found=topic_id, wanted=known)
        raise SinkStale(
            f"the offsets that group {why.group} had of {place[0]}-{place[1]} are gone",
            hint="Kafka forgets them when a group is away for longer than offsets.retention.minutes, and so much may "
            "have been deleted meanwhile; build the sink anew",
            command=why.command,
            topic=place[0],
            partition=place[1],
        )

    def committed(self, places: Mapping[TopicPartition, str]) -> None:
        """Offsets of these were committed, of topics with these ids."""
        new = {place: topic_id for place, topic_id in places.items() if self._known.get(place) != topic_id}
        if new:
            self._state.put([(_key(place), _value(topic_id)) for place, topic_id in new.items()])
            self._known |= new


def has_read(config: Config, sink: str) -> bool:
    """Whether the sink has read any partition, ever. Raises what `StateTopic` raises."""
    state = StateTopic(config, sink)
    try:
        return has_positions(state.load())
    finally:
        state.close()


def has_positions(entries: Mapping[bytes, bytes]) -> bool:
    """The same, of what its state topic holds."""
    return bool(_places(entries))


def forget(config: Config, sink: str) -> None:
    """The sink begins anew, in an empty store: its offsets and what it has read. Nobody may be in its group."""
    state = StateTopic(config, sink)
    try:
        GroupAdmin(config.kafka).delete(sink_group(config.name, sink))
        state.put([(_key(place), None) for place in _places(state.load())])
    finally:
        state.close()


def woken(config: Config, sink: str, clock: Clock, bounds: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """The store was compared and repaired as of the offsets it is at, so it slept no longer, and lacks nothing.

    Nobody may be in its group. Topic ids stay as they were: a topic that was made again stays another one. `bounds` are
    the first offset and the end of each partition that was compared: where what it is at is gone, it goes on at these.
    """
    admin, group = GroupAdmin(config.kafka), sink_group(config.name, sink)
    now_s = clock.wall_s()
    fresh: dict[TopicPartition, CommittedOffset] = {}
    for place, one in admin.committed(group, bounds).items():
        mark = mark_of(one.metadata)
        if mark is not None:
            low, high = bounds[place]
            fresh[place] = CommittedOffset(min(max(one.offset, low), high), metadata(mark.topic_id, now_s))
    admin.alter(group, fresh)


def _places(entries: Mapping[bytes, bytes]) -> dict[TopicPartition, str]:
    return dict(_read(entries.items()))


def _read(entries: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[TopicPartition, str]]:
    for key, value in entries:
        name = json.loads(key)
        if isinstance(name, dict) and name.get("control") == _READ:
            yield (str(name["topic"]), int(name["partition"])), str(json.loads(value)["topic_id"])


def _key(place: TopicPartition) -> bytes:
    return json.dumps({"control": _READ, "topic": place[0], "partition": place[1]}, separators=(",", ":")).encode()


def _value(topic_id: str) -> bytes:
    return json.dumps({"topic_id": topic_id}, separators=(",", ":")).encode()
