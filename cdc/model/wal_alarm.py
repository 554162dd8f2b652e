"""Raises and clears alarms about WAL that is kept for the slot. Pure: readings in, changes of alarms out.

The limit is max_slot_wal_keep_size, at which PostgreSQL invalidates the slot. Without it, the limit is
`source.wal_alarm_bytes`, at which an operator must be informed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

LEVELS: Final = (50, 25, 10)
"""Remaining percent of the limit at which alarms are raised, in this order."""

_CLEAR_POINTS: Final = 10  # hysteresis: WAL is freed by segment and written meanwhile


@dataclass(frozen=True, slots=True)
class WalRoom:
    """How much of the WAL limit is left.

    Attributes:
        left_bytes: negative above the limit.
        lost: PostgreSQL invalidated the slot.
    """

    left_bytes: int
    limit_bytes: int
    lost: bool = False

    @property
    def left_percent(self) -> float:
        """0 to 100."""
        if self.lost or self.limit_bytes <= 0:
            return 0.0
        return max(0.0, min(100.0, 100.0 * self.left_bytes / self.limit_bytes))


class AlarmChange(NamedTuple):
    """An alarm that is raised or cleared."""

    percent: int
    raised: bool


class WalAlarms:
    """Raises each alarm once, in order, when WAL room shrinks, and clears it ten points above its level.

    A reading that passes several levels raises all of them. Alarms of a lost slot stay.
    """

    def __init__(self) -> None:
        self._raised: tuple[int, ...] = ()

    @property
    def raised(self) -> tuple[int, ...]:
        """Levels with a raised alarm, highest first: always a prefix of LEVELS."""
        return self._raised

    def update(self, room: WalRoom) -> list[AlarmChange]:
        """Apply a reading; returns changes in order: raised from the highest down, cleared from the lowest up."""
        left = room.left_percent
        kept = tuple(level for level in self._raised if left < level + _CLEAR_POINTS)
        now = tuple(level for level in LEVELS if level in kept or left <= level)
        cleared = [AlarmChange(level, raised=False) for level in reversed(self._raised) if level not in now]
        fresh = [AlarmChange(level, raised=True) for level in now if level not in self._raised]
        self._raised = now
        return [*cleared, *fresh]


def levels_passed(room: WalRoom) -> tuple[int, ...]:
    """Return the levels that a single reading passes."""
    return tuple(level for level in LEVELS if room.left_percent <= level)


def room_of(
    *, wal_status: str, safe_bytes: int | None, kept_bytes: int, keep_limit_bytes: int | None, alarm_bytes: int
) -> WalRoom:
    """Return the WAL room of a slot.

    Args:
        wal_status: of pg_replication_slots.
        safe_bytes: its safe_wal_size; None without a limit.
        kept_bytes: WAL from restart_lsn to the current position.
        keep_limit_bytes: max_slot_wal_keep_size; None without a limit.
        alarm_bytes: the limit that is used in that case.
    """
    lost = wal_status == "lost"
    if keep_limit_bytes is None or (safe_bytes is None and not lost):
        return WalRoom(alarm_bytes - kept_bytes, alarm_bytes, lost)
    return WalRoom(safe_bytes or 0, keep_limit_bytes, lost)
