"""Creates the background audit of a running capture, if it is enabled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from cdc.audit.audit_follower import AuditFollower, AuditObserver, AuditSource
from cdc.audit.audit_report import AuditReport
from cdc.audit.audit_start import resume_offset, write_audit_record
from cdc.audit.auditor import AuditLimits, Auditor
from cdc.audit.horizon import CompactionHorizon
from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.log_reader import LogReader

_AHEAD_BYTES: Final = 2 << 20  # of a reader beside capture, whose memory is bounded as a whole
_CLIENT: Final = "tailrace-audit"


def audit_follower(config: Config, clock: Clock, observer: AuditObserver, closing: ExitStack) -> list[AuditFollower]:
    """Return the running audit, or an empty list. It runs until `closing` is closed."""
    if not config.audit.enabled:
        return []

    @contextmanager
    def auditor(limits: AuditLimits, report: AuditReport) -> Iterator[Auditor]:
        with LogReader(config.kafka, client_id=_CLIENT, ahead_bytes=_AHEAD_BYTES) as reader:
            horizon = CompactionHorizon(reader, TopicAdmin(config.kafka), clock)
            yield Auditor(reader, horizon, config.name, clock, limits, report)

    def begin(made: Auditor) -> None:
        with LogReader(config.kafka, client_id=_CLIENT, ahead_bytes=_AHEAD_BYTES) as reader:
            at = resume_offset(reader, config.name)
        made.begin(at)

    made = AuditFollower(
        config.name,
        config.audit,
        AuditSource(auditor, begin, lambda one: write_audit_record(config.kafka, config.name, one)),
        clock,
        observer,
    )
    closing.callback(made.close)
    made.start()
    return [made]
