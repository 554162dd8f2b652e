"""Upcasters: what makes an old version of an event's payload the next one, so that code knows the newest only. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from outbox.errors import ContractInvalid, EventMissing

Upcast: TypeAlias = "Callable[[Any], Any]"


class Upcasters:
    """One step for each old version: from version n to n + 1. Made once, then read by any thread."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, str, int], Upcast] = {}

    def step(self, aggregate_type: str, type_: str, version: int) -> Callable[[Upcast], Upcast]:
        """Declare the function below as what makes `version` the next one. It may change what it is given."""

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
        """The version to which the steps lead from `version`."""
        while self.has(aggregate_type, type_, version):
            version += 1
        return version

    def cast(self, aggregate_type: str, type_: str, version: int, payload: Any, *, to: int | None = None) -> Any:
        """The payload as version `to`, the newest unless said. Raises EventMissing where no step leads there."""
        target = self.newest(aggregate_type, type_, version) if to is None else to
        if target < version:
            raise EventMissing(f"{aggregate_type}/{type_}.v{version} cannot be made version {target}, which is older")
        for number in range(version, target):
            step = self._steps.get((aggregate_type, type_, number))
            if step is None:
                raise EventMissing(
                    f"no upcaster makes {aggregate_type}/{type_}.v{number} the next version",
                    hint="declare it with Upcasters.step",
                )
            payload = step(payload)
        return payload
