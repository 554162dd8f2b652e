"""Whether a standby could take over without a gap, as far as the primary knows it. Pure: facts in, words out.

https://www.postgresql.org/docs/18/logical-replication-failover.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FAILOVER_SINCE: Final = 17
"""The major of PostgreSQL that has slots which are synchronised to standbys."""


@dataclass(frozen=True, slots=True)
class StandbySlot:
    """A physical slot that `synchronized_standby_slots` names: the stream never runs ahead of who reads it.

    Attributes:
        behind_bytes: WAL it has not confirmed; None when it never confirmed any, or does not exist.
    """

    name: str
    exists: bool
    active: bool
    behind_bytes: int | None


@dataclass(frozen=True, slots=True)
class FailoverFacts:
    """What the primary says.

    Attributes:
        wanted: `source.failover`.
        slot_failover: the slot is to be synchronised to standbys.
        standbys: of `synchronized_standby_slots`; empty when that is not set.
    """

    wanted: bool
    slot_failover: bool
    standbys: Sequence[StandbySlot] = ()


NO_FAILOVER: Final = FailoverFacts(wanted=False, slot_failover=False)


def failover_problems(facts: FailoverFacts) -> list[str]:
    """Why a promoted standby might not go on where the log is, each a sentence; empty: nothing is known against it.

    What is not known here: whether the standby runs with sync_replication_slots and hot_standby_feedback.
    """
    if not facts.wanted:
        return []
    found = []
    if not facts.slot_failover:
        found.append("the slot is not made for failover: a promoted standby will not have it")
    if not facts.standbys:
        found.append(
            "synchronized_standby_slots is not set: capture may be ahead of a standby when it is promoted (DIVERGED)"
        )
    for standby in facts.standbys:
        if not standby.exists:
            found.append(f"synchronized_standby_slots names {standby.name!r}, which is no slot: capture stands still")
        elif not standby.active:
            found.append(f"no standby reads slot {standby.name!r}: capture stands still until one does")
    return found
