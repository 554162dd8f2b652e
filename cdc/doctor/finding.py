"""A finding of the doctor: one statement about one thing, its level, and what repairs it. A value, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """`ERROR`: capture would not start, or the source or the log would suffer. `WARNING`: a cost or a risk."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Group(StrEnum):
    """What the finding is about, in the order it is printed."""

    START = "start"
    SOURCE = "source"
    TABLES = "tables"
    BROKER = "broker"
    REGISTRY = "registry"
    SINKS = "sinks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of one check.

    Attributes:
        check: a stable snake_case name, for programs.
        message: one sentence; no row values, no secrets.
        sql: statements for the source that mend it, each on its own line; may be empty.
        command: a shell command or a setting of cdc.toml that mends it; may be empty.
        table: ``schema.table`` if it is about one.
    """

    group: Group
    level: Level
    check: str
    message: str
    sql: str = ""
    command: str = ""
    table: str = ""


def worst(findings: list[Finding]) -> Level:
    """The worst level of all; OK when there is none."""
    levels = {finding.level for finding in findings}
    return next((level for level in (Level.ERROR, Level.WARNING) if level in levels), Level.OK)
