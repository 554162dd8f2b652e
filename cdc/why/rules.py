"""Applies all rules to the evidence, and says in one sentence what was found. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdc.model.run_state import State
from cdc.model.units import duration, size
from cdc.why import sink_rules
from cdc.why.capture_rules import capture_causes, lags, runs_elsewhere
from cdc.why.cause import Cause, Level, ranked
from cdc.why.evidence import Evidence, SinkEvidence
from cdc.why.kafka_rules import kafka_causes
from cdc.why.snapshot_rules import snapshot_causes
from cdc.why.source_rules import source_causes

PIPELINE = ("source", "capture", "kafka")
"""Parts whose causes matter to every other part: what stops capture also stops snapshots and sinks."""


def find_causes(evidence: Evidence) -> list[Cause]:
    """Return all causes, root causes first."""
    found = [
        *source_causes(evidence),
        *kafka_causes(evidence),
        *capture_causes(evidence),
        *snapshot_causes(evidence),
        *sink_rules.sink_causes(evidence),
    ]
    return ranked([*found, *_unexplained(evidence, found)])


def concerning(causes: Sequence[Cause], part: str) -> list[Cause]:
    """Return the causes that matter to a part: ``capture``, ``snapshot`` or the name of a sink. Empty: all.

    Everything that stops the pipeline matters to a sink and to a snapshot; another sink does not.
    """
    if not part:
        return list(causes)
    if part == "capture":
        return [one for one in causes if one.part in PIPELINE]
    own = ("snapshot",) if part == "snapshot" else (f"sink {part}", f"lake {part}")
    return [
        one
        for one in causes
        if (one.part in PIPELINE and one.level < Level.RISK)
        or one.part in own
        or (part == "snapshot" and one.part.startswith("snapshot"))
    ]


def is_healthy(causes: Sequence[Cause]) -> bool:
    """Whether nothing is wrong now. A risk alone does not count, unless capture cannot start again."""
    return not any(one.level < Level.RISK or one.needs_operator for one in causes)


def summary(evidence: Evidence, causes: Sequence[Cause]) -> str:
    """Return the first line for people."""
    if not is_healthy(causes):
        return causes[0].says
    capture = evidence.capture
    if capture.answers:
        follows = f"capture follows the log, lag {duration(capture.lag_s or 0.0)}"
    else:
        follows = f"capture runs, but its /status cannot be read from here ({capture.why_not})"
        slot = evidence.source.slot
        follows += f", {size(slot.lag_bytes)} behind" if slot is not None and slot.lag_bytes is not None else ""
    reading = sum(one.state in {"reading", "waiting", "sweeping"} for one in capture.snapshots)
    parts = [follows]
    parts += [f"{reading} snapshot{'' if reading == 1 else 's'} in progress"] if reading else []
    count = len(evidence.sinks)
    parts += [f"{count} sink{' follows' if count == 1 else 's follow'}"] if count else []
    risks = f"; {len(causes)} may become a problem" if causes else ""
    return f"nothing is wrong: {', '.join(parts)}{risks}"


def checked(evidence: Evidence) -> list[str]:
    """Return what was read, with the numbers that matter."""
    return list(_checked(evidence))


def _unexplained(evidence: Evidence, found: Sequence[Cause]) -> Iterator[Cause]:
    """Say honestly that something lags, if no rule has named a cause."""
    named = any(one.part in PIPELINE and one.level < Level.RISK for one in found)
    if named or not lags(evidence):
        return
    capture = evidence.capture
    state = f"capture is in state {capture.state}" if capture.answers else "capture cannot be asked"
    facts = [f"the log is {duration(capture.lag_s)} behind"] if capture.lag_s is not None else []
    facts += list(_checked(evidence))
    yield Cause(
        code="lag-unexplained",
        part="capture",
        says=f"{state} and behind the source, and no cause was found",
        level=Level.SLOW,
        evidence=tuple(facts),
        hint="look at the log of capture; run this command again in a minute and compare the numbers",
        command="cdc status --watch",
    )


def _checked(evidence: Evidence) -> Iterator[str]:
    capture, source, kafka = evidence.capture, evidence.source, evidence.kafka
    if capture.answers:
        reason = f" ({capture.reason})" if capture.reason else ""
        lag = f", lag {duration(capture.lag_s)}" if capture.lag_s is not None else ""
        yield f"capture: {capture.state}{reason}{lag}"
    elif runs_elsewhere(evidence):
        yield "capture: reads the slot, /status cannot be read"
    if source.answers:
        slot = source.slot
        parts = [f"round trip {1000 * source.round_trip_s:.1f} ms"] if source.round_trip_s is not None else []
        if slot is not None and slot.exists:
            parts.append(f"slot {slot.wal_status or 'is being created'}")
            parts += [f"keeps {size(slot.retained_bytes)}"] if slot.retained_bytes is not None else []
            parts += [f"{size(slot.lag_bytes)} not captured"] if slot.lag_bytes is not None else []
        elif slot is not None:
            parts.append("no slot")
        count = len(source.writers)
        parts.append(f"{count} open write transaction{'' if count == 1 else 's'}")
        yield f"PostgreSQL: {', '.join(parts)}"
    if kafka.answers:
        trip = f", round trip {1000 * kafka.round_trip_s:.1f} ms" if kafka.round_trip_s is not None else ""
        brokers = f"{kafka.broker_count} broker{'' if kafka.broker_count == 1 else 's'}"
        yield f"Kafka: {brokers if kafka.broker_count else 'its topics were not read in time'}{trip}"
    for one in capture.snapshots:
        if one.state not in {"complete", "stopped"}:
            yield f"snapshot {one.table}: {one.state}, {one.rows:,} rows"
    for sink in evidence.sinks:
        if sink.failure is None:
            yield f"{sink.part}: {_sink(sink)}"


def _sink(sink: SinkEvidence) -> str:
    parts = [sink.state or State.STOPPED.value]
    parts += [f"{sink.workers} worker{'' if sink.workers == 1 else 's'}"] if sink.workers is not None else []
    parts += [f"{sink.lag_records:,} records behind"] if sink.lag_records is not None else []
    if sink.lake is not None and sink.lake.age_s is not None:
        parts.append(f"cut {sink.lake.cut}, {duration(sink.lake.age_s)} old")
    return ", ".join(parts)
