"""The speed that the load guard allows: bounded, never zero, slower under load, and full again when the load ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.model.load_reading import LoadReading
from snapshot.load_control import PAUSE_MAX_S, SPEED_MIN, Limits, SpeedControl, pause_s

LIMITS = Limits(commit_latency_max_ms=500, standby_lag_max_s=30, io_waits_max_percent=75)
CALM = LoadReading(0.002, 0.0, "", 0, 0)
HIGH = LoadReading(0.9, 0.0, "", 0, 0)

_READINGS = st.lists(
    st.none()
    | st.builds(
        LoadReading,
        st.none() | st.floats(0, 5),
        st.none() | st.floats(0, 300),
        st.just("standby1"),
        st.none() | st.integers(0, 40),
        st.none() | st.integers(0, 40),
    ),
    max_size=80,
)


def after(*readings: LoadReading | None, limits: Limits = LIMITS) -> SpeedControl:
    control = SpeedControl(limits)
    for reading in readings:
        control.update(reading)
    return control


@given(_READINGS)
def test_speed_is_bounded_and_has_a_reason_exactly_below_full_speed(readings: list[LoadReading | None]) -> None:
    control = SpeedControl(LIMITS)
    for reading in readings:
        state = control.update(reading)
        assert SPEED_MIN <= state.speed <= 1
        assert bool(state.reason) is (state.speed < 1) is (state.signal is not None)


@given(_READINGS)
def test_speed_is_full_again_after_calm_readings_whatever_came_before(readings: list[LoadReading | None]) -> None:
    control = after(*readings)

    for _ in range(10):
        control.update(CALM)

    assert control.state.speed == 1


@given(_READINGS)
def test_source_that_gives_no_reading_does_not_keep_snapshots_slow(readings: list[LoadReading | None]) -> None:
    control = after(*readings)

    for _ in range(30):
        control.update(None)

    assert control.state.speed == 1


@given(_READINGS)
def test_reading_above_a_limit_never_raises_the_speed_and_halves_a_slow_one(
    readings: list[LoadReading | None],
) -> None:
    control = after(*readings)
    before = control.state.speed

    first = control.update(HIGH).speed
    second = control.update(HIGH).speed

    assert first == (max(SPEED_MIN, before / 2) if before < 1 else first)
    assert first <= before
    assert second == max(SPEED_MIN, first / 2), "the second one in a row always counts"


def test_one_slow_commit_does_not_slow_snapshots_down() -> None:
    assert after(CALM, HIGH, CALM, HIGH).state.speed == 1
    assert after(CALM, HIGH, HIGH).state.speed == 0.5


def test_value_just_below_its_limit_holds_the_speed() -> None:
    near = LoadReading(0.45, 0.0, "", 0, 0)

    assert after(HIGH, HIGH, near, near, near).state.speed == 0.5
    assert after(HIGH, HIGH, near, CALM).state.speed == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("reading", "signal", "says"),
    [
        (LoadReading(0.8125), "commit_latency", "a commit takes 812 ms, limit 500 ms"),
        (LoadReading(0.001, 45.26, "replica1"), "standby_lag", "standby replica1 is 45.3 s behind, limit 30 s"),
        (
            LoadReading(waiting_count=9, active_count=10),
            "io_waits",
            "9 of 10 active sessions wait for I/O or internal locks, limit 75 %",
        ),
    ],
)
def test_reason_has_the_signal_its_value_and_its_limit(reading: LoadReading, signal: str, says: str) -> None:
    state = after(reading, reading).state

    assert (state.signal, state.reason) == (signal, says)


def test_worst_signal_by_its_own_limit_is_the_reason() -> None:
    both = LoadReading(0.6, 300.0, "replica1")

    assert after(both, both).state.signal == "standby_lag"


def test_few_active_sessions_say_nothing_about_the_server() -> None:
    assert after(*[LoadReading(waiting_count=7, active_count=7)] * 5).state.speed == 1


def test_limit_of_zero_turns_its_signal_off() -> None:
    loaded = LoadReading(9.0, 900.0, "replica1", 40, 40)

    assert after(loaded, loaded, limits=Limits()).state.speed == 1
    assert not Limits().any
    assert after(loaded, loaded, limits=Limits(io_waits_max_percent=75)).state.signal == "io_waits"


@given(st.floats(0, 100), st.floats(SPEED_MIN, 1))
def test_thread_reads_for_its_share_of_the_time_and_never_stops_for_good(read_s: float, speed: float) -> None:
    pause = pause_s(read_s, speed)

    assert 0 <= pause <= PAUSE_MAX_S
    if pause < PAUSE_MAX_S:
        assert read_s == pytest.approx(speed * (read_s + pause))


def test_chunks_read_in_the_same_time_fall_with_the_speed() -> None:
    def chunks(speed: float, seconds: float = 1000.0, read_s: float = 0.05) -> int:
        return int(seconds / (read_s + pause_s(read_s, speed)))

    assert [chunks(speed) * speed_down for speed, speed_down in ((1.0, 1), (0.5, 2), (0.125, 8))] == [20000] * 3
