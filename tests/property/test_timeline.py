"""Timelines: which promoted server continues the log's history, and known obstacles to a failover."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.lsn import Lsn
from cdc.model.timeline import TimelineSwitch, parse_history
from cdc.publish.topic_setup import REPAIR
from cdc.startup.promotion import divergence

_LSNS = st.integers(1, 2**63).map(Lsn)


@given(st.lists(st.tuples(st.integers(1, 2**31), _LSNS, st.sampled_from(["", "why\tever", "# no"])), max_size=8))
def test_history_round_trips(switches: list[tuple[int, Lsn, str]]) -> None:
    text = "".join(f"{timeline}\t{at}\t{reason}\n" for timeline, at, reason in switches)

    assert parse_history(text) == [TimelineSwitch(timeline, at) for timeline, at, _ in switches]


@given(st.text())
def test_any_text_is_a_history_or_a_value_error(text: str) -> None:
    try:
        found = parse_history(text)
    except ValueError:
        return
    assert all(switch.at >= 0 for switch in found)


@given(_LSNS, _LSNS)
def test_log_goes_on_exactly_when_it_ends_before_the_branch(left: Lsn, end: Lsn) -> None:
    found = divergence([TimelineSwitch(3, left)], recorded=3, now=4, end_lsn=end)

    assert (found is None) == (end <= left)
    if found is not None:
        assert (found.facts["known_to"], found.facts["ahead_to"]) == (left, end)
        assert str(left) in found.message
        assert str(end) in found.message
        assert found.command == REPAIR
