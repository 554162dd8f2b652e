"""The parts of a runner, as contracts, so that tests can replace each of them."""

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
from sinks.runner.applied_spans import AppliedSpans
from sinks.runner.key_queues import Bounds
from sinks.runner.orphaned_partitions import OrphanDetector
from sinks.runner.runner_observer import RunnerObserver, Unobserved
from sinks.state.offset_metadata import SinkNames
from sinks.state.schema_follower import SchemaSource
from sinks.state.table_match import TableCheck

Starts: TypeAlias = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Finds the start offsets of partitions without a committed offset; a missing one is read from its beginning."""


class Away(NamedTuple):
    """The store did not answer; the runner tries again at `at_s`."""

    at_s: float
    error: SinkUnreachable


class Group(Protocol):
    """The part of `cdc.kafka.group_member.GroupConsumer` that the runner needs."""

    @property
    def member(self) -> str: ...  # noqa: D102
    def subscribe(self, topics: Iterable[str]) -> None: ...  # noqa: D102
    def rejoin(self) -> None: ...  # noqa: D102
    def poll(self, wait_s: float) -> PollResult: ...  # noqa: D102
    def commit(self, positions: Mapping[TopicPartition, tuple[int, str]]) -> bool: ...  # noqa: D102
    def pause(self, places: Iterable[TopicPartition]) -> None: ...  # noqa: D102
    def resume(self, places: Iterable[TopicPartition]) -> None: ...  # noqa: D102
    def seek(self, place: TopicPartition, offset: int) -> None: ...  # noqa: D102
    def ends(self, places: Iterable[TopicPartition], ask_s: float) -> Mapping[TopicPartition, int]: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class PauseControl(Protocol):
    """The part of `sinks.state.pause_records.WorkerPause` that the runner needs."""

    def look(self) -> str | None: ...  # noqa: D102
    def report_paused(self, member: str) -> None: ...  # noqa: D102
    def report_running(self) -> None: ...  # noqa: D102


class CommittedPartitions(Protocol):
    """The part of `sinks.state.read_topics.ReadPartitions` that the runner needs."""

    def reload(self) -> None: ...  # noqa: D102
    def check(self, place: TopicPartition, topic_id: str, why: SinkNames) -> None: ...  # noqa: D102
    def committed(self, places: Mapping[TopicPartition, str]) -> None: ...  # noqa: D102


class Directory(Protocol):
    """The part of `cdc.kafka.admin.TopicAdmin` that the runner needs."""

    def describe(self, topics: Iterable[str]) -> Mapping[str, TopicFacts | None]:
        """Return the facts of each topic; None for a topic that does not exist."""


@dataclass(slots=True, kw_only=True)
class RunnerParts:
    """The parts of a runner. `closing` closes what was opened for it.

    Every `watch_s` seconds the runner checks for recreated topics and new tables. `unowned`: for workers with an
    instance id. `tables` checks the sink's `tables` against the captured tables.
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
    spans: AppliedSpans | None = None
    closing: ExitStack = field(default_factory=ExitStack)
