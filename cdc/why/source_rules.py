"""Rules about PostgreSQL: unreachable, open transactions, WAL that piles up, clocks. Pure: evidence in, causes out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cdc.model.run_state import State
from cdc.model.units import duration, size
from cdc.replication.source_activity import Session
from cdc.why.cause import Cause, Level
from cdc.why.error_codes import CREDENTIAL, code_of
from cdc.why.evidence import Evidence, Failure, Reach

ALARM_PERCENT: Final = 50.0
"""Remaining percent of the WAL limit at which growing WAL is a problem: the first of `cdc.model.wal_alarm.LEVELS`."""

HOLDS_WAL_S: Final = 60.0
"""A younger transaction does not explain WAL that has piled up."""

LOCK_S: Final = 2.0
"""Readers of tables give up a lock after half a second and try again; a session that waits longer is stuck."""

OURS: Final = "cdc"
"""Application names of sessions of capture begin with this."""

CLOCK_S: Final = 5.0
"""Times in status and metrics are shown to a second, so a smaller difference does not mislead."""

BLOCKED: Final = "SlotBlocked"


def source_causes(evidence: Evidence) -> Iterator[Cause]:
    """Return the causes that PostgreSQL shows."""
    yield from _unreachable(evidence)
    yield from _transactions(evidence)
    yield from _locks(evidence)
    yield from _wal(evidence)
    yield from _clock(evidence)


def unreached(part: str, what: str, failure: Failure, reach: tuple[Reach, ...], code: str) -> Cause:
    """Return the cause for a server that does not answer: its name, the network, or the server itself."""
    facts = (*(_reached(one) for one in reach), failure.message)
    outcomes = {one.outcome for one in reach}
    where = ", ".join(one.address for one in reach) or "the configured address"
    if code_of(failure) == CREDENTIAL:
        return Cause(code=CREDENTIAL, part=part, says=failure.message, evidence=facts[:-1], hint=failure.hint)
    if outcomes == {"unresolved"}:
        says, hint = f"the host name of {what} does not resolve: {where}", "check the name, and DNS on this machine"
        return Cause(code="name-unresolved", part=part, says=says, evidence=facts, hint=hint)
    if outcomes and outcomes <= {"silent", "unreachable", "unresolved"}:
        says = f"the network does not lead to {what} on {where}: no answer"
        hint = "check network, firewall and address; a machine that is frozen or down looks the same"
        return Cause(code="network-silent", part=part, says=says, evidence=facts, hint=hint)
    if "answers" in outcomes:
        says = f"{what} on {_listed(reach, 'answers')} accepts the connection but does not answer"
        if "refused" in outcomes:
            says += f", and no program listens on {_listed(reach, 'refused')}"
    elif "refused" in outcomes:
        says = f"{what} does not run on {where}"
    else:
        says = f"{what} does not answer on {where}"
    return Cause(code=code, part=part, says=says, evidence=facts, hint=failure.hint, command=failure.command)


def _listed(reach: tuple[Reach, ...], outcome: str) -> str:
    return ", ".join(one.address for one in reach if one.outcome == outcome)


def _reached(one: Reach) -> str:
    return {
        "answers": f"TCP connection to {one.address}: accepted in {1000 * one.seconds:.0f} ms",
        "refused": f"TCP connection to {one.address}: refused, no program listens there",
        "silent": f"TCP connection to {one.address}: no answer in {duration(one.seconds)}",
        "unresolved": f"{one.address}: the name does not resolve",
        "unreachable": f"TCP connection to {one.address}: the network has no route",
    }[one.outcome]


def _unreachable(evidence: Evidence) -> Iterator[Cause]:
    failure = evidence.source.failure
    if evidence.source.answers or failure is None:
        return
    if failure.error == "SourceRefused":
        yield Cause(
            code="source-login",
            part="source",
            says=f"PostgreSQL refuses the login: {failure.message}",
            evidence=tuple(map(_reached, evidence.source.reach)),
            hint=failure.hint,
            command=failure.command,
            needs_operator=True,
        )
    elif failure.error == "MachineExhausted":
        yield Cause(
            code="machine-exhausted", part="capture", says=failure.message, hint=failure.hint, command=failure.command
        )
    else:
        yield _as_capture_is(
            evidence, unreached("source", "PostgreSQL", failure, evidence.source.reach, "source-unreachable")
        )


def _as_capture_is(evidence: Evidence, cause: Cause) -> Cause:
    """Return the cause as a risk if only this command lacks the password: capture keeps its open connections."""
    if cause.code != CREDENTIAL or not evidence.capture.answers or evidence.capture.state != State.RUNNING:
        return cause
    return replace(cause, level=Level.RISK, evidence=(*cause.evidence, "capture still follows the log"))


def _transactions(evidence: Evidence) -> Iterator[Cause]:
    writers = evidence.source.writers
    if not writers:
        return
    oldest, slot, room = writers[0], evidence.source.slot, evidence.source.room
    reported = {one.error for one in (evidence.capture.failure, evidence.start.failure) if one is not None}
    if BLOCKED in reported or (slot is not None and slot.being_made):
        yield transaction(oldest, "source", "blocks the creation of the slot", Level.STOPPED, others=len(writers) - 1)
    elif room is not None and room.left_percent <= ALARM_PERCENT and oldest.age_s >= HOLDS_WAL_S:
        yield transaction(oldest, "source", "holds WAL from its start on", Level.SLOW, others=len(writers) - 1)
    else:
        for one in writers:
            if one.age_s >= evidence.transaction_alarm_s:
                yield transaction(one, "source", "holds WAL from its start on", Level.RISK)


def transaction(one: Session, part: str, effect: str, level: Level, *, others: int = 0) -> Cause:
    """Return the cause for an open write transaction."""
    age = f"open for {duration(one.age_s)}" if one.age_s else "open; our role may not see since when"
    facts = [age if not one.prepared else f"prepared {duration(one.age_s)} ago"]
    facts += [f"state: {one.state}"] if one.state and not one.prepared else []
    facts += [f"its last statement began {duration(one.query_age_s)} ago"] if one.query_age_s is not None else []
    facts += [f"waits for: {one.wait}"] if one.wait else []
    facts += [f"database {one.database}"] if one.database else []
    facts += [f"client: {one.client}"] if one.client else []
    facts += [f"{others} more write transactions are open"] if others > 0 else []
    kind = "the" if one.prepared else "the transaction of"
    return Cause(
        code="prepared-transaction" if one.prepared else "long-transaction",
        part=part,
        says=f"{kind} {one.what} {effect}",
        level=level,
        evidence=tuple(facts),
        hint="commit it or roll it back in its database"
        if one.prepared
        else "commit it, or end the session with this statement",
        command=one.remedy,
    )


def _locks(evidence: Evidence) -> Iterator[Cause]:
    """Name the session that keeps a session of capture waiting for a lock, as during a start."""
    starting = evidence.capture.answers and evidence.capture.state == State.STARTING
    follows = evidence.capture.answers and evidence.capture.state == State.RUNNING
    for one in evidence.source.lock_waits:
        if one.waits_s < LOCK_S and not starting:
            continue
        locked = ", ".join(lock.table for lock in evidence.source.locks if lock.holder.pid == one.blocker.pid)
        yield Cause(
            code="table-locked",
            part="source",
            says=f"{one.blocker.what} holds a lock that capture waits for" + (f", on {locked}" if locked else ""),
            level=Level.SLOW if follows else Level.STOPPED,
            evidence=(
                f"session {one.application_name!r} has been waiting for {duration(one.waits_s)}",
                f"the transaction of {one.blocker.what} has been open for {duration(one.blocker.age_s)}",
            ),
            hint="commit it, or end the session with this statement",
            command=one.blocker.remedy,
        )
        return


def _wal(evidence: Evidence) -> Iterator[Cause]:
    slot, room = evidence.source.slot, evidence.source.room
    if slot is None or room is None or room.lost or room.left_percent > ALARM_PERCENT:
        return
    facts = [
        f"the slot keeps {size(slot.retained_bytes or 0)} of WAL",
        f"{size(max(0, room.left_bytes))} of {size(room.limit_bytes)} is left ({room.left_percent:.0f} %)",
    ]
    rate = evidence.source.wal_rate
    facts += [f"the server writes {size(round(rate))}/s of WAL"] if rate is not None else []
    if rate and room.left_bytes > 0:
        facts.append(f"at this rate the limit is reached in {duration(room.left_bytes / rate)}")
    yield Cause(
        code="wal-grows",
        part="source",
        says=f"WAL piles up for slot {slot.name}: {room.left_percent:.0f} % of the limit is left",
        level=Level.SLOW,
        evidence=tuple(facts),
        hint="WAL is released when capture acknowledges it; fix what keeps capture or the oldest transaction",
    )


def _clock(evidence: Evidence) -> Iterator[Cause]:
    ahead_s = evidence.source.clock_s
    if ahead_s is None or abs(ahead_s) < CLOCK_S:
        return
    direction = "ahead of" if ahead_s > 0 else "behind"
    yield Cause(
        code="clock-differs",
        part="source",
        says=f"the clock of PostgreSQL is {duration(abs(ahead_s))} {direction} the clock of this machine",
        level=Level.RISK,
        hint="nothing is lost, but times in status and metrics mislead; synchronise both clocks (NTP)",
    )
