"""Parses PostgreSQL's timeline history: where one timeline branched off another. Pure.

https://www.postgresql.org/docs/18/protocol-replication.html (TIMELINE_HISTORY); the format is that of the server's
``src/backend/access/transam/timeline.c``: parent, switch point, reason, one a line, oldest first.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc.lsn import Lsn


@dataclass(frozen=True, slots=True)
class TimelineSwitch:
    """The history left `timeline` at LSN `at`; later WAL of that timeline does not belong to it."""

    timeline: int
    at: Lsn


def parse_history(text: str) -> list[TimelineSwitch]:
    """Return the switches of a history, oldest first. Raises ValueError for an invalid line."""
    found = []
    for line in text.splitlines():
        bare = line.partition("#")[0].strip()
        if not bare:
            continue
        fields = bare.split(None, 2)
        if len(fields) < 2 or not fields[0].isdigit():
            raise ValueError(f"invalid line in a timeline history: {line[:80]!r}")
        found.append(TimelineSwitch(int(fields[0]), Lsn.parse(fields[1])))
    return found


def left_at(history: list[TimelineSwitch], timeline: int) -> Lsn | None:
    """Return where the history left that timeline; None if it was never on it."""
    return next((switch.at for switch in history if switch.timeline == timeline), None)
