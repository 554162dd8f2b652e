"""The role of the compose file: what docker/role.sql grants suffices to capture, and is not more."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cdc.model.topic_names import data_topic
from tests.fixtures.servers.commands import psql
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite

FOLDER: Final = Path(__file__).resolve().parents[2] / "docker"
PASSWORD: Final = "a 'quoted' \\ password"


def run_as_the_image_of_postgres_does(dsn: str, text: str, folder: Path) -> None:
    """Run a script with psql, as the image runs the files of /docker-entrypoint-initdb.d."""
    file = folder / "init.sql"
    file.write_text(text, encoding="utf-8")
    command = [psql(), "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--dbname", dsn, "--file", str(file)]
    done = subprocess.run(
        command, env={**os.environ, "CDC_PASSWORD": PASSWORD}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_role_of_the_compose_file_captures_old_and_new_tables_and_can_write_nothing(
    capture: CaptureSite, tmp_path: Path
) -> None:
    role = f"{capture.name}_cdc"
    scripts = [(FOLDER / name).read_text(encoding="utf-8") for name in ("role.sql", "shop.sql")]
    names = {
        "role cdc": f"role {role}",
        "to cdc;": f"to {role};",
        "publication cdc_shop": f"publication {capture.slot}",
    }
    for text in scripts:
        for name, own in names.items():
            text = text.replace(name, own)  # noqa: PLW2901 - roles are shared by all tests of the server
        run_as_the_image_of_postgres_does(capture.dsn, text, tmp_path)
    capture.sql("insert into customers (name) values ('was there before')")
    dsn = make_conninfo(capture.dsn, user=role, password=PASSWORD)
    try:
        (flags,) = capture.query("select rolsuper, rolreplication, rolcreatedb from pg_roles where rolname = %s", role)
        daemon = capture.running({"source": {"dsn": dsn}, "snapshot": {"mode": "initial"}})
        capture.sql("insert into customers (name) values ('Ann')", "create table later (id int primary key)")
        capture.sql("insert into later values (7)")
        until(lambda: any(event.op == "r" for event in capture.log().events), "the row from before is read")
        log = capture.settled(daemon)
        with psycopg.connect(dsn, autocommit=True) as session:
            for statement in (
                "insert into customers (name) values ('x')",
                "drop publication cdc_shop",
                "create table x ()",
            ):
                with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedObject)):
                    session.execute(statement.replace("cdc_shop", capture.slot).encode())
        assert daemon.stop() == 0
    finally:
        capture.end()
        capture.sql(f"drop owned by {role} cascade", f"drop role {role}")

    assert flags == (False, True, False)
    assert set(log.data_topics) == {data_topic(capture.name, "public", table) for table in ("customers", "later")}
