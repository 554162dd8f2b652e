"""The doctor's findings and the verdict on a start never contradict each other."""

from __future__ import annotations

from cdc.doctor.finding import Finding, Group, Level
from cdc.doctor.start_checks import with_verdict
from cdc.errors import SlotHeld, SourceGap, SourceRefused, SourceUnreachable
from cdc.publish.topic_setup import REPAIR, topic_lost
from cdc.startup.judgement import Verdict


def finding(check: str, level: Level = Level.OK, group: Group = Group.SOURCE) -> Finding:
    return Finding(group=group, level=level, check=check, message=check)


CREATED = [finding("slot"), finding("publication"), finding("topics", group=Group.BROKER), finding("version")]


def test_start_that_runs_leaves_the_findings_alone() -> None:
    assert with_verdict(CREATED, Verdict()) == CREATED


def test_log_that_must_be_repaired_hides_what_a_start_would_create() -> None:
    gap = SourceGap("slot 'cdc_shop' is gone", hint="repair it", command=REPAIR)

    first, *rest = with_verdict(CREATED, Verdict("slot", gap))

    assert (first.group, first.level, first.command) == (Group.START, Level.ERROR, REPAIR)
    assert first.message == "`cdc run` would stop in state GAP: slot 'cdc_shop' is gone; repair it"
    assert [one.check for one in rest] == ["version"]


def test_deleted_topic_is_not_announced_as_one_that_run_makes() -> None:
    found = with_verdict(CREATED, Verdict("topic", topic_lost("shop.public.t")))

    assert [one.check for one in found] == ["topic", "version"]
    assert found[0].command == REPAIR


def test_cause_that_has_its_own_error_is_not_repeated() -> None:
    findings = [finding("wal_level", Level.ERROR), finding("slot")]

    assert with_verdict(findings, Verdict("server", SourceRefused("wal_level is 'replica'"))) == findings


def test_cause_that_was_a_warning_becomes_the_error_it_is() -> None:
    refused = SourceRefused("role 'r' may not read t", hint="grant it", command="grant select on t to r;")

    found = with_verdict([finding("select", Level.WARNING)], Verdict("select", refused))

    assert [(one.level, one.check, one.sql) for one in found] == [(Level.ERROR, "select", "grant select on t to r;")]


def test_slot_in_use_is_said_and_is_no_error() -> None:
    first, *_ = with_verdict(CREATED, Verdict("slot", SlotHeld("slot is in use by pid 7")))

    assert (first.level, first.message) == (Level.OK, "`cdc run` would wait: slot is in use by pid 7")


def test_side_that_is_away_is_left_to_its_own_finding() -> None:
    findings = [finding("source", Level.ERROR)]

    assert with_verdict(findings, Verdict("source", SourceUnreachable("refused"))) == findings
