"""Alarms about WAL: in order, each once, cleared with hysteresis."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.model.wal_alarm import LEVELS, AlarmChange, WalAlarms, WalRoom

_PERCENTS = st.lists(st.integers(0, 1000).map(lambda tenth: tenth / 10), min_size=1, max_size=60)


def look(alarms: WalAlarms, percent: float) -> list[AlarmChange]:
    return alarms.update(WalRoom(round(percent * 1000), 100_000))


@given(_PERCENTS)
def test_alarms_are_in_order_each_once(percents: list[float]) -> None:
    """Held against what is raised, by the words of the promise alone."""
    alarms, raised = WalAlarms(), list[int]()
    for percent in percents:
        for change in look(alarms, percent):
            if change.raised:
                assert change.percent == LEVELS[len(raised)], "the next one down"
                assert percent <= change.percent
                raised.append(change.percent)
            else:
                assert change.percent == raised.pop(), "the last one that was raised"
                assert percent >= change.percent + 10
        assert tuple(raised) == alarms.raised
        assert all(level in raised for level in LEVELS if percent <= level), "what is short is told"
        assert all(percent < level + 10 for level in raised), "what is over is cleared"
