"""Upcasters: functions that convert an old version of a payload to the next, so that code handles only the newest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from outbox.errors import ContractInvalid, EventMissing

Upcast: TypeAlias = "Callable[[Any], Any]"


class Upcasters:
    """A registry of steps, each from version n to n + 1. Fill it at import; then any thread may read it."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, str, int], Upcast] = {}

    def step(self, aggregate_type: str, type_: str, version: int) -> Callable[[Upcast], Upcast]:
        """Declare a function as the step from `version` to the next. It may change its argument in place."""

        def declare(function: Upcast) -> Upcast:
            key = (aggregate_type, type_, version)
            if key in self._steps:
                raise ContractInvalid(f"{aggregate_type}/{type_}.v{version} has two upcasters")
            self._steps[key] = function
            return function

        return declare

    def has(self, aggregate_type: str, type_: str, version: int) -> bool:
        """Whether there is a step from `version` to the next one."""
        return (aggregate_type, type_, version) in self._steps

    def newest(self, aggregate_type: str, type_: str, version: int) -> int:
        """Return the newest version that can be reached from `version`."""
        while self.has(aggregate_type, type_, version):
            version += 1
        return version

    def cast(self, aggregate_type: str, type_: str, version: int, payload: Any, *, to: int | None = None) -> Any:
        """Convert a payload to version `to` (default: the newest). Raises EventMissing if a step is missing."""
        target = self.newest(aggregate_type, type_, version) if to is None else to
        if target < version:
            raise EventMissing(f"cannot convert {aggregate_type}/{type_}.v{version} to the older version {target}")
        for number in range(version, target):
            step = self._steps.get((aggregate_type, type_, number))
            if step is None:
                raise EventMissing(
                    f"no upcaster converts {aggregate_type}/{type_}.v{number} to the next version",
                    hint="declare it with Upcasters.step",
                )
            payload = step(payload)
        return payload
