"""What `cdc doctor` finds about a store before its sink runs. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, Protocol, runtime_checkable


class StoreFinding(NamedTuple):
    """One result of a check; contains no secrets and no rows.

    Attributes:
        level: ``error``: the sink would not start, or would stop.
        check: a stable snake_case name, for programs.
        command: fixes it; may be empty.
    """

    level: Literal["ok", "warning", "error"]
    check: str
    message: str
    command: str = ""


@runtime_checkable
class Inspectable(Protocol):
    """A `sinks.contract.Target` of another package that also implements this takes part in `cdc doctor`."""

    def checkup(self) -> Iterable[StoreFinding]:
        """Check the store without changing it. Raises SinkUnreachable, SinkUnfit."""
