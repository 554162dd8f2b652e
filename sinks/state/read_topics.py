"""Records in the sink's state topic which partitions the sink has ever committed, and the id of their topics.

When a topic is deleted, the broker deletes the offsets of all groups for it. It also deletes the offsets of a group
without members after `offsets.retention.minutes` (7 days). Without this record, a sink that lost its offsets would
start from the beginning, in a store that holds rows of another topic, or rows whose deletes are gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import SinkStale
from cdc.kafka.group_member import CommittedOffset
from cdc.kafka.group_offsets import GroupAdmin
from cdc.model.topic_names import sink_group
from sinks.contract import TopicPartition
from sinks.state.offset_metadata import SinkNames, mark_of, metadata, topic_recreated
from sinks.state.state_topic import StateEntries, StateTopic, check_control

_READ: Final = "read"


class ReadPartitions:
    """The worker's side. One thread."""

    def __init__(self, state: StateEntries) -> None:
        self._state = state
        self._known = _places(state.load())

    def reload(self) -> None:
        """Read what other workers have written; before new partitions are read."""
        self._known = _places(self._state.load())

    def check(self, place: TopicPartition, topic_id: str, why: SinkNames) -> None:
        """Check a partition without a committed offset. Raises SinkStale when it had one."""
        known = self._known.get(place)
        if known is None:
            return
        if known != topic_id:
            raise topic_recreated(why, place[0], found=topic_id, wanted=known)
        raise SinkStale(
            f"group {why.group} has lost its committed offset of {place[0]}-{place[1]}",
            hint="Kafka expires offsets when a group has no member for offsets.retention.minutes; rows may have been "
            "deleted since then, so rebuild the sink",
            command=why.command,
            topic=place[0],
            partition=place[1],
        )

    def committed(self, places: Mapping[TopicPartition, str]) -> None:
        """Note that offsets of these partitions were committed, with the ids of their topics."""
        new = {place: topic_id for place, topic_id in places.items() if self._known.get(place) != topic_id}
        if new:
            self._state.put([(_key(place), _value(topic_id)) for place, topic_id in new.items()])
            self._known |= new


def has_read(config: Config, sink: str) -> bool:
    """Whether the sink has ever read a partition. Raises the errors of `StateTopic`."""
    state = StateTopic(config, sink)
    try:
        return has_positions(state.load())
    finally:
        state.close()


def has_positions(entries: Mapping[bytes, bytes]) -> bool:
    """Whether these entries of a state topic show that the sink has read a partition."""
    return bool(_places(entries))


def forget(config: Config, sink: str) -> None:
    """Delete the offsets of a sink and the record of what it has read. Its group must have no members."""
    state = StateTopic(config, sink)
    try:
        GroupAdmin(config.kafka).delete(sink_group(config.name, sink))
        state.put([(_key(place), None) for place in _places(state.load())])
    finally:
        state.close()


def woken(config: Config, sink: str, clock: Clock, bounds: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """Renew the commit times after the store was compared and repaired at its offsets: it lacks nothing now.

    The group must have no members. Topic ids do not change: a recreated topic still counts as another one. `bounds` has
    the first and the end offset of each compared partition; a committed offset outside is moved to them.
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
            found = json.loads(value)
            check_control(found)
            yield (str(name["topic"]), int(name["partition"])), str(found["topic_id"])


def _key(place: TopicPartition) -> bytes:
    return json.dumps({"control": _READ, "topic": place[0], "partition": place[1]}, separators=(",", ":")).encode()


def _value(topic_id: str) -> bytes:
    return json.dumps({"topic_id": topic_id}, separators=(",", ":")).encode()
