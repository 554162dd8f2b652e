"""Reads the sessions, locks and senders of PostgreSQL that may keep capture waiting. Never reads query texts.

https://www.postgresql.org/docs/18/monitoring-stats.html#MONITORING-PG-STAT-ACTIVITY-VIEW
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cdc.replication.blockers import Blocker, blockers
from cdc.replication.catalog_queries import reading
from cdc.replication.connect import Connection

_LOCKS_MAX: Final = 20

_SESSIONS: Final = """
select a.pid, coalesce(a.application_name, ''), coalesce(a.state, ''),
       coalesce(extract(epoch from now() - a.xact_start), 0)::float8,
       extract(epoch from now() - a.query_start)::float8,
       coalesce(a.wait_event_type || '/' || a.wait_event, ''), coalesce(host(a.client_addr), 'a local socket'),
       coalesce(extract(epoch from now() - a.backend_start), 0)::float8
from pg_stat_activity a where a.pid = any(%(pids)s)
"""

# A mode that conflicts with reading a table, and its holder: a prepared transaction has no pid.
_TABLE_LOCKS: Final = """
select c.oid::regclass::text, l.pid, coalesce(p.gid, '')
from pg_locks l
join pg_class c on c.oid = l.relation and c.relkind in ('r', 'p')
left join pg_locks x on l.pid is null and x.virtualtransaction = l.virtualtransaction and x.locktype = 'transactionid'
left join pg_prepared_xacts p on p.transaction = x.transactionid
where l.granted and l.mode = 'AccessExclusiveLock' and l.pid is distinct from pg_backend_pid()
  and l.database = (select oid from pg_database where datname = current_database())
order by 1, 2
limit %(most)s
"""

_LOCK_WAITS: Final = """
select a.pid, coalesce(a.application_name, ''), extract(epoch from clock_timestamp() - a.query_start)::float8,
       coalesce((pg_blocking_pids(a.pid))[1], 0)
from pg_stat_activity a
where a.datname = current_database() and a.wait_event_type = 'Lock' and starts_with(a.application_name, %(name)s)
order by a.query_start
limit %(most)s
"""

_SENDER: Final = """
select r.state, coalesce(extract(epoch from r.write_lag), 0)::float8,
       coalesce(extract(epoch from r.flush_lag), 0)::float8,
       coalesce(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), r.sent_lsn), 0)::int8
from pg_stat_replication r where r.pid = %(pid)s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session, or a prepared transaction (`gid`, without a pid).

    Attributes:
        age_s: age of its transaction; 0 if there is none, or if our role may not see it.
        query_age_s: time since its last statement began; None if unknown.
        wait: what it waits for, as ``Client/ClientRead``; empty if nothing.
        remedy: the statement that ends it.
    """

    pid: int | None
    gid: str = ""
    application_name: str = ""
    database: str = ""
    state: str = ""
    age_s: float = 0.0
    query_age_s: float | None = None
    wait: str = ""
    client: str = ""
    connected_s: float = 0.0
    remedy: str = ""

    @property
    def prepared(self) -> bool:
        """Whether it is a prepared transaction."""
        return self.pid is None

    @property
    def what(self) -> str:
        """A short name: ``pid 4711 (psql)``, ``prepared transaction 'x'``."""
        if self.pid is None:
            return f"prepared transaction {self.gid!r}"
        return f"pid {self.pid} ({self.application_name})" if self.application_name else f"pid {self.pid}"


@dataclass(frozen=True, slots=True)
class TableLock:
    """A lock in mode ACCESS EXCLUSIVE on a table of this database; `table` is quoted as in SQL."""

    table: str
    holder: Session


@dataclass(frozen=True, slots=True)
class LockWait:
    """A session that waits for a lock: its application, for how long, and the first session in its way."""

    application_name: str
    waits_s: float
    blocker: Session


@dataclass(frozen=True, slots=True)
class Sender:
    """The walsender that reads the slot: times that the reader needs to acknowledge, and WAL that it was not sent."""

    state: str
    write_lag_s: float
    flush_lag_s: float
    unsent_bytes: int


def open_writers(connection: Connection) -> list[Session]:
    """Return the open write transactions of the cluster, oldest first, a bounded number; also prepared ones."""
    found = [_writer(one) for one in blockers(connection)]
    details = {one.pid: one for one in sessions(connection, [one.pid for one in found if one.pid is not None])}
    return [
        replace(
            one,
            query_age_s=details[one.pid].query_age_s,
            wait=details[one.pid].wait,
            client=details[one.pid].client,
        )
        if one.pid in details
        else one
        for one in found
    ]


def sessions(connection: Connection, pids: Sequence[int]) -> list[Session]:
    """Return what is known of these processes; those that have ended are left out."""
    if not pids:
        return []
    with reading("read sessions"):
        rows = connection.execute(_SESSIONS, {"pids": list(pids)}).fetchall()
    return [
        Session(
            pid=pid,
            application_name=name,
            state=state,
            age_s=age_s,
            query_age_s=query_age_s,
            wait=wait,
            client=client,
            connected_s=connected_s,
            remedy=f"select pg_terminate_backend({pid});",
        )
        for pid, name, state, age_s, query_age_s, wait, client, connected_s in rows
    ]


def table_locks(connection: Connection) -> list[TableLock]:
    """Return the locks that keep others from reading a table, a bounded number."""
    with reading("read locks"):
        rows = connection.execute(_TABLE_LOCKS, {"most": _LOCKS_MAX}).fetchall()
    known = {one.pid: one for one in sessions(connection, [pid for _, pid, _ in rows if pid is not None])}
    return [
        TableLock(table, known.get(pid) or _writer(Blocker(pid, gid, "", "", "prepared" if pid is None else "", 0.0)))
        for table, pid, gid in rows
    ]


def lock_waits(connection: Connection, application_name: str) -> list[LockWait]:
    """Return the sessions that wait for a lock and whose application name begins so, oldest first, a bounded number."""
    with reading("read waiting sessions"):
        rows = connection.execute(_LOCK_WAITS, {"name": application_name, "most": _LOCKS_MAX}).fetchall()
    known = {one.pid: one for one in sessions(connection, [blocker for *_, blocker in rows if blocker])}
    return [
        LockWait(name, waits_s, known.get(blocker) or _writer(Blocker(None, "", "", "", "prepared", 0.0)))
        for _, name, waits_s, blocker in rows
    ]


def sender(connection: Connection, pid: int) -> Sender | None:
    """Return the walsender of a process; None if it has none."""
    with reading("read walsenders"):
        row = connection.execute(_SENDER, {"pid": pid}).fetchone()
    return None if row is None else Sender(*row)


def server_time_s(connection: Connection) -> float:
    """Return the server's clock, in seconds since 1970."""
    with reading("read the clock"):
        row = connection.execute("select extract(epoch from clock_timestamp())::float8").fetchone()
    assert row is not None
    return float(row[0])


def _writer(one: Blocker) -> Session:
    return Session(
        pid=one.pid,
        gid=one.gid,
        application_name=one.application_name,
        database=one.database,
        state=one.state,
        age_s=one.age_s,
        remedy=one.remedy,
    )
