"""Decides whether a server on another timeline is a promoted standby that has everything the log has.

A later timeline is accepted only if the log ends before the point where that timeline branched off. Later positions
belong to WAL that is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cdc.errors import SourceDiverged
from cdc.lsn import Lsn
from cdc.model.timeline import TimelineSwitch, left_at
from cdc.publish.topic_setup import REPAIR
from cdc.telemetry import log

LEVEL: Final = "the command reads every table again into the same topics, and deletes rows that the table does not have"


def note_promotion(history: Sequence[TimelineSwitch], *, recorded: int, now: int) -> None:
    """Log that capture continues on another timeline."""
    log.get().info("source_promoted", timeline=now, before=recorded, left_at=str(left_at(list(history), recorded)))


def divergence(history: list[TimelineSwitch], *, recorded: int, now: int, end_lsn: Lsn) -> SourceDiverged | None:
    """Return why the log does not belong to the history of timeline `now`; None if all of it does."""
    if now == recorded:
        return None
    left = left_at(history, recorded)
    if left is None:
        return SourceDiverged(
            f"the log belongs to timeline {recorded}; this server is on timeline {now}, which does not descend from it",
            hint="the server was restored from a copy, or is another one; recorded positions are not valid here. Check "
            f"source.dsn first. If it is right, {LEVEL}",
            command=REPAIR,
            field="timeline",
        )
    if end_lsn > left:
        return SourceDiverged(
            f"the log reaches {end_lsn}, but timeline {now} left timeline {recorded} at {left}; this database does not "
            "have the changes in between",
            hint="the promoted standby did not have everything that capture had read; synchronized_standby_slots "
            f"prevents that (docs/howto/failover.md). {LEVEL}",
            command=REPAIR,
            field="timeline",
            known_to=left,
            ahead_to=end_lsn,
        )
    return None
