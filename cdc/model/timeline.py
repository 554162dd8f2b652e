"""PostgreSQL's history of timelines: where one branched off another. Pure.

https://www.postgresql.org/docs/18/protocol-replication.html (TIMELINE_HISTORY); the format is that of the server's
``src/backend/access/transam/timeline.c``: parent, switch point, reason, one a line, oldest first.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc.lsn import Lsn


@dataclass(frozen=True, slots=True)
class TimelineSwitch:
    """The history left `timeline` at `at`: what it has from there on is not in this history."""

    timeline: int
    at: Lsn


def parse_history(text: str) -> list[TimelineSwitch]:
    """The switches of a history, oldest first. Raises ValueError for a line that is none."""
    found = []
    for line in text.splitlines():
        bare = line.partition("#")[0].strip()
        if not bare:
            continue
        fields = bare.split(None, 2)
        if len(fields) < 2 or not fields[0].isdigit():
            raise ValueError(f"not a line of a timeline history: {line[:80]!r}")
        found.append(TimelineSwitch(int(fields[0]), Lsn.parse(fields[1])))
    return found


def left_at(history: list[TimelineSwitch], timeline: int) -> Lsn | None:
    """Where the history left that timeline; None when it never was on it."""
    return next((switch.at for switch in history if switch.timeline == timeline), None)
