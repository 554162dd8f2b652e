"""Declares the metrics of capture and lake sinks; docs/reference/metrics.md is generated from it.

Names end with their unit. Labels are bounded: states and reasons, never keys.
https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from cdc.model.wal_alarm import LEVELS
from cdc.telemetry.exposition import UNKNOWN, ProcessMetrics, rendered, unknown_gauge

_COMMIT_BUCKETS = (0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1, 2, 5, 10, 30)
_ROW_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
_HEARTBEAT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300)
_CUT_BUCKETS = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 300, 900)


class Metrics:
    """The metrics of one capture."""

    def __init__(self, pipeline: str = "") -> None:
        """`pipeline` is a label of every sample."""
        self.labels = {"pipeline": pipeline}
        self.registry = registry = CollectorRegistry()
        self.process = ProcessMetrics(registry)
        self.rows = Counter("cdc_rows_total", "Row events in committed Kafka transactions", registry=registry)
        self.bytes = Counter(
            "cdc_bytes_total", "Bytes of row events before compression, estimated per batch", registry=registry
        )
        self.transactions = Counter("cdc_source_transactions_total", "Source transactions captured", registry=registry)
        self.batches = Counter("cdc_batches_total", "Kafka transactions committed", registry=registry)
        self.batch_rows = Histogram(
            "cdc_batch_rows", "Row events in a Kafka transaction", buckets=_ROW_BUCKETS, registry=registry
        )
        self.commit_seconds = Histogram(
            "cdc_commit_seconds",
            "Time from a complete batch to its confirmed commit",
            buckets=_COMMIT_BUCKETS,
            registry=registry,
        )
        self._declare_source(registry)
        self.state = Gauge(
            "cdc_state", "1 for the current state of the process, 0 for the others", ["state"], registry=registry
        )
        self.starts = Counter(
            "cdc_starts_total",
            "Restarts of capture or sink within the process, by the reason why the last run ended",
            ["reason"],
            registry=registry,
        )
        self.truncated_keys = Counter(
            "cdc_truncated_keys_total", "Keys deleted from topics because of a TRUNCATE", registry=registry
        )
        self.truncates_ignored = Counter(
            "cdc_truncates_ignored_total", "TRUNCATEs ignored because of source.on_truncate", registry=registry
        )
        self.reselected = Counter(
            "cdc_reselected_rows_total", "Row events completed with values read from the table", registry=registry
        )
        self.reselect_gone = Counter(
            "cdc_reselect_gone_rows_total",
            "Row events that lack unchanged values because the row is no longer in the table",
            registry=registry,
        )
        self.reselect_owed = Counter(
            "cdc_reselect_owed_rows_total",
            "Row events published without unchanged values; their rows are read when their transactions are visible",
            registry=registry,
        )
        self.reselect_queries = Counter(
            "cdc_reselect_queries_total", "Queries for unchanged values, one per table and batch", registry=registry
        )
        self.reselect_waits = Counter(
            "cdc_reselect_waits_total",
            "Times capture waited until a transaction was visible or a table was unlocked",
            registry=registry,
        )
        self._declare_beside(registry)

    def _declare_source(self, registry: CollectorRegistry) -> None:
        """Declare metrics of the position in the source, and of the slot."""
        self.position = unknown_gauge("cdc_position_lsn", "The log holds everything below this LSN", registry)
        self.lag_seconds = unknown_gauge(
            "cdc_lag_seconds",
            "How far the log may be behind the source, also while it is down; 0 at its end; NaN before the first read",
            registry,
        )
        self.slot_lag_bytes = unknown_gauge("cdc_slot_lag_bytes", "WAL that the source keeps for the slot", registry)
        self.slot_safe_wal_bytes = unknown_gauge(
            "cdc_slot_safe_wal_bytes",
            "WAL that may be written before the slot is lost; NaN without a limit and before the first check",
            registry,
        )
        self.slot_lost_in_seconds = unknown_gauge(
            "cdc_slot_lost_in_seconds",
            "Time until the slot is lost at the current rate; +Inf: never; NaN before the first check",
            registry,
        )
        self.source_check_age = unknown_gauge(
            "cdc_source_check_age_seconds",
            "Time since the slot was last checked on the source; slot and WAL gauges are as of that check",
            registry,
        )

    def _declare_beside(self, registry: CollectorRegistry) -> None:
        """Declare metrics of everything beside the stream."""
        self.heartbeat_seconds = Histogram(
            "cdc_heartbeat_seconds",
            "Time from the start of capture.heartbeat_query until the log has the row it wrote",
            buckets=_HEARTBEAT_BUCKETS,
            registry=registry,
        )
        self.heartbeat_failures = Counter(
            "cdc_heartbeat_failures_total", "Failures of capture.heartbeat_query", registry=registry
        )
        self.ddl_found = Counter(
            "cdc_ddl_found_total",
            "DDL findings (DDL that changed rows without row events), by kind",
            ["kind"],
            registry=registry,
        )
        self.ddl_open = unknown_gauge("cdc_ddl_open_findings", "DDL findings that are not accepted", registry)
        self.tables_left_out = Gauge(
            "cdc_left_out_tables",
            "Selected tables that are not captured, or only partly, by reason: no_key, key_changed, "
            "not_published, not_readable, no_topic, partitions_apart, unlogged, foreign",
            ["reason"],
            registry=registry,
        )

        self.weak_topics = Gauge(
            "cdc_topic_setting_findings",
            "Topics with a setting that weakens durability, tombstones or erasure, by setting, as of the last start",
            ["setting"],
            registry=registry,
        )
        self._add_outbox(registry)
        self._add_snapshots(registry)
        self._add_signals(registry)
        self._add_wal(registry)
        self._add_audit(registry)

    def render(self) -> bytes:
        """Return the page of /metrics."""
        return rendered(self.registry, self.labels)

    def _add_wal(self, registry: CollectorRegistry) -> None:
        """Declare metrics of the WAL guard."""
        self.slot_alarm = Gauge(
            "cdc_slot_wal_alarm_state",
            "1 while at most this share of the WAL limit is left, by percent: 50, 25, 10",
            ["left_percent"],
            registry=registry,
        )
        self.slot_confirmed_lag_bytes = unknown_gauge(
            "cdc_slot_confirmed_lag_bytes",
            "WAL between the confirmed position of the slot and the server's position",
            registry,
        )
        self.slot_inactive_seconds = unknown_gauge(
            "cdc_slot_inactive_seconds",
            "Time since a process last read the slot; 0 while it is read; NaN before PostgreSQL 17",
            registry,
        )
        self.slot_catalog_xmin_age = unknown_gauge(
            "cdc_slot_catalog_xmin_age_transactions",
            "Age of the slot's catalog_xmin; VACUUM cannot remove newer rows from system catalogs",
            registry,
        )
        self.slot_spill_transactions = unknown_gauge(
            "cdc_slot_spill_transactions",
            "Transactions that decoding spilled to the server's disk since its statistics were reset",
            registry,
        )
        self.slot_spill_bytes = unknown_gauge(
            "cdc_slot_spill_bytes",
            "Bytes that decoding spilled to disk since the server's statistics were reset",
            registry,
        )
        self.oldest_transaction_seconds = unknown_gauge(
            "cdc_source_oldest_transaction_seconds",
            "Age of the oldest open write transaction, since whose start WAL is kept; 0: none",
            registry,
        )
        self.failover_ready = unknown_gauge(
            "cdc_failover_ready_state",
            "1 when the primary reports no obstacle to a failover without a gap, else 0; NaN without source.failover",
            registry,
        )
        for level in LEVELS:
            self.slot_alarm.labels(str(level)).set(UNKNOWN)

    def _add_outbox(self, registry: CollectorRegistry) -> None:
        self.outbox_events = Counter(
            "cdc_outbox_events_total", "Outbox events in committed Kafka transactions", registry=registry
        )
        self.outbox_refused = Counter(
            "cdc_outbox_refused_total",
            "Outbox events that were sent to the topic of refused events, by reason",
            ["reason"],
            registry=registry,
        )
        self.outbox_updates_ignored = Counter(
            "cdc_outbox_updates_ignored_total", "UPDATEs of outbox rows, which are ignored", registry=registry
        )
        self.outbox_pruned = Counter(
            "cdc_outbox_pruned_rows_total", "Outbox rows deleted after Kafka had their events", registry=registry
        )
        self.outbox_dropped = Counter(
            "cdc_outbox_dropped_partitions_total",
            "Outbox partitions dropped after Kafka had their events",
            registry=registry,
        )
        self.outbox_prune_failures = Counter(
            "cdc_outbox_prune_failures_total", "Failures to prune the outbox", registry=registry
        )

    def _add_audit(self, registry: CollectorRegistry) -> None:
        self.audit_position = unknown_gauge(
            "cdc_audit_position_lsn", "The audit has compared the log up to this LSN", registry
        )
        self.audit_records = Counter("cdc_audit_records_total", "Records compared by the audit", registry=registry)
        self.audit_hidden = unknown_gauge(
            "cdc_audit_hidden_partitions",
            "Partitions with a range that compaction or retention removed before the audit",
            registry,
        )
        self.audit_findings = Counter(
            "cdc_audit_findings_total", "Ranges that differ from the cut index, by kind", ["kind"], registry=registry
        )
        self.audit_failures = Counter("cdc_audit_failures_total", "Failures of the audit", registry=registry)

    def _add_signals(self, registry: CollectorRegistry) -> None:
        self.signals = Counter(
            "cdc_signals_total",
            "Signals that were handled, by outcome: done, refused (for a table or as a whole)",
            ["outcome"],
            registry=registry,
        )
        self.signal_failures = Counter(
            "cdc_signal_failures_total", "Failures to read or handle signals", registry=registry
        )
        self.signals_listening = unknown_gauge(
            "cdc_signals_listening_state",
            "1 while signals are read, 0 while reading fails; NaN when signals are off or capture waits",
            registry,
        )

    def _add_snapshots(self, registry: CollectorRegistry) -> None:
        self.snapshot_rows = Counter(
            "cdc_snapshot_rows_total", "Rows read from tables and added to a batch", registry=registry
        )
        self.snapshot_tables = Gauge(
            "cdc_snapshot_tables",
            "Tables with a snapshot, by state: waiting, reading, sweeping, paused, stopped, complete",
            ["state"],
            registry=registry,
        )
        self.snapshot_waiting_chunks = unknown_gauge(
            "cdc_snapshot_waiting_chunks",
            "Chunks that are read and wait until the stream reaches their position",
            registry,
        )


class LakeMetrics:
    """The metrics of one lake sink. State and starts are those of its daemon."""

    def __init__(self, daemon: Metrics, sink: str = "") -> None:
        """`sink` is a label of every sample, beside the pipeline."""
        self.labels = {**daemon.labels, "sink": sink}
        self.registry = registry = CollectorRegistry()
        self.process = ProcessMetrics(registry)
        self.state, self.starts = daemon.state, daemon.starts
        for shared in (self.state, self.starts):
            registry.register(shared)
        self.cut = unknown_gauge("cdc_sink_cut_number", "Number of the newest published cut", registry)
        self.position = unknown_gauge(
            "cdc_sink_position_lsn", "The sink holds every transaction that committed before this LSN", registry
        )
        self.cuts = Counter("cdc_sink_cuts_total", "Cuts published by this process", registry=registry)
        self.records = Counter(
            "cdc_sink_records_total", "Records of the log in the cuts published by this process", registry=registry
        )
        self.cut_seconds = Histogram(
            "cdc_sink_cut_seconds",
            "Time from the start of a cut until it is published",
            buckets=_CUT_BUCKETS,
            registry=registry,
        )
        self.cut_age_seconds = unknown_gauge(
            "cdc_sink_cut_age_seconds", "Time since the newest cut was published; NaN before the first one", registry
        )
        self.look_age_seconds = unknown_gauge(
            "cdc_sink_look_age_seconds",
            "Time since the driver last read the end of the log, as before each cut; NaN before the first time",
            registry,
        )
        self.behind_bytes = unknown_gauge(
            "cdc_sink_behind_bytes",
            "WAL between the newest cut and the end of the log, when the driver last read it",
            registry,
        )
        self.view_plans = Counter(
            "cdc_sink_view_plans_total",
            "Views computed, by plan: recompute or affected (keys)",
            ["plan"],
            registry=registry,
        )
        self.views_behind = unknown_gauge("cdc_sink_views_behind", "Views that are behind the newest cut", registry)

    def render(self) -> bytes:
        """Return the page of /metrics."""
        return rendered(self.registry, self.labels)
