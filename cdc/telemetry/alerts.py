"""Declares the alerts; docker/observability/alerts.yaml is generated from it, and docs/howto/alerts.md explains each.

An alert may use only declared metrics. A metric that means trouble is in an alert, or in `UNALERTED` with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cdc.telemetry.alert_rule import Alert
from cdc.telemetry.capture_alerts import CAPTURE_ALERTS
from cdc.telemetry.objective_alerts import OBJECTIVE_ALERTS, OBJECTIVE_RECORDS, Recording
from cdc.telemetry.sink_alerts import SINK_ALERTS
from cdc.telemetry.source_alerts import SOURCE_ALERTS
from cdc.telemetry.table_alerts import TABLE_ALERTS

GROUPS: Final[Mapping[str, tuple[Alert, ...]]] = MappingProxyType(
    {
        "tailrace-processes": CAPTURE_ALERTS,
        "tailrace-source": SOURCE_ALERTS,
        "tailrace-tables": TABLE_ALERTS,
        "tailrace-sinks": SINK_ALERTS,
        "tailrace-objectives": OBJECTIVE_ALERTS,
    }
)
RECORDS: Final[Mapping[str, tuple[Recording, ...]]] = MappingProxyType({"tailrace-objectives": OBJECTIVE_RECORDS})
"""Group -> the recording rules that come before its alerts."""

ALERTS: Final = tuple(alert for alerts in GROUPS.values() for alert in alerts)

_LARGE_VALUES: Final = "part of the normal course with large values; what capture waits for is in TailraceCaptureWaits"
UNALERTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cdc_slot_lag_bytes": "TailraceSlotWalHalf compares it with the limit",
        "cdc_slot_confirmed_lag_bytes": "TailraceSlotWalHalf compares what is kept with the limit",
        "cdc_slot_inactive_seconds": "TailraceCaptureDown and TailraceCaptureWaits fire first",
        "cdc_source_standby_lag_seconds": "read only while a snapshot reads, which the load guard then slows down",
        "cdc_ddl_found_total": "counts closed findings as well; TailraceDdlFindings has the open ones",
        "cdc_signal_failures_total": "TailraceSignalsNotRead fires if they last",
        "cdc_truncates_ignored_total": "the configuration asks for it",
        "cdc_outbox_updates_ignored_total": 'normal with on_update = "ignore"; capture logs the first one',
        "cdc_reselect_gone_rows_total": _LARGE_VALUES,
        "cdc_reselect_owed_rows_total": _LARGE_VALUES,
        "cdc_reselect_waits_total": _LARGE_VALUES,
        "cdc_otel_failures_total": "only traces and metrics of OpenTelemetry are lost; the log has the first failure",
        "cdc_waiting_state": "TailraceCaptureWaits and TailraceSinkNotReady use the states; the first one quotes it",
        "cdc_supervised_sink_ready": "TailraceSinkNotReady uses the states",
        "cdc_supervised_sink_lag_records": "TailraceSinkBehind uses the seconds",
        "cdc_supervised_sink_report_age_seconds": "the state is UNKNOWN then: TailraceSinkStuck",
        "cdc_sink_lag_records": "TailraceSinkBehind uses the seconds",
        "cdc_sink_cut_age_seconds": "without new transactions there is no new cut",
        "cdc_sink_postponed_keys_total": "the sink tries again by itself; TailraceSinkBehind fires if that is too slow",
    }
)
"""Metrics that sound like trouble but are in no alert, with the reason."""
