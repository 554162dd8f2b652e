"""Reads how loaded the source is, for the load guard of snapshots. Never reads query texts, and needs no superuser.

A commit can only be timed by committing. The probe commits an empty logical message: it touches no table, needs no
right, and waits for the flush and for synchronous standbys as every commit of the role does.

https://www.postgresql.org/docs/18/functions-admin.html#FUNCTIONS-REPLICATION
https://www.postgresql.org/docs/18/monitoring-stats.html#MONITORING-PG-STAT-REPLICATION-VIEW
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Final

import psycopg

from cdc.clock import Clock
from cdc.model.load_reading import LOAD_PREFIX
from cdc.replication.catalog_queries import reading
from cdc.replication.connect import Connection
from cdc.replication.error_mapping import translate

STATISTICS_GRANT: Final = "grant pg_read_all_stats to {}"
_CANCELED: Final = "57014"
_CANCEL_S: Final = 5.0
_COMMIT: Final = "select pg_logical_emit_message(true, %(prefix)s, '')"

# A lag of a standby that is not up to date grows with every answer. Logical walsenders, such as ours, are no standbys.
_STANDBYS: Final = """
select coalesce(nullif(r.application_name, ''), 'pid ' || r.pid),
       extract(epoch from greatest(r.write_lag, r.flush_lag, r.replay_lag))::float8 as lag_s
from pg_stat_replication r
left join pg_replication_slots s on s.active_pid = r.pid
where s.slot_type is distinct from 'logical' and r.application_name <> all(%(ignored)s::text[])
order by lag_s desc nulls last
limit 1
"""

_WAITS: Final = """
select count(*) filter (where wait_event_type in ('IO', 'LWLock', 'BufferPin'))::int4, count(*)::int4
from pg_stat_activity
where backend_type = 'client backend' and state = 'active' and pid <> pg_backend_pid()
  and application_name !~ '^cdc( |$)'
"""

_MAY_READ: Final = "select pg_has_role(current_user, 'pg_read_all_stats', 'usage'), quote_ident(current_user)"


def commit_latency_s(connection: Connection, clock: Clock, *, give_up_s: float) -> float:
    """Commit an empty message and return how long that took; cancelled after `give_up_s`, which ends the wait.

    PostgreSQL commits locally before it waits for a standby, and a statement timeout does not end that wait.

    Raises:
        SourceRefused, SourceUnreachable: the message cannot be written.
    """
    began_s = clock.monotonic_s()
    timer = threading.Timer(give_up_s, _cancel, [connection])
    timer.daemon = True
    timer.start()
    try:
        connection.execute(_COMMIT, {"prefix": LOAD_PREFIX})
    except psycopg.Error as error:
        if error.sqlstate != _CANCELED:
            raise translate(error, "time a commit for the load guard") from error
    finally:
        timer.cancel()
        timer.join(_CANCEL_S)  # a late cancel must not hit the next statement
    return clock.monotonic_s() - began_s


def _cancel(connection: Connection) -> None:
    with contextlib.suppress(psycopg.Error):  # a dead connection is found by the statement itself
        connection.cancel_safe(timeout=_CANCEL_S)


def may_read_statistics(connection: Connection) -> tuple[bool, str]:
    """Return whether the role may read the statistics of other sessions, and its name, quoted."""
    with reading("read the rights of the role"):
        row = connection.execute(_MAY_READ).fetchone()
    assert row is not None
    return row[0], row[1]


def standby_lag(connection: Connection, ignored: Sequence[str]) -> tuple[str, float]:
    """Return the standby that is furthest behind and its lag in seconds; '' and 0 without one."""
    with reading("read the lag of standbys"):
        row = connection.execute(_STANDBYS, {"ignored": list(ignored)}).fetchone()
    return ("", 0.0) if row is None else (row[0], row[1] or 0.0)


def session_waits(connection: Connection) -> tuple[int, int]:
    """Return how many active client sessions wait for I/O or internal locks, and how many are active; without ours."""
    with reading("read what sessions wait for"):
        row = connection.execute(_WAITS).fetchone()
    assert row is not None
    return row[0], row[1]
