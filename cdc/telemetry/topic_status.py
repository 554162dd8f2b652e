"""Weak settings of topics, for /status, metrics and logs. Written by each start of capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc.telemetry import log
from cdc.telemetry.metrics import Metrics


class TopicStatus:
    """Thread-safe: the list is replaced as a whole."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._weak: Sequence[Mapping[str, Any]] = ()

    def topics_checked(self, weak: Sequence[Mapping[str, Any]], counts: Mapping[str, int]) -> None:
        """Set the weak settings that a start found; each is logged once until it changes. `counts` are by setting."""
        for setting, count in counts.items():
            self._metrics.weak_topics.labels(setting).set(count)
        for one in weak:
            if one not in self._weak:
                log.get().warning("topic_setting_weak", **one)
        self._weak = list(weak)

    @property
    def document(self) -> list[dict[str, Any]]:
        """All weak settings."""
        return [dict(one) for one in self._weak]
