"""Declares the metrics of a search or cache sink; docs/reference/metrics.md is generated from it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from cdc.telemetry.exposition import ProcessMetrics, rendered, unknown_gauge
from cdc.telemetry.metrics import Metrics


class RunnerMetrics:
    """The metrics of one worker. State and starts are those of its daemon."""

    def __init__(self, daemon: Metrics, sink: str = "") -> None:
        """`sink` is a label of every sample, beside the pipeline."""
        self.labels = {**daemon.labels, "sink": sink}
        self.registry = registry = CollectorRegistry()
        self.process = ProcessMetrics(registry)
        self.state, self.starts = daemon.state, daemon.starts
        for shared in (self.state, self.starts):
            registry.register(shared)
        self.records = Counter(
            "cdc_sink_applied_records_total", "Records of the log applied to the store", registry=registry
        )
        self.keys = Counter(
            "cdc_sink_applied_keys_total",
            "Keys written to the store; of several records of a key only the newest is written",
            registry=registry,
        )
        self.refused = Counter(
            "cdc_sink_refused_keys_total",
            "Times a key was blocked by a dead letter, or its retry was rejected",
            registry=registry,
        )
        self.postponed = Counter(
            "cdc_sink_postponed_keys_total", "Times the store was too busy or full for a key", registry=registry
        )
        self.partitions = unknown_gauge("cdc_sink_assigned_partitions", "Partitions assigned to this worker", registry)
        self.lag_records = unknown_gauge(
            "cdc_sink_lag_records",
            "Offsets between the committed position and the end of the assigned partitions, control records included",
            registry,
        )
        self.lag_seconds = unknown_gauge(
            "cdc_sink_lag_seconds", "Age of the oldest record that is not applied; 0: none", registry
        )
        self.left_seconds = unknown_gauge(
            "cdc_sink_retention_left_seconds",
            "Time until Kafka may remove records or tombstones that are not applied; +Inf: never",
            registry,
        )

    def render(self) -> bytes:
        """Return the page of /metrics."""
        return rendered(self.registry, self.labels)
