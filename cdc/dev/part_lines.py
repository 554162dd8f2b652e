"""Describes each part of `cdc dev` in one line: state, rate and lag. Pure: documents of /status in, lines out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Level = Literal["ok", "busy", "bad"]

_OK: Final = frozenset({"RUNNING"})
_BUSY: Final = frozenset({"STARTING", "CATCHING_UP", "WAITING"})
_DOWN: Final = "DOWN"
_STARTING: Final = "STARTING"


@dataclass(frozen=True, slots=True)
class Sample:
    """All that was read at one time.

    Attributes:
        at_s: the time, monotonic.
        capture: its document of /status; empty without an answer.
        capture_runs: whether its process runs.
        sinks: sink -> the sink's own document; empty without an answer.
        change_count: rows changed by the workload; None without a workload.
        problem: why the workload cannot write; empty if it can.
        servers_down: servers whose process has ended.
    """

    at_s: float
    capture: Mapping[str, Any]
    capture_runs: bool
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    change_count: int | None = None
    problem: str = ""
    servers_down: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartLine:
    """One line. Texts may be empty."""

    part: str
    state: str
    rate: str = ""
    lag: str = ""
    note: str = ""

    @property
    def level(self) -> Level:
        """How the state is shown."""
        return "ok" if self.state in _OK else "busy" if self.state in _BUSY else "bad"

    @property
    def plain(self) -> str:
        """The line as text, for a log."""
        return " ".join(text for text in (self.part, self.state, self.rate, self.lag, self.note) if text)


def part_lines(before: Sample, now: Sample, *, servers: tuple[str, ...], sinks: tuple[str, ...]) -> list[PartLine]:
    """Return a line for the source, the servers, capture and each sink. Rates are those since `before`."""
    return [
        _source(before, now),
        _servers(now, servers),
        _capture(now),
        *(_sink(sink, before, now) for sink in sinks),
    ]


def _source(before: Sample, now: Sample) -> PartLine:
    if now.change_count is None:
        slot = now.capture.get("slot") or {}
        lag = f"{_size(slot['lag_bytes'])} of WAL" if slot.get("lag_bytes") is not None else ""
        return PartLine("your database", "RUNNING" if slot else str(now.capture.get("state") or _DOWN), lag=lag)
    state = _DOWN if "postgres" in now.servers_down else "WAITING" if now.problem else "RUNNING"
    changes = now.change_count - (before.change_count or 0)
    return PartLine("shop", state, _rate(changes, before, now, "changes"), note=now.problem)


def _servers(now: Sample, servers: tuple[str, ...]) -> PartLine:
    down = now.servers_down
    if not down:
        return PartLine("servers", "RUNNING", note=", ".join(servers))
    return PartLine("servers", _DOWN, note=", ".join(down))


def _capture(now: Sample) -> PartLine:
    found = now.capture
    if not found:
        return PartLine("capture", _STARTING if now.capture_runs else _DOWN)
    rate = f"{found.get('rows_per_second') or 0:,.0f} rows/s"
    return PartLine("capture", str(found["state"]), rate, _seconds(found.get("lag_seconds")), _why(found))


def _sink(sink: str, before: Sample, now: Sample) -> PartLine:
    known = (now.capture.get("sinks") or {}).get(sink)
    if known is None:
        return PartLine(sink, _STARTING if now.capture_runs else _DOWN)
    then, found = before.sinks.get(sink) or {}, now.sinks.get(sink) or {}
    rate = ""
    if "records" in then and "records" in found and found["records"] >= then["records"]:
        rate = _rate(found["records"] - then["records"], before, now, "records")
    behind, behind_bytes = known.get("lag_records"), found.get("behind_bytes")
    lag = "" if behind is None else f"{behind:,} behind"
    if behind_bytes is not None:  # a lake counts bytes of WAL, not records
        lag = f"{_size(behind_bytes)} behind"
    seconds = _seconds(known.get("lag_seconds"))
    note = _why(known)
    if known.get("next_start_seconds") is not None:
        note = f"restarts in {known['next_start_seconds']:.0f} s{f': {note}' if note else ''}"
    return PartLine(sink, str(known["state"]), rate, ", ".join(text for text in (lag, seconds) if text), note)


def _why(found: Mapping[str, Any]) -> str:
    """Return the reason of a state, if it needs one."""
    if found.get("state") in _OK:
        return ""
    error = found.get("error") or {}
    return str(error.get("message") or found.get("reason") or "")


def _rate(count: float, before: Sample, now: Sample, unit: str) -> str:
    span_s = now.at_s - before.at_s
    return f"{max(0.0, count / span_s):,.0f} {unit}/s" if span_s > 0 else ""


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:,.1f} s"


def _size(count_bytes: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count_bytes < 1000:
            return f"{count_bytes:.0f} {unit}"
        count_bytes /= 1000
    return f"{count_bytes:.1f} GB"
