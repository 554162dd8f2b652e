"""The disk of PostgreSQL is full: capture waits and continues, and the log is exact (A10)."""

from __future__ import annotations

import subprocess
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from cdc.artifacts.machine import Machine
from cdc.errors import LocalError
from cdc.local.local_server import ServerOptions
from cdc.local.stack import Stack
from tests.faults.test_why import assert_first
from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.workload import KEYS, SCHEMA, writing
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.first_cause import first_cause, listening, newest_config
from tests.fixtures.servers.running_servers import _in_containers, _run_name, postgres_major
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.local.postgres_server import Postgres
    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import KafkaServer

_DISK: Final = "192m"
_SETTINGS: Final = {"min_wal_size": "32MB", "max_wal_size": "64MB", "wal_sender_timeout": "3s"}
_ROWS: Final = "insert into bulk (n) select g from generate_series(1, 20000) g"
_WAL: Final = "select pg_logical_emit_message(false, 'other', repeat('x', 1000000))"
_BLOCK: Final = b"\0" * (1 << 20)


@pytest.fixture
def small(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """A PostgreSQL server whose data lie on a small disk of their own."""
    if _in_containers():
        pytest.skip("the data folder of a container is not ours")
    name = f"{_run_name(request.config)}-{uuid.uuid4().hex[:6]}"
    options = ServerOptions(fast_start=True, settings=_SETTINGS, version=postgres_major())
    stack = Stack(name, ("postgres",), options={"postgres": options})
    home = Machine.here().folder(stack.postgres.home)
    try:
        with mounted(home):
            try:
                stack.up()
                yield stack.postgres
            finally:
                stack.down("kill")
    finally:
        stack.down("kill", wipe=True)


@contextmanager
def mounted(folder: Path) -> Iterator[None]:
    """A tmpfs there. Skips where we may not mount one."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK},mode=755", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount(8) here")
    if done.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_capture_survives_a_full_disk_of_the_source_and_loses_nothing(
    small: Postgres, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    with capture_site(topic_prefix, small.dsn, kafka.bootstrap, tmp_path) as site:
        site.sql(*SCHEMA)
        oracle = site.oracle()
        daemon = site.running()
        with writing(site.dsn, seed(), bulk_rows=50) as work:
            until(lambda: work.transactions > 50, "the writers write")
        daemon.until_position(site.wal())

        filler = fill(small.home / "filler")
        told = until(lambda: refusal(site, _ROWS), "the server says that its disk is full", within_s=60)
        ended = until(lambda: refusal(site, _WAL), "the server has no room for WAL, and ends", within_s=60)
        until(lambda: not small.ready(), "it is down")
        assert daemon.until_state("WAITING")["reason"] == "source", (told, ended)
        filler.unlink()
        until(lambda: up(small), "the server is back", within_s=60, every_s=0.5)
        with writing(site.dsn, seed() + 1, bulk_rows=50) as work:
            until(lambda: work.transactions > 50, "the writers write again")
        log = site.settled(daemon, 120)

        assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []
        assert daemon.state() in {"RUNNING", "CATCHING_UP"}
        assert daemon.stop() == 0


def test_full_disk_of_the_source_is_named_first(
    small: Postgres, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    """PostgreSQL has room for its WAL, but none to spill a transaction that capture must decode."""
    with capture_site(topic_prefix, small.dsn, kafka.bootstrap, tmp_path) as site:
        site.sql("create table t (id int primary key)")
        site.running().kill()
        site.sql("alter system set logical_decoding_work_mem = '64kB'", "select pg_reload_conf()")
        site.sql("insert into t select generate_series(1, 50000)")
        filler = fill(small.home / "filler")
        daemon = site.daemon(listening())
        daemon.until_state("WAITING")

        assert_first(first_cause(newest_config(site)), "source-disk-full", "source")

        filler.unlink()
        assert len(site.settled(daemon, 120).fold(site.topic("t"))) == 50000


def fill(path: Path) -> Path:
    """A file that takes all there is."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(_BLOCK):
            pass
    return path


def refusal(site: CaptureSite, statement: str) -> str:
    """How the server refuses this statement; empty while it takes it."""
    try:
        site.sql(statement)
    except psycopg.Error as error:
        return f"{type(error).__name__} {error.sqlstate}"
    return ""


def up(server: Postgres) -> Any:
    """Start it when it has ended; whether it answers."""
    with suppress(LocalError):
        server.start()
    return server.ready()
