"""Series for which alerts about tables, topics and sinks fire, and series close to them for which they do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.contract.alert_scenarios import (
    ALWAYS,
    APPEARED,
    CAPTURE,
    FLASH,
    GROWING,
    INFINITE,
    ONE,
    SINK,
    UNKNOWN,
    ZERO,
    Scenario,
    of_shop,
    standby,
)

_READING: Final = 'cdc_snapshot_tables{pipeline="shop",state="reading"}'
_WAITING: Final = 'cdc_snapshot_tables{pipeline="shop",state="waiting"}'
_ROWS_READ: Final = f"cdc_snapshot_rows_total{CAPTURE}"
_SPEED: Final = f"cdc_snapshot_speed_ratio{CAPTURE}"
_SPEED_STANDBY: Final = 'cdc_snapshot_speed_ratio{pipeline="shop",instance="b"}'
_SLOW: Final = " ".join(["0.25 0.25 NaN"] * 200)  # between two snapshots the guard reads nothing
_STOPPED: Final = 'cdc_snapshot_tables{pipeline="shop",state="stopped"}'
_FAILED: Final = f"cdc_heartbeat_failures_total{CAPTURE}"
_RETURNED: Final = f"cdc_heartbeat_seconds_count{CAPTURE}"

TABLES: Final[Mapping[str, Scenario]] = {
    "TailraceSnapshotStalled": Scenario(
        fires={_READING: ONE, _WAITING: ZERO, _ROWS_READ: "0+5x100 500x50"},
        labels=of_shop(),
        quiet=(
            {_READING: ONE, _ROWS_READ: GROWING},
            {_READING: ZERO, 'cdc_snapshot_tables{pipeline="shop",state="complete"}': ONE, _ROWS_READ: ZERO},
            {_READING: UNKNOWN, _ROWS_READ: ZERO},
            {_READING: ONE, _ROWS_READ: "0+5x130 650x20"},
        ),
    ),
    "TailraceSnapshotSlowed": Scenario(
        fires={_SPEED: _SLOW, _SPEED_STANDBY: UNKNOWN, _READING: ONE},
        labels=of_shop(),
        value="25%",
        quiet=(
            {_SPEED: ALWAYS.format(0.5), _READING: ONE},
            {_SPEED: "0.25x100 1x50", _READING: ONE},
            {_SPEED: _SLOW, _READING: ZERO},
            {_SPEED: UNKNOWN, _READING: ONE},
        ),
    ),
    "TailraceSnapshotStopped": Scenario(
        fires={_STOPPED: ONE, 'cdc_snapshot_tables{pipeline="shop",state="stopped",instance="b"}': ZERO},
        labels=of_shop(state="stopped"),
        value="1",
        minutes=400,
        quiet=({_STOPPED: "0x100 1x300"}, {_READING: ONE}, {_STOPPED: UNKNOWN}),
    ),
    "TailraceDdlFindings": Scenario(
        fires=standby("cdc_ddl_open_findings", "2x600", ZERO),
        labels=of_shop(),
        value="2",
        quiet=(standby("cdc_ddl_open_findings", ZERO, UNKNOWN),),
    ),
    "TailraceTablesLeftOut": Scenario(
        fires={
            'cdc_left_out_tables{pipeline="shop",reason="no_key"}': "3x600",
            'cdc_left_out_tables{pipeline="shop",reason="no_key",instance="b"}': ZERO,
        },
        labels=of_shop(reason="no_key"),
        value="3",
        quiet=(
            {'cdc_left_out_tables{pipeline="shop",reason="no_key"}': ZERO},
            {'cdc_left_out_tables{pipeline="shop",reason="no_key"}': "0x145 3x5"},
        ),
    ),
    "TailraceTopicSettings": Scenario(
        fires={
            'cdc_topic_setting_findings{pipeline="shop",setting="min.insync.replicas"}': ONE,
            'cdc_topic_setting_findings{pipeline="shop",setting="min.insync.replicas",instance="b"}': ZERO,
        },
        labels=of_shop(setting="min.insync.replicas"),
        value="1",
        quiet=({'cdc_topic_setting_findings{pipeline="shop",setting="min.insync.replicas"}': ZERO},),
    ),
    "TailraceAuditFinding": Scenario(
        fires={
            'cdc_audit_findings_total{pipeline="shop",kind="lost"}': "_x110 1 _x40",
            'cdc_audit_findings_total{pipeline="shop",kind="lost",instance="b"}': ZERO,
        },
        labels=of_shop(kind="lost"),
        value="1",
        quiet=(
            {'cdc_audit_findings_total{pipeline="shop",kind="lost"}': "_x50 1 _x100"},
            {'cdc_audit_findings_total{pipeline="shop",kind="lost"}': ZERO},
            {f"cdc_audit_records_total{CAPTURE}": GROWING},
        ),
    ),
    "TailraceAuditFails": Scenario(
        fires={f"cdc_audit_failures_total{CAPTURE}": GROWING},
        labels=of_shop(),
        value="15",
        quiet=({f"cdc_audit_failures_total{CAPTURE}": "0x140 1x10"}, {f"cdc_audit_failures_total{CAPTURE}": ONE}),
    ),
    "TailraceAuditIncomplete": Scenario(
        fires=standby("cdc_audit_hidden_partitions", "4x600", ZERO),
        labels=of_shop(),
        value="4",
        quiet=({f"cdc_audit_hidden_partitions{CAPTURE}": ZERO}, {f"cdc_audit_hidden_partitions{CAPTURE}": UNKNOWN}),
    ),
    "TailraceSignalsNotRead": Scenario(
        fires=standby("cdc_signals_listening_state", ZERO, UNKNOWN),
        labels=of_shop(),
        quiet=(
            standby("cdc_signals_listening_state", ONE, ZERO),
            {f"cdc_signals_listening_state{CAPTURE}": UNKNOWN},
            {f"cdc_signals_listening_state{CAPTURE}": "1x145 0x5"},
        ),
    ),
    "TailraceHeartbeatFails": Scenario(
        fires={_FAILED: GROWING, _RETURNED: "7x600"},
        labels=of_shop(),
        value="30",
        quiet=({_FAILED: GROWING, _RETURNED: GROWING}, {_FAILED: "7x600", _RETURNED: GROWING}, {_FAILED: ZERO}),
    ),
    "TailraceOutboxRefused": Scenario(
        fires={'cdc_outbox_refused_total{pipeline="shop",reason="too_large"}': APPEARED},
        labels=of_shop(reason="too_large"),
        value="2",
        also=(({'cdc_outbox_refused_total{pipeline="shop",reason="too_large"}': "2x140 5x10"}, "3"),),
        quiet=(
            {'cdc_outbox_refused_total{pipeline="shop",reason="too_large"}': "2x600"},
            {f"cdc_outbox_events_total{CAPTURE}": GROWING},
        ),
    ),
    "TailraceOutboxPruneFails": Scenario(
        fires={f"cdc_outbox_prune_failures_total{CAPTURE}": GROWING},
        labels=of_shop(),
        value="30",
        quiet=(
            {f"cdc_outbox_prune_failures_total{CAPTURE}": "0x140 1x10"},
            {f"cdc_outbox_prune_failures_total{CAPTURE}": ONE},
        ),
    ),
}

_SEARCH: Final = {"pipeline": "shop", "sink": "search"}
_WORKER_UP: Final = 'up{job="tailrace-sinks",pipeline="shop",sink="search",instance="a"}'
_OTHER_WORKER_UP: Final = 'up{job="tailrace-sinks",pipeline="shop",sink="search",instance="b"}'


def _own(state: str, instance: str = "a") -> str:
    return f'cdc_state{{pipeline="shop",sink="search",state="{state}",instance="{instance}"}}'


def _supervised(state: str, instance: str = "a") -> str:
    return f'cdc_supervised_sink_state{{pipeline="shop",sink="search",state="{state}",instance="{instance}"}}'


SINKS: Final[Mapping[str, Scenario]] = {
    "TailraceSinkDown": Scenario(
        fires={_WORKER_UP: ZERO, _OTHER_WORKER_UP: ZERO},
        labels=_SEARCH,
        quiet=(
            {_WORKER_UP: ZERO, _OTHER_WORKER_UP: ONE},
            {_WORKER_UP: "1x147 0x5"},
            {'up{job="another",pipeline="shop",sink="search"}': ZERO},
        ),
    ),
    "TailraceSinkNeedsOperator": Scenario(
        fires={_own("STALE"): FLASH, _own("STALE", "b"): ZERO},
        labels={**_SEARCH, "state": "STALE"},
        also=(({_supervised("STALE"): ONE, _supervised("RUNNING"): ZERO}, ""),),
        quiet=(
            {_own("GAP"): "0x140 1 0x10", _own("RUNNING"): "1x139 0 0 1x10"},
            {_own("FENCED"): FLASH, _own("RUNNING", "b"): ONE},
            {_supervised("WAITING"): ONE, _supervised("GAP"): ZERO},
            {'cdc_state{pipeline="shop",state="GAP"}': ONE},
        ),
    ),
    "TailraceSinkNotReady": Scenario(
        fires={_own("RUNNING"): ONE, _own("WAITING"): ZERO, _own("WAITING", "b"): "0x100 1x50"},
        labels=_SEARCH,
        also=(({_supervised("WAITING"): "0x100 1x50", _supervised("RUNNING"): "1x100 0x50"}, ""),),
        quiet=(
            {_own("RUNNING"): ONE, _own("WAITING"): ZERO, _supervised("RUNNING"): ONE, _supervised("WAITING"): ZERO},
            {_supervised("WAITING"): "0x140 1x10"},
            {'cdc_state{pipeline="shop",state="WAITING"}': ONE},
        ),
    ),
    "TailraceSinkStuck": Scenario(
        fires={_supervised("STUCK"): ONE, _supervised("RUNNING"): ZERO, _supervised("STUCK", "b"): ZERO},
        labels={**_SEARCH, "state": "STUCK"},
        quiet=({_supervised("STUCK"): ZERO, _supervised("RUNNING"): ONE}, {_supervised("UNKNOWN"): "0x147 1x5"}),
    ),
    "TailraceSinkRestarts": Scenario(
        fires={
            f"cdc_supervised_sink_restarts{SINK}": "0x110 1 2 3 4x40",
            'cdc_supervised_sink_restarts{pipeline="shop",sink="search",instance="b"}': ZERO,
        },
        labels=_SEARCH,
        value="4",
        quiet=(
            {f"cdc_supervised_sink_restarts{SINK}": "0x110 1 2 3x40"},
            {f"cdc_supervised_sink_restarts{SINK}": "40x600"},
        ),
    ),
    "TailraceSinkBehind": Scenario(
        fires={
            'cdc_sink_lag_seconds{pipeline="shop",sink="search",instance="a"}': ZERO,
            'cdc_sink_lag_seconds{pipeline="shop",sink="search",instance="b"}': ALWAYS.format(600),
        },
        labels=_SEARCH,
        value="10m 0s",
        also=(({f"cdc_supervised_sink_lag_seconds{SINK}": ALWAYS.format(900)}, "15m 0s"),),
        quiet=(
            {f"cdc_sink_lag_seconds{SINK}": ALWAYS.format(300), f"cdc_supervised_sink_lag_seconds{SINK}": UNKNOWN},
            {f"cdc_supervised_sink_lag_seconds{SINK}": "0x145 600x5"},
        ),
    ),
    "TailraceSinkRetention": Scenario(
        fires={
            f"cdc_sink_retention_left_seconds{SINK}": ALWAYS.format(7200),
            f"cdc_sink_lag_seconds{SINK}": ALWAYS.format(7201),
            'cdc_sink_retention_left_seconds{pipeline="shop",sink="search",instance="b"}': ALWAYS.format(9000),
            'cdc_sink_lag_seconds{pipeline="shop",sink="search",instance="b"}': ALWAYS.format(9001),
        },
        labels=_SEARCH,
        value="2h 0m 0s",
        quiet=(
            {
                f"cdc_sink_retention_left_seconds{SINK}": ALWAYS.format(7200),
                f"cdc_sink_lag_seconds{SINK}": ALWAYS.format(7200),
            },
            {
                f"cdc_sink_retention_left_seconds{SINK}": INFINITE,
                f"cdc_sink_lag_seconds{SINK}": ALWAYS.format(999999),
            },
            {f"cdc_sink_retention_left_seconds{SINK}": UNKNOWN, f"cdc_sink_lag_seconds{SINK}": UNKNOWN},
        ),
    ),
    "TailraceDeadLetters": Scenario(
        fires={f"cdc_sink_refused_keys_total{SINK}": "0x100 3x50"},
        labels=_SEARCH,
        value="3",
        also=(({f"cdc_sink_refused_keys_total{SINK}": APPEARED}, "2"),),
        quiet=(
            {f"cdc_sink_refused_keys_total{SINK}": "3x600"},
            {f"cdc_sink_refused_keys_total{SINK}": ZERO, f"cdc_sink_applied_keys_total{SINK}": GROWING},
        ),
    ),
    "TailraceLakeBehind": Scenario(
        fires={f"cdc_sink_behind_bytes{SINK}": ALWAYS.format(2147483648)},
        labels=_SEARCH,
        value="2Gi",
        quiet=(
            {f"cdc_sink_behind_bytes{SINK}": ALWAYS.format(1073741824)},
            {f"cdc_sink_behind_bytes{SINK}": UNKNOWN},
            {
                f"cdc_sink_behind_bytes{SINK}": ZERO,
                'cdc_sink_behind_bytes{pipeline="shop",sink="search",instance="b"}': ALWAYS.format(2147483648),
            },
            {f"cdc_sink_behind_bytes{SINK}": "2147483648x140 0 2147483648x9"},
        ),
    ),
    "TailraceLakeLookOld": Scenario(
        fires={f"cdc_sink_look_age_seconds{SINK}": "5x100 60+60x49"},
        labels=_SEARCH,
        value="50m 0s",
        quiet=(
            {f"cdc_sink_look_age_seconds{SINK}": ALWAYS.format(900)},
            {f"cdc_sink_look_age_seconds{SINK}": "5x120 60+60x29"},
            {
                f"cdc_sink_look_age_seconds{SINK}": "5x600",
                'cdc_sink_look_age_seconds{pipeline="shop",sink="search",instance="b"}': ALWAYS.format(5000),
            },
            {f"cdc_sink_look_age_seconds{SINK}": "NaN NaN NaN NaN 5x150"},
        ),
    ),
    "TailraceViewsBehind": Scenario(
        fires={
            f"cdc_sink_views_behind{SINK}": "2x600",
            'cdc_sink_views_behind{pipeline="shop",sink="search",instance="b"}': ZERO,
        },
        labels=_SEARCH,
        value="2",
        quiet=({f"cdc_sink_views_behind{SINK}": ZERO}, {f"cdc_sink_views_behind{SINK}": "0x140 2x10"}),
    ),
    "TailraceIcebergBehind": Scenario(
        fires={
            f"cdc_sink_iceberg_behind{SINK}": "1x600",
            'cdc_sink_iceberg_behind{pipeline="shop",sink="search",instance="b"}': ZERO,
        },
        labels=_SEARCH,
        value="1",
        quiet=(
            {f"cdc_sink_iceberg_behind{SINK}": ZERO},
            {f"cdc_sink_iceberg_behind{SINK}": "0x140 1x10"},
            {f"cdc_sink_iceberg_behind{SINK}": "NaN NaN NaN"},
        ),
    ),
}
