"""Counts of the outbox's events, for metrics, logs and /status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from cdc.errors import TailraceError
from cdc.telemetry import log
from cdc.telemetry.metrics import Metrics


class OutboxStatus:
    """Implements `cdc.contracts.OutboxObserver`. Written by capture and the pruner; logs an incident once."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._events = 0
        self._refused: Counter[str] = Counter()
        self._ignored = 0
        self._pruned = 0
        self._dropped = 0
        self._pruning: dict[str, str] | None = None

    def outbox_routed(self, events: int, refused: Mapping[str, int], ignored: int) -> None:
        """See `cdc.contracts.OutboxObserver`."""
        self._metrics.outbox_events.inc(events)
        self._events += events
        for reason, count in refused.items():
            self._metrics.outbox_refused.labels(reason).inc(count)
            if not self._refused[reason]:
                log.get().warning("outbox_event_refused", reason=reason, count=count)
            self._refused[reason] += count
        if ignored:
            self._metrics.outbox_updates_ignored.inc(ignored)
            if not self._ignored:
                log.get().warning("outbox_update_ignored", count=ignored)
            self._ignored += ignored

    def pruned(self, rows: int, partitions: int) -> None:
        """Count deleted rows and dropped partitions."""
        self._metrics.outbox_pruned.inc(rows)
        self._metrics.outbox_dropped.inc(partitions)
        self._pruned += rows
        self._dropped += partitions

    def prune_failed(self, cause: TailraceError | None) -> None:
        """Record that pruning failed; None: it works again."""
        if cause is not None:
            self._metrics.outbox_prune_failures.inc()
            if self._pruning is None:
                log.get().warning("outbox_prune_failed", **log.error_fields(cause))
            self._pruning = {"error": type(cause).__name__, "message": cause.message, "command": cause.command}
        elif self._pruning is not None:
            self._pruning = None
            log.get().info("outbox_prune_recovered")

    @property
    def document(self) -> dict[str, Any] | None:
        """For /status; None before the first event."""
        if not (self._events or self._refused or self._ignored or self._pruned or self._dropped or self._pruning):
            return None
        return {
            "events": self._events,
            "refused": sum(self._refused.values()),
            "refused_by_reason": dict(sorted(self._refused.items())),
            "updates_ignored": self._ignored,
            "pruned_rows": self._pruned,
            "dropped_partitions": self._dropped,
            "pruning": self._pruning,
        }
