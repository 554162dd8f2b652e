"""The metadata of a committed offset, and the start offset of a partition that follows from it. Pure.

A recreated topic counts from 0 again, so an offset only means something together with the id of its topic. The metadata
holds that id and the commit time: a sink that was down for longer than Kafka keeps tombstones may have missed deletes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from cdc.errors import SinkGap, SinkStale, SinkUnfit
from cdc.kafka.group_member import PartitionStart
from sinks.contract import TopicPartition

MARK_VERSION: Final = 1
SLEEP_SHARE: Final = 0.8
"""Share of the time that a tombstone stays in a topic. A sink that was down for longer may have missed deletes."""


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metadata of an offset. `at_s`: commit time since 1970; only days matter, so any clock is precise enough.

    `version` is left out for 1.
    """

    topic_id: str
    at_s: int
    version: int = 1


class _MayBeVersioned(msgspec.Struct):
    version: int = 1


class Window(NamedTuple):
    """How long a topic keeps records that a late reader must not miss.

    Attributes:
        delete_s: from a delete until Kafka may remove its tombstone; None: the topic is not compacted.
        retention_s: how long any record stays; None: until a newer record of its key arrives.
    """

    delete_s: float | None
    retention_s: float | None

    @property
    def shortest_s(self) -> float | None:
        """The time until the first unread record may be lost; None: never."""
        return min((one for one in self if one is not None), default=None)


class SinkNames(NamedTuple):
    """The names for error messages: the sink, its group, and the commands that fix it."""

    sink: str
    group: str

    @property
    def command(self) -> str:
        """The command to try."""
        return f"cdc sink rebuild {self.sink}"

    @property
    def repair(self) -> str:
        """The command to try when the topic itself may lack records."""
        return f"cdc verify {self.sink} --repair"


def metadata(topic_id: str, at_s: float) -> str:
    """Encode a Mark."""
    return msgspec.json.encode(Mark(topic_id, int(at_s))).decode()


def mark_of(text: str) -> Mark | None:
    """Parse the metadata of an offset; None when another program committed it, such as a tool that resets offsets.

    Raises SinkUnfit if a newer release wrote it: without its topic id, offsets of a recreated topic would be trusted.
    """
    try:
        version = msgspec.json.decode(text, type=_MayBeVersioned).version
        if version != MARK_VERSION:
            raise SinkUnfit.of_newer_release("the metadata of a committed offset", version, MARK_VERSION)
        return msgspec.json.decode(text, type=Mark)
    except msgspec.MsgspecError:
        return None


def window_of(configs: Mapping[str, str]) -> Window:
    """Return the window of a topic from its settings."""
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
    """Return the offset to read a partition from: the committed one, or `first` (its beginning) without one.

    Raises SinkStale when the offset belongs to another topic or is too old, SinkGap when the next record is gone.
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
            hint="the topic lost its newest records, or was recreated; rebuild or repair the sink",
            command=why.command,
            topic=topic,
            partition=partition,
        )
    if committed.offset < begin.low:
        raise SinkGap(
            f"{topic}-{partition} begins at offset {begin.low}, but group {why.group} has read it only up to "
            f"{committed.offset}",
            hint="Kafka removed records that the sink has not read, so a rebuilt sink would lack them too; repair the "
            "sink and the topic from the source",
            command=why.repair,
            topic=topic,
            partition=partition,
        )
    slept_s = now_s - mark.at_s if mark is not None else 0.0
    limit_s = None if window.delete_s is None else SLEEP_SHARE * window.delete_s
    if limit_s is not None and slept_s > limit_s and committed.offset < begin.high:
        raise SinkStale(
            f"sink {why.sink} last applied {topic}-{partition} {_days(slept_s)} ago, but the topic keeps deletes for "
            f"{_days(window.delete_s or 0)}: the sink may have missed some",
            hint=f"rebuild it, or compare and repair it: cdc verify {why.sink} --repair",
            command=why.command,
            topic=topic,
            partition=partition,
        )
    return committed.offset


def topic_recreated(why: SinkNames, topic: str, *, found: str, wanted: str) -> SinkStale:
    """Return the error for a topic with another id."""
    return SinkStale(
        f"topic {topic!r} was deleted and recreated: its id is {found}, but sink {why.sink} has read {wanted}",
        hint="the sink writes nothing from the new topic; rebuild the sink",
        command=why.command,
        topic=topic,
        found=found,
        wanted=wanted,
    )


def left_s(window: Window, behind_s: float) -> float | None:
    """Return how long a sink with this lag may stay behind before records are lost; None: forever."""
    shortest_s = window.shortest_s
    return None if shortest_s is None else shortest_s - behind_s


def _days(seconds: float) -> str:
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.1f} days"
    return f"{seconds / 3600:.1f} hours" if seconds >= 2 * 3600 else f"{seconds:.0f} s"
