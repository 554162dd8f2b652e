"""Reads the evidence in PostgreSQL: the slot and its reader, open transactions, locks, clocks. Never raises."""

from __future__ import annotations

import threading
from typing import Final

import psycopg

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import SourceUnreachable, TailraceError
from cdc.lsn import Lsn
from cdc.replication.catalog_queries import reading
from cdc.replication.connect import Connection, connect, deadline
from cdc.replication.slot import SlotFacts, slot_facts
from cdc.replication.source_activity import lock_waits, open_writers, sender, server_time_s, sessions, table_locks
from cdc.replication.wal_pressure import wal_reading
from cdc.telemetry.wal_status import room_in
from cdc.why.evidence import Failure, SourceEvidence
from cdc.why.reach import reach_source
from cdc.why.source_rules import OURS

ANSWER_S: Final = 6.0
"""For all queries together; they take milliseconds."""

_RATE_S: Final = 0.5
"""Between two readings of the slot, from which the rates are computed."""


def read_source(config: Config, clock: Clock) -> SourceEvidence:
    """Return what PostgreSQL shows, or why it does not answer."""
    try:
        connection = connect(config.source.dsn, application_name="cdc why")
    except TailraceError as error:
        return SourceEvidence(failure=Failure.of(error), reach=reach_source(config.source.dsn, clock))
    try:
        with deadline(connection, ANSWER_S):
            return _read(config, connection, clock)
    except TailraceError as error:
        return SourceEvidence(failure=Failure.of(error), reach=reach_source(config.source.dsn, clock))
    except psycopg.Error as error:
        failure = Failure.of(SourceUnreachable(f"the connection to PostgreSQL broke: {type(error).__name__}"))
        return SourceEvidence(failure=failure, reach=reach_source(config.source.dsn, clock))
    finally:
        connection.close()


def _read(config: Config, connection: Connection, clock: Clock) -> SourceEvidence:
    began_s = clock.monotonic_s()
    ahead_s = server_time_s(connection) - clock.wall_s()
    round_trip_s = clock.monotonic_s() - began_s
    before, before_s = _end_and_slot(config, connection), clock.monotonic_s()
    wal = wal_reading(connection, config.slot, failover=False)
    writers, locks = open_writers(connection), table_locks(connection)
    clock.wait(threading.Event(), _RATE_S)
    waits = lock_waits(connection, OURS)
    (end, slot), now_s = _end_and_slot(config, connection), clock.monotonic_s()
    reader = slot.active_pid
    holders = sessions(connection, [reader]) if reader is not None else []
    span_s = max(0.001, now_s - before_s)
    return SourceEvidence(
        answers=True,
        slot=slot,
        room=None if wal is None else room_in(wal, config.source.wal_alarm_bytes),
        holder=holders[0] if holders else None,
        sender=None if reader is None else sender(connection, reader),
        writers=tuple(writers),
        locks=tuple(locks),
        lock_waits=tuple(waits),
        wal_rate=max(0, end - before[0]) / span_s,
        confirmed_rate=_gained(before[1], slot) / span_s,
        clock_s=ahead_s,
        round_trip_s=round_trip_s,
    )


def _end_and_slot(config: Config, connection: Connection) -> tuple[Lsn, SlotFacts]:
    with reading("read the WAL position"):
        row = connection.execute(
            "select coalesce(case when pg_is_in_recovery() then pg_last_wal_receive_lsn() "
            "else pg_current_wal_insert_lsn() end, '0/0')::text"
        ).fetchone()
    assert row is not None
    return Lsn.parse(row[0]), slot_facts(connection, config.slot)


def _gained(before: SlotFacts, now: SlotFacts) -> int:
    if before.confirmed_flush_lsn is None or now.confirmed_flush_lsn is None:
        return 0
    return max(0, now.confirmed_flush_lsn - before.confirmed_flush_lsn)
