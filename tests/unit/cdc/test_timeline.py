"""Timelines: which promoted server continues the history of the log; and known reasons against a failover."""

from __future__ import annotations

import pytest

from cdc.lsn import Lsn
from cdc.model.failover import NO_FAILOVER, FailoverFacts, StandbySlot, failover_problems
from cdc.model.timeline import TimelineSwitch, left_at, parse_history
from cdc.startup.promotion import divergence

# Of a server: promoted twice, the second time on request; comments and empty lines are allowed there.
HISTORY = "1\t0/1B242B0\tno recovery target specified\n\n2\t1/5000000\tbefore 2026-11-22 18:00:00+00\n# a comment\n"


def test_history_of_a_server_is_read() -> None:
    assert parse_history(HISTORY) == [TimelineSwitch(1, Lsn(0x1B242B0)), TimelineSwitch(2, Lsn(0x1_0500_0000))]


def test_several_promotions_are_judged_by_the_first_branch() -> None:
    history = parse_history(HISTORY)

    assert divergence(history, recorded=1, now=3, end_lsn=Lsn(0x1B242B0)) is None
    assert divergence(history, recorded=1, now=3, end_lsn=Lsn(0x1B242B1)) is not None
    assert divergence(history, recorded=2, now=3, end_lsn=Lsn(0x1_0000_0000)) is None
    assert left_at(history, 3) is None


@pytest.mark.parametrize(("recorded", "now"), [(5, 3), (4, 6)], ids=["older", "never on it"])
def test_timeline_that_the_history_was_never_on_is_another_source(recorded: int, now: int) -> None:
    found = divergence(parse_history(HISTORY) if now > recorded else [], recorded=recorded, now=now, end_lsn=Lsn(1))

    assert found is not None
    assert "never on it" in found.message


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (NO_FAILOVER, []),
        (FailoverFacts(True, True, (StandbySlot("s", True, True, 10),)), []),
        (FailoverFacts(True, False, (StandbySlot("s", True, True, 10),)), ["not enabled for failover"]),
        (FailoverFacts(True, True), ["synchronized_standby_slots is not set"]),
        (FailoverFacts(True, True, (StandbySlot("s", True, False, 10),)), ["no standby uses slot 's'"]),
        (FailoverFacts(True, True, (StandbySlot("s", False, False, None),)), ["which does not exist"]),
    ],
)
def test_what_the_primary_knows_against_a_failover_is_said(facts: FailoverFacts, words: list[str]) -> None:
    found = failover_problems(facts)

    assert [word in problem for word, problem in zip(words, found, strict=True)] == [True] * len(words)
