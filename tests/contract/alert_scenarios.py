"""Series for which alerts about processes and the source fire, and series close to them for which they do not.

Series are in promtool's form: `1x150` is 151 samples of 1, `0+1x150` grows by 1, `_` is a missing sample. There is one
sample a minute. https://prometheus.io/docs/prometheus/2.42/configuration/unit_testing_rules/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

Series: TypeAlias = Mapping[str, str]

ALWAYS: Final = "{}x600"
"""To be formatted with a value."""

ONE: Final = "1x600"
ZERO: Final = "0x600"
UNKNOWN: Final = " ".join(["NaN"] * 600)  # promtool repeats only numbers
INFINITE: Final = " ".join(["Inf"] * 600)
GROWING: Final = "0+1x600"
APPEARED: Final = "_x140 2x10"
"""A counter whose first value is 2, ten minutes before the end."""

FLASH: Final = "0x140 1 _x10"
"""A state that one scrape saw before the process ended, ten minutes before the end."""

CAPTURE: Final = '{pipeline="shop"}'
SINK: Final = '{pipeline="shop",sink="search"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario of an alert.

    Attributes:
        fires: series for which the alert fires, once, `minutes` after their first sample.
        labels: labels of the alert that fires, without its severity.
        value: the value in the alert's description, as Prometheus formats it.
        queried: what a query within the description adds to it.
        also: other series for which it fires with the same labels, each with its value.
        quiet: sets of series for each of which the alert does not fire.
    """

    fires: Series
    labels: Mapping[str, str]
    value: str = ""
    queried: str = ""
    also: tuple[tuple[Series, str], ...] = ()
    quiet: tuple[Series, ...]
    minutes: int = 150


def of_shop(**labels: str) -> dict[str, str]:
    """Return labels of an alert about the pipeline shop."""
    return {"pipeline": "shop", **labels}


def standby(metric: str, active: str, waiting: str) -> Series:
    """Return the series of a metric of the active capture and of its standby."""
    return {
        f'{metric}{{pipeline="shop",instance="a"}}': active,
        f'{metric}{{pipeline="shop",instance="b"}}': waiting,
    }


_UP: Final = 'up{job="tailrace-capture",pipeline="shop",instance="a"}'
_UP_STANDBY: Final = 'up{job="tailrace-capture",pipeline="shop",instance="b"}'
_RUNNING: Final = 'cdc_state{pipeline="shop",state="RUNNING"}'
_RUNNING_STANDBY: Final = 'cdc_state{pipeline="shop",state="RUNNING",instance="b"}'
_GAP: Final = 'cdc_state{pipeline="shop",state="GAP"}'
_GAP_STANDBY: Final = 'cdc_state{pipeline="shop",state="GAP",instance="b"}'
_SINK_RUNNING: Final = 'cdc_state{pipeline="shop",sink="search",state="RUNNING"}'

PROCESSES: Final[Mapping[str, Scenario]] = {
    "TailraceNotScraped": Scenario(
        fires={'up{job="something-else"}': ONE},
        labels={"job": "tailrace-capture"},
        quiet=({_UP: ONE}, {_UP: ZERO}),
    ),
    "TailraceCaptureDown": Scenario(
        fires={_UP: "1x100 0x50", _UP_STANDBY: "1x50 0x100"},
        labels=of_shop(),
        quiet=(
            {_UP: ONE},
            {_UP: ZERO, _UP_STANDBY: ONE},
            {_UP: "1x149 0x5"},
            {'up{job="another",pipeline="shop"}': ZERO},
        ),
    ),
    "TailracePipelineDown": Scenario(
        fires={
            'cdc_supervised_pipeline_state{pipeline="shop",state="RUNNING"}': "1x100 0x50",
            'cdc_supervised_pipeline_state{pipeline="shop",state="GAP"}': "0x100 1x50",
            'cdc_supervised_pipeline_state{pipeline="crm",state="RUNNING"}': ONE,
        },
        labels=of_shop(),
        quiet=(
            {
                'cdc_supervised_pipeline_state{pipeline="shop",state="WAITING"}': ONE,
                'cdc_supervised_pipeline_state{pipeline="shop",state="RUNNING"}': ZERO,
            },
            {_RUNNING: ONE},
        ),
    ),
    "TailracePipelineRestarts": Scenario(
        fires={'cdc_supervised_pipeline_restarts{pipeline="shop"}': "0x100 1 2 3 4x47"},
        labels=of_shop(),
        value="4",
        quiet=({'cdc_supervised_pipeline_restarts{pipeline="shop"}': "0x100 1x50"},),
    ),
    "TailraceCaptureNeedsOperator": Scenario(
        fires={_GAP: FLASH, _GAP_STANDBY: ZERO, _RUNNING: "1x139 0 0 _x10"},
        labels=of_shop(state="GAP"),
        quiet=(
            {_GAP: "0x140 1 0x10", _RUNNING: "1x139 0 0 1x10"},
            {'cdc_state{pipeline="shop",state="WAITING"}': ONE},
            {'cdc_state{pipeline="shop",sink="search",state="GAP"}': ONE},
        ),
    ),
    "TailraceCaptureWaits": Scenario(
        fires={
            _RUNNING: "1x100 0x50",
            'cdc_state{pipeline="shop",state="WAITING"}': ONE,
            'cdc_waiting_state{pipeline="shop",reason="broker"}': "0x100 1x50",
            'cdc_waiting_state{pipeline="shop",reason="source"}': "0x150",
            'cdc_waiting_state{pipeline="shop",sink="search",reason="store"}': ONE,
            _SINK_RUNNING: ONE,
        },
        labels=of_shop(),
        queried=" It waits for: broker.",
        quiet=(
            {_RUNNING: "0x600", _RUNNING_STANDBY: "1x600"},
            {_RUNNING: "1x147 0x5"},
            {_RUNNING: ZERO, 'cdc_state{pipeline="shop",state="CATCHING_UP"}': ONE},
        ),
    ),
    "TailraceCaptureLag": Scenario(
        fires=standby("cdc_lag_seconds", ALWAYS.format(600), UNKNOWN),
        labels=of_shop(),
        value="10m 0s",
        quiet=(
            standby("cdc_lag_seconds", ALWAYS.format(300), ALWAYS.format(600)),
            {f"cdc_lag_seconds{CAPTURE}": UNKNOWN},
            {f"cdc_lag_seconds{CAPTURE}": "0x145 600x5"},
        ),
    ),
    "TailraceRestarts": Scenario(
        fires={'cdc_starts_total{pipeline="shop",sink="lake",reason="SinkUnreachable"}': GROWING},
        labels=of_shop(sink="lake", reason="SinkUnreachable"),
        value="15",
        also=(({'cdc_starts_total{pipeline="shop",sink="lake",reason="SinkUnreachable"}': "_x140 6x10"}, "6"),),
        quiet=(
            {'cdc_starts_total{pipeline="shop",reason="SourceUnreachable"}': "100x140 105x10"},
            {'cdc_starts_total{pipeline="shop",reason="SourceUnreachable"}': "_x140 5x10"},
        ),
    ),
    "TailraceMachineExhausted": Scenario(
        fires={'cdc_starts_total{pipeline="shop",reason="SpoolFailed"}': APPEARED},
        labels=of_shop(reason="SpoolFailed"),
        value="2",
        also=(({'cdc_starts_total{pipeline="shop",reason="SpoolFailed"}': "3x140 7x10"}, "4"),),
        quiet=(
            {'cdc_starts_total{pipeline="shop",reason="SpoolFailed"}': ONE},
            {'cdc_starts_total{pipeline="shop",reason="BrokerUnreachable"}': GROWING},
        ),
    ),
    "TailraceOpenFiles": Scenario(
        fires={
            'process_open_fds{job="tailrace-sinks",instance="s"}': ALWAYS.format(950),
            'process_max_fds{job="tailrace-sinks",instance="s"}': ALWAYS.format(1000),
        },
        labels={"job": "tailrace-sinks", "instance": "s"},
        value="95%",
        quiet=(
            {
                'process_open_fds{job="tailrace-capture",instance="a"}': ALWAYS.format(900),
                'process_max_fds{job="tailrace-capture",instance="a"}': ALWAYS.format(1000),
            },
            {
                'process_open_fds{job="another",instance="a"}': ALWAYS.format(999),
                'process_max_fds{job="another",instance="a"}': ALWAYS.format(1000),
            },
        ),
    ),
    "TailraceNotifyFails": Scenario(
        fires={'cdc_notify_failures_total{pipeline="shop",receiver="ops"}': "0x140 2x10"},
        labels=of_shop(receiver="ops"),
        value="2",
        also=(({'cdc_notify_failures_total{pipeline="shop",receiver="ops"}': APPEARED}, "2"),),
        quiet=(
            {'cdc_notify_failures_total{pipeline="shop",receiver="ops"}': "2x600"},
            {'cdc_notify_failures_total{pipeline="shop",receiver="ops"}': ZERO},
        ),
    ),
    "TailraceThreadFailed": Scenario(
        fires={'cdc_thread_failures_total{pipeline="shop",thread="wal-guard"}': APPEARED},
        labels=of_shop(thread="wal-guard"),
        also=(({'cdc_thread_failures_total{pipeline="shop",thread="wal-guard"}': "1x140 2x10"}, ""),),
        quiet=({'cdc_thread_failures_total{pipeline="shop",thread="wal-guard"}': ONE},),
    ),
}

_QUARTER: Final = 'cdc_slot_wal_alarm_state{pipeline="shop",left_percent="25"}'
_HALF: Final = 'cdc_slot_wal_alarm_state{pipeline="shop",left_percent="50"}'
_LOST_IN: Final = f"cdc_slot_lost_in_seconds{CAPTURE}"
_LOST_IN_STANDBY: Final = 'cdc_slot_lost_in_seconds{pipeline="shop",instance="b"}'
_QUARTER_STANDBY: Final = 'cdc_slot_wal_alarm_state{pipeline="shop",instance="b",left_percent="25"}'
_HALF_STANDBY: Final = 'cdc_slot_wal_alarm_state{pipeline="shop",instance="b",left_percent="50"}'

SOURCE: Final[Mapping[str, Scenario]] = {
    "TailraceSlotLost": Scenario(
        fires={_LOST_IN: "500x139 0 _x10", _LOST_IN_STANDBY: ALWAYS.format(500)},
        labels=of_shop(),
        quiet=({_LOST_IN: ONE}, {_LOST_IN: UNKNOWN}, {_LOST_IN: INFINITE}, {_LOST_IN: f"0x130 {INFINITE}"}),
    ),
    "TailraceSlotLostSoon": Scenario(
        fires={_LOST_IN: ALWAYS.format(1800), _LOST_IN_STANDBY: INFINITE, _HALF: ONE},
        labels=of_shop(),
        value="30m 0s",
        quiet=(
            {_LOST_IN: ALWAYS.format(1800), _HALF: ZERO, _QUARTER: ZERO},
            {_LOST_IN: ALWAYS.format(3600), _HALF: ONE},
            {_LOST_IN: ZERO, _HALF: ONE},
            {_LOST_IN: UNKNOWN, _HALF: ONE},
        ),
    ),
    "TailraceSlotWalLow": Scenario(
        fires={_QUARTER: ONE, _QUARTER_STANDBY: ZERO}, labels=of_shop(), quiet=({_QUARTER: ZERO, _HALF: ONE},)
    ),
    "TailraceSlotWalHalf": Scenario(
        fires={_HALF: ONE, _HALF_STANDBY: ZERO},
        labels=of_shop(),
        quiet=({_HALF: ZERO}, {_HALF: UNKNOWN}, {_HALF: "0x147 1x5"}),
    ),
    "TailraceSourceCheckOld": Scenario(
        fires={f"cdc_source_check_age_seconds{CAPTURE}": UNKNOWN},
        labels=of_shop(),
        value="NaN",
        also=(({f"cdc_source_check_age_seconds{CAPTURE}": ALWAYS.format(300)}, "5m 0s"),),
        quiet=(
            {f"cdc_source_check_age_seconds{CAPTURE}": ALWAYS.format(120)},
            standby("cdc_source_check_age_seconds", ALWAYS.format(5), UNKNOWN),
            standby("cdc_source_check_age_seconds", ALWAYS.format(5), ALWAYS.format(500)),
        ),
    ),
    "TailraceOldTransaction": Scenario(
        fires=standby("cdc_source_oldest_transaction_seconds", ALWAYS.format(7200), ZERO),
        labels=of_shop(),
        value="2h 0m 0s",
        quiet=(
            {f"cdc_source_oldest_transaction_seconds{CAPTURE}": ALWAYS.format(3600)},
            {f"cdc_source_oldest_transaction_seconds{CAPTURE}": UNKNOWN},
        ),
    ),
    "TailraceCatalogXminOld": Scenario(
        fires=standby("cdc_slot_catalog_xmin_age_transactions", ALWAYS.format(150000000), ZERO),
        labels=of_shop(),
        value="150M",
        quiet=({f"cdc_slot_catalog_xmin_age_transactions{CAPTURE}": ALWAYS.format(100000000)},),
    ),
    "TailraceFailoverNotReady": Scenario(
        fires={f"cdc_failover_ready_state{CAPTURE}": ZERO},
        labels=of_shop(),
        quiet=(
            standby("cdc_failover_ready_state", ONE, ZERO),
            {f"cdc_failover_ready_state{CAPTURE}": UNKNOWN},
        ),
    ),
}
