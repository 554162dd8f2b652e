"""Is a server on another timeline the same history, promoted, and does it have everything that the log has?

RELIABILITY part 2, "Identity": a timeline that grew is allowed only when the log's position lies before the point where
the new one branched off. Positions behind it belong to WAL that is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cdc.errors import SourceDiverged
from cdc.lsn import Lsn
from cdc.model.timeline import TimelineSwitch, left_at
from cdc.publish.topic_setup import REPAIR
from cdc.telemetry import log

LEVEL: Final = "the command reads every table again, into the same topics, and deletes there the rows it does not have"


def note_promotion(history: Sequence[TimelineSwitch], *, recorded: int, now: int) -> None:
    """Log that the log goes on on another timeline."""
    log.get().info("source_promoted", timeline=now, before=recorded, left_at=str(left_at(list(history), recorded)))


def divergence(history: list[TimelineSwitch], *, recorded: int, now: int, end_lsn: Lsn) -> SourceDiverged | None:
    """Why the log is not of the history of `now`; None: it is, and all of it."""
    if now == recorded:
        return None
    left = left_at(history, recorded)
    if left is None:
        return SourceDiverged(
            f"the log belongs to a source with timeline {recorded}; this one has {now}, whose history was never on it",
            hint="it was restored from a copy, or is another server: positions of the log mean nothing here. See that "
            f"source.dsn is the right one first; if it is, {LEVEL}",
            command=REPAIR,
            field="timeline",
        )
    if end_lsn > left:
        return SourceDiverged(
            f"the log reaches {end_lsn}, but timeline {now} left timeline {recorded} at {left}: what the log has "
            "between is not in this database any more",
            hint="a standby was promoted that did not have all that capture had read; synchronized_standby_slots "
            f"prevents that (howto/failover.md). {LEVEL}",
            command=REPAIR,
            field="timeline",
            known_to=left,
            ahead_to=end_lsn,
        )
    return None
