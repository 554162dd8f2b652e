"""The contract for observing a runner; `cdc.telemetry.runner_status.RunnerStatus` implements it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from cdc.errors import TailraceError


class Lag(NamedTuple):
    """How far a sink is behind.

    Attributes:
        records: offsets between what is applied and the end, control records among them.
        seconds: age of the oldest record that is not applied; 0 when there is none.
        left_s: until Kafka may remove what is not applied; None: it never does.
    """

    records: int
    seconds: float
    left_s: float | None


class RunnerObserver(Protocol):
    """Told by the runner's thread, for metrics and status. Must not block or raise."""

    def turned(self) -> None:
        """A turn of the runner's loop begins."""

    def applied(self, keys: int, records: int) -> None:
        """So many keys took the newest of so many records."""

    def refused(self, keys: int) -> None:
        """So many keys were parked, or stay so."""

    def postponed(self, keys: int) -> None:
        """The store had no room for so many keys now."""

    def waits(self, reason: str, cause: TailraceError | None) -> None:
        """Nothing goes on: `reason` is store, broker or paused."""

    def goes_on(self) -> None:
        """It does again."""

    def level(self) -> None:
        """Everything there is was applied."""

    def committed(self, positions: Mapping[tuple[str, int], int], lag: Lag) -> None:
        """The positions of all partitions that are ours."""


class Unobserved:
    """Ignores everything."""

    def turned(self) -> None:
        """See `RunnerObserver`."""

    def applied(self, keys: int, records: int) -> None:
        """See `RunnerObserver`."""

    def refused(self, keys: int) -> None:
        """See `RunnerObserver`."""

    def postponed(self, keys: int) -> None:
        """See `RunnerObserver`."""

    def waits(self, reason: str, cause: TailraceError | None) -> None:
        """See `RunnerObserver`."""

    def goes_on(self) -> None:
        """See `RunnerObserver`."""

    def level(self) -> None:
        """See `RunnerObserver`."""

    def committed(self, positions: Mapping[tuple[str, int], int], lag: Lag) -> None:
        """See `RunnerObserver`."""
