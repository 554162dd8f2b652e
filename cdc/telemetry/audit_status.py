"""State of the audit that runs beside capture, for /status, metrics and logs. Written by the audit's thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cdc.errors import TailraceError
from cdc.lsn import Lsn
from cdc.telemetry import log
from cdc.telemetry.metrics import Metrics

HIDDEN_SHOWN: Final = 20


class AuditStatus:
    """Implements `cdc.audit.audit_follower.AuditObserver`. Thread-safe: each value is replaced as a whole."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._reached: dict[str, Any] | None = None
        self._findings = 0
        self._last: dict[str, object] | None = None
        self._error = ""
        self._hidden = 0
        self._records = 0

    def audit_reached(self, end_lsn: Lsn | None, *, cuts: int, records: int, hidden: Sequence[str]) -> None:
        """Record how much was compared; `hidden` has a line for each partition that cannot be audited completely."""
        # When capture restarts, a new audit counts from zero.
        self._metrics.audit_records.inc(records - self._records if records >= self._records else records)
        self._records = records
        self._metrics.audit_hidden.set(len(hidden))
        if end_lsn is not None:
            self._metrics.audit_position.set(end_lsn)
        if len(hidden) > self._hidden:
            log.get().warning("audit_not_possible", partitions=len(hidden), first=hidden[0])
        self._hidden = len(hidden)
        self._reached = {
            "lsn": None if end_lsn is None else str(end_lsn),
            "cuts": cuts,
            "records": records,
            "not_auditable": list(hidden[:HIDDEN_SHOWN]),
        }

    def audit_found(self, kind: str, finding: Mapping[str, object]) -> None:
        """Record that a range differs."""
        self._metrics.audit_findings.labels(kind).inc()
        self._findings += 1
        self._last = dict(finding)
        log.get().error("audit_found", **finding)

    def audit_failed(self, cause: TailraceError | None) -> None:
        """Record that the audit cannot run now; None: it runs again. An incident is logged once."""
        if cause is None:
            self._error = ""
            log.get().info("audit_recovered")
            return
        self._metrics.audit_failures.inc()
        if not self._error:
            log.get().warning("audit_failed", **log.error_fields(cause))
        self._error = cause.message

    @property
    def document(self) -> dict[str, Any] | None:
        """For /status; None while there is no audit."""
        reached = self._reached
        if reached is None and not self._error:
            return None
        nothing: dict[str, Any] = {"lsn": None, "cuts": 0, "records": 0, "not_auditable": []}
        results = {"findings": self._findings, "last_finding": self._last, "error": self._error}
        return {**(reached or nothing), **results}
