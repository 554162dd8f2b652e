"""What a runner is made of: contracts of what it needs around it, so that tests stand in for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from cdc.clock import Clock
from cdc.config.settings import Applied
from cdc.errors import SinkUnreachable
from cdc.kafka.cluster_facts import TopicFacts
from cdc.kafka.group_member import PollResult
from sinks.contract import DeadLetters, Target, TopicPartition
from sinks.runner.key_queues import Bounds
from sinks.runner.orphaned_partitions import OrphanDetector
from sinks.runner.runner_observer import RunnerObserver, Unobserved
from sinks.state.offset_metadata import SinkNames
from sinks.state.schema_follower import SchemaSource
from sinks.state.table_match import TableCheck

Starts: TypeAlias = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Where partitions are read from that nobody has committed; one that is missing from its beginning."""


class Away(NamedTuple):
    """The store did not answer; it is asked again at `at_s`."""

    at_s: float
    error: SinkUnreachable


class Group(Protocol):
    """What the runner needs of `cdc.kafka.group_member.GroupConsumer`."""

    @property
    def member(self) -> str: ...  # noqa: D102
    def subscribe(self, topics: Iterable[str]) -> None: ...  # noqa: D102
    def rejoin(self) -> None: ...  # noqa: D102
    def poll(self, wait_s: float) -> PollResult: ...  # noqa: D102
    def commit(self, positions: Mapping[TopicPartition, tuple[int, str]]) -> bool: ...  # noqa: D102
    def pause(self, places: Iterable[TopicPartition]) -> None: ...  # noqa: D102
    def resume(self, places: Iterable[TopicPartition]) -> None: ...  # noqa: D102
    def seek(self, place: TopicPartition, offset: int) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class PauseControl(Protocol):
    """What the runner needs of `sinks.state.pause_records.WorkerPause`."""

    def look(self) -> str | None: ...  # noqa: D102
    def report_paused(self, member: str) -> None: ...  # noqa: D102
    def report_running(self) -> None: ...  # noqa: D102


class CommittedPartitions(Protocol):
    """What the runner needs of `sinks.state.read_topics.ReadPartitions`."""

    def reload(self) -> None: ...  # noqa: D102
    def check(self, place: TopicPartition, topic_id: str, why: SinkNames) -> None: ...  # noqa: D102
    def committed(self, places: Mapping[TopicPartition, str]) -> None: ...  # noqa: D102


class Directory(Protocol):
    """What the runner needs of `cdc.kafka.admin.TopicAdmin`."""

    def describe(self, topics: Iterable[str]) -> Mapping[str, TopicFacts | None]:
        """Facts of each topic, None for one that is not there."""


@dataclass(slots=True, kw_only=True)
class RunnerParts:
    """What a runner is made of. `closing` closes what was opened for it.

    Every `watch_s` the topics are looked at: whether one was made again, and whether there are new ones. `unowned`: for
    a worker with an instance id. `tables` checks the sink's `tables` against what is captured.
    """

    why: SinkNames
    settings: Applied
    target: Target
    letters: DeadLetters
    directory: Directory
    schemas: SchemaSource
    control: PauseControl
    places: CommittedPartitions
    clock: Clock
    observer: RunnerObserver = field(default_factory=Unobserved)
    starts: Starts | None = None
    bounds: Bounds = field(default_factory=Bounds)
    watch_s: float = 60.0
    unowned: OrphanDetector | None = None
    tables: TableCheck | None = None
    closing: ExitStack = field(default_factory=ExitStack)
