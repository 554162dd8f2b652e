"""Lists open write transactions, also prepared ones: they delay a new slot. Knows the statements that end them.

A slot begins at a moment when no transaction that was open before it still writes, in any database of the cluster.
Query texts are never read, because they contain row values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from cdc.replication.catalog_queries import reading
from cdc.replication.connect import Connection

_SHOWN: Final = 5

# Every role may read pg_locks; pg_stat_activity hides backend_xid and ages of other roles' sessions.
_BLOCKERS: Final = """
with writer as (
    select distinct pid from pg_locks
    where locktype = 'transactionid' and mode = 'ExclusiveLock' and granted and pid <> pg_backend_pid()
)
select w.pid, '' as gid, coalesce(a.datname, ''), coalesce(a.application_name, ''), coalesce(a.state, 'open'),
       coalesce(extract(epoch from now() - a.xact_start), 0)::float8 as age_s
from writer w left join pg_stat_activity a on a.pid = w.pid
union all
select null, p.gid, p.database, '', 'prepared', extract(epoch from now() - p.prepared)::float8
from pg_prepared_xacts p
order by age_s desc
limit %(most)s
"""


_HOLDERS: Final = """
select l.transactionid::text::int8, l.pid, coalesce(p.gid, ''), coalesce(a.datname, p.database, ''),
       coalesce(a.application_name, ''), case when l.pid is null then 'prepared' else coalesce(a.state, 'open') end,
       coalesce(extract(epoch from now() - coalesce(a.xact_start, p.prepared)), 0)::float8
from pg_locks l
left join pg_stat_activity a on a.pid = l.pid
left join pg_prepared_xacts p on p.transaction = l.transactionid
where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted
  and l.transactionid::text::int8 = any(%(xids)s)
"""


@dataclass(frozen=True, slots=True)
class Blocker:
    """An open write transaction of a session (`pid`), or a prepared one (`gid`). `age_s` is 0 if unknown."""

    pid: int | None
    gid: str
    database: str
    application_name: str
    state: str
    age_s: float

    @property
    def what(self) -> str:
        """A description: ``pid 4711 (psql), idle in transaction, open for 61 s``."""
        if self.pid is None:
            return f"prepared transaction {self.gid!r} of database {self.database!r}, {self.age_s:.0f} s old"
        name = f" ({self.application_name})" if self.application_name else ""
        age = f", open for {self.age_s:.0f} s" if self.age_s else ""
        return f"pid {self.pid}{name}, {self.state}{age}"

    @property
    def remedy(self) -> str:
        """The statement that ends it. A prepared transaction must be ended in its own database."""
        if self.pid is None:
            return sql.SQL("rollback prepared {};").format(sql.Literal(self.gid)).as_string(None)
        return f"select pg_terminate_backend({self.pid});"


def blockers(connection: Connection) -> list[Blocker]:
    """Return what would delay a new slot now, oldest first, a bounded number."""
    with reading("list open transactions"):
        rows = connection.execute(_BLOCKERS, {"most": _SHOWN}).fetchall()
    return [Blocker(*row) for row in rows]


def holders(connection: Connection, xids: Sequence[int]) -> dict[int, str]:
    """Return a description of the holder of each 32-bit transaction id. Ids that are no longer held are left out."""
    with reading("list open transactions"):
        rows = connection.execute(_HOLDERS, {"xids": list(xids)}).fetchall()
    return {xid: Blocker(*rest).what for xid, *rest in rows}
