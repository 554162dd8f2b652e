"""WAL alarms are raised in order, each once, and cleared with hysteresis."""

from __future__ import annotations

import pytest

from cdc.model.wal_alarm import AlarmChange, WalAlarms, WalRoom, room_of

_MB = 1 << 20


def look(alarms: WalAlarms, percent: float) -> list[AlarmChange]:
    return alarms.update(WalRoom(round(percent * 1000), 100_000))


def test_going_down_raises_each_alarm_once() -> None:
    alarms = WalAlarms()

    told = [change for percent in (90, 50, 49, 30, 25, 12, 10, 4, 3) for change in look(alarms, percent)]

    assert told == [AlarmChange(50, raised=True), AlarmChange(25, raised=True), AlarmChange(10, raised=True)]


def test_one_look_that_finds_all_levels_passed_raises_them_in_order() -> None:
    assert [change.percent for change in look(WalAlarms(), 3)] == [50, 25, 10]


def test_wal_that_swings_around_a_level_is_one_alarm() -> None:
    alarms = WalAlarms()

    told = [change for percent in (51, 49, 55, 48, 59, 50, 60, 61) for change in look(alarms, percent)]

    assert told == [AlarmChange(50, raised=True), AlarmChange(50, raised=False)]


def test_lost_slot_raises_what_was_not_raised_and_keeps_it() -> None:
    alarms = WalAlarms()
    lost = WalRoom(0, 100, lost=True)

    assert [change.percent for change in alarms.update(lost)] == [50, 25, 10]
    assert alarms.update(lost) == []


@pytest.mark.parametrize(
    ("safe", "kept", "limit", "status", "percent"),
    [
        (57 * _MB, 1, 48 * _MB, "reserved", 100.0),
        (12 * _MB, 40 * _MB, 48 * _MB, "reserved", 25.0),
        (-5, 60 * _MB, 48 * _MB, "unreserved", 0.0),
        (None, 60 * _MB, 48 * _MB, "lost", 0.0),
        (None, 300 * _MB, None, "extended", 70.0),
        (None, 5000 * _MB, None, "extended", 0.0),
        (None, 0, None, "reserved", 100.0),
    ],
)
def test_room_is_what_postgresql_leaves_else_what_the_setting_leaves(
    safe: int | None, kept: int, limit: int | None, status: str, percent: float
) -> None:
    room = room_of(wal_status=status, safe_bytes=safe, kept_bytes=kept, keep_limit_bytes=limit, alarm_bytes=1000 * _MB)

    assert room.left_percent == percent
