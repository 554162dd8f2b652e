"""The progress of a worker's partitions: applied and committed offsets, and the lag. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from cdc.model.log_record import LogRecord
from cdc.telemetry.runner_status import Lag
from sinks.contract import Topic, TopicPartition
from sinks.runner.frontier import Frontier
from sinks.state.offset_metadata import Window, left_s


@dataclass(slots=True)
class Partition:
    """An assigned partition.

    Attributes:
        low: the first available offset at the assignment.
        committed: the committed offset; -1: this worker has committed none.
        committed_s: when, on the runner's clock.
        high: the newest end offset that is known; see `partition_ends`.
        at_end: everything was read up to the end.
        times: (offset, time in ms) of the first record of each batch that is not applied.
    """

    topic: Topic
    window: Window
    low: int
    frontier: Frontier
    committed: int = -1
    committed_s: float = 0.0
    high: int = 0
    at_end: bool = False
    times: deque[tuple[int, int]] = field(default_factory=deque)

    def batch_begins(self, record: LogRecord) -> None:
        """Note the time of the first record of a batch."""
        self.times.append((record.offset, record.timestamp_ms))

    def ended(self, offset: int) -> None:
        """Note that the partition ends at `offset`."""
        self.frontier.reached(offset)
        self.high = max(self.high, offset)
        self.at_end = True

    def rewind(self, offset: int) -> None:
        """Start again at `offset`."""
        self.frontier = Frontier(offset)
        self.times.clear()
        self.at_end = False

    def behind_s(self, now_ms: float) -> float:
        """Return the age of the oldest record that is not applied, by its batch; 0 when there is none."""
        position = self.frontier.position
        while len(self.times) > 1 and self.times[1][0] <= position:
            self.times.popleft()
        if not self.times or self.is_level:
            return 0.0
        return max(0.0, (now_ms - self.times[0][1]) / 1000)

    @property
    def is_level(self) -> bool:
        """Whether everything was read and applied."""
        return self.at_end and not self.frontier.span


def lag_of(partitions: Iterable[Partition], now_ms: float, *, still_s: float = 0.0) -> Lag:
    """Return the lag of all partitions together; the one in danger first determines the time left.

    `still_s`: seconds since the worker stopped reading; newer records are unknown.
    """
    records, seconds, left = 0, 0.0, None
    for one in partitions:
        records += max(0, one.high - one.frontier.position)
        behind_s = max(one.behind_s(now_ms), still_s)
        seconds = max(seconds, behind_s)
        of_one = left_s(one.window, behind_s)
        left = of_one if left is None else left if of_one is None else min(left, of_one)
    return Lag(records, seconds, left)


def uncommitted(
    partitions: dict[TopicPartition, Partition], now_s: float, *, again_s: float
) -> dict[TopicPartition, int]:
    """Return the positions to commit: those that moved, and those whose commit is as old as `again_s`."""
    return {
        place: one.frontier.position
        for place, one in partitions.items()
        if one.frontier.position != one.committed or now_s - one.committed_s >= again_s
    }
