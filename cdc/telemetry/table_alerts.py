"""Alerts about tables and topics: snapshots, DDL, tables left out, the audit, signals, heartbeats, the outbox."""

from __future__ import annotations

from typing import Final

from cdc.telemetry.alert_rule import Alert, growth

# The speed rises and falls all the time, and is NaN between two snapshots: the mean of what is known counts.
_SPEED: Final = "avg_over_time((cdc_snapshot_speed_ratio >= 0)[30m:1m])"

TABLE_ALERTS: Final = (
    Alert(
        name="TailraceSnapshotStalled",
        expr='max by (pipeline) (cdc_snapshot_tables{state=~"reading|waiting"}) > 0 '
        "unless on (pipeline) sum by (pipeline) (increase(cdc_snapshot_rows_total[10m])) > 0",
        for_minutes=30,
        severity="ticket",
        summary="A snapshot makes no progress",
        description="The pipeline {{ $labels.pipeline }} has tables to read, but has read no row for half an hour.",
    ),
    Alert(
        name="TailraceSnapshotSlowed",
        expr=f"min by (pipeline) ({_SPEED}) < 0.5 "
        'and on (pipeline) max by (pipeline) (cdc_snapshot_tables{state=~"reading|sweeping|waiting"}) > 0',
        for_minutes=60,
        severity="ticket",
        summary="The load guard slows down a snapshot for long",
        description="For an hour, the source of the pipeline {{ $labels.pipeline }} has been under load, so its "
        "snapshots read at {{ $value | humanizePercentage }} of full speed.",
    ),
    Alert(
        name="TailraceSnapshotStopped",
        expr='max by (pipeline, state) (cdc_snapshot_tables{state=~"paused|stopped"}) > 0',
        for_minutes=360,
        severity="ticket",
        summary="A snapshot is paused or stopped",
        description="{{ $value }} tables of the pipeline {{ $labels.pipeline }} have been {{ $labels.state }} for six "
        "hours. Their topics may lack rows, and views of them wait.",
    ),
    Alert(
        name="TailraceDdlFindings",
        expr="max by (pipeline) (cdc_ddl_open_findings) > 0",
        for_minutes=0,
        severity="ticket",
        summary="DDL changed rows without row events",
        description="The pipeline {{ $labels.pipeline }} has {{ $value }} open DDL findings.",
    ),
    Alert(
        name="TailraceTablesLeftOut",
        expr="max by (pipeline, reason) (cdc_left_out_tables) > 0",
        for_minutes=10,
        severity="ticket",
        summary="Selected tables are not captured",
        description="The pipeline {{ $labels.pipeline }} leaves out {{ $value }} selected tables, or a part of them: "
        "{{ $labels.reason }}.",
    ),
    Alert(
        name="TailraceTopicSettings",
        expr="max by (pipeline, setting) (cdc_topic_setting_findings) > 0",
        for_minutes=0,
        severity="ticket",
        summary="A setting of a topic weakens durability or erasure",
        description="{{ $value }} topics of the pipeline {{ $labels.pipeline }} have a weak {{ $labels.setting }}.",
    ),
    Alert(
        name="TailraceAuditFinding",
        expr="max by (pipeline, kind) (max_over_time(cdc_audit_findings_total[1h])) > 0",
        for_minutes=0,
        severity="page",
        summary="The audit found lost, altered or foreign records",
        description="The audit of the pipeline {{ $labels.pipeline }} found {{ $value }} ranges that differ from the "
        "cut index: {{ $labels.kind }}.",
    ),
    Alert(
        name="TailraceAuditFails",
        expr="sum by (pipeline) (increase(cdc_audit_failures_total[15m])) > 0",
        for_minutes=30,
        severity="ticket",
        summary="The audit cannot run",
        description="The audit of the pipeline {{ $labels.pipeline }} fails: {{ $value | humanize }} times in 15 "
        "minutes.",
    ),
    Alert(
        name="TailraceAuditIncomplete",
        expr="max by (pipeline) (cdc_audit_hidden_partitions) > 0",
        for_minutes=0,
        severity="ticket",
        summary="The audit came too late for some records",
        description="In {{ $value }} partitions of the pipeline {{ $labels.pipeline }}, Kafka removed records before "
        "the audit compared them.",
    ),
    Alert(
        name="TailraceSignalsNotRead",
        expr="max by (pipeline) (cdc_signals_listening_state) == 0",
        for_minutes=10,
        severity="ticket",
        summary="Signals are not read",
        description="Capture of the pipeline {{ $labels.pipeline }} cannot read its signals: snapshots cannot be "
        "started, paused or stopped.",
    ),
    Alert(
        name="TailraceHeartbeatFails",
        expr="sum by (pipeline) (increase(cdc_heartbeat_failures_total[30m])) > 0 "
        "unless on (pipeline) sum by (pipeline) (increase(cdc_heartbeat_seconds_count[30m])) > 0",
        for_minutes=0,
        severity="ticket",
        summary="The heartbeat statement fails",
        description="capture.heartbeat_query of the pipeline {{ $labels.pipeline }} failed {{ $value | humanize }} "
        "times in 30 minutes, and never succeeded.",
    ),
    Alert(
        name="TailraceOutboxRefused",
        expr=f"sum by (pipeline, reason) ({growth('cdc_outbox_refused_total', 60)}) > 0",
        for_minutes=0,
        severity="page",
        summary="Outbox events were refused",
        description="The pipeline {{ $labels.pipeline }} refused {{ $value | humanize }} outbox events in an hour: "
        "{{ $labels.reason }}. They are in the topic of refused events.",
    ),
    Alert(
        name="TailraceOutboxPruneFails",
        expr="sum by (pipeline) (increase(cdc_outbox_prune_failures_total[30m])) > 0",
        for_minutes=30,
        severity="ticket",
        summary="The outbox is not pruned",
        description="The outbox of the pipeline {{ $labels.pipeline }} grows: pruning failed {{ $value | humanize }} "
        "times in 30 minutes.",
    ),
)
