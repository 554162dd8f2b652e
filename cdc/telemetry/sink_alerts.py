"""Alerts about sinks. A sink is seen through its own /metrics, through capture's with --with-sinks, or both."""

from __future__ import annotations

from typing import Final

from cdc.telemetry.alert_rule import OPERATOR_STATES, SINKS_JOB, WORKING_STATES, Alert, growth

_LOOK_AGE: Final = "min by (pipeline, sink) (cdc_sink_look_age_seconds)"
_IDLE_STATES: Final = "STARTING|STOPPED|WAITING"
_NEEDS_OPERATOR: Final = (
    f'max_over_time(cdc_state{{sink!="",state=~"{OPERATOR_STATES}"}}[15m]) '
    f'or cdc_supervised_sink_state{{state=~"{OPERATOR_STATES}"}}'
)
_IDLE: Final = f'cdc_state{{sink!="",state=~"{_IDLE_STATES}"}} or cdc_supervised_sink_state{{state=~"{_IDLE_STATES}"}}'

SINK_ALERTS: Final = (
    Alert(
        name="TailraceSinkDown",
        expr=f'max by (pipeline, sink) (up{{job="{SINKS_JOB}"}}) == 0',
        for_minutes=5,
        severity="page",
        summary="A sink is down",
        description="No process of the sink {{ $labels.sink }} of the pipeline {{ $labels.pipeline }} answers.",
    ),
    Alert(
        name="TailraceSinkNeedsOperator",
        expr=f"max by (pipeline, sink, state) ({_NEEDS_OPERATOR}) == 1 "
        f'unless on (pipeline, sink) cdc_state{{state=~"{WORKING_STATES}"}} == 1',
        for_minutes=0,
        severity="page",
        summary="A sink needs an operator",
        description="The sink {{ $labels.sink }} of the pipeline {{ $labels.pipeline }} ended in state "
        "{{ $labels.state }}, and applies nothing.",
    ),
    Alert(
        name="TailraceSinkNotReady",
        expr=f"max by (pipeline, sink) ({_IDLE}) == 1",
        for_minutes=15,
        severity="page",
        summary="A sink waits",
        description="A process of the sink {{ $labels.sink }} of the pipeline {{ $labels.pipeline }} has not followed "
        "the log for 15 minutes.",
    ),
    Alert(
        name="TailraceSinkStuck",
        expr='max by (pipeline, sink, state) (cdc_supervised_sink_state{state=~"STUCK|UNKNOWN"}) == 1',
        for_minutes=5,
        severity="page",
        summary="The process of a sink hangs",
        description="The process of the sink {{ $labels.sink }} of the pipeline {{ $labels.pipeline }} is in state "
        "{{ $labels.state }}: it runs, but makes no progress or does not report.",
    ),
    Alert(
        name="TailraceSinkRestarts",
        expr="max by (pipeline, sink) (changes(cdc_supervised_sink_restarts[1h])) > 3",
        for_minutes=0,
        severity="ticket",
        summary="The process of a sink is restarted again and again",
        description="The process of the sink {{ $labels.sink }} of the pipeline {{ $labels.pipeline }} was restarted "
        "{{ $value }} times in an hour or more often.",
    ),
    Alert(
        name="TailraceSinkBehind",
        expr="max by (pipeline, sink) (cdc_sink_lag_seconds or cdc_supervised_sink_lag_seconds) > 300",
        for_minutes=10,
        severity="ticket",
        summary="A sink is behind the log",
        description="The oldest record that the sink {{ $labels.sink }} of the pipeline {{ $labels.pipeline }} has not "
        "applied is {{ $value | humanizeDuration }} old.",
    ),
    Alert(
        name="TailraceSinkRetention",
        expr="min by (pipeline, sink) (cdc_sink_retention_left_seconds < cdc_sink_lag_seconds)",
        for_minutes=0,
        severity="page",
        summary="Kafka will remove records that a sink has not applied",
        description="Kafka may remove records that the sink {{ $labels.sink }} of the pipeline {{ $labels.pipeline }} "
        "has not applied in {{ $value | humanizeDuration }}. More than half of the time is used up.",
    ),
    Alert(
        name="TailraceDeadLetters",
        expr=f"sum by (pipeline, sink) ({growth('cdc_sink_refused_keys_total', 60)}) > 0",
        for_minutes=0,
        severity="ticket",
        summary="A store refused records",
        description="The sink {{ $labels.sink }} of the pipeline {{ $labels.pipeline }} blocked keys by dead letters "
        "{{ $value | humanize }} times in an hour.",
    ),
    Alert(
        name="TailraceLakeBehind",
        expr="min by (pipeline, sink) (cdc_sink_behind_bytes) > 1073741824",
        for_minutes=15,
        severity="ticket",
        summary="A lake is behind the log",
        description="The newest cut of the sink {{ $labels.sink }} of the pipeline {{ $labels.pipeline }} is "
        "{{ $value | humanize1024 }}B of WAL behind the log.",
    ),
    Alert(
        name="TailraceLakeLookOld",
        expr=f"{_LOOK_AGE} unless {_LOOK_AGE} <= 900",
        for_minutes=30,
        severity="page",
        summary="The driver of a lake hangs",
        description="The sink {{ $labels.sink }} of the pipeline {{ $labels.pipeline }} last read the end of the log "
        "{{ $value | humanizeDuration }} ago (NaN: never).",
    ),
    Alert(
        name="TailraceViewsBehind",
        expr="max by (pipeline, sink) (cdc_sink_views_behind) > 0",
        for_minutes=15,
        severity="ticket",
        summary="Views are behind their lake",
        description="{{ $value }} views of the sink {{ $labels.sink }} of the pipeline {{ $labels.pipeline }} are "
        "behind the newest cut.",
    ),
    Alert(
        name="TailraceIcebergBehind",
        expr="max by (pipeline, sink) (cdc_sink_iceberg_behind) > 0",
        for_minutes=15,
        severity="ticket",
        summary="Iceberg readers of a lake are behind it",
        description="Iceberg readers of the sink {{ $labels.sink }} of the pipeline {{ $labels.pipeline }} do not see "
        "all of its newest cut.",
    ),
)
