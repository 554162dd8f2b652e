"""Rules about sinks and lakes: stopped, paused, frozen, stores that reject writes, blocked keys, slow views. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cdc.model.run_state import State
from cdc.model.sink_report import STUCK, needs_operator
from cdc.model.units import duration
from cdc.model.wait_reason import reason_text
from cdc.why.cause import Cause, Level
from cdc.why.error_codes import CREDENTIAL, code_of
from cdc.why.evidence import Evidence, Failure, SinkEvidence
from cdc.why.source_rules import unreached

LAG_S: Final = 30.0
"""As in `sinks.operate.sink_view`: a sink whose oldest unapplied record is older is behind."""

REPORTS_MISSED: Final = 2.5
"""A worker is frozen if this many reports are missing: the next one may be sent late under load."""

VIEW_SHARE: Final = 0.5
"""A view is the reason for slow cuts if it takes this share of the time of all views."""

PAUSED: Final = "PAUSED"
_FULL: Final = ("memory", "search_block")
"""Findings of a store's checkup that mean: it has no space. See `sinks.cache.checkup` and `sinks.search.checkup`."""

_LISTED_MAX: Final = 5
_STORE_HINT: Final = "start the store, or check its url and the network; the sink then continues by itself"
_BROKER: Final = frozenset({"BrokerUnreachable", "OutcomeUnknown", "MemberDropped", "CaptureNotStarted"})
_STOPS: Final = {
    State.GAP.value: "sink-gap",
    State.STALE.value: "sink-stale",
    State.FENCED.value: "sink-fenced",
}


def sink_causes(evidence: Evidence) -> Iterator[Cause]:
    """Return the causes that sinks show, and their stores."""
    for sink in evidence.sinks:
        yield from _state(evidence, sink)
        yield from _blocked(sink)
        yield from _views(sink)


def lags(sink: SinkEvidence) -> bool:
    """Whether a sink is known to be behind the log."""
    if sink.lake is not None:
        return sink.state == State.CATCHING_UP
    return sink.state == State.CATCHING_UP or (sink.lag_s or 0.0) > LAG_S


def _state(evidence: Evidence, sink: SinkEvidence) -> Iterator[Cause]:
    """Return the one cause for the state of a sink."""
    if sink.failure is not None:
        return  # its state could not be read, which `unread` says
    if sink.busy:
        yield _cause(sink, "sink-busy", sink.busy, Level.SLOW, hint="wait until it ends; the workers wait, too")
    elif needs_operator(sink.state):
        yield _stopped(sink)
    elif sink.state == PAUSED:
        yield _paused(sink)
    elif sink.workers == 0:
        yield _down(sink)
    elif (sink.lag_records or _hangs(sink)) and sink.store is not None and not sink.store.answers:
        yield _store(sink, Failure("", "it gave no answer"))  # the worker waits for it, for up to a minute
    elif _hangs(sink):
        yield _stuck(sink)  # also a worker that froze after `resume`: its last report says that it is paused
    elif sink.state == State.WAITING and sink.reason == "paused":
        yield _paused(sink)
    elif sink.state == State.WAITING:
        yield from _waiting(evidence, sink)
    elif sink.lag_records and _lacks_space(sink):
        yield _store(sink, Failure("", f"{sink.lag_records:,} records are not applied"))
    elif lags(sink):
        yield from _behind(sink)


def _paused(sink: SinkEvidence) -> Cause:
    says = f"an operator paused sink {sink.name}"
    return _cause(sink, "sink-paused", says, Level.SLOW, command=f"cdc sink resume {sink.name}")


def _stopped(sink: SinkEvidence) -> Cause:
    cause = sink.cause or Failure("", f"sink {sink.name} stopped in state {sink.state}")
    code = _STOPS.get(sink.state, "sink-stopped")
    if cause.command.startswith("cdc dlq"):
        code = "dead-letters-full"
    elif cause.error == "BrokerRefused":
        code = "broker-refused"
    elif cause.error in {"TopicMissing", "TopicMismatch"}:
        code = {"TopicMissing": "topic-missing"}.get(cause.error, "topic-changed")
    elif sink.store is not None and sink.store.failure is not None and sink.store.failure.error == "SinkUnfit":
        code = "store-refused"
    return _cause(sink, code, cause.message, hint=cause.hint, command=cause.command, operator=True)


def _down(sink: SinkEvidence) -> Cause:
    facts = []
    if sink.report_age_s is None:
        facts.append("no worker has ever reported")
    elif sink.ended:
        facts.append(f"its last worker ended {duration(sink.report_age_s)} ago")
    else:
        facts.append(f"its last worker reported {duration(sink.report_age_s)} ago, and did not report its end")
        facts.append("that process was killed or is frozen, or its machine is down")
    if sink.cause is not None:
        facts.append(f"its last error: {sink.cause.message}")
    return _cause(
        sink,
        "sink-down",
        f"no worker of sink {sink.name} runs",
        facts=facts,
        hint="start it; it continues from its position",
        command=f"cdc sink run {sink.name}",
    )


def _hangs(sink: SinkEvidence) -> bool:
    return sink.state == STUCK or _silent(sink)


def _silent(sink: SinkEvidence) -> bool:
    return sink.report_age_s is not None and sink.report_age_s > REPORTS_MISSED * sink.every_s


def _stuck(sink: SinkEvidence) -> Cause:
    facts = []
    if sink.report_age_s is not None:
        facts.append(
            f"its last report is {duration(sink.report_age_s)} old; a worker reports every {sink.every_s:.0f} s"
        )
    if sink.state == STUCK:
        facts.append("its loop has made no turn for two minutes")
    return _cause(
        sink,
        "sink-stuck",
        f"a worker of sink {sink.name} does not respond: it is frozen or hangs",
        facts=facts,
        hint="continue the process, or end it; a new one continues from its position",
    )


def _waiting(evidence: Evidence, sink: SinkEvidence) -> Iterator[Cause]:
    cause = sink.cause or Failure("", f"sink {sink.name} waits: {reason_text(sink.reason)}")
    if cause.error in _BROKER:
        if evidence.kafka.answers and code_of(cause) == CREDENTIAL:
            yield _cause(sink, CREDENTIAL, cause.message, hint=cause.hint)
        elif evidence.kafka.answers and cause.error != "CaptureNotStarted":
            says = f"sink {sink.name} cannot reach Kafka, but this machine can: {cause.message}"
            yield _cause(sink, "broker-unreachable", says, hint=cause.hint)
        elif cause.error == "CaptureNotStarted":
            yield _cause(sink, "sink-waits", cause.message, hint=cause.hint, command="cdc run")
        return
    if sink.reason == "store":
        yield _store(sink, cause)
    elif sink.reason == "lake":
        yield _cause(sink, "lake-unready", cause.message, hint=cause.hint, command=cause.command)
    elif cause.error == "BrokerRefused":
        yield _cause(sink, "broker-refused", cause.message, hint=cause.hint, command=cause.command)
    elif cause.error == "TopicMissing":
        yield _cause(sink, "topic-missing", cause.message, hint=cause.hint, command=cause.command)
    else:
        yield _cause(sink, "sink-waits", cause.message, hint=cause.hint, command=cause.command)


def _store(sink: SinkEvidence, cause: Failure) -> Cause:
    """Name the store's fault: a worker that waits for it does not say whether it answers others."""
    store = sink.store
    if store is None or not store.answers:
        failure = (store.failure if store is not None else None) or cause
        for one in (cause, failure):
            if code_of(one) == CREDENTIAL:
                return _cause(sink, CREDENTIAL, one.message, hint=one.hint)
        reach = store.reach if store is not None else ()
        if reach and {one.outcome for one in reach} != {"answers"}:
            hinted = replace(failure, hint=failure.hint or _STORE_HINT)
            return unreached(sink.part, f"the store of sink {sink.name}", hinted, reach, "store-unreachable")
        return _cause(
            sink,
            "store-unreachable",
            f"the store of sink {sink.name} does not answer",
            facts=[failure.message],
            hint=_STORE_HINT,
        )
    full = _lacks_space(sink)
    if full:
        return _cause(sink, "store-full", full, facts=[cause.message], hint="give the store more space")
    return _cause(
        sink,
        "store-rejects",
        f"the store of sink {sink.name} answers, but rejects its writes",
        facts=[cause.message, *list(store.problems.values())[:_LISTED_MAX]],
        hint=cause.hint or "the log of the store says why; the sink continues by itself",
        command=cause.command,
    )


def _lacks_space(sink: SinkEvidence) -> str:
    """Return what the store reports of its space, if it has none left: a worker then retries, and does not wait."""
    problems = sink.store.problems if sink.store is not None else {}
    return next((problems[check] for check in _FULL if check in problems), "")


def _blocked(sink: SinkEvidence) -> Iterator[Cause]:
    if not sink.blocked:
        return
    facts = [f"tables: {', '.join(sink.blocked_tables[:_LISTED_MAX])}"]
    facts += [f"error classes: {', '.join(sink.blocked_errors[:_LISTED_MAX])}"] if sink.blocked_errors else []
    keys = "1 key is" if sink.blocked == 1 else f"{sink.blocked:,} keys are"
    yield _cause(
        sink,
        "key-blocked",
        f"{keys} blocked in sink {sink.name}: the store refused a record, and later records of the key wait",
        Level.SLOW,
        facts=facts,
        hint="fix the cause, then retry; the list shows the reason of each",
        command=f"cdc dlq list {sink.name}",
    )


def _views(sink: SinkEvidence) -> Iterator[Cause]:
    lake = sink.lake
    if lake is None or not lake.behind:
        return
    behind = list(lake.behind.items())
    name, why = behind[0]
    more = f", and {len(behind) - 1} more" if len(behind) > 1 else ""
    yield _cause(
        sink,
        "view-behind",
        f"view {name} of lake {sink.name} is behind its tables{more}: {why}",
        Level.SLOW,
        facts=[f"view {other}: {reason}" for other, reason in behind[1:_LISTED_MAX]],
        hint="correct the SQL file of the view; other views are not affected",
        command="cdc views list",
    )


def _behind(sink: SinkEvidence) -> Iterator[Cause]:
    facts = []
    if sink.lag_records is not None:
        facts.append(f"{sink.lag_records:,} records are not applied")
    if sink.lag_s is not None:
        facts.append(f"the oldest of them is {duration(sink.lag_s)} old")
    lake = sink.lake
    if lake is not None and lake.view_s:
        name, longest_s = max(lake.view_s.items(), key=lambda one: one[1])
        all_s = sum(lake.view_s.values())
        facts.append(f"the views took {duration(all_s)} in the newest cut; {name} took {duration(longest_s)}")
        if longest_s >= max(1.0, VIEW_SHARE * all_s):
            says = f"view {name} makes the cuts of lake {sink.name} slow"
            yield _cause(
                sink, "view-slow", says, Level.SLOW, facts=facts, command=f"cdc views explain {name}",
                hint="see how it is kept, or raise interval_s",
            )  # fmt: skip
            return
    if lake is not None and lake.age_s is not None:
        facts.append(f"its newest cut is {duration(lake.age_s)} old")
    yield _cause(
        sink,
        "sink-behind",
        f"sink {sink.name} applies a backlog",
        Level.SLOW,
        facts=facts,
        hint="wait; if it grows, the store is slower than the log: start more workers, or raise parallel",
    )


def _cause(
    sink: SinkEvidence,
    code: str,
    says: str,
    level: Level = Level.STOPPED,
    *,
    facts: list[str] | None = None,
    hint: str = "",
    command: str = "",
    operator: bool = False,
) -> Cause:
    return Cause(
        code=code,
        part=sink.part,
        says=says,
        level=level,
        evidence=tuple(facts or ()),
        hint=hint,
        command=command,
        needs_operator=operator,
    )
