"""Declares the metrics of capture and lake sinks; docs/reference/metrics.md is generated from it.

Names end with their unit. Labels are bounded: states and reasons, never keys.
https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

from cdc.model.wal_alarm import LEVELS
from cdc.telemetry.exposition import UNKNOWN, MetricsPage

_COMMIT_BUCKETS = (0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1, 2, 5, 10, 30)
_ROW_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
_HEARTBEAT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300)
_CUT_BUCKETS = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 300, 900)


class Metrics(MetricsPage):
    """The metrics of one capture."""

    def __init__(self, pipeline: str = "") -> None:
        """`pipeline` is a label of every sample."""
        super().__init__({"pipeline": pipeline})
        self.rows = self._counter("cdc_rows_total", "Row events in committed Kafka transactions")
        self.bytes = self._counter("cdc_bytes_total", "Bytes of row events before compression, estimated per batch")
        self.transactions = self._counter("cdc_source_transactions_total", "Source transactions captured")
        self.batches = self._counter("cdc_batches_total", "Kafka transactions committed")
        self.batch_rows = self._histogram("cdc_batch_rows", "Row events in a Kafka transaction", _ROW_BUCKETS)
        self.commit_seconds = self._histogram(
            "cdc_commit_seconds", "Time from a complete batch to its confirmed commit", _COMMIT_BUCKETS
        )
        self._declare_source()
        self.state = self._gauge("cdc_state", "1 for the current state of the process, 0 for the others", "state")
        self.waiting = self._gauge(
            "cdc_waiting_state",
            "1 for what the process waits for in state WAITING, e.g. broker, source, slot or store; else 0",
            "reason",
        )
        self.starts = self._counter(
            "cdc_starts_total",
            "Restarts of capture or sink within the process, by the reason why the last run ended",
            "reason",
        )
        self.truncated_keys = self._counter(
            "cdc_truncated_keys_total", "Keys deleted from topics because of a TRUNCATE"
        )
        self.truncates_ignored = self._counter(
            "cdc_truncates_ignored_total", "TRUNCATEs ignored because of source.on_truncate"
        )
        self.reselected = self._counter(
            "cdc_reselected_rows_total", "Row events completed with values read from the table"
        )
        self.reselect_gone = self._counter(
            "cdc_reselect_gone_rows_total",
            "Row events that lack unchanged values because the row is no longer in the table",
        )
        self.reselect_owed = self._counter(
            "cdc_reselect_owed_rows_total",
            "Row events published without unchanged values; their rows are read when their transactions are visible",
        )
        self.reselect_queries = self._counter(
            "cdc_reselect_queries_total", "Queries for unchanged values, one per table and batch"
        )
        self.reselect_waits = self._counter(
            "cdc_reselect_waits_total", "Times capture waited until a transaction was visible or a table was unlocked"
        )
        self._declare_beside()

    def _declare_source(self) -> None:
        """Declare metrics of the position in the source, and of the slot."""
        self.position = self._unknown("cdc_position_lsn", "The log holds everything below this LSN")
        self.lag_seconds = self._unknown(
            "cdc_lag_seconds",
            "How far the log may be behind the source, also while it is down; 0 at its end; NaN before the first read",
        )
        self.slot_lag_bytes = self._unknown("cdc_slot_lag_bytes", "WAL that the source keeps for the slot")
        self.slot_safe_wal_bytes = self._unknown(
            "cdc_slot_safe_wal_bytes",
            "WAL that may be written before the slot is lost; NaN without a limit and before the first check",
        )
        self.slot_lost_in_seconds = self._unknown(
            "cdc_slot_lost_in_seconds",
            "Time until the slot is lost at the current rate; +Inf: never; NaN before the first check",
        )
        self.source_check_age = self._unknown(
            "cdc_source_check_age_seconds",
            "Time since the slot was last checked on the source; slot and WAL gauges are as of that check",
        )

    def _declare_beside(self) -> None:
        """Declare metrics of everything beside the stream."""
        self.heartbeat_seconds = self._histogram(
            "cdc_heartbeat_seconds",
            "Time from the start of capture.heartbeat_query until the log has the row it wrote",
            _HEARTBEAT_BUCKETS,
        )
        self.heartbeat_failures = self._counter("cdc_heartbeat_failures_total", "Failures of capture.heartbeat_query")
        self.ddl_found = self._counter(
            "cdc_ddl_found_total", "DDL findings (DDL that changed rows without row events), by kind", "kind"
        )
        self.ddl_open = self._unknown("cdc_ddl_open_findings", "DDL findings that are not accepted")
        self.tables_left_out = self._gauge(
            "cdc_left_out_tables",
            "Selected tables that are not captured, or only partly, by reason: no_key, key_changed, "
            "not_published, not_readable, no_topic, partitions_apart, unlogged, foreign",
            "reason",
        )

        self.weak_topics = self._gauge(
            "cdc_topic_setting_findings",
            "Topics with a setting that weakens durability, tombstones or erasure, by setting, as of the last start",
            "setting",
        )
        self._add_outbox()
        self._add_snapshots()
        self._add_signals()
        self._add_wal()
        self._add_audit()
        self._add_objectives()
        self._add_notify()
        self._add_otel()

    def _add_otel(self) -> None:
        """Declare metrics of OpenTelemetry."""
        self.otel_failures = self._counter(
            "cdc_otel_failures_total", "Exports to the OTLP collector that failed, by signal: traces, metrics", "signal"
        )
        self.otel_dropped = self._counter(
            "cdc_otel_dropped_spans_total", "Spans dropped because too many wait for the collector"
        )

    def _add_notify(self) -> None:
        """Declare metrics of the notifier."""
        self.notify_messages = self._counter(
            "cdc_notify_messages_total", "Messages that a receiver of [notify] accepted, by its name", "receiver"
        )
        self.notify_failures = self._counter(
            "cdc_notify_failures_total",
            "Messages that a receiver of [notify] did not accept in any attempt",
            "receiver",
        )

    def _add_objectives(self) -> None:
        """Declare metrics of freshness objectives. Capture's own objective has no label `sink`."""
        self.freshness_seconds = self._gauge(
            "cdc_freshness_seconds", "How far the sink, or the log, is behind PostgreSQL; NaN: unknown", "sink"
        )
        self.objective_seconds = self._gauge(
            "cdc_objective_seconds", "Freshness objective: the longest time from a commit until the sink has it", "sink"
        )
        self.objective_target = self._gauge(
            "cdc_objective_target_ratio", "Freshness objective: the share of time in which it must be met", "sink"
        )
        self.objective_fresh = self._counter(
            "cdc_objective_fresh_seconds_total", "Seconds in which the freshness objective was met", "sink"
        )
        self.objective_checked = self._counter(
            "cdc_objective_checked_seconds_total", "Seconds in which the freshness objective was checked", "sink"
        )

    def _add_wal(self) -> None:
        """Declare metrics of the WAL guard."""
        self.slot_alarm = self._gauge(
            "cdc_slot_wal_alarm_state",
            "1 while at most this share of the WAL limit is left, by percent: 50, 25, 10",
            "left_percent",
        )
        self.slot_confirmed_lag_bytes = self._unknown(
            "cdc_slot_confirmed_lag_bytes", "WAL between the confirmed position of the slot and the server's position"
        )
        self.slot_inactive_seconds = self._unknown(
            "cdc_slot_inactive_seconds",
            "Time since a process last read the slot; 0 while it is read; NaN before PostgreSQL 17",
        )
        self.slot_catalog_xmin_age = self._unknown(
            "cdc_slot_catalog_xmin_age_transactions",
            "Age of the slot's catalog_xmin; VACUUM cannot remove newer rows from system catalogs",
        )
        self.slot_spill_transactions = self._unknown(
            "cdc_slot_spill_transactions",
            "Transactions that decoding spilled to the server's disk since its statistics were reset",
        )
        self.slot_spill_bytes = self._unknown(
            "cdc_slot_spill_bytes", "Bytes that decoding spilled to disk since the server's statistics were reset"
        )
        self.oldest_transaction_seconds = self._unknown(
            "cdc_source_oldest_transaction_seconds",
            "Age of the oldest open write transaction, since whose start WAL is kept; 0: none",
        )
        self.failover_ready = self._unknown(
            "cdc_failover_ready_state",
            "1 when the primary reports no obstacle to a failover without a gap, else 0; NaN without source.failover",
        )
        for level in LEVELS:
            self.slot_alarm.labels(str(level)).set(UNKNOWN)

    def _add_outbox(self) -> None:
        self.outbox_events = self._counter("cdc_outbox_events_total", "Outbox events in committed Kafka transactions")
        self.outbox_refused = self._counter(
            "cdc_outbox_refused_total",
            "Outbox events that were sent to the topic of refused events, by reason",
            "reason",
        )
        self.outbox_updates_ignored = self._counter(
            "cdc_outbox_updates_ignored_total", "UPDATEs of outbox rows, which are ignored"
        )
        self.outbox_pruned = self._counter(
            "cdc_outbox_pruned_rows_total", "Outbox rows deleted after Kafka had their events"
        )
        self.outbox_dropped = self._counter(
            "cdc_outbox_dropped_partitions_total", "Outbox partitions dropped after Kafka had their events"
        )
        self.outbox_prune_failures = self._counter("cdc_outbox_prune_failures_total", "Failures to prune the outbox")

    def _add_audit(self) -> None:
        self.audit_position = self._unknown("cdc_audit_position_lsn", "The audit has compared the log up to this LSN")
        self.audit_records = self._counter("cdc_audit_records_total", "Records compared by the audit")
        self.audit_hidden = self._unknown(
            "cdc_audit_hidden_partitions",
            "Partitions with a range that compaction or retention removed before the audit",
        )
        self.audit_findings = self._counter(
            "cdc_audit_findings_total", "Ranges that differ from the cut index, by kind", "kind"
        )
        self.audit_failures = self._counter("cdc_audit_failures_total", "Failures of the audit")

    def _add_signals(self) -> None:
        self.signals = self._counter(
            "cdc_signals_total",
            "Signals that were handled, by outcome: done, refused (for a table or as a whole)",
            "outcome",
        )
        self.signal_failures = self._counter("cdc_signal_failures_total", "Failures to read or handle signals")
        self.signals_listening = self._unknown(
            "cdc_signals_listening_state",
            "1 while signals are read, 0 while reading fails; NaN when signals are off or capture waits",
        )

    def _add_snapshots(self) -> None:
        self.snapshot_rows = self._counter("cdc_snapshot_rows_total", "Rows read from tables and added to a batch")
        self.snapshot_tables = self._gauge(
            "cdc_snapshot_tables",
            "Tables with a snapshot, by state: waiting, reading, sweeping, paused, stopped, complete",
            "state",
        )
        self.snapshot_waiting_chunks = self._unknown(
            "cdc_snapshot_waiting_chunks", "Chunks that are read and wait until the stream reaches their position"
        )
        self.snapshot_speed = self._unknown(
            "cdc_snapshot_speed_ratio",
            "Share of full speed that the load guard allows snapshots; NaN while none reads or the guard is off",
        )
        self.source_commit_seconds = self._unknown(
            "cdc_source_commit_seconds",
            "Duration of a commit on the source, as the load guard measured it; NaN while no snapshot reads",
        )
        self.source_standby_lag = self._unknown(
            "cdc_source_standby_lag_seconds",
            "Largest lag of a standby of the source, as the load guard read it; NaN while no snapshot reads",
        )
        self.source_waiting_sessions = self._unknown(
            "cdc_source_waiting_sessions",
            "Active client sessions that wait for I/O or internal locks, as the load guard read them",
        )


class SinkMetrics(MetricsPage):
    """The common part of the metrics of one sink. State and starts are those of its daemon."""

    def __init__(self, daemon: Metrics, sink: str = "") -> None:
        """`sink` is a label of every sample, beside the pipeline."""
        super().__init__({**daemon.labels, "sink": sink})
        self.state, self.starts = daemon.state, daemon.starts
        self.otel_failures, self.otel_dropped = daemon.otel_failures, daemon.otel_dropped
        for shared in (self.state, self.starts, self.otel_failures, self.otel_dropped):
            self.registry.register(shared)


class LakeMetrics(SinkMetrics):
    """The metrics of one lake sink."""

    def __init__(self, daemon: Metrics, sink: str = "") -> None:
        super().__init__(daemon, sink)
        self.cut = self._unknown("cdc_sink_cut_number", "Number of the newest published cut")
        self.position = self._unknown(
            "cdc_sink_position_lsn", "The sink holds every transaction that committed before this LSN"
        )
        self.cuts = self._counter("cdc_sink_cuts_total", "Cuts published by this process")
        self.records = self._counter(
            "cdc_sink_records_total", "Records of the log in the cuts published by this process"
        )
        self.cut_seconds = self._histogram(
            "cdc_sink_cut_seconds", "Time from the start of a cut until it is published", _CUT_BUCKETS
        )
        self.cut_age_seconds = self._unknown(
            "cdc_sink_cut_age_seconds", "Time since the newest cut was published; NaN before the first one"
        )
        self.look_age_seconds = self._unknown(
            "cdc_sink_look_age_seconds",
            "Time since the driver last read the end of the log, as before each cut; NaN before the first time",
        )
        self.behind_bytes = self._unknown(
            "cdc_sink_behind_bytes", "WAL between the newest cut and the end of the log, when the driver last read it"
        )
        self.view_plans = self._counter(
            "cdc_sink_view_plans_total", "Views computed, by plan: recompute or affected (keys)", "plan"
        )
        self.views_behind = self._unknown("cdc_sink_views_behind", "Views that are behind the newest cut")
        self.iceberg_behind = self._unknown(
            "cdc_sink_iceberg_behind",
            "1 if Iceberg readers do not see all of the newest cut, else 0; NaN without `iceberg`",
        )
