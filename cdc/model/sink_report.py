"""What a process of a sink reports of itself every few seconds, and what is left of it when it grows old. Pure.

The same report goes through a pipe to `cdc run --with-sinks` and into the sink's state topic, for `cdc sink status`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cdc.model.run_state import State

PIPE_EVERY_S: Final = 2.0
TOPIC_EVERY_S: Final = 10.0

OLD_S: Final = 45.0
"""A report from the topic that is older says nothing about now: four reports are missing."""

STUCK_S: Final = 120.0
"""Without a turn of its loop a worker is stuck: every request it waits for gives up earlier."""

STUCK: Final = "STUCK"
UNKNOWN: Final = "UNKNOWN"
STOPPED: Final = State.STOPPED.value
WORKING: Final = frozenset({State.RUNNING.value, State.CATCHING_UP.value})

_KEY: Final = b'{"control":"heartbeat","worker":'


class SinkReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One report.

    Attributes:
        at_ms: when it was made, since 1970, by the clock of the worker's machine.
        state: see `cdc.model.run_state.State`.
        ended: the process has ended since, and `state` is why.
        turn_age_s: since the last turn of the worker's loop; None: not measured.
        error: class, message, hint and command of the error that `state` comes from.
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
    error: dict[str, str] | None = None

    @property
    def shown(self) -> str:
        """The state, or STUCK for a worker whose loop stands still."""
        stands_still = self.turn_age_s is not None and self.turn_age_s > STUCK_S
        return STUCK if stands_still and self.state in WORKING else self.state


def report_of(status: Mapping[str, Any], at_ms: int, *, host: str, pid: int) -> SinkReport:
    """From the document of a sink's /status."""
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
        error=None if error is None else {key: str(value) for key, value in error.items()},
    )


def encode(report: SinkReport) -> bytes:
    """A line of JSON, without its end."""
    return msgspec.json.encode(report)


def decode(data: bytes) -> SinkReport | None:
    """Back again; None for what another version wrote."""
    try:
        return msgspec.json.decode(data, type=SinkReport)
    except msgspec.MsgspecError:
        return None


def worker_key(worker: str) -> bytes:
    """Key of a worker's newest report in the state topic."""
    return _KEY + msgspec.json.encode(worker) + b"}"


def is_report(key: bytes) -> bool:
    """Whether a record of the state topic is a report."""
    return key.startswith(_KEY)


class SinkSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the reports of all workers of a sink say together.

    Attributes:
        state: of the worker that is worst off; STOPPED when none is alive, UNKNOWN when no worker has ever reported.
        workers: how many have reported lately.
        age_s: of the newest report; None: there is none.
        report: the one that `state` comes from.
    """

    state: str
    workers: int
    age_s: float | None
    report: SinkReport | None


_WORST_FIRST: Final = ("WAITING", STUCK, "STARTING", "CATCHING_UP", "RUNNING", STOPPED)


def evidence(reports: list[SinkReport], now_ms: float, *, members: int = 0) -> SinkSummary:
    """What is known now. `members`: processes in the sink's consumer group, which include those that died lately."""
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
    """Whether a sink in this state goes on only when a person acts."""
    return any(known.value == state and known.needs_operator for known in State)


def _rank(report: SinkReport) -> int:
    shown = report.shown
    return _WORST_FIRST.index(shown) if shown in _WORST_FIRST else -1
