"""Merges the verdict on a start (`cdc.startup.judgement`) into the doctor's findings, so that they agree. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cdc.doctor.finding import Finding, Group, Level
from cdc.publish.topic_setup import REPAIR
from cdc.startup.judgement import Verdict

# Checks about what a start creates, unless the log must be repaired first.
_CREATED: Final = frozenset({"slot", "publication", "topics", "topic_missing", "blocking_transaction", "slot_idle"})
# Rule of the judgement -> the doctor's checks of the same problem.
_SAME: Final[Mapping[str, frozenset[str]]] = {
    "server": frozenset({"primary", "version", "wal_level", "failover"}),
    "replication_connection": frozenset({"role_replication", "replication_connection", "max_wal_senders"}),
    "source": frozenset({"source", "outbox_key"}),
    "topic": frozenset({"topic", "topic_missing", "topic_collision", "replication_factor"}),
    "replication_factor": frozenset({"replication_factor", "transaction_timeout"}),
    "slot": frozenset({"slot", "max_replication_slots"}),
}


def with_verdict(findings: Sequence[Finding], verdict: Verdict) -> list[Finding]:
    """Return the findings, with one for a start that stops, and without those that contradict it."""
    error = verdict.error
    if error is None or verdict.state is None:
        return list(findings)
    if verdict.waits:
        held = verdict.rule == "slot"
        return [*([_finding(Level.OK, verdict, "`cdc run` would wait")] if held else []), *findings]
    if error.command == REPAIR:
        kept = [finding for finding in findings if finding.check not in _CREATED]
        return [_finding(Level.ERROR, verdict, f"`cdc run` would stop in state {verdict.state.value}"), *kept]
    same = _SAME.get(verdict.rule, frozenset({verdict.rule}))
    if any(finding.level is Level.ERROR and finding.check in same for finding in findings):
        return list(findings)
    kept = [finding for finding in findings if finding.check not in same]
    return [_finding(Level.ERROR, verdict, f"`cdc run` would stop in state {verdict.state.value}"), *kept]


def _finding(level: Level, verdict: Verdict, how: str) -> Finding:
    assert verdict.error is not None
    error = verdict.error
    hint = f"; {error.hint}" if error.hint and level is not Level.OK else ""
    statement = error.command.endswith(";")
    return Finding(
        group=Group.START,
        level=level,
        check=verdict.rule,
        message=f"{how}: {error.message}{hint}",
        sql=error.command if statement and level is not Level.OK else "",
        command="" if statement or level is Level.OK else error.command,
        table=str(error.facts.get("table") or ""),
    )
