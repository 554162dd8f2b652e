"""What the notifier sent and could not send, for metrics, logs and /status."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cdc.telemetry import log
from cdc.telemetry.metrics import Metrics


class NotifyStatus:
    """Thread-safe. Logs an incident of a receiver once when it begins and once when it ends."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._receivers: dict[str, dict[str, Any]] = {}

    def declare(self, receivers: Mapping[str, str]) -> None:
        """Set name and kind of every receiver; their series exist from now on."""
        for name, kind in receivers.items():
            self._receivers[name] = {"name": name, "kind": kind, "firing": 0, "sent_at": None, "error": None}
            self._metrics.notify_messages.labels(name)
            self._metrics.notify_failures.labels(name)

    def delivered(self, name: str, kind: str, wall_s: float, *, firing: int) -> None:
        """The receiver accepted a message; `firing` troubles last."""
        self._metrics.notify_messages.labels(name).inc()
        at = datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="seconds")
        with self._lock:
            failed = self._receivers[name]["error"] is not None
            self._receivers[name] |= {"firing": firing, "sent_at": at, "error": None}
        if kind != "heartbeat":
            log.get().info("notified", receiver=name, kind=kind, firing=firing)
        if failed:
            log.get().info("notify_recovered", receiver=name)

    def failed(self, name: str, why: str) -> None:
        """No attempt to deliver a message succeeded."""
        self._metrics.notify_failures.labels(name).inc()
        with self._lock:
            known = self._receivers[name]["error"] is not None
            self._receivers[name]["error"] = why
        if not known:
            log.get().warning(
                "notify_failed", receiver=name, reason=why, hint="check it with the command", command="cdc notify test"
            )

    @property
    def document(self) -> list[dict[str, Any]]:
        """The receivers, for /status."""
        with self._lock:
            return [dict(one) for _, one in sorted(self._receivers.items())]
