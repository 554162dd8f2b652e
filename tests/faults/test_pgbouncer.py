"""PgBouncer does not forward replication: capture reports that before it creates anything (A13)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.pgbouncer import pgbouncer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import PostgresServer


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_pooler_is_a_named_stop_that_says_connect_directly_and_nothing_is_made(
    capture: CaptureSite, postgres: PostgresServer, tmp_path: Path, mode: str
) -> None:
    capture.sql("create table t (id int primary key)")
    with pgbouncer(postgres.dsn, mode, tmp_path) as port:
        through = {"source": {"dsn": capture.dsn.replace(f":{postgres.port}/", f":{port}/")}}
        assert through["source"]["dsn"] != capture.dsn

        stop = capture.daemon(through).stopped_with()

        assert (stop["state"], stop["exit_code"]) == ("MISCONFIGURED", 3)
        assert "connect directly to PostgreSQL" in stop["hint"]
        made = "select count(*) from pg_replication_slots where database = current_database()"
        assert capture.query(made) == [(0,)]
        assert capture.query("select count(*) from pg_publication") == [(0,)]

        found = json.loads(cdc("doctor", "--json", "-c", capture.write_config(through)).out)["findings"]
        said = {one["check"]: one["message"] for one in found if one["level"] == "error"}
        assert "connect directly" in said["replication_connection"]
        assert "pooler" in said
