"""Alerts about the processes of capture and sinks: whether they run, wait, restart or lack resources."""

from __future__ import annotations

from typing import Final

from cdc.model.run_state import State
from cdc.model.sink_report import WORKING
from cdc.telemetry.alert_rule import (
    CAPTURE_JOB,
    OPERATOR_STATES,
    SINKS_JOB,
    WORKING_STATES,
    Alert,
    growth,
)

_EXHAUSTED: Final = 'cdc_starts_total{reason=~"MachineExhausted|SpoolFailed"}'
_ALIVE_STATES: Final = "|".join(sorted([*WORKING, State.STARTING, State.WAITING]))
_WAITS: Final = 'max_over_time(cdc_waiting_state{pipeline=%q,sink=""}[10m]) == 1'

CAPTURE_ALERTS: Final = (
    Alert(
        name="TailraceNotScraped",
        expr=f'absent(up{{job="{CAPTURE_JOB}"}})',
        for_minutes=5,
        severity="page",
        summary="Prometheus scrapes no capture",
        description="Prometheus has no target in the job {{ $labels.job }}, so no other alert about capture can fire.",
    ),
    Alert(
        name="TailraceCaptureDown",
        expr=f'max by (pipeline) (up{{job="{CAPTURE_JOB}"}}) == 0',
        for_minutes=2,
        severity="page",
        summary="Capture is down",
        description="No process of capture of the pipeline {{ $labels.pipeline }} answers. PostgreSQL keeps WAL for "
        "its slot meanwhile.",
    ),
    Alert(
        name="TailracePipelineDown",
        expr=f'max by (pipeline) (cdc_supervised_pipeline_state{{state=~"{_ALIVE_STATES}"}}) == 0',
        for_minutes=2,
        severity="page",
        summary="A pipeline of a file with several does not run",
        description="The process of the pipeline {{ $labels.pipeline }} has ended and is not restarted, or it reports "
        "nothing. The other pipelines of its file continue. PostgreSQL keeps WAL for its slot meanwhile.",
    ),
    Alert(
        name="TailracePipelineRestarts",
        expr="max by (pipeline) (changes(cdc_supervised_pipeline_restarts[1h])) > 3",
        for_minutes=0,
        severity="ticket",
        summary="The process of a pipeline ends again and again",
        description="`cdc run` restarted the process of the pipeline {{ $labels.pipeline }} {{ $value }} times in an "
        "hour.",
    ),
    Alert(
        name="TailraceCaptureNeedsOperator",
        expr=f'max by (pipeline, state) (max_over_time(cdc_state{{sink="",state=~"{OPERATOR_STATES}"}}[15m])) == 1 '
        f'unless on (pipeline) cdc_state{{sink="",state=~"{WORKING_STATES}"}} == 1',
        for_minutes=0,
        severity="page",
        summary="Capture needs an operator",
        description="Capture of the pipeline {{ $labels.pipeline }} ended in state {{ $labels.state }}. A restart "
        "does not help.",
    ),
    Alert(
        name="TailraceCaptureWaits",
        expr=f'max by (pipeline) (cdc_state{{sink="",state=~"{WORKING_STATES}"}}) == 0',
        for_minutes=5,
        severity="page",
        summary="Capture waits",
        description="Capture of the pipeline {{ $labels.pipeline }} runs, but publishes nothing: it is WAITING or "
        f"STARTING.{{{{ range printf `{_WAITS}` $labels.pipeline | query }}}} "
        "It waits for: {{ .Labels.reason }}.{{ end }}",
    ),
    Alert(
        name="TailraceCaptureLag",
        expr="min by (pipeline) (cdc_lag_seconds) > 300",
        for_minutes=10,
        severity="ticket",
        summary="Capture is behind the source",
        description="The log of the pipeline {{ $labels.pipeline }} may be {{ $value | humanizeDuration }} behind "
        "PostgreSQL.",
    ),
    Alert(
        name="TailraceRestarts",
        expr=f"sum by (pipeline, sink, reason) ({growth('cdc_starts_total', 15)}) > 5",
        for_minutes=0,
        severity="ticket",
        summary="Capture or a sink restarts again and again",
        description="A run of the pipeline {{ $labels.pipeline }} {{ $labels.sink }} ended {{ $value | humanize }} "
        "times in 15 minutes because of {{ $labels.reason }}.",
    ),
    Alert(
        name="TailraceMachineExhausted",
        expr=f"sum by (pipeline, sink, reason) ({growth(_EXHAUSTED, 15)}) > 0",
        for_minutes=0,
        severity="page",
        summary="The machine lacks files, threads, memory or disk space",
        description="The pipeline {{ $labels.pipeline }} {{ $labels.sink }} ended {{ $value | humanize }} times in 15 "
        "minutes because of {{ $labels.reason }}.",
    ),
    Alert(
        name="TailraceOpenFiles",
        expr=f'process_open_fds{{job=~"{CAPTURE_JOB}|{SINKS_JOB}"}} / process_max_fds > 0.9',
        for_minutes=5,
        severity="ticket",
        summary="A process is close to its limit of open files",
        description="The process {{ $labels.instance }} of the job {{ $labels.job }} has opened "
        "{{ $value | humanizePercentage }} of the files that it may open.",
    ),
    Alert(
        name="TailraceNotifyFails",
        expr=f"sum by (pipeline, receiver) ({growth('cdc_notify_failures_total', 15)}) > 0",
        for_minutes=0,
        severity="ticket",
        summary="Messages of the notifier are not delivered",
        description="The receiver {{ $labels.receiver }} of the pipeline {{ $labels.pipeline }} did not accept "
        "{{ $value | humanize }} messages in 15 minutes.",
    ),
    Alert(
        name="TailraceThreadFailed",
        expr=f"sum by (pipeline, sink, thread) ({growth('cdc_thread_failures_total', 60)}) > 0",
        for_minutes=0,
        severity="page",
        summary="A thread ended with an unexpected error",
        description="The thread {{ $labels.thread }} of the pipeline {{ $labels.pipeline }} {{ $labels.sink }} ended "
        "with an unexpected error, and its work stopped with it.",
    ),
)
