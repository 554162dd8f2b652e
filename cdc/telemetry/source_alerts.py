"""Alerts about PostgreSQL: the slot, the WAL that is kept for it, and what holds it back."""

from __future__ import annotations

from typing import Final

from cdc.telemetry.alert_rule import Alert

_CHECK_AGE: Final = "min by (pipeline) (cdc_source_check_age_seconds)"

SOURCE_ALERTS: Final = (
    Alert(
        name="TailraceSlotLost",
        expr="min by (pipeline) (min_over_time(cdc_slot_lost_in_seconds[15m])) == 0",
        for_minutes=0,
        severity="page",
        summary="The replication slot is lost",
        description="PostgreSQL invalidated the slot of the pipeline {{ $labels.pipeline }}, or its WAL is about to be "
        "removed. The next start of capture ends in GAP.",
    ),
    Alert(
        name="TailraceSlotLostSoon",
        expr="(min by (pipeline) (cdc_slot_lost_in_seconds) > 0) < 3600 "
        'and on (pipeline) cdc_slot_wal_alarm_state{left_percent="50"} == 1',
        for_minutes=2,
        severity="page",
        summary="The replication slot will be lost within an hour",
        description="The slot of the pipeline {{ $labels.pipeline }} is lost in {{ $value | humanizeDuration }} if "
        "PostgreSQL writes WAL at this rate and capture acknowledges nothing.",
    ),
    Alert(
        name="TailraceSlotWalLow",
        expr='max by (pipeline) (cdc_slot_wal_alarm_state{left_percent="25"}) == 1',
        for_minutes=0,
        severity="page",
        summary="A quarter of the WAL limit is left",
        description="WAL that is kept for the slot of the pipeline {{ $labels.pipeline }} takes three quarters of its "
        "limit or more.",
    ),
    Alert(
        name="TailraceSlotWalHalf",
        expr='max by (pipeline) (cdc_slot_wal_alarm_state{left_percent="50"}) == 1',
        for_minutes=5,
        severity="ticket",
        summary="Half of the WAL limit is left",
        description="WAL that is kept for the slot of the pipeline {{ $labels.pipeline }} takes half of its limit or "
        "more.",
    ),
    Alert(
        name="TailraceSourceCheckOld",
        expr=f"{_CHECK_AGE} unless {_CHECK_AGE} <= 120",
        for_minutes=5,
        severity="ticket",
        summary="The slot was not checked lately",
        description="The slot of the pipeline {{ $labels.pipeline }} was last checked {{ $value | humanizeDuration }} "
        "ago (NaN: never). Alerts about slot and WAL are not reliable meanwhile.",
    ),
    Alert(
        name="TailraceOldTransaction",
        expr="max by (pipeline) (cdc_source_oldest_transaction_seconds) > 3600",
        for_minutes=0,
        severity="ticket",
        summary="A transaction has been open for more than an hour",
        description="A write transaction on the source of the pipeline {{ $labels.pipeline }} has been open for "
        "{{ $value | humanizeDuration }}. PostgreSQL keeps all WAL since its start.",
    ),
    Alert(
        name="TailraceCatalogXminOld",
        expr="max by (pipeline) (cdc_slot_catalog_xmin_age_transactions) > 100000000",
        for_minutes=10,
        severity="ticket",
        summary="The slot keeps VACUUM from cleaning the system catalogs",
        description="The catalog_xmin of the slot of the pipeline {{ $labels.pipeline }} is {{ $value | humanize }} "
        "transactions old.",
    ),
    Alert(
        name="TailraceFailoverNotReady",
        expr="max by (pipeline) (cdc_failover_ready_state) == 0",
        for_minutes=15,
        severity="ticket",
        summary="A failover would leave a gap",
        description="The primary of the pipeline {{ $labels.pipeline }} reports an obstacle to a failover without a "
        "gap.",
    ),
)
