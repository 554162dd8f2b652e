"""The periodic state report of a sink process, and the state of a sink derived from its reports. Pure.

The same report goes through a pipe to `cdc run --with-sinks`, and into the state topic of the sink for `cdc sink
status`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cdc.model.run_state import State

PIPE_EVERY_S: Final = 2.0
TOPIC_EVERY_S: Final = 10.0

OLD_S: Final = 45.0
"""An older report from the topic does not show the present state: four reports are missing."""

STUCK_S: Final = 120.0
"""A worker is stuck if its loop makes no turn for this long: all requests have shorter timeouts."""

STUCK: Final = "STUCK"
UNKNOWN: Final = "UNKNOWN"
STOPPED: Final = State.STOPPED.value
WORKING: Final = frozenset({State.RUNNING.value, State.CATCHING_UP.value})

REPORT_VERSION: Final = 1

_KEY: Final = b'{"control":"heartbeat","worker":'


class SinkReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One report.

    Attributes:
        at_ms: time of the report in milliseconds since 1970, by the clock of the worker.
        state: see `cdc.model.run_state.State`.
        ended: the process has ended, and `state` is the reason.
        turn_age_s: time since the last turn of the worker's loop; None if not measured.
        records: applied since the process started; an older release does not report them.
        behind_bytes, cut: of a lake: WAL from its newest cut to the end of the log, and the number of that cut.
        behind_s: of a lake: time since the newest cut held the whole log.
        error: class, message, hint and command of the error that caused `state`.
        version: left out for 1.
    """

    at_ms: int
    state: str
    reason: str = ""
    host: str = ""
    pid: int = 0
    ended: bool = False
    turn_age_s: float | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    records: int | None = None
    behind_bytes: int | None = None
    behind_s: float | None = None
    cut: int | None = None
    error: dict[str, str] | None = None
    version: int = 1

    @property
    def shown(self) -> str:
        """The state, or STUCK for a worker whose loop makes no progress."""
        stuck = self.turn_age_s is not None and self.turn_age_s > STUCK_S
        return STUCK if stuck and self.state in WORKING else self.state


def report_of(status: Mapping[str, Any], at_ms: int, *, host: str, pid: int) -> SinkReport:
    """Create a report from the document of a sink's /status."""
    error = status.get("error")
    return SinkReport(
        at_ms=at_ms,
        state=str(status["state"]),
        reason=str(status.get("reason") or ""),
        host=host,
        pid=pid,
        turn_age_s=status.get("turn_age_seconds"),
        lag_records=status.get("lag_records"),
        lag_seconds=status.get("lag_seconds"),
        records=status.get("records"),
        behind_bytes=status.get("behind_bytes"),
        behind_s=status.get("behind_seconds"),
        cut=status.get("cut"),
        error=None if error is None else {key: str(value) for key, value in error.items()},
    )


def encode(report: SinkReport) -> bytes:
    """Encode a report as one line of JSON, without the newline."""
    return msgspec.json.encode(report)


def decode(data: bytes) -> SinkReport | None:
    """Decode a report; None for one of another version. Its sink is then UNKNOWN, as without any report."""
    try:
        found = msgspec.json.decode(data, type=SinkReport)
    except msgspec.MsgspecError:
        return None
    return found if found.version == REPORT_VERSION else None


def worker_key(worker: str) -> bytes:
    """Return the key of a worker's report in the state topic."""
    return _KEY + msgspec.json.encode(worker) + b"}"


def is_report(key: bytes) -> bool:
    """Return whether a record of the state topic is a report."""
    return key.startswith(_KEY)


class SinkSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a sink derived from the reports of all its workers.

    Attributes:
        state: the worst state of a worker; STOPPED when no worker is alive, UNKNOWN when none ever reported.
        workers: number of workers with a recent report.
        age_s: age of the newest report; None without a report.
        report: the report with this state.
    """

    state: str
    workers: int
    age_s: float | None
    report: SinkReport | None


_WORST_FIRST: Final = ("WAITING", STUCK, "STARTING", "CATCHING_UP", "RUNNING", STOPPED)


def summarize_reports(reports: list[SinkReport], now_ms: float, *, members: int = 0) -> SinkSummary:
    """Derive the current state. `members`: members of the consumer group, including those that died recently."""
    if not reports:
        return SinkSummary(state=UNKNOWN if members else STOPPED, workers=0, age_s=None, report=None)
    newest = max(reports, key=lambda one: one.at_ms)
    age_s = max(0.0, (now_ms - newest.at_ms) / 1000)
    alive = [one for one in reports if not one.ended and now_ms - one.at_ms <= OLD_S * 1000]
    if alive:
        worst = min(alive, key=_rank)
        return SinkSummary(state=worst.shown, workers=len(alive), age_s=age_s, report=worst)
    state = newest.state if newest.ended else STOPPED
    return SinkSummary(state=state, workers=0, age_s=age_s, report=newest)


def needs_operator(state: str) -> bool:
    """Return whether a sink in this state needs an operator."""
    return any(known.value == state and known.needs_operator for known in State)


def _rank(report: SinkReport) -> int:
    shown = report.shown
    return _WORST_FIRST.index(shown) if shown in _WORST_FIRST else -1
