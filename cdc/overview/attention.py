"""Lists what an operator should look at, the worst first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from cdc.command_text import with_pipeline
from cdc.model import units
from cdc.model.wait_reason import reason_text
from cdc.overview.levels import LEVELS, Level, level_of
from cdc.overview.sink_facts import SinkFacts

Severity: TypeAlias = Literal["page", "ticket"]
"""page: act now. ticket: act within a working day. As in `cdc.telemetry.alert_rule`."""

_SOON_S: Final = 3600.0
_OLD_TRANSACTION_S: Final = 300.0
_BEHIND_S: Final = 60.0
_NAMED_MAX: Final = 5
_MAY_CATCH_UP: Final = "wait, if it has just started"
RUNBOOKS: Final = {
    "slot": "wal-pressure",
    "source": "wal-pressure",
    "sink": "sinks",
    "sinks": "sinks",
    "dead-letters": "dead-letters",
    "snapshot": "snapshots",
    "ddl": "ddl",
    "tables": "new-tables",
    "views": "views",
    "audit": "audit",
    "signals": "snapshots",
    "outbox": "outbox-pruning",
    "freshness": "objectives",
    "notify": "notify",
}
"""First word of `Attention.what` -> page of docs/howto; states.md for the others."""

_URGENT: Final = frozenset({"capture", "sink", "sinks", "freshness"})
"""First words of `what`: data is delayed already when they warn."""


@dataclass(frozen=True, slots=True)
class Attention:
    """One thing to look at. `what` names the part, `page` is where the page shows more of it."""

    level: Level
    what: str
    says: str
    hint: str = ""
    command: str = ""
    page: str = ""

    def __post_init__(self) -> None:
        """Suggest a command for the pipeline of this process."""
        object.__setattr__(self, "command", with_pipeline(self.command))

    @property
    def severity(self) -> Severity:
        """How soon someone must act: at once if data is delayed or in danger."""
        urgent = self.level == "bad" or (self.level == "warn" and self.what.partition(" ")[0] in _URGENT)
        return "page" if urgent else "ticket"

    @property
    def runbook(self) -> str:
        """The page of the documentation about it, relative to the root of the repository."""
        return f"docs/howto/{RUNBOOKS.get(self.what.partition(' ')[0], 'states')}.md"

    @property
    def document(self) -> dict[str, str]:
        """For the page."""
        return {name: getattr(self, name) for name in self.__slots__} | {"runbook": self.runbook}


def attention_of(
    status: Mapping[str, Any],
    sinks: Sequence[SinkFacts],
    views: Mapping[str, tuple[int, Mapping[str, str]]],
) -> list[Attention]:
    """Return the list for capture's /status, the sinks, and the views of lakes that are behind."""
    found = [
        *_capture(status),
        *_wal(status),
        *(one for sink in sinks for one in _sink(sink)),
        *_snapshots(status),
        *_tables(status),
        *_views(views),
        *_others(status),
        *_freshness(status),
        *_notify(status),
    ]
    return sorted(found, key=lambda one: -LEVELS.index(one.level))


def together(found: Sequence[Attention]) -> list[Attention]:
    """Return one entry for all sinks that report the same problem, for people: one cause is read once.

    Messages keep an entry for each sink, because each of them recovers by itself.
    """
    same: dict[tuple[str, ...], list[Attention]] = {}
    for one in found:
        alone = "" if one.what.startswith("sink ") else one.what
        same.setdefault((alone, one.level, one.says, one.hint, one.command, one.page), []).append(one)
    return [members[0] if len(members) == 1 else replace(members[0], what=_names(members)) for members in same.values()]


def _names(members: Sequence[Attention]) -> str:
    names = [one.what.removeprefix("sink ") for one in members]
    more = len(names) - _NAMED_MAX
    return f"sinks {', '.join(names[:_NAMED_MAX])}" + (f" and {more} more" if more > 0 else "")


def _capture(status: Mapping[str, Any]) -> Iterator[Attention]:
    error, state = status.get("error"), str(status["state"])
    if error:
        yield _of_error(level_of(state), "capture", error, "alarms")
    elif level_of(state) in {"warn", "bad"}:
        yield Attention(level_of(state), "capture", f"capture is {state}: {status.get('reason') or 'no reason known'}")
    elif (status.get("lag_seconds") or 0.0) >= _BEHIND_S:
        said = f"the log is {units.duration(status['lag_seconds'])} behind PostgreSQL"
        yield Attention("warn", "capture", said, _MAY_CATCH_UP, "cdc why")


def _wal(status: Mapping[str, Any]) -> Iterator[Attention]:
    wal, slot = status.get("wal") or {}, status.get("slot") or {}
    if wal.get("lost"):
        yield Attention("bad", "slot", f"the slot is lost: {wal['lost']}", command="cdc slot recreate")
    elif wal.get("alarms"):
        left, limit = units.size(wal.get("left_bytes")) or "nothing", units.size(wal.get("limit_bytes"))
        level: Level = "bad" if min(wal["alarms"]) <= 10 else "warn"
        yield Attention(level, "slot", f"the slot may keep {limit} of WAL; {left} of it is left", command="cdc why")
    elif (lost_in_s := slot.get("lost_in_seconds")) and lost_in_s < _SOON_S and status["state"] != "RUNNING":
        yield Attention("warn", "slot", f"the slot is lost in {units.duration(lost_in_s)} unless capture continues")
    oldest = wal.get("oldest_transaction") or {}
    if (oldest.get("age_seconds") or 0) >= _OLD_TRANSACTION_S:
        who = f"prepared transaction {oldest['gid']}" if oldest.get("pid") is None else f"pid {oldest['pid']}"
        name = f" ({oldest['application_name']})" if oldest.get("application_name") else ""
        age = units.duration(oldest["age_seconds"])
        yield Attention(
            "warn", "source", f"a transaction is open for {age}: {who}{name}", "WAL is kept from its start on"
        )
    for problem in wal.get("failover_problems") or ():
        yield Attention("warn", "slot", f"a failover might leave a gap: {problem}")


def _sink(sink: SinkFacts) -> Iterator[Attention]:
    level, what = level_of(sink.state), f"sink {sink.name}"
    if sink.error and level in {"warn", "bad"}:
        yield _of_error(level, what, sink.error, "sinks")
    elif level in {"warn", "bad"}:
        reason = f": {reason_text(sink.reason)}" if sink.reason else ""
        command = f"cdc sink status {sink.name}"
        yield Attention(level, what, f"{sink.name} is {sink.state}{reason}", "", command, "sinks")
    elif sink.state == "PAUSED":
        yield Attention("off", what, f"{sink.name} is paused", "", f"cdc sink resume {sink.name}", "sinks")
    elif not sink.workers and sink.workers is not None:
        yield Attention("warn", what, f"no worker of {sink.name} runs", "", f"cdc sink run {sink.name}", "sinks")
    elif (sink.lag_seconds or 0.0) >= _BEHIND_S:
        records = "" if sink.lag_records is None else f", {sink.lag_records:,} records wait"
        said = f"{sink.name} is {units.duration(sink.lag_seconds or 0.0)} behind{records}"
        yield Attention("warn", what, said, _MAY_CATCH_UP, f"cdc why {sink.name}", "sinks")
    if sink.blocked_keys:
        keys = "1 key is" if sink.blocked_keys == 1 else f"{sink.blocked_keys:,} keys are"
        said = f"{keys} blocked in {sink.name}: the store refused a record, and later records of the key wait"
        yield Attention("warn", f"dead-letters of {sink.name}", said, "", f"cdc dlq list {sink.name}", "dead-letters")


def _snapshots(status: Mapping[str, Any]) -> Iterator[Attention]:
    stopped = [str(one["table"]) for one in status.get("snapshots") or () if one["state"] == "stopped"]
    if stopped:
        more = f" and {len(stopped) - 1} more" if len(stopped) > 1 else ""
        yield Attention(
            "warn", "snapshot", f"the snapshot of {stopped[0]}{more} is stopped: rows are missing",
            "", f"cdc snapshot start {stopped[0]}", "tables",
        )  # fmt: skip
    guard = status.get("load_guard") or {}
    if guard.get("reason"):
        says = f"snapshots read at {100 * guard['speed']:.0f} % of full speed: {guard['reason']}"
        yield Attention("busy", "snapshot", says, "they read faster when the source recovers", "cdc why", "tables")


def _tables(status: Mapping[str, Any]) -> Iterator[Attention]:
    findings = status.get("ddl") or ()
    if findings:
        first, count = findings[0], status.get("ddl_count") or len(findings)
        more = f" ({count} findings)" if count > 1 else ""
        yield Attention(
            "warn", "ddl", f"{first['table']}: {first['what']}{more}", first["hint"], first["command"], "findings"
        )
    left_out = status.get("left_out") or ()
    if left_out:
        first, count = left_out[0], status.get("left_out_count") or len(left_out)
        said = f"{first['table']} is not captured: {first['problem']}"
        said = said if count == 1 else f"{count} selected tables are not captured, for example {said}"
        yield Attention("warn", "tables", said, "", first.get("statement") or "", "tables")


def _views(views: Mapping[str, tuple[int, Mapping[str, str]]]) -> Iterator[Attention]:
    for lake, (_, behind) in sorted(views.items()):
        if behind:
            name, why = min(behind.items())
            more = f" and {len(behind) - 1} more are" if len(behind) > 1 else " is"
            yield Attention("warn", f"views of {lake}", f"{name}{more} behind: {why}", "", "cdc views list", "lake")


def _others(status: Mapping[str, Any]) -> Iterator[Attention]:
    for weak in status.get("weak_topics") or ():
        count = weak["topics"]
        have = f"{count} {'topic has' if count == 1 else 'topics have'} {weak['setting']}"
        said = f"{have} {weak['found']} instead of {weak['wanted']}"
        yield Attention("off", "topics", said, "", weak.get("command") or "", "topics")  # a start has accepted it
    audit = status.get("audit") or {}
    if audit.get("findings"):
        yield Attention("bad", "audit", f"the audit found {audit['findings']} differences", command="cdc audit")
    signals = status.get("signals") or {}
    if signals and not signals.get("listening"):
        yield Attention("warn", "signals", f"signals are not read: {signals.get('error')}")
    pruning = (status.get("outbox") or {}).get("pruning")
    if pruning:
        yield Attention("warn", "outbox", f"the outbox is not pruned: {pruning}")


def _freshness(status: Mapping[str, Any]) -> Iterator[Attention]:
    for one in status.get("objectives") or ():
        if one["burns"]:
            behind_s, name = one["freshness_seconds"], one["sink"] or "the log"
            where = "an unknown time" if behind_s is None else units.duration(behind_s)
            allowed = units.duration(one["objective_seconds"])
            said = f"{name} is {where} behind PostgreSQL, and misses its objective of {allowed}"
            left = f"{100 * max(0.0, one['budget_left']):.0f} % of the error budget is left"
            command = f"cdc why {one['sink']}".strip()
            yield Attention("warn", f"freshness of {name}", said, left, command, "sinks")


def _notify(status: Mapping[str, Any]) -> Iterator[Attention]:
    for one in status.get("notify") or ():
        if one["error"]:
            said = f"messages to {one['name']} are not delivered: {one['error']}"
            yield Attention("warn", f"notify {one['name']}", said, "", f"cdc notify test {one['name']}", "config")


def _of_error(level: Level, what: str, error: Mapping[str, Any], page: str) -> Attention:
    said, hint = str(error.get("message") or error.get("error")), str(error.get("hint") or "")
    if level == "warn" and not hint:
        hint = "it continues by itself when this ends"
    return Attention(level, what, said, hint, str(error.get("command") or "cdc why"), page)
