"""Judges from facts of the primary whether capture could continue after a failover to a standby. Pure.

https://www.postgresql.org/docs/18/logical-replication-failover.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FAILOVER_SINCE: Final = 17
"""The first major version of PostgreSQL with slots that are synchronised to standbys."""


@dataclass(frozen=True, slots=True)
class StandbySlot:
    """A physical slot in `synchronized_standby_slots`: the stream never runs ahead of the standby that uses it.

    Attributes:
        behind_bytes: unconfirmed WAL; None if it never confirmed any, or does not exist.
    """

    name: str
    exists: bool
    active: bool
    behind_bytes: int | None


@dataclass(frozen=True, slots=True)
class FailoverFacts:
    """Failover settings on the primary.

    Attributes:
        wanted: `source.failover`.
        slot_failover: whether the slot is synchronised to standbys.
        standbys: the slots in `synchronized_standby_slots`; empty when that is not set.
    """

    wanted: bool
    slot_failover: bool
    standbys: Sequence[StandbySlot] = ()


NO_FAILOVER: Final = FailoverFacts(wanted=False, slot_failover=False)


def failover_problems(facts: FailoverFacts) -> list[str]:
    """Return reasons why capture might not continue on a promoted standby; empty if none is known.

    The primary does not know whether the standby runs with sync_replication_slots and hot_standby_feedback.
    """
    if not facts.wanted:
        return []
    found = []
    if not facts.slot_failover:
        found.append("the slot is not enabled for failover: a promoted standby will not have it")
    if not facts.standbys:
        found.append(
            "synchronized_standby_slots is not set: capture may be ahead of a standby when it is promoted (DIVERGED)"
        )
    for standby in facts.standbys:
        if not standby.exists:
            found.append(
                f"synchronized_standby_slots names slot {standby.name!r}, which does not exist: capture is blocked"
            )
        elif not standby.active:
            found.append(f"no standby uses slot {standby.name!r}: capture is blocked until one does")
    return found
