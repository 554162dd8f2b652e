"""Reads what holds WAL on the server, for the WAL guard: a few cheap queries on the guard's own connection.

Never reads query texts.
https://www.postgresql.org/docs/18/monitoring-stats.html#MONITORING-PG-STAT-REPLICATION-SLOTS-VIEW
"""

from __future__ import annotations

from typing import Final

from cdc.lsn import Lsn
from cdc.model.failover import FAILOVER_SINCE, FailoverFacts, StandbySlot
from cdc.model.wal_reading import OpenTransaction, WalReading
from cdc.replication.blockers import blockers
from cdc.replication.catalog_queries import current_wal, reading, wal_settings
from cdc.replication.connect import Connection
from cdc.replication.slot import SlotFacts, slot_facts

_MB: Final = 1 << 20

_SPILL: Final = """
select coalesce(max(spill_txns), 0)::int8, coalesce(max(spill_bytes), 0)::int8,
       (select age(catalog_xmin) from pg_replication_slots where slot_name = %(slot)s)
from pg_stat_replication_slots where slot_name = %(slot)s
"""

_STANDBYS: Final = """
select n.name, s.slot_name is not null, coalesce(s.active, false),
       pg_wal_lsn_diff(pg_current_wal_insert_lsn(), s.restart_lsn)::int8
from (select btrim(given.name, ' "') from regexp_split_to_table(current_setting('synchronized_standby_slots'), ',')
      as given (name)) as n (name)
left join pg_replication_slots s on s.slot_name = n.name and s.slot_type = 'physical'
where n.name <> ''
"""


def wal_reading(connection: Connection, slot: str, *, failover: bool) -> WalReading | None:
    """Return the current reading; None if the slot does not exist. `failover` is the value of `source.failover`."""
    facts = slot_facts(connection, slot)
    if not facts.exists:
        return None
    settings = wal_settings(connection)
    keep_mb = int(settings.get("max_slot_wal_keep_size", "-1"))
    with reading("read the statistics of the slot"):
        spill = connection.execute(_SPILL, {"slot": slot}).fetchone() or (0, 0, None)
    return WalReading(
        slot=slot,
        current_lsn=current_wal(connection),
        confirmed_lsn=facts.confirmed_flush_lsn or Lsn(0),
        restart_lsn=facts.restart_lsn or Lsn(0),
        wal_status=facts.wal_status or "",
        invalidation=facts.invalidation,
        kept_bytes=facts.retained_bytes or 0,
        safe_bytes=facts.safe_wal_size,
        keep_limit_bytes=None if keep_mb < 0 else keep_mb * _MB,
        active_pid=facts.active_pid,
        inactive_s=facts.inactive_s,
        idle_timeout_s=float(settings.get("idle_replication_slot_timeout", "0")),
        catalog_xmin_age=spill[2],
        spill_transactions=spill[0],
        spill_bytes=spill[1],
        oldest=_oldest(connection),
        failover=failover_facts(connection, facts, wanted=failover),
    )


def failover_facts(connection: Connection, slot: SlotFacts, *, wanted: bool) -> FailoverFacts:
    """Return what the primary knows about failover; read only if it is `wanted`."""
    if not wanted or connection.info.server_version // 10000 < FAILOVER_SINCE:
        return FailoverFacts(wanted=wanted, slot_failover=False)
    with reading("read the slots of standbys"):
        rows = connection.execute(_STANDBYS).fetchall()
    return FailoverFacts(wanted=True, slot_failover=slot.failover, standbys=tuple(StandbySlot(*row) for row in rows))


def _oldest(connection: Connection) -> OpenTransaction | None:
    found = blockers(connection)
    if not found:
        return None
    oldest = found[0]
    return OpenTransaction(oldest.pid, oldest.gid, oldest.application_name, oldest.age_s)
