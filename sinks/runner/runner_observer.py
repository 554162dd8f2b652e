"""The contract for observing a runner; `cdc.telemetry.runner_status.RunnerStatus` implements it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cdc.errors import TailraceError
from cdc.telemetry.runner_status import Lag


class RunnerObserver(Protocol):
    """Receives events for metrics and status, in the runner's thread. Must not block or raise."""

    def turned(self) -> None:
        """A turn of the runner's loop begins."""

    def applied(self, keys: int, records: int) -> None:
        """`keys` keys were applied, from `records` records."""

    def refused(self, keys: int) -> None:
        """`keys` keys were blocked, or stay blocked after a retry."""

    def postponed(self, keys: int) -> None:
        """The store could not take `keys` keys now."""

    def waits(self, reason: str, cause: TailraceError | None) -> None:
        """The runner waits: `reason` is store, broker, tables or paused."""

    def goes_on(self) -> None:
        """The runner no longer waits."""

    def level(self) -> None:
        """Everything was read and applied."""

    def committed(self, positions: Mapping[tuple[str, int], int], lag: Lag) -> None:
        """The positions of all assigned partitions, and the lag."""


class Unobserved:
    """Ignores all events."""

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
