"""Runs the audit beside capture: a thread with its own reader follows the cuts.

A finding stops capture at the next commit, in the capture thread (`cdc.contracts.SideWriter`). The audit itself never
disturbs capture: it reports its own failures and retries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from cdc.audit.audit_report import AuditReport, damaged
from cdc.audit.auditor import AuditLimits, Auditor
from cdc.clock import Clock
from cdc.config.settings import Audit, Config
from cdc.errors import InvariantError, TailraceError
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition

TRY_AGAIN_S: Final = 10.0
REMEMBER_S: Final = 60.0  # at most this much is read twice after a restart
_JOIN_S: Final = 10.0  # the thread checks `stop` between two batches


class AuditObserver(Protocol):
    """Receives events of the audit; for logs, metrics and status. Must not block or raise."""

    def audit_reached(self, end_lsn: Lsn | None, *, cuts: int, records: int, hidden: Sequence[str]) -> None:
        """The audit has compared this much; `hidden` has a line for each partition that is not fully auditable."""

    def audit_found(self, kind: str, finding: Mapping[str, object]) -> None:
        """The audit found a difference; `finding` is `cdc.audit.audit_report.Finding.document`."""

    def audit_failed(self, cause: TailraceError | None) -> None:
        """The audit cannot run now; None: it continues."""


@dataclass(frozen=True, slots=True)
class AuditSource:
    """How an audit is created and recorded.

    Attributes:
        auditor: opens a new auditor with its connections, which continues the report.
        begin: starts the auditor at its place in the index, when nothing was audited yet.
        remember: records how far the audit came.
    """

    auditor: Callable[[AuditLimits, AuditReport], AbstractContextManager[Auditor]]
    begin: Callable[[Auditor], None]
    remember: Callable[[Auditor], None]


class AuditFollower:
    """Follows the cut index in a thread; a `SideWriter` of the pipeline."""

    def __init__(self, name: str, settings: Audit, source: AuditSource, clock: Clock, observer: AuditObserver) -> None:
        self._name = name
        self._settings = settings
        self._source = source
        self._clock = clock
        self._observer = observer
        self._stop = threading.Event()
        self._report = AuditReport()
        self._found: TailraceError | None = None
        self._failing = False
        self._at: int | None = None
        self._remembered: tuple[int | None, float] = (None, clock.monotonic_s())
        self._thread = threading.Thread(target=self.run, name="audit", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. The next audit repeats what was compared since the last record."""
        self._stop.set()
        self._thread.join(_JOIN_S)

    def adopt(self, config: Config) -> None:
        """Take over new limits; a pause that has begun keeps its length."""
        self._settings = config.audit

    def due(self) -> bool:
        """See `cdc.contracts.SideWriter`."""
        return self._found is not None

    def write(self, position: StreamPosition) -> bool:  # noqa: ARG002 - it writes nothing
        """See `cdc.contracts.SideWriter`."""
        return False

    def written(self) -> None:
        """Raise LogDamaged when the audit found something and `on_finding` is ``stop``."""
        if self._found is not None:
            raise self._found

    def run(self) -> None:
        """Follow the index until `close`, or until a finding that must stop capture."""
        try:
            while not self._stop.is_set() and self._found is None:
                self._attempt()
        finally:
            if not self._stop.is_set() and self._found is None:
                # Capture must not continue with an audit that ended silently.
                self._found = InvariantError("the audit thread ended because of a bug")

    def _attempt(self) -> None:
        try:
            self._follow()
        except TailraceError as error:
            self._failing = True
            self._observer.audit_failed(error)
            self._clock.wait(self._stop, TRY_AGAIN_S)

    def _follow(self) -> None:
        limits = AuditLimits(pace=self._pace, stop=self._stop)
        with self._source.auditor(limits, self._report) as auditor:
            if self._at is None:
                self._source.begin(auditor)
            else:
                auditor.begin(self._at)
            while not self._stop.is_set():
                moved = auditor.step()
                if not moved:
                    auditor.check_tail(wait=False)
                self._at = auditor.cuts_offset
                self._report_progress()
                if self._found is not None:
                    return
                self._remember(auditor)
                if not moved:
                    self._clock.wait(self._stop, self._settings.interval_s)

    def _report_progress(self) -> None:
        if self._failing:
            self._failing = False
            self._observer.audit_failed(None)
        report, reached = self._report, self._report.reached
        end_lsn = reached.end_lsn if reached is not None else None
        self._observer.audit_reached(end_lsn, cuts=report.cuts, records=report.records, hidden=report.hidden_texts)
        for finding in report.findings:
            self._observer.audit_found(finding.kind.value, finding.document)
        if report.findings and self._settings.on_finding == "stop":
            self._found = damaged(report.findings[0], len(report.findings), self._name)
        report.findings.clear()

    def _remember(self, auditor: Auditor) -> None:
        at, since_s = self._remembered
        now_s = self._clock.monotonic_s()
        if auditor.cuts_offset != at and now_s - since_s >= REMEMBER_S:
            self._source.remember(auditor)
            self._remembered = (auditor.cuts_offset, now_s)

    def _pace(self, byte_count: int) -> None:
        """Wait so that the read rate stays below the limit."""
        rate = self._settings.bytes_per_s_max
        if rate:
            self._clock.wait(self._stop, byte_count / rate)
