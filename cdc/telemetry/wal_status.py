"""Readings of the WAL guard, for logs, metrics and /status. Written by the guard's thread, read by any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cdc.model.failover import failover_problems
from cdc.model.wal_alarm import LEVELS, WalAlarms, WalRoom, room_of
from cdc.model.wal_reading import WalReading
from cdc.telemetry import log
from cdc.telemetry.exposition import UNKNOWN
from cdc.telemetry.metrics import Metrics

_HINT: Final = "capture is behind or stopped: see `cdc status` and docs/howto/wal-pressure.md"


def wal_document(reading: WalReading, room: WalRoom, raised: Sequence[int]) -> dict[str, Any]:
    """Return `wal` of /status and of `cdc status`; its keys are part of the interface."""
    oldest, idle_s = reading.oldest, reading.inactive_s
    transaction = None
    if oldest is not None:
        transaction = {
            "pid": oldest.pid,
            "gid": oldest.gid or None,
            "application_name": oldest.application_name,
            "age_seconds": round(oldest.age_s, 1) if oldest.age_s else None,
        }
    return {
        "current_lsn": str(reading.current_lsn),
        "alarms": list(raised),
        "left_percent": round(room.left_percent, 1),
        "left_bytes": max(0, room.left_bytes),
        "limit_bytes": room.limit_bytes,
        "lost": reading.invalidation or None,
        "inactive_seconds": None if idle_s is None else round(idle_s, 1),
        "idle_lost_in_seconds": None
        if idle_s is None or not reading.idle_timeout_s
        else round(max(0.0, reading.idle_timeout_s - idle_s), 1),
        "catalog_xmin_age": reading.catalog_xmin_age,
        "spill_transactions": reading.spill_transactions,
        "spill_bytes": reading.spill_bytes,
        "oldest_transaction": transaction,
        "failover_problems": failover_problems(reading.failover),
    }


def room_in(reading: WalReading, alarm_bytes: int) -> WalRoom:
    """Return the WAL room of a reading; `alarm_bytes` is `source.wal_alarm_bytes`."""
    return room_of(
        wal_status=reading.wal_status,
        safe_bytes=reading.safe_bytes,
        kept_bytes=reading.kept_bytes,
        keep_limit_bytes=reading.keep_limit_bytes,
        alarm_bytes=alarm_bytes,
    )


class WalStatus:
    """Logs each change once: an alarm raised or cleared, the slot lost, a long transaction, failover not ready."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._alarms = WalAlarms()
        self._seen: tuple[WalReading, WalRoom] | None = None
        self._checked = False
        self._lost = ""
        self._long = ""
        self._unready: tuple[str, ...] = ()

    def seen(self, reading: WalReading, *, alarm_bytes: int, transaction_alarm_s: float) -> None:
        """Record a reading of the guard; the other arguments are settings of `source`."""
        room = room_in(reading, alarm_bytes)
        self._seen = (reading, room)
        self._log_alarms(reading, room)
        self._log_loss(reading)
        self._log_long(reading, transaction_alarm_s)
        self._log_failover(reading)
        metrics = self._metrics
        metrics.slot_confirmed_lag_bytes.set(max(0, reading.current_lsn - reading.confirmed_lsn))
        unread = UNKNOWN if reading.active_pid is None else 0.0  # PostgreSQL 17 and later report since when
        metrics.slot_inactive_seconds.set(unread if reading.inactive_s is None else reading.inactive_s)
        xmin_age = reading.catalog_xmin_age
        metrics.slot_catalog_xmin_age.set(UNKNOWN if xmin_age is None else xmin_age)
        metrics.slot_spill_transactions.set(reading.spill_transactions)
        metrics.slot_spill_bytes.set(reading.spill_bytes)
        age_s = reading.oldest.age_s or UNKNOWN if reading.oldest else 0.0  # 0: the role may not see its age
        metrics.oldest_transaction_seconds.set(age_s)

    def document(self) -> dict[str, Any] | None:
        """Return `wal` of /status; None before the first reading, and while there is no slot."""
        if self._seen is None:
            return None
        reading, room = self._seen
        return wal_document(reading, room, self._alarms.raised)

    def _log_alarms(self, reading: WalReading, room: WalRoom) -> None:
        if not self._checked:
            self._checked = True
            for level in LEVELS:
                self._metrics.slot_alarm.labels(str(level)).set(0)
        for change in self._alarms.update(room):
            self._metrics.slot_alarm.labels(str(change.percent)).set(change.raised)
            facts = {
                "slot": reading.slot,
                "alarm_percent": change.percent,
                "left_percent": round(room.left_percent, 1),
                "left_bytes": max(0, room.left_bytes),
                "kept_bytes": reading.kept_bytes,
                "limit_bytes": room.limit_bytes,
            }
            if change.raised:
                log.get().warning("wal_alarm", **facts, hint=_HINT)
            else:
                log.get().info("wal_alarm_cleared", **facts)

    def _log_loss(self, reading: WalReading) -> None:
        if reading.invalidation and reading.invalidation != self._lost:
            log.get().error("slot_lost", slot=reading.slot, reason=reading.invalidation)
        self._lost = reading.invalidation

    def _log_long(self, reading: WalReading, transaction_alarm_s: float) -> None:
        """Log once when a transaction has become too old, and once when it has ended."""
        oldest = reading.oldest
        long = oldest.what if oldest is not None and oldest.age_s >= transaction_alarm_s else ""
        if long and long != self._long and oldest is not None:
            log.get().warning(
                "long_transaction",
                pid=oldest.pid,
                gid=oldest.gid or None,
                application_name=oldest.application_name,
                age_seconds=round(oldest.age_s),
                hint="PostgreSQL keeps WAL from its start on; a new slot or snapshot waits for it to end",
            )
        elif self._long and not long:
            log.get().info("long_transaction_ended", what=self._long)
        self._long = long

    def _log_failover(self, reading: WalReading) -> None:
        if not reading.failover.wanted:
            return
        found = tuple(failover_problems(reading.failover))
        self._metrics.failover_ready.set(not found)
        if found and found != self._unready:
            log.get().warning("failover_not_ready", slot=reading.slot, problems=list(found))
        elif self._unready and not found:
            log.get().info("failover_ready", slot=reading.slot)
        self._unready = found
