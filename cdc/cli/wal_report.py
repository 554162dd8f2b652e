"""The part of `cdc status` about WAL that accumulates, and about a slot that is lost when no process reads it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdc.cli import output
from cdc.config.settings import Source
from cdc.model import units
from cdc.model.wal_alarm import levels_passed
from cdc.telemetry.wal_status import room_in, wal_document

if TYPE_CHECKING:
    from cdc.model.wal_reading import WalReading


def document(source: Source, reading: WalReading | None) -> dict[str, Any] | None:
    """Return `wal` of /status for one read; `transaction_alarm`: its oldest transaction is older than the limit."""
    if reading is None:
        return None
    room = room_in(reading, source.wal_alarm_bytes)
    old = reading.oldest is not None and reading.oldest.age_s >= source.transaction_alarm_s
    return {**wal_document(reading, room, levels_passed(room)), "transaction_alarm": old}


def lines(wal: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return label and text of each problem; empty when there is none."""
    if wal is None:
        return []
    found = []
    if wal["alarms"] and not wal["lost"]:
        left, limit = units.size(wal["left_bytes"]) or "nothing", units.size(wal["limit_bytes"])
        found.append(("wal alarm", f"{left} of {limit} is left ({wal['left_percent']:.0f} %)"))
    if wal["idle_lost_in_seconds"] is not None and not wal["lost"]:
        text = f"no process reads the slot: lost in {wal['idle_lost_in_seconds']:.0f} s (idle_replication_slot_timeout)"
        found.append(("idle slot", text))
    oldest = wal["oldest_transaction"]
    if oldest is not None and wal.get("transaction_alarm"):
        session = f"prepared {oldest['gid']}" if oldest["pid"] is None else f"pid {oldest['pid']}"
        name = f" ({oldest['application_name']})" if oldest["application_name"] else ""
        text = f"{session}{name} has been open for {oldest['age_seconds']:.0f} s; WAL is kept from its start on"
        found.append(("transaction", output.plain(text)))
    found += [("failover", output.plain(problem)) for problem in wal["failover_problems"]]
    return found
