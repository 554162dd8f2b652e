"""Every metric of the service, in one place, its unit in its name; docs/reference/metrics.md is made from it.

Labels are bounded: states and reasons, never keys. https://prometheus.io/docs/practices/naming/
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
    """The registry of one capture."""

    def __init__(self, pipeline: str = "") -> None:
        """`pipeline` is a label of every sample that /metrics shows."""
        self.labels = {"pipeline": pipeline}
        self.registry = registry = CollectorRegistry()
        self.process = ProcessMetrics(registry)
        self.rows = Counter("cdc_rows_total", "Row events in committed Kafka transactions", registry=registry)
        self.bytes = Counter(
            "cdc_bytes_total", "Bytes of row events, before compression, estimated per batch", registry=registry
        )
        self.transactions = Counter("cdc_source_transactions_total", "Source transactions captured", registry=registry)
        self.batches = Counter("cdc_batches_total", "Kafka transactions committed", registry=registry)
        self.batch_rows = Histogram(
            "cdc_batch_rows", "Row events in a Kafka transaction", buckets=_ROW_BUCKETS, registry=registry
        )
        self.commit_seconds = Histogram(
            "cdc_commit_seconds", "From batch to known commit", buckets=_COMMIT_BUCKETS, registry=registry
        )
        self._declare_source(registry)
        self.state = Gauge("cdc_state", "1 for the state the process is in", ["state"], registry=registry)
        self.starts = Counter(
            "cdc_starts_total",
            "Starts over within the process, by what ended the last run",
            ["reason"],
            registry=registry,
        )
        self.truncated_keys = Counter(
            "cdc_truncated_keys_total", "Keys deleted from topics because of a TRUNCATE", registry=registry
        )
        self.truncates_ignored = Counter(
            "cdc_truncates_ignored_total", "TRUNCATEs passed over because of source.on_truncate", registry=registry
        )
        self.reselected = Counter(
            "cdc_reselected_rows_total", "Row events completed with values read from the table", registry=registry
        )
        self.reselect_gone = Counter(
            "cdc_reselect_gone_rows_total",
            "Row events that stay without unchanged values, because the row is not in the table any more",
            registry=registry,
        )
        self.reselect_owed = Counter(
            "cdc_reselect_owed_rows_total",
            "Row events published without unchanged values, whose rows are read once their transactions are visible",
            registry=registry,
        )
        self.reselect_queries = Counter(
            "cdc_reselect_queries_total", "Queries for unchanged values: one a table and batch", registry=registry
        )
        self.reselect_waits = Counter(
            "cdc_reselect_waits_total",
            "Times capture waited for seconds until a transaction was visible or a table was not locked",
            registry=registry,
        )
        self._declare_beside(registry)

    def _declare_source(self, registry: CollectorRegistry) -> None:
        """Of the position in the source, and of the slot."""
        self.position = unknown_gauge("cdc_position_lsn", "The log holds everything below this LSN", registry)
        self.lag_seconds = unknown_gauge(
            "cdc_lag_seconds",
            "How far the log may be behind the source, also while that is away; 0 at its end; NaN before reading",
            registry,
        )
        self.slot_lag_bytes = unknown_gauge("cdc_slot_lag_bytes", "WAL the slot keeps on the source", registry)
        self.slot_safe_wal_bytes = unknown_gauge(
            "cdc_slot_safe_wal_bytes",
            "WAL that may be written before the slot is lost; NaN without a limit, and before the first check",
            registry,
        )
        self.slot_lost_in_seconds = unknown_gauge(
            "cdc_slot_lost_in_seconds",
            "Time until the slot is lost at the present rate; +Inf when it is not; NaN before the first check",
            registry,
        )
        self.source_check_age = unknown_gauge(
            "cdc_source_check_age_seconds",
            "Since the slot was last checked on the source; the gauges about slot and WAL are as of then",
            registry,
        )

    def _declare_beside(self, registry: CollectorRegistry) -> None:
        """Of what goes on beside the stream."""
        self.heartbeat_seconds = Histogram(
            "cdc_heartbeat_seconds",
            "From the beginning of capture.heartbeat_query on the source until the log has what it wrote",
            buckets=_HEARTBEAT_BUCKETS,
            registry=registry,
        )
        self.heartbeat_failures = Counter(
            "cdc_heartbeat_failures_total", "Times capture.heartbeat_query could not be run", registry=registry
        )
        self.ddl_found = Counter(
            "cdc_ddl_found_total",
            "Times DDL was noticed whose rows the stream does not show, by kind",
            ["kind"],
            registry=registry,
        )
        self.ddl_open = unknown_gauge(
            "cdc_ddl_open_findings", "Findings about such DDL that nobody has accepted", registry
        )
        self.tables_left_out = Gauge(
            "cdc_left_out_tables",
            "Selected tables that are not captured, or not all of their rows, by reason: no_key, key_changed, "
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
        """The page of /metrics."""
        return rendered(self.registry, self.labels)

    def _add_wal(self, registry: CollectorRegistry) -> None:
        """Of the WAL guard."""
        self.slot_alarm = Gauge(
            "cdc_slot_wal_alarm_state",
            "1 while no more than this share of the WAL that may be kept is left, by percent: 50, 25, 10",
            ["left_percent"],
            registry=registry,
        )
        self.slot_confirmed_lag_bytes = unknown_gauge(
            "cdc_slot_confirmed_lag_bytes", "WAL behind what was acknowledged", registry
        )
        self.slot_inactive_seconds = unknown_gauge(
            "cdc_slot_inactive_seconds",
            "For how long no process has read the slot; 0 while it is read; NaN before PostgreSQL 17",
            registry,
        )
        self.slot_catalog_xmin_age = unknown_gauge(
            "cdc_slot_catalog_xmin_age_transactions",
            "Transactions since the slot's catalog_xmin: VACUUM cannot clean catalogs of what is newer",
            registry,
        )
        self.slot_spill_transactions = unknown_gauge(
            "cdc_slot_spill_transactions",
            "Transactions that decoding wrote to the server's disk, since its statistics were reset",
            registry,
        )
        self.slot_spill_bytes = unknown_gauge(
            "cdc_slot_spill_bytes", "Bytes of those, written to and read from disk", registry
        )
        self.oldest_transaction_seconds = unknown_gauge(
            "cdc_source_oldest_transaction_seconds",
            "Age of the oldest open write transaction, from whose begin on WAL is kept; 0: none",
            registry,
        )
        self.failover_ready = unknown_gauge(
            "cdc_failover_ready_state",
            "1 when nothing the primary knows forbids a failover without a gap, else 0; NaN without source.failover",
            registry,
        )
        for level in LEVELS:
            self.slot_alarm.labels(str(level)).set(UNKNOWN)

    def _add_outbox(self, registry: CollectorRegistry) -> None:
        self.outbox_events = Counter(
            "cdc_outbox_events_total", "Events of the outbox in committed Kafka transactions", registry=registry
        )
        self.outbox_refused = Counter(
            "cdc_outbox_refused_total",
            "Events that could not be published as they are and are in the topic of refused ones, by reason",
            ["reason"],
            registry=registry,
        )
        self.outbox_updates_ignored = Counter(
            "cdc_outbox_updates_ignored_total", "UPDATEs of outbox rows that were passed over", registry=registry
        )
        self.outbox_pruned = Counter(
            "cdc_outbox_pruned_rows_total", "Outbox rows that were deleted because Kafka has them", registry=registry
        )
        self.outbox_dropped = Counter(
            "cdc_outbox_dropped_partitions_total", "Outbox partitions dropped because Kafka has them", registry=registry
        )
        self.outbox_prune_failures = Counter(
            "cdc_outbox_prune_failures_total", "Times the outbox could not be pruned", registry=registry
        )

    def _add_audit(self, registry: CollectorRegistry) -> None:
        self.audit_position = unknown_gauge(
            "cdc_audit_position_lsn", "The log was read back and compared up to this LSN", registry
        )
        self.audit_records = Counter(
            "cdc_audit_records_total", "Records that the audit has read back and compared", registry=registry
        )
        self.audit_hidden = unknown_gauge(
            "cdc_audit_hidden_partitions",
            "Partitions with a range that compaction or retention has removed before it was compared",
            registry,
        )
        self.audit_findings = Counter(
            "cdc_audit_findings_total", "Ranges that differ from the cut index, by kind", ["kind"], registry=registry
        )
        self.audit_failures = Counter(
            "cdc_audit_failures_total", "Times the audit could not be done", registry=registry
        )

    def _add_signals(self, registry: CollectorRegistry) -> None:
        self.signals = Counter(
            "cdc_signals_total",
            "Records of the signals topic that were acted on, by outcome: done, refused (for some table or as a whole)",
            ["outcome"],
            registry=registry,
        )
        self.signal_failures = Counter(
            "cdc_signal_failures_total", "Times the signals topic could not be read or acted on", registry=registry
        )
        self.signals_listening = unknown_gauge(
            "cdc_signals_listening_state",
            "1 while signals are read, 0 while they are not though they should be; NaN when off or capture waits",
            registry,
        )

    def _add_snapshots(self, registry: CollectorRegistry) -> None:
        self.snapshot_rows = Counter(
            "cdc_snapshot_rows_total", "Rows that were read from tables and joined a batch", registry=registry
        )
        self.snapshot_tables = Gauge(
            "cdc_snapshot_tables",
            "Tables there is or was a snapshot of, by state: waiting, reading, sweeping, paused, stopped, complete",
            ["state"],
            registry=registry,
        )
        self.snapshot_waiting_chunks = unknown_gauge(
            "cdc_snapshot_waiting_chunks", "Chunks that are read and wait until the stream is as far", registry
        )


class LakeMetrics:
    """The registry of one sink. State and starts are the daemon's own, which are counted in `daemon`."""

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
        self.records = Counter("cdc_sink_records_total", "Records of the log in those cuts", registry=registry)
        self.cut_seconds = Histogram(
            "cdc_sink_cut_seconds",
            "From the beginning of a cut until it is published",
            buckets=_CUT_BUCKETS,
            registry=registry,
        )
        self.cut_age_seconds = unknown_gauge(
            "cdc_sink_cut_age_seconds", "Since the newest cut was published; NaN before the first one", registry
        )
        self.look_age_seconds = unknown_gauge(
            "cdc_sink_look_age_seconds",
            "Since the driver last looked at the log, which it does before each cut; NaN before the first look",
            registry,
        )
        self.behind_bytes = unknown_gauge(
            "cdc_sink_behind_bytes",
            "WAL between the newest cut and the end of the log, as of the last look at the log",
            registry,
        )
        self.view_plans = Counter(
            "cdc_sink_view_plans_total",
            "Views computed, by plan: recompute, affected (keys) or delta",
            ["plan"],
            registry=registry,
        )
        self.views_behind = unknown_gauge(
            "cdc_sink_views_behind", "Views that are as of an older cut than the newest one", registry
        )

    def render(self) -> bytes:
        """The page of /metrics."""
        return rendered(self.registry, self.labels)
