"""Outbox rows are deleted only after Kafka has their events, and nothing else changes."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import psycopg
from msgspec import convert

from cdc.clock import SystemClock
from cdc.config.outbox_settings import Outbox
from cdc.config.secret import Secret
from cdc.lsn import Lsn
from cdc.replication.connect import connect
from outbox.pruner import Pruner
from tests.fixtures.outbox.outbox_events import event, made, numbers
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Sections

_NOW: Final[Sections] = {"outbox": {"prune": "delete", "keep_s": 0, "prune_interval_s": 0.1}}


def test_rows_are_deleted_when_kafka_has_them_and_partitions_dropped_and_made(capture: CaptureSite) -> None:
    today = datetime.now(UTC).date()
    old = today - timedelta(days=3)
    capture.sql(*made(partitioned=True, days=[old, today]))
    dropping: Sections = {"outbox": {"prune": "drop", "keep_s": 3600, "prune_interval_s": 0.1, "partitions_ahead": 2}}
    daemon = capture.running(dropping)
    capture.sql(event(1).insert(created_at=f"'{old} 12:00+00'"), event(2).insert())

    until(lambda: f"outbox_p{old:%Y%m%d}" not in parts(capture), "the old day is dropped")
    days = [f"outbox_p{today + timedelta(days=ahead):%Y%m%d}" for ahead in range(3)]
    until(lambda: parts(capture) == ["outbox_default", *days], "days are made ahead")
    gone = f"outbox.outbox_p{old:%Y%m%d}"
    until(lambda: capture.query("select to_regclass(%s)", gone) == [(None,)], "the detached day is dropped")
    assert numbers(capture.settled(daemon), capture) == [1, 2]
    daemon.stop()
    # One, or two: the old day may have been dropped before its row came, which then went into the default partition.
    ((left,),) = capture.query("select count(*) from outbox.outbox")
    daemon = capture.running(_NOW)
    capture.sql(event(3).insert())
    until(lambda: capture.query("select count(*) from outbox.outbox") == [(0,)], "rows are deleted")

    assert numbers(capture.settled(daemon), capture) == [1, 2, 3]
    until(lambda: (daemon.status()["outbox"] or {}).get("pruned_rows") == left + 1, "that is told")


def test_nothing_goes_that_kafka_does_not_have(capture: CaptureSite) -> None:
    capture.sql(*made(), event(1).insert())
    durable = [Lsn(0)]
    [(oid,)] = capture.query("select 'outbox.outbox'::regclass::oid::int8")
    settings = convert({"prune": "delete", "keep_s": 0}, Outbox)
    with (
        closing(connect(Secret(capture.dsn))) as connection,
        closing(connect(Secret(capture.dsn))) as other,
        closing(psycopg.connect(capture.dsn)) as open_session,
    ):
        open_session.execute(event(2).insert().encode())
        pruner, rival = (
            Pruner(settings, oid, lambda: durable[0], SystemClock(), threading.Event(), partitioned=False)
            for _ in range(2)
        )

        def pruned_when_all_is_durable() -> int:
            durable[0] = capture.wal()  # the server may write more WAL before the pruner asks for its end
            return pruner.turn(connection).rows

        assert pruner.turn(connection).rows == 0, "the log has nothing"
        durable[0] = capture.wal()
        assert rival.turn(other).rows == 0, "one prunes at a time"

        waiting = threading.Thread(target=open_session.commit)
        until(lambda: pruned_when_all_is_durable() == 1, "the first event goes")
        waiting.start()
        waiting.join()
        assert pruner.turn(connection).rows == 0, "this one was committed behind what the log has"
        until(lambda: pruned_when_all_is_durable() == 1, "the second event goes")


def test_rows_of_a_table_that_inherits_from_the_outbox_are_not_deleted(capture: CaptureSite) -> None:
    """They are not in the outbox's publication, so Kafka does not have them."""
    capture.sql(
        *made(),
        "create table outbox.heir () inherits (outbox.outbox)",
        event(1).insert(),
        event(2).insert().replace("outbox.outbox", "outbox.heir"),
    )
    [(oid,)] = capture.query("select 'outbox.outbox'::regclass::oid::int8")
    settings = convert({"prune": "delete", "keep_s": 0}, Outbox)
    with closing(connect(Secret(capture.dsn))) as connection:
        pruner = Pruner(settings, oid, capture.wal, SystemClock(), threading.Event(), partitioned=False)

        until(lambda: pruner.turn(connection).rows == 1, "what is written to the WAL since is behind it")

    assert capture.query("select (select count(*) from only outbox.outbox), (select count(*) from outbox.heir)") == [
        (0, 1)
    ]


def parts(capture: CaptureSite) -> list[str]:
    """The partitions of the outbox."""
    query = "select inhrelid::regclass::text from pg_inherits where inhparent = 'outbox.outbox'::regclass order by 1"
    return [name.removeprefix("outbox.") for (name,) in capture.query(query)]
