"""What is known of a sink, from the process that supervises it or from its reports in Kafka. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cdc.model.sink_report import UNKNOWN, needs_operator

_PAUSED: Final = "PAUSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFacts:
    """The state of one sink; None is unknown.

    Attributes:
        workers: processes that are alive.
        records: applied since its process started, for the rate.
        lsn: every transaction that committed before it is applied.
        members: processes in the consumer group, dead ones too until their session ends.
        busy: the rebuild or repair that runs, with its owner.
        blocked_keys: keys whose records wait behind a dead letter.
        behind_bytes: of a lake: WAL from its newest cut to the end of the log.
        views_behind: of a lake: view -> why it is behind the newest cut.
        age_s: of the newest report.
    """

    name: str
    state: str
    reason: str = ""
    error: Mapping[str, Any] | None = None
    workers: int | None = None
    restarts: int | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    records: int | None = None
    lsn: str | None = None
    members: int | None = None
    busy: str = ""
    blocked_keys: int | None = None
    behind_bytes: int | None = None
    cut: int | None = None
    views_behind: Mapping[str, str] = field(default_factory=dict)
    age_s: float | None = None
    next_start_s: float | None = None

    @property
    def document(self) -> dict[str, Any]:
        """For the page: what every sink has."""
        return {
            "name": self.name,
            "state": self.state,
            "reason": self.reason,
            "error": None if self.error is None else dict(self.error),
            "workers": self.workers,
            "restarts": self.restarts,
            "lag_records": self.lag_records,
            "lag_seconds": self.lag_seconds,
            "behind_bytes": self.behind_bytes,
            "cut": self.cut,
            "lsn": self.lsn,
            "members": self.members,
            "busy": self.busy,
            "blocked_keys": self.blocked_keys,
            "heartbeat_age_seconds": self.age_s,
            "views_behind": dict(self.views_behind),
        }


def supervised(name: str, found: Mapping[str, Any]) -> SinkFacts:
    """Return the facts from `sinks` of capture's /status."""
    return SinkFacts(
        name=name,
        state=_state(found),
        reason=str(found.get("reason") or ""),
        error=found.get("error"),
        workers=int(found.get("pid") is not None),
        restarts=found.get("restarts"),
        age_s=found.get("report_age_seconds"),
        next_start_s=found.get("next_start_seconds"),
        **_measured(found),
    )


def reported(found: Mapping[str, Any]) -> SinkFacts:
    """Return the facts from a document of `sinks.operate.sink_view.sink_documents`."""
    views = found.get("views_behind")
    return SinkFacts(
        name=str(found["name"]),
        state=_state(found),
        reason=str(found.get("reason") or ""),
        error=found.get("error"),
        workers=found.get("workers"),
        age_s=found.get("heartbeat_age_seconds"),
        views_behind=views if isinstance(views, Mapping) else {},
        lsn=found.get("lsn"),
        members=found.get("members"),
        busy=str(found.get("busy") or ""),
        **_measured(found),
    )


def with_group(own: SinkFacts, read: SinkFacts | None) -> SinkFacts:
    """Return the facts of the supervising process with what only Kafka and the lake know."""
    if read is None:
        return own
    return replace(own, lsn=read.lsn, members=read.members, busy=read.busy, views_behind=read.views_behind)


def unread(name: str, why: str) -> SinkFacts:
    """Return the facts of a sink whose state in Kafka cannot be read."""
    return SinkFacts(name=name, state=UNKNOWN, reason=why)


def _state(found: Mapping[str, Any]) -> str:
    """Return PAUSED for a worker that waits because an operator paused it."""
    state = str(found["state"])
    return _PAUSED if found.get("reason") == "paused" and not needs_operator(state) else state


def _measured(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found.get(name) for name in ("lag_records", "lag_seconds", "records", "behind_bytes", "cut")}
