"""Reads, creates and drops the replication slot. Creating it has a deadline.

A slot is created by hand or by `create_slot`, never as a side effect, and dropped only on request. Between two slots,
changes are lost to the log.

https://www.postgresql.org/docs/18/view-pg-replication-slots.html
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from cdc.clock import Clock, SystemClock
from cdc.errors import SlotBlocked, SlotHeld, SourceRefused, SourceUnreachable, TailraceError
from cdc.lsn import Lsn
from cdc.replication.blockers import Blocker, blockers
from cdc.replication.catalog_queries import reading
from cdc.replication.connect import Connection
from cdc.replication.error_mapping import translate

PLUGIN: Final = "pgoutput"
_POLL_S: Final = 0.2  # how late a stop may be noticed
_REPORT_S: Final = 1.0  # how often `progress` is called during the wait
_CANCEL_S: Final = 5.0

# Columns and the first major version that has them; for older ones they are null, of the same type.
_SINCE: Final[dict[str, tuple[int, str]]] = {
    "invalidation_reason": (17, "null::text"),
    "inactive_since": (17, "null::timestamptz"),
    "inactive_s": (17, "null::float8"),
    "failover": (17, "false"),
    "synced": (17, "false"),
}
_COMPUTED: Final = {"inactive_s": "extract(epoch from now() - s.inactive_since)::float8"}  # by the server's clock

_SLOTS: Final = """
select s.slot_name::text, s.plugin::text, s.slot_type, s.database::text, s.temporary, s.active_pid,
       s.restart_lsn::text, s.confirmed_flush_lsn::text, s.wal_status, s.safe_wal_size, s.two_phase,
       pg_wal_lsn_diff(w.at, s.restart_lsn)::int8, pg_wal_lsn_diff(w.at, s.confirmed_flush_lsn)::int8,
       {invalidation_reason}, {inactive_since}, {failover}, {synced}, {inactive_s}
from pg_replication_slots s
cross join (select case when pg_is_in_recovery() then pg_last_wal_receive_lsn()
                        else pg_current_wal_insert_lsn() end) as w (at)
where %(name)s::text is null or s.slot_name = %(name)s
order by s.slot_name
"""

_CREATE: Final = """
select lsn::text from pg_create_logical_replication_slot(%(name)s::name, %(plugin)s::name, false, false)
"""
_CREATE_FAILOVER: Final = """
select lsn::text from pg_create_logical_replication_slot(%(name)s::name, %(plugin)s::name, false, false, true)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """A row of pg_replication_slots. For a slot that does not exist, `exists` is False and nothing else is set.

    Attributes:
        retained_bytes: WAL that the server keeps because of it (from restart_lsn).
        lag_bytes: WAL behind the acknowledged position (from confirmed_flush_lsn).
        safe_wal_size: bytes until it may be lost; None without max_slot_wal_keep_size.
        invalidation: PostgreSQL's word for why it can never be read again; empty if it can.
        inactive_since: since PostgreSQL 17; `inactive_s` is how long ago that was.
    """

    name: str
    exists: bool = True
    plugin: str | None = None
    slot_type: str = "logical"
    database: str | None = None
    temporary: bool = False
    active_pid: int | None = None
    restart_lsn: Lsn | None = None
    confirmed_flush_lsn: Lsn | None = None
    wal_status: str | None = None
    safe_wal_size: int | None = None
    two_phase: bool = False
    retained_bytes: int | None = None
    lag_bytes: int | None = None
    invalidation: str = ""
    inactive_since: datetime | None = None
    failover: bool = False
    synced: bool = False
    inactive_s: float | None = None

    @property
    def being_made(self) -> bool:
        """Whether a session still waits for its consistent point. Until then plugin and position are not reliable."""
        return self.exists and self.slot_type == "logical" and self.confirmed_flush_lsn is None

    @property
    def usable(self) -> bool:
        """Whether it exists and can be read from."""
        return self.exists and not self.invalidation


@dataclass(frozen=True, slots=True)
class CreationWatch:
    """Monitors the creation of a slot, in a thread of its own.

    Attributes:
        connection: a second session, not used by anything else meanwhile.
        progress: called about once a second with the transactions that block the slot.
        stop: when set, the attempt is given up.
    """

    connection: Connection
    progress: Callable[[Sequence[Blocker]], None]
    stop: threading.Event
    clock: Clock = field(default_factory=SystemClock)


def slot_facts(connection: Connection, name: str) -> SlotFacts:
    """Return the current slot of that name."""
    with reading(f"read slot {name!r}"):
        rows = _rows(connection, name)
    return rows[0] if rows else SlotFacts(name=name, exists=False, slot_type="")


def list_slots(connection: Connection) -> list[SlotFacts]:
    """Return every slot of the server, by name, including those of other programs."""
    with reading("list slots"):
        return _rows(connection, None)


def creation_statement(name: str, *, failover: bool) -> str:
    """Return the statement that creates the slot by hand. The name of a slot needs no quoting."""
    options = ", failover => true" if failover else ""
    return f"select pg_create_logical_replication_slot('{name}', '{PLUGIN}'{options});"


def create_slot(
    connection: Connection, name: str, timeout_s: float, watch: CreationWatch | None = None, *, failover: bool = False
) -> Lsn:
    """Create the slot and return its consistent point: the stream has every transaction committed from there on.

    With `failover` it is synchronised to standbys, which requires PostgreSQL 17.

    PostgreSQL waits until all transactions that are writing now have ended. After `timeout_s` nothing is left of the
    slot, and SlotBlocked names the transactions. `connection` is in autocommit and not inside a transaction.

    Check first whether the slot exists: an existing slot here means that another session created it just now. Raises
    SourceUnreachable then, and if `watch.stop` is set meanwhile; SourceRefused if privileges or settings do not allow
    it.
    """
    done = threading.Event()
    watcher = None
    if watch is not None:
        watcher = threading.Thread(target=_keep_watch, args=(watch, connection, done), name="slot-watch", daemon=True)
        watcher.start()
    try:
        return _create(connection, name, timeout_s, _CREATE_FAILOVER if failover else _CREATE)
    except psycopg.errors.QueryCanceled as error:
        if watch is not None and watch.stop.is_set():
            raise SourceUnreachable(f"stopped while slot {name!r} was being created", slot=name) from error
        raise _timed_out(connection, name, timeout_s) from error
    except psycopg.Error as error:
        raise translate(error, f"create slot {name!r}", slot=name) from error
    finally:
        done.set()
        if watcher is not None:
            watcher.join()


def drop_slot(connection: Connection, name: str) -> None:
    """Drop the slot for good. Raises SlotHeld while it is being read from, SourceRefused if it does not exist."""
    facts = slot_facts(connection, name)
    if not facts.exists:
        raise SourceRefused(f"slot {name!r} does not exist", command="cdc slot list", slot=name)
    if facts.active_pid is not None:
        raise held(facts)
    try:
        connection.execute("select pg_drop_replication_slot(%(name)s::name)", {"name": name})
    except psycopg.Error as error:
        raise translate(error, f"drop slot {name!r}", slot=name) from error


def held(facts: SlotFacts) -> SlotHeld:
    """Return the error for a slot that another process reads from or creates."""
    if facts.being_made:
        return SlotHeld(
            f"slot {facts.name!r} is being created by the process with pid {facts.active_pid} on the server",
            hint="its creation waits for open write transactions, and this start waits for its creation",
            command="cdc slot list",
            slot=facts.name,
            pid=facts.active_pid,
        )
    return SlotHeld(
        f"slot {facts.name!r} is in use by the process with pid {facts.active_pid} on the server",
        hint="stop that reader first; a Tailrace daemon stops at SIGTERM",
        command=f"select pg_terminate_backend({facts.active_pid});",
        slot=facts.name,
        pid=facts.active_pid,
    )


def _create(connection: Connection, name: str, timeout_s: float, statement: LiteralString) -> Lsn:
    """Run one statement in its own transaction: a slot cannot be created in a transaction that has written (25001)."""
    before = connection.execute("select current_setting('statement_timeout')").fetchone()
    assert before is not None
    _set_timeout(connection, f"{max(1, int(timeout_s * 1000))}ms")
    try:
        row = connection.execute(statement, {"name": name, "plugin": PLUGIN}).fetchone()
    finally:
        if not connection.closed:
            _set_timeout(connection, before[0])
    assert row is not None
    return Lsn.parse(row[0])


def _set_timeout(connection: Connection, value: str) -> None:
    connection.execute("select set_config('statement_timeout', %(value)s, false)", {"value": value})


def _timed_out(connection: Connection, name: str, timeout_s: float) -> SlotBlocked:
    """Return the error, after making sure that nothing is left of the slot."""
    facts = slot_facts(connection, name)
    if facts.exists and facts.confirmed_flush_lsn is None and facts.active_pid is None:
        drop_slot(connection, name)
    found = blockers(connection)
    named = "; ".join(blocker.what for blocker in found) or "these have ended by now"
    return SlotBlocked(
        f"slot {name!r} could not be created within {timeout_s:g} s: it waits for open write transactions: {named}",
        hint="end them, or raise source.slot_create_timeout_s; no part of the slot was left behind",
        command=found[0].remedy if found else "",
        slot=name,
        blockers=[blocker.pid or blocker.gid for blocker in found],
    )


def _keep_watch(watch: CreationWatch, creating: Connection, done: threading.Event) -> None:
    reported_s = watch.clock.monotonic_s()
    while not watch.clock.wait(done, _POLL_S):
        try:
            if watch.stop.is_set():
                creating.cancel_safe(timeout=_CANCEL_S)
                return
            if watch.clock.monotonic_s() - reported_s >= _REPORT_S:
                reported_s = watch.clock.monotonic_s()
                watch.progress(blockers(watch.connection))
        except (TailraceError, psycopg.Error):
            return  # the session that creates the slot reports the same error


def _rows(connection: Connection, name: str | None) -> list[SlotFacts]:
    major = connection.info.server_version // 10000
    columns = {
        column: sql.SQL(_COMPUTED.get(column, f"s.{column}") if major >= since else missing)
        for column, (since, missing) in _SINCE.items()
    }
    query = sql.SQL(_SLOTS).format(**columns)
    return [_facts(row) for row in connection.execute(query, {"name": name}).fetchall()]


def _facts(row: tuple[Any, ...]) -> SlotFacts:
    wal_status, reason = row[8], row[13]
    if reason is None and wal_status == "lost":
        reason = "wal_removed"  # servers before 17 give no reason; on a primary this is the only one
    return SlotFacts(
        name=row[0],
        plugin=row[1],
        slot_type=row[2],
        database=row[3],
        temporary=row[4],
        active_pid=row[5],
        restart_lsn=Lsn.parse(row[6]) if row[6] else None,
        confirmed_flush_lsn=Lsn.parse(row[7]) if row[7] else None,
        wal_status=wal_status,
        safe_wal_size=row[9],
        two_phase=row[10],
        retained_bytes=row[11],
        lag_bytes=row[12],
        invalidation=reason or "",
        inactive_since=row[14],
        failover=row[15],
        synced=row[16],
        inactive_s=row[17],
    )
