"""A reading of the WAL guard. Values only; `cdc.replication.wal_pressure` reads them from the server."""

from __future__ import annotations

from dataclasses import dataclass

from cdc.lsn import Lsn
from cdc.model.failover import NO_FAILOVER, FailoverFacts


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The oldest writing transaction: WAL is kept from its beginning on.

    Its query is never read, because it contains values. For a prepared transaction `pid` is None and `gid` its name.
    `age_s` is 0 if our role cannot see it.
    """

    pid: int | None
    gid: str
    application_name: str
    age_s: float

    @property
    def what(self) -> str:
        """The name in messages: ``pid 4711 (psql)``, ``prepared transaction 'x'``."""
        if self.pid is None:
            return f"prepared transaction {self.gid!r}"
        return f"pid {self.pid} ({self.application_name})" if self.application_name else f"pid {self.pid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WalReading:
    """One reading of the slot and of what keeps WAL.

    Attributes:
        current_lsn: the server's insert position.
        invalidation: PostgreSQL's reason why the slot can never be read again; empty if it can.
        kept_bytes: WAL from restart_lsn to the current position.
        safe_bytes: WAL that may be written before the slot is in danger; None without a limit.
        keep_limit_bytes: max_slot_wal_keep_size; None without a limit.
        active_pid: the process that reads the slot.
        inactive_s: how long no process has read the slot; None while one does, and before PostgreSQL 17.
        idle_timeout_s: idle_replication_slot_timeout; 0: none.
        catalog_xmin_age: transactions since the slot's catalog_xmin; None when it has none.
        spill_transactions: transactions whose changes decoding wrote to disk, since the counters were reset.
    """

    slot: str
    current_lsn: Lsn
    confirmed_lsn: Lsn
    restart_lsn: Lsn
    wal_status: str
    invalidation: str
    kept_bytes: int
    safe_bytes: int | None
    keep_limit_bytes: int | None
    active_pid: int | None = None
    inactive_s: float | None = None
    idle_timeout_s: float = 0.0
    catalog_xmin_age: int | None = None
    spill_transactions: int = 0
    spill_bytes: int = 0
    oldest: OpenTransaction | None = None
    failover: FailoverFacts = NO_FAILOVER
