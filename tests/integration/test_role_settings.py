"""Settings that an administrator gave to a role or database: none of them ends or changes capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cdc.lsn import Lsn
from tests.fixtures.capture.snapshot_waits import INITIAL, differences
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite

_SETTINGS: Final = {
    "statement_timeout": "300ms",
    "lock_timeout": "100ms",
    "idle_in_transaction_session_timeout": "200ms",
    "idle_session_timeout": "1s",
    "transaction_timeout": "200ms",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "standard_conforming_strings": "off",
    "bytea_output": "escape",
    "datestyle": "German",
}
_ROWS: Final = 40_000


def test_settings_of_the_database_do_not_reach_capture(capture: CaptureSite) -> None:
    capture.sql(
        "create table t (id int primary key, at date not null, b bytea not null)",
        "insert into t select n, date '2026-11-28', 'a'::bytea from generate_series(1, 1000) n",
        "create table keyless (a int)",
        "insert into keyless select n from generate_series(1, 1000) n",
    )
    with capture.connect() as admin:
        known = {name for (name,) in admin.execute("select name from pg_settings")}
        database = admin.execute("select quote_ident(current_database())").fetchall()[0][0]
        for name in _SETTINGS.keys() & known:
            admin.execute(f"alter database {database} set {name} = '{_SETTINGS[name]}'".encode())

        daemon = capture.running({**INITIAL, "source": {"keyless": ["public.keyless"]}})
        until(lambda: daemon.events("snapshot_complete"), "the snapshot")
        admin.execute(f"insert into t select n, '2026-11-28', 'b' from generate_series(1001, {_ROWS}) n".encode())
        daemon.until_position(Lsn.parse(admin.execute("select pg_current_wal_insert_lsn()").fetchall()[0][0]))
        admin.execute(f"alter database {database} reset all".encode())
    log = capture.settled(daemon)

    assert not differences(capture, log, "t").any
    assert len(log.topic(capture.topic("keyless"))) == 1000
    assert not [event for event in daemon.events() if event["event"] in {"capture_waiting", "capture_stopped"}]
