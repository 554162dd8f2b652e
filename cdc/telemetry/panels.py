"""Declares the panels of the Grafana dashboard; docker/observability/dashboard.json is generated from it. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["timeseries", "stat"]
"""stat shows the legends of the series that there are now."""

_OF: Final = '{pipeline=~"$pipeline"}'
"""`$pipeline` is a variable of the dashboard."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        unit: id of a unit in Grafana: s, bytes, Bps, short and so on.
        queries: pairs of PromQL and legend.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: Kind = "timeseries"


def _gauge(metric: str, by: str = "pipeline", *, of: str = "max") -> tuple[str, str]:
    """Return the query of a gauge, aggregated over processes."""
    return f"{of} by ({by}) ({metric}{_OF})", _legend(by)


def _rate(counter: str, by: str = "pipeline") -> tuple[str, str]:
    """Return the query of a counter's growth per second."""
    return f"sum by ({by}) (rate({counter}{_OF}[$__rate_interval]))", _legend(by)


def _quantile(histogram: str, by: str = "pipeline") -> tuple[str, str]:
    """Return the query of a histogram's 99th percentile."""
    buckets = f"sum by ({by}, le) (rate({histogram}_bucket{_OF}[$__rate_interval]))"
    return f"histogram_quantile(0.99, {buckets})", f"{_legend(by)} p99"


def _named(name: str, query: tuple[str, str]) -> tuple[str, str]:
    """Return the query with a name in front of its legend."""
    return query[0], f"{name} {query[1]}"


def _legend(by: str) -> str:
    return " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))


_SINK: Final = "pipeline, sink"
_STATE: Final = 'cdc_state{pipeline=~"$pipeline",sink=""} == 1'
_SINK_STATE: Final = (
    'max by (pipeline, sink, state) (cdc_state{pipeline=~"$pipeline",sink!=""} '
    'or cdc_supervised_sink_state{pipeline=~"$pipeline"}) == 1'
)
_FIRING: Final = 'sum by (alertname) (ALERTS{alertname=~"Tailrace.+",alertstate="firing",pipeline=~"$pipeline|"})'

ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "State",
        (
            Panel("Capture", "short", ((_STATE, "{{pipeline}} {{state}}"),), "stat"),
            Panel("Sinks", "short", ((_SINK_STATE, "{{pipeline}} {{sink}} {{state}}"),), "stat"),
            Panel(
                "Firing alerts",
                "short",
                ((_FIRING, "{{alertname}}"),),
                "stat",
            ),
        ),
    ),
    (
        "Lag",
        (
            Panel("Log behind the source", "s", (_gauge("cdc_lag_seconds", of="min"),)),
            Panel("Time of a heartbeat", "s", (_quantile("cdc_heartbeat_seconds"),)),
            Panel("Age of the last check of the slot", "s", (_gauge("cdc_source_check_age_seconds", of="min"),)),
        ),
    ),
    (
        "Freshness objectives",
        (
            Panel("Error budget left", "percentunit", ((f"tailrace:budget_left:ratio{_OF}", "{{pipeline}} {{sink}}"),)),
            Panel("Behind PostgreSQL", "s", (_gauge("cdc_freshness_seconds", _SINK, of="min"),)),
            Panel("Objective met", "percentunit", ((f"tailrace:fresh:ratio{_OF}", "{{pipeline}} {{sink}}"),)),
        ),
    ),
    (
        "Throughput",
        (
            Panel("Row events", "ops", (_rate("cdc_rows_total"),)),
            Panel("Bytes before compression", "Bps", (_rate("cdc_bytes_total"),)),
            Panel(
                "Transactions",
                "ops",
                (
                    _named("source", _rate("cdc_source_transactions_total")),
                    _named("Kafka", _rate("cdc_batches_total")),
                    _named("outbox events", _rate("cdc_outbox_events_total")),
                ),
            ),
            Panel("Time of a Kafka commit", "s", (_quantile("cdc_commit_seconds"),)),
            Panel("Row events in a Kafka transaction", "short", (_quantile("cdc_batch_rows"),)),
        ),
    ),
    (
        "Slot and WAL",
        (
            Panel(
                "WAL",
                "bytes",
                (
                    _named("kept for the slot", _gauge("cdc_slot_lag_bytes")),
                    _named("not confirmed", _gauge("cdc_slot_confirmed_lag_bytes")),
                    _named("until the slot is lost", _gauge("cdc_slot_safe_wal_bytes", of="min")),
                ),
            ),
            Panel("Slot lost in", "s", (_gauge("cdc_slot_lost_in_seconds", of="min"),)),
            Panel(
                "WAL alarms by percent left", "short", (_gauge("cdc_slot_wal_alarm_state", "pipeline, left_percent"),)
            ),
            Panel("Oldest write transaction", "s", (_gauge("cdc_source_oldest_transaction_seconds"),)),
            Panel("Age of catalog_xmin", "short", (_gauge("cdc_slot_catalog_xmin_age_transactions"),)),
            Panel("Spilled to the server's disk", "bytes", (_gauge("cdc_slot_spill_bytes"),)),
        ),
    ),
    (
        "Snapshots",
        (
            Panel("Tables by state", "short", (_gauge("cdc_snapshot_tables", "pipeline, state"),)),
            Panel("Rows read", "ops", (_rate("cdc_snapshot_rows_total"),)),
            Panel("Chunks that wait for the stream", "short", (_gauge("cdc_snapshot_waiting_chunks"),)),
        ),
    ),
    (
        "Search and cache sinks",
        (
            Panel(
                "Age of the oldest record not applied",
                "s",
                (_gauge("cdc_sink_lag_seconds", _SINK), _gauge("cdc_supervised_sink_lag_seconds", _SINK)),
            ),
            Panel("Records applied", "ops", (_rate("cdc_sink_applied_records_total", _SINK),)),
            Panel(
                "Keys per second",
                "ops",
                (
                    _named("written", _rate("cdc_sink_applied_keys_total", _SINK)),
                    _named("postponed", _rate("cdc_sink_postponed_keys_total", _SINK)),
                    _named("blocked", _rate("cdc_sink_refused_keys_total", _SINK)),
                ),
            ),
            Panel(
                "Time until Kafka may remove records",
                "s",
                (_gauge("cdc_sink_retention_left_seconds", _SINK, of="min"),),
            ),
            Panel("Offsets behind", "short", (_gauge("cdc_sink_lag_records", _SINK, of="sum"),)),
            Panel("Assigned partitions", "short", (_gauge("cdc_sink_assigned_partitions", _SINK, of="sum"),)),
        ),
    ),
    (
        "Lake and views",
        (
            Panel("WAL behind the log", "bytes", (_gauge("cdc_sink_behind_bytes", _SINK, of="min"),)),
            Panel(
                "Ages",
                "s",
                (
                    _named("newest cut", _gauge("cdc_sink_cut_age_seconds", _SINK, of="min")),
                    _named("last read of the log", _gauge("cdc_sink_look_age_seconds", _SINK, of="min")),
                ),
            ),
            Panel("Time of a cut", "s", (_quantile("cdc_sink_cut_seconds", _SINK),)),
            Panel("Records in cuts", "ops", (_rate("cdc_sink_records_total", _SINK),)),
            Panel("Views computed, by plan", "ops", (_rate("cdc_sink_view_plans_total", f"{_SINK}, plan"),)),
            Panel("Views behind", "short", (_gauge("cdc_sink_views_behind", _SINK),)),
            Panel("Iceberg behind", "short", (_gauge("cdc_sink_iceberg_behind", _SINK),)),
        ),
    ),
    (
        "Errors",
        (
            Panel("Restarts by reason", "ops", (_rate("cdc_starts_total", f"{_SINK}, reason"),)),
            Panel("Restarts of sinks' processes", "short", (_gauge("cdc_supervised_sink_restarts", _SINK),)),
            Panel(
                "Findings",
                "short",
                (
                    _named("DDL", _gauge("cdc_ddl_open_findings")),
                    _named("left out", _gauge("cdc_left_out_tables", "pipeline, reason")),
                    _named("topic", _gauge("cdc_topic_setting_findings", "pipeline, setting")),
                    _named("audit", _gauge("cdc_audit_findings_total", "pipeline, kind")),
                ),
            ),
            Panel(
                "Failures beside the stream",
                "ops",
                (
                    _named("audit", _rate("cdc_audit_failures_total")),
                    _named("heartbeat", _rate("cdc_heartbeat_failures_total")),
                    _named("signals", _rate("cdc_signal_failures_total")),
                    _named("outbox pruning", _rate("cdc_outbox_prune_failures_total")),
                    _named("threads", _rate("cdc_thread_failures_total", f"{_SINK}, thread")),
                ),
            ),
            Panel("Outbox events refused", "ops", (_rate("cdc_outbox_refused_total", "pipeline, reason"),)),
            Panel(
                "Memory",
                "bytes",
                (('process_resident_memory_bytes{job=~"tailrace-.+"}', "{{job}} {{instance}}"),),
            ),
        ),
    ),
)
"""Rows of the dashboard: title and panels."""
