"""A finding of the doctor: one statement about one subject, its level, and how to repair it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cdc.command_text import with_pipeline


class Level(StrEnum):
    """`ERROR`: capture would not start, or the source or the log would be damaged. `WARNING`: a cost or a risk."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Group(StrEnum):
    """The subject of a finding, in the order in which findings are printed."""

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
        sql: statements for the source that repair it, one per line; may be empty.
        command: a shell command or a setting of cdc.toml that repairs it; may be empty.
        table: ``schema.table`` if the finding is about a table.
    """

    group: Group
    level: Level
    check: str
    message: str
    sql: str = ""
    command: str = ""
    table: str = ""

    def __post_init__(self) -> None:
        """Suggest a command for the pipeline of this process."""
        object.__setattr__(self, "command", with_pipeline(self.command))


def worst(findings: list[Finding]) -> Level:
    """Return the worst level; OK without findings."""
    levels = {finding.level for finding in findings}
    return next((level for level in (Level.ERROR, Level.WARNING) if level in levels), Level.OK)
