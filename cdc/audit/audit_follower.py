"""The audit that runs beside capture: a thread with a reader of its own that follows the cuts.

A finding ends capture from the capture thread, at the next commit (`cdc.contracts.SideWriter`); the audit itself never
disturbs it: what it cannot do now it tells, and tries again.
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
from cdc.config.settings import Audit
from cdc.errors import InvariantError, TailraceError
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition

TRY_AGAIN_S: Final = 10.0
REMEMBER_S: Final = 60.0  # how much is read twice after a restart, at most
_JOIN_S: Final = 10.0  # it looks at `stop` between two batches


class AuditObserver(Protocol):
    """Told of the audit; for logs, metrics and status. Must not block or raise."""

    def audit_reached(self, end_lsn: Lsn | None, *, cuts: int, records: int, hidden: Sequence[str]) -> None:
        """So much was compared by now; `hidden` has a line for each partition that cannot be, as a whole."""

    def audit_found(self, kind: str, finding: Mapping[str, object]) -> None:
        """Something differs; `finding` as `cdc.audit.audit_report.Finding.document` has it."""

    def audit_failed(self, cause: TailraceError | None) -> None:
        """It cannot be done now; None: it goes on."""


@dataclass(frozen=True, slots=True)
class AuditSource:
    """What an audit is made of.

    Attributes:
        auditor: a new one, with its connections; goes on with the report.
        begin: where in the index, when nothing was audited yet.
        remember: note how far it came.
    """

    auditor: Callable[[AuditLimits, AuditReport], AbstractContextManager[Auditor]]
    begin: Callable[[Auditor], None]
    remember: Callable[[Auditor], None]


class AuditFollower:
    """See the head of this file; an `Aside` of the pipeline."""

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
        """Begin, in a thread."""
        self._thread.start()

    def close(self) -> None:
        """End it. What was compared since it was last remembered is compared again by the next one."""
        self._stop.set()
        self._thread.join(_JOIN_S)

    def due(self) -> bool:
        """See `cdc.contracts.SideWriter`."""
        return self._found is not None

    def write(self, position: StreamPosition) -> bool:  # noqa: ARG002 - it writes nothing
        """See `cdc.contracts.SideWriter`."""
        return False

    def written(self) -> None:
        """Raises LogDamaged when something was found and capture is to stop for it."""
        if self._found is not None:
            raise self._found

    def run(self) -> None:
        """Follow the index until it is closed, or something is found and capture is to stop."""
        try:
            while not self._stop.is_set() and self._found is None:
                self._attempt()
        finally:
            if not self._stop.is_set() and self._found is None:
                # An audit that is silently over would be worse than none.
                self._found = InvariantError("the audit has ended by a mistake of ours")

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
                self._tell()
                if self._found is not None:
                    return
                self._remember(auditor)
                if not moved:
                    self._clock.wait(self._stop, self._settings.interval_s)

    def _tell(self) -> None:
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
        """Take as long for so many bytes as the limit says."""
        rate = self._settings.bytes_per_s_max
        if rate:
            self._clock.wait(self._stop, byte_count / rate)
