"""What is committed beside an offset, and where a partition is read from because of it. Pure.

An offset says nothing without the topic it is of: a topic that was made again counts from 0. So its id goes along, and
the time, because whoever slept for longer than Kafka keeps the marks of deleted keys has missed some of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from cdc.errors import SinkGap, SinkStale
from cdc.kafka.group_member import PartitionStart
from sinks.contract import TopicPartition

SLEEP_SHARE: Final = 0.8
"""Of the time for which a delete stays in a topic: a sink that slept for longer may have missed one."""


class Mark(msgspec.Struct, frozen=True):
    """The text beside an offset. `at_s`: when it was committed, since 1970; days count, so any clock will do."""

    topic_id: str
    at_s: int


class Window(NamedTuple):
    """For how long a topic keeps what a late reader must not miss.

    Attributes:
        delete_s: from a delete until Kafka may remove its last trace; None: a topic that is not compacted.
        retention_s: for how long any record stays; None: until a newer one of its key comes.
    """

    delete_s: float | None
    retention_s: float | None

    @property
    def shortest_s(self) -> float | None:
        """Until the first thing is lost that is not read."""
        return min((one for one in self if one is not None), default=None)


class SinkNames(NamedTuple):
    """What a message needs to say: the group, the sink and the command that mends it."""

    sink: str
    group: str

    @property
    def command(self) -> str:
        """What to try."""
        return f"cdc sink rebuild {self.sink}"

    @property
    def repair(self) -> str:
        """What to try where the topic itself may lack something."""
        return f"cdc verify {self.sink} --repair"


def metadata(topic_id: str, at_s: float) -> str:
    """The text of a Mark."""
    return msgspec.json.encode(Mark(topic_id, int(at_s))).decode()


def mark_of(text: str) -> Mark | None:
    """What was committed beside an offset; None when it was not us: a tool that resets offsets writes nothing."""
    try:
        return msgspec.json.decode(text, type=Mark)
    except msgspec.MsgspecError:
        return None


def window_of(configs: Mapping[str, str]) -> Window:
    """From the settings of a topic."""
    policy = configs.get("cleanup.policy", "compact")
    compacted = "compact" in policy
    delete_ms = int(configs.get("min.compaction.lag.ms", "0")) + int(configs.get("delete.retention.ms", "86400000"))
    retention_ms = int(configs.get("retention.ms", "-1")) if "delete" in policy else -1
    return Window(delete_ms / 1000 if compacted else None, retention_ms / 1000 if retention_ms >= 0 else None)


def start_offset(
    place: TopicPartition,
    begin: PartitionStart,
    topic_id: str,
    window: Window,
    now_s: float,
    why: SinkNames,
    first: int | None = None,
) -> int:
    """Where a partition is read from: behind what is committed, or `first` (its beginning) when nothing is.

    Raises SinkStale when the offset is of another topic or too old, SinkGap when what comes next is gone.
    """
    topic, partition = place
    committed = begin.committed
    if committed is None:
        return begin.low if first is None else max(first, begin.low)
    mark = mark_of(committed.metadata)
    if mark is not None and mark.topic_id != topic_id:
        raise topic_recreated(why, topic, found=topic_id, wanted=mark.topic_id)
    if committed.offset > begin.high:
        raise SinkStale(
            f"group {why.group} is at offset {committed.offset} of {topic}-{partition}, which ends at {begin.high}",
            hint="the topic lost its end, or was made again; build the sink anew, or repair it",
            command=why.command,
            topic=topic,
            partition=partition,
        )
    if committed.offset < begin.low:
        raise SinkGap(
            f"{topic}-{partition} begins at offset {begin.low}, and group {why.group} has read it up to "
            f"{committed.offset}",
            hint="records are gone that the sink has not read, and the topic lacks what they said: a sink that is "
            "built anew would, too; repair both against the source",
            command=why.repair,
            topic=topic,
            partition=partition,
        )
    slept_s = now_s - mark.at_s if mark is not None else 0.0
    limit_s = None if window.delete_s is None else SLEEP_SHARE * window.delete_s
    if limit_s is not None and slept_s > limit_s and committed.offset < begin.high:
        raise SinkStale(
            f"sink {why.sink} last applied {topic}-{partition} {_days(slept_s)} ago, and deletes stay "
            f"{_days(window.delete_s or 0)} in the topic: it may have missed some",
            hint=f"build it anew, or have it compared and repaired: cdc verify {why.sink} --repair",
            command=why.command,
            topic=topic,
            partition=partition,
        )
    return committed.offset


def topic_recreated(why: SinkNames, topic: str, *, found: str, wanted: str) -> SinkStale:
    """The error of a topic with another id."""
    return SinkStale(
        f"topic {topic!r} was deleted and made again: its id is {found}, and sink {why.sink} belongs to {wanted}",
        hint="nothing is written from it; build the sink anew",
        command=why.command,
        topic=topic,
        found=found,
        wanted=wanted,
    )


def left_s(window: Window, behind_s: float) -> float | None:
    """How long a sink that is so far behind may stay so before something is lost; None: for ever."""
    shortest_s = window.shortest_s
    return None if shortest_s is None else shortest_s - behind_s


def _days(seconds: float) -> str:
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.1f} days"
    return f"{seconds / 3600:.1f} hours" if seconds >= 2 * 3600 else f"{seconds:.0f} s"
