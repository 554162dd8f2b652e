"""What `cdc doctor` finds about a store before its sink runs. Values only."""

from __future__ import annotations

from typing import Literal, NamedTuple


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
