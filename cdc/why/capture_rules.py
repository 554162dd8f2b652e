"""Rules about capture: stopped, waiting, frozen, behind. Pure: evidence in, causes out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cdc.model.run_state import State
from cdc.model.units import duration, size
from cdc.why.cause import Cause, Level
from cdc.why.error_codes import CREDENTIAL, code_of, part_of
from cdc.why.evidence import CaptureEvidence, Evidence, Failure
from cdc.why.kafka_rules import UNANSWERED, gone_brokers
from cdc.why.source_rules import BLOCKED, OURS

LAG_S: Final = 5.0
"""Capture is behind from this lag on, as in `cdc.telemetry.capture_status`."""

SLOW_S: Final = 0.25
"""Kafka is slow if a small request takes this long; one across a continent takes less."""

SLOW_COMMIT_S: Final = 1.0
"""A Kafka transaction that takes longer than `capture.batch_age_max_s` by default slows capture down."""

START_S: Final = 30.0
"""A start takes seconds, and longer with thousands of tables."""

_LAG_BYTES: Final = 16 << 20
"""WAL that an idle server writes by itself, such as checkpoints, is less: one segment."""

_UNFORESEEN: Final = frozenset({
    "row-refused", "stream-poisoned", "capture-fenced", "capture-refused", "log-damaged", "broker-refused",
    "registry-refused", "topic-changed",
})  # fmt: skip
"""Causes of a stop that the forecast of a start cannot see; for all others the forecast is right, and newer."""

_UNANSWERED: Final = frozenset(
    {"source-unreachable", "source-login", "broker-unreachable", "slot-held", "long-transaction"}
)
"""Codes whose cause another rule names, with better evidence, if the server does not answer us either."""


def capture_causes(evidence: Evidence) -> Iterator[Cause]:
    """Return the causes that capture and the forecast of its next start show."""
    yield from _next_start(evidence)
    capture = evidence.capture
    if capture.answers or runs_elsewhere(evidence):
        yield from _earlier_process(evidence)
    if capture.answers:
        yield from _reported(evidence)
    elif not runs_elsewhere(evidence):
        yield from _last_stop(evidence)
        yield from _absent(evidence)


def runs_elsewhere(evidence: Evidence) -> bool:
    """Whether capture reads the slot although its /status cannot be read from here."""
    slot, holder = evidence.source.slot, evidence.source.holder
    if evidence.capture.answers or slot is None or slot.active_pid is None or slot.being_made:
        return False
    if evidence.capture.reach is not None and evidence.capture.reach.outcome == "answers":
        return False  # something listens there and does not answer as capture
    return holder is None or holder.application_name.startswith(OURS)


def lags(evidence: Evidence) -> bool:
    """Whether the log is behind the source, as far as is known."""
    capture, slot = evidence.capture, evidence.source.slot
    if capture.answers:
        return capture.state != State.RUNNING or (capture.lag_s or 0.0) > LAG_S
    return slot is None or slot.lag_bytes is None or slot.lag_bytes > _LAG_BYTES


def _next_start(evidence: Evidence) -> Iterator[Cause]:
    """Name what a start would stop for; it also stops a capture that still runs, now or at its next start."""
    start = evidence.start
    if start.failure is None:
        return
    code = code_of(start.failure, start.rule, start.left_out)
    if not start.stops:
        if not evidence.capture.answers and code == "slot-held":
            yield from _held(evidence, start.failure)
        return
    if start.rule == "source" and not evidence.source.answers:
        return  # the rule about an unreachable source says it with its own evidence
    flows = evidence.capture.answers and not lags(evidence)
    facts = [f"the next start of capture would end in state {start.state}"]
    facts += ["capture still follows the log"] if flows else []
    yield Cause(
        code=code,
        part=part_of(code),
        says=start.failure.message,
        level=Level.RISK if flows else Level.STOPPED,
        evidence=tuple(facts),
        hint=start.failure.hint,
        command=start.failure.command,
        needs_operator=True,
    )


def _held(evidence: Evidence, failure: Failure) -> Iterator[Cause]:
    """Name the process that reads the slot; without capture's own report only if it is another program."""
    holder = evidence.source.holder
    ours = holder is not None and holder.application_name.startswith(OURS)
    if not evidence.capture.answers and (ours or holder is None):
        return
    facts = [failure.message]
    if holder is not None:
        facts += [
            f"reader: {holder.what}, connected from {holder.client} for {duration(holder.connected_s)}",
        ]
    says = f"another process reads slot {evidence.slot}"
    says += f": {holder.what}" if holder is not None else ""
    says += ", another process of capture; this one is its standby" if ours else ""
    yield Cause(
        code="slot-held",
        part="source",
        says=says,
        evidence=tuple(facts),
        hint="nothing is wrong if a standby is intended; it takes over when that process ends"
        if ours
        else "end that program, or give it a slot of its own",
        command="" if ours else failure.command,
    )


def _last_stop(evidence: Evidence) -> Iterator[Cause]:
    """Name why capture stopped, if the forecast of its next start cannot see that."""
    stop = evidence.stop
    if stop is None or stop.superseded or evidence.start.stops or code_of(stop.failure) not in _UNFORESEEN:
        return
    code = code_of(stop.failure)
    yield Cause(
        code=code,
        part=part_of(code),
        says=stop.failure.message,
        evidence=(f"capture stopped in state {stop.state} {duration(stop.age_s)} ago, and has written nothing since",),
        hint=stop.failure.hint,
        command=stop.failure.command,
        needs_operator=True,
    )


def _earlier_process(evidence: Evidence) -> Iterator[Cause]:
    """Name a process of capture that came back after another one took over; that one still captures."""
    stop = evidence.stop
    if stop is None or stop.state != State.FENCED or evidence.capture.state == State.FENCED:
        return
    yield Cause(
        code=code_of(stop.failure),
        part="capture",
        says=f"an earlier process of capture came back {duration(stop.age_s)} ago and was fenced: another took over",
        level=Level.RISK,
        evidence=(stop.failure.message, "Kafka rejected what it had not committed, so nothing appears twice"),
        hint="nothing to repair: it had been frozen or cut off. If it is started again, it waits as a standby",
    )


def _absent(evidence: Evidence) -> Iterator[Cause]:
    """Name why /status has no answer: a frozen process, another program on the port, or no process at all."""
    capture, slot = evidence.capture, evidence.source.slot
    reads = slot is not None and slot.active_pid is not None and not slot.being_made
    listens = capture.reach is not None and capture.reach.outcome == "answers"
    facts = [capture.why_not] if capture.why_not else []
    if listens and (reads or slot is None or capture.failing) and not capture.other_program:
        facts += [f"pid {slot.active_pid} of PostgreSQL still serves its stream"] if slot is not None and reads else []
        yield Cause(
            code="capture-frozen",
            part="capture",
            says=f"the process of capture on {evidence.listen} accepts connections but "
            + ("answers with an error" if capture.failing else "does not respond"),
            evidence=tuple(facts),
            hint="the process or its machine is frozen, or out of CPU; continue it, or end it and start it again",
        )
        return
    if listens:
        yield Cause(
            code="port-taken",
            part="capture",
            says=f"another program uses {evidence.listen}, so capture cannot start with this http.listen",
            evidence=(*facts, "no process of capture reads the slot"),
            hint="stop that program, or set another port in http.listen",
            command=f"ss -ltnp 'sport = :{evidence.listen.rpartition(':')[2]}'",
        )
        return
    if slot is not None and slot.exists:
        facts += [f"no process reads slot {slot.name}" if not reads else f"pid {slot.active_pid} reads the slot"]
        facts += [f"{size(slot.lag_bytes)} of WAL wait to be captured"] if slot.lag_bytes is not None else []
        facts += [f"the slot has had no reader for {duration(slot.inactive_s)}"] if slot.inactive_s is not None else []
    elif slot is not None:
        facts += [f"slot {slot.name} does not exist yet"]
    stop = evidence.stop
    if stop is not None and not stop.superseded:
        facts.append(f"it stopped in state {stop.state} {duration(stop.age_s)} ago: {stop.failure.message}")
    yield Cause(
        code="capture-down",
        part="capture",
        says="capture does not run",
        evidence=tuple(facts),
        hint="start it; nothing is lost while the slot exists. If it has just ended, the last lines of its log say why",
        command="cdc run",
    )


def _reported(evidence: Evidence) -> Iterator[Cause]:
    capture = evidence.capture
    if capture.state == State.STARTING:
        yield Cause(
            code="capture-starting",
            part="capture",
            says=f"capture has been starting for {duration(capture.state_s)}",
            level=Level.SLOW if capture.state_s < START_S else Level.STOPPED,
            hint="wait; a start takes seconds, and longer with thousands of tables",
        )
    elif capture.state == State.WAITING and capture.reason == "reselect":
        yield from _reselect(evidence)
    elif capture.failure is not None and capture.state not in {State.RUNNING, State.CATCHING_UP}:
        yield from _failed(evidence, capture.failure)
    elif lags(evidence):
        yield from _behind(evidence)
    elif _broker_is_slow(evidence):
        yield _slow_broker(evidence, Level.RISK)


def _failed(evidence: Evidence, failure: Failure) -> Iterator[Cause]:
    """Name the error that capture waits or stopped for."""
    capture = evidence.capture
    code = code_of(failure)
    if failure.error == BLOCKED and evidence.source.writers:
        return  # the rule about transactions names the one
    if code == "slot-held":
        yield from _held(evidence, failure)
        return
    silent = [one.failure for one in (evidence.source, evidence.kafka) if not one.answers and one.failure is not None]
    if code == CREDENTIAL and any(code_of(one) == CREDENTIAL for one in silent):
        return  # the rule about that server names the same setting
    server = evidence.kafka if part_of(code) == "kafka" else evidence.source
    if code in _UNANSWERED and not server.answers and server.failure is not None:
        return
    if code == "broker-unreachable" and _broker_is_slow(evidence):
        yield _slow_broker(evidence, Level.STOPPED)
        return
    kafka = evidence.kafka
    if failure.error in UNANSWERED and kafka.answers and (kafka.offline or kafka.short or gone_brokers(kafka)):
        return  # the rule about partitions names the brokers that are down
    operator = any(known.value == capture.state and known.needs_operator for known in State)
    says = failure.message
    facts = [f"state {capture.state} for {duration(capture.state_s)}"]
    if code in {"source-unreachable", "broker-unreachable"} and server.answers:
        facts.append("this machine reaches that server now: check the network between it and capture")
    yield Cause(
        code=code,
        part=part_of(code),
        says=says,
        evidence=tuple(facts),
        hint=failure.hint,
        command=failure.command,
        needs_operator=operator,
    )


def _reselect(evidence: Evidence) -> Iterator[Cause]:
    failure = evidence.capture.failure or Failure("", "")
    if evidence.source.locks:
        first = evidence.source.locks[0]
        yield Cause(
            code="table-locked",
            part="source",
            says=f"{first.holder.what} locks {first.table}, from which capture must read a large value",
            evidence=(failure.message, f"its transaction has been open for {duration(first.holder.age_s)}"),
            hint="commit it, or end the session with this statement",
            command=first.holder.remedy,
        )
        return
    yield Cause(
        code="reselect-waits",
        part="capture",
        says="capture waits to read a large value from its table",
        evidence=(failure.message, f"for {duration(evidence.capture.state_s)}"),
        hint=failure.hint,
        command=failure.command,
    )


def _broker_is_slow(evidence: Evidence) -> bool:
    kafka, commit_s = evidence.kafka, evidence.capture.commit_s or 0.0
    return kafka.answers and ((kafka.round_trip_s or 0.0) >= SLOW_S or commit_s >= 2 * SLOW_COMMIT_S)


def _slow_broker(evidence: Evidence, level: Level) -> Cause:
    kafka, capture = evidence.kafka, evidence.capture
    trip_s = kafka.round_trip_s
    facts = [f"a small request takes {1000 * trip_s:.0f} ms"] if trip_s is not None else []
    facts += (
        [f"the newest Kafka transaction took {1000 * capture.commit_s:,.0f} ms"] if capture.commit_s is not None else []
    )
    facts += [f"the log is {duration(capture.lag_s)} behind"] if capture.lag_s else []
    return Cause(
        code="broker-slow",
        part="kafka",
        says="Kafka answers slowly"
        + ("; capture can publish only as fast as it answers" if level < Level.RISK else ""),
        level=level,
        evidence=tuple(facts),
        hint="check the load and the disks of the brokers, and the network to them; meanwhile capture stops reading, "
        "and PostgreSQL keeps the WAL",
    )


def _behind(evidence: Evidence) -> Iterator[Cause]:
    """Capture works and lags: name the slow broker, or the backlog with its numbers."""
    if _broker_is_slow(evidence):
        yield _slow_broker(evidence, Level.SLOW)
        return
    capture, source = evidence.capture, evidence.source
    facts = list(_progress(capture))
    left = source.slot.lag_bytes if source.slot is not None else None
    facts += [f"{size(left)} of WAL wait to be captured"] if left is not None else []
    if source.sender is not None and source.sender.unsent_bytes > _LAG_BYTES:
        facts.append(f"PostgreSQL has {size(source.sender.unsent_bytes)} of WAL left to decode")
    gain = (source.confirmed_rate or 0.0) - (source.wal_rate or 0.0)
    if left and gain > 0:
        facts.append(f"at the present rate it catches up in {duration(left / gain)}")
    if capture.rows_per_s or (source.confirmed_rate or 0) > 0:
        yield Cause(
            code="capture-behind",
            part="capture",
            says="capture reads a backlog: the source wrote more than capture has published so far",
            level=Level.SLOW,
            evidence=tuple(facts),
            hint="wait; if the lag grows, the load is higher than this machine or Kafka can take",
        )


def _progress(capture: CaptureEvidence) -> Iterator[str]:
    if capture.lag_s is not None:
        yield f"the log is {duration(capture.lag_s)} behind"
    if capture.rows_per_s is not None:
        yield f"capture publishes {capture.rows_per_s:,.0f} rows/s, {size(round(capture.bytes_per_s or 0))}/s"
