"""Declares the metrics of a search or cache sink; docs/reference/metrics.md is generated from it."""

from __future__ import annotations

from cdc.telemetry.metrics import Metrics, SinkMetrics


class RunnerMetrics(SinkMetrics):
    """The metrics of one worker."""

    def __init__(self, daemon: Metrics, sink: str = "") -> None:
        super().__init__(daemon, sink)
        self.records = self._counter("cdc_sink_applied_records_total", "Records of the log applied to the store")
        self.keys = self._counter(
            "cdc_sink_applied_keys_total",
            "Keys written to the store; of several records of a key only the newest is written",
        )
        self.refused = self._counter(
            "cdc_sink_refused_keys_total", "Times a key was blocked by a dead letter, or its retry was rejected"
        )
        self.postponed = self._counter(
            "cdc_sink_postponed_keys_total", "Times the store was too busy or full for a key"
        )
        self.partitions = self._unknown("cdc_sink_assigned_partitions", "Partitions assigned to this worker")
        self.lag_records = self._unknown(
            "cdc_sink_lag_records",
            "Offsets between the committed position and the end of the assigned partitions, control records included",
        )
        self.lag_seconds = self._unknown(
            "cdc_sink_lag_seconds", "Age of the oldest record that is not applied; 0: none"
        )
        self.left_seconds = self._unknown(
            "cdc_sink_retention_left_seconds",
            "Time until Kafka may remove records or tombstones that are not applied; +Inf: never",
        )
