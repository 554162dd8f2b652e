"""Alarms about WAL that is kept for the slot: pure, looks in, changes of alarms out (RELIABILITY part 1, "WAL growth").

Knows no clock, connection or log. A limit is max_slot_wal_keep_size, at which PostgreSQL gives the slot up, or without
one `source.wal_alarm_bytes`, at which a person is to know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

LEVELS: Final = (50, 25, 10)
"""Percent of the limit that is left when an alarm is raised, in the order they are raised."""

_CLEAR_POINTS: Final = 10  # WAL is freed by the segment, and written meanwhile: an alarm must not flutter


@dataclass(frozen=True, slots=True)
class WalRoom:
    """How much WAL may still be written, of how much.

    Attributes:
        left_bytes: negative when there is more than the limit.
        lost: PostgreSQL has given the slot up.
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
    """An alarm that is raised or cleared now."""

    percent: int
    raised: bool


class WalAlarms:
    """Each alarm is raised once on the way down, in order, and cleared on the way up, ten points above its level.

    A look that finds several levels passed raises all of them. Alarms of a slot that is lost stay.
    """

    def __init__(self) -> None:
        self._raised: tuple[int, ...] = ()

    @property
    def raised(self) -> tuple[int, ...]:
        """Levels whose alarm is raised now, highest first: always a beginning of LEVELS."""
        return self._raised

    def look(self, room: WalRoom) -> list[AlarmChange]:
        """What this look changes, in order: raised from the highest down, cleared from the lowest up."""
        left = room.left_percent
        kept = tuple(level for level in self._raised if left < level + _CLEAR_POINTS)
        now = tuple(level for level in LEVELS if level in kept or left <= level)
        cleared = [AlarmChange(level, raised=False) for level in reversed(self._raised) if level not in now]
        fresh = [AlarmChange(level, raised=True) for level in now if level not in self._raised]
        self._raised = now
        return [*cleared, *fresh]


def levels_passed(room: WalRoom) -> tuple[int, ...]:
    """The alarms that a first look at this room raises: for who looks once."""
    return tuple(level for level in LEVELS if room.left_percent <= level)


def room_of(
    *, wal_status: str, safe_bytes: int | None, kept_bytes: int, keep_limit_bytes: int | None, alarm_bytes: int
) -> WalRoom:
    """The room of a slot as a look found it.

    Args:
        wal_status: of pg_replication_slots.
        safe_bytes: its safe_wal_size; None without a limit.
        kept_bytes: WAL from restart_lsn to now.
        keep_limit_bytes: max_slot_wal_keep_size; None without a limit.
        alarm_bytes: what counts as the limit then.
    """
    lost = wal_status == "lost"
    if keep_limit_bytes is None or (safe_bytes is None and not lost):
        return WalRoom(alarm_bytes - kept_bytes, alarm_bytes, lost)
    return WalRoom(safe_bytes or 0, keep_limit_bytes, lost)
