"""Every metric of a sink that applies one key at a time (search, cache); docs/reference/metrics.md is made from it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from cdc.telemetry.exposition import ProcessMetrics, rendered, unknown_gauge
from cdc.telemetry.metrics import Metrics


class RunnerMetrics:
    """The registry of one worker. State and starts are the daemon's own, which are counted in `daemon`."""

    def __init__(self, daemon: Metrics, sink: str = "") -> None:
        """`sink` is a label of every sample, beside the pipeline."""
        self.labels = {**daemon.labels, "sink": sink}
        self.registry = registry = CollectorRegistry()
        self.process = ProcessMetrics(registry)
        self.state, self.starts = daemon.state, daemon.starts
        for shared in (self.state, self.starts):
            registry.register(shared)
        self.records = Counter(
            "cdc_sink_applied_records_total", "Records of the log that the store holds", registry=registry
        )
        self.keys = Counter(
            "cdc_sink_applied_keys_total", "Keys written for them: of several records the newest", registry=registry
        )
        self.refused = Counter(
            "cdc_sink_refused_keys_total", "Times a key was parked, or its retry refused", registry=registry
        )
        self.postponed = Counter(
            "cdc_sink_postponed_keys_total", "Times the store had no room for a key", registry=registry
        )
        self.partitions = unknown_gauge("cdc_sink_assigned_partitions", "Partitions that this worker has", registry)
        self.lag_records = unknown_gauge(
            "cdc_sink_lag_records",
            "Offsets between what is committed and the end of those partitions, control records among them",
            registry,
        )
        self.lag_seconds = unknown_gauge(
            "cdc_sink_lag_seconds", "Age of the oldest record that is not applied; 0: there is none", registry
        )
        self.left_seconds = unknown_gauge(
            "cdc_sink_retention_left_seconds",
            "Until Kafka may remove what is not applied, or the mark of a delete; +Inf: never",
            registry,
        )

    def render(self) -> bytes:
        """The page of /metrics."""
        return rendered(self.registry, self.labels)
