"""What is found of a store before its sink runs, for `cdc doctor`. Values only."""

from __future__ import annotations

from typing import Literal, NamedTuple


class StoreFinding(NamedTuple):
    """One thing that was looked at; no secrets, no rows.

    Attributes:
        level: ``error``: the sink would not start, or not go on.
        check: a stable snake_case name, for programs.
        command: what mends it; may be empty.
    """

    level: Literal["ok", "warning", "error"]
    check: str
    message: str
    command: str = ""
