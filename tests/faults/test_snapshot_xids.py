"""Snapshots on a server with transaction ids beyond 32 bits; the stream has only the low 32 bits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import psycopg
import pytest

from cdc.local.postgres_server import Postgres
from cdc.local.process import Launch
from tests.faults.test_snapshot_kill import read_count
from tests.fixtures.capture.snapshot_waits import RACED, SMALL_CHUNKS, complete, differences, racing
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack

_SEGMENT_XIDS: Final = 1 << 20  # of a file in pg_xact: 32 pages of 8 KB, 2 bits each
_SEGMENT_BYTES: Final = 1 << 18
_TO_WRAP: Final = 8000  # ids that are left of the epoch
_TOOL_S: Final = 30.0

Site: TypeAlias = "Callable[[int, int], CaptureSite]"


@pytest.fixture
def aged(make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Iterator[Site]:
    """A site on a server whose next id is `xid` of `epoch`, and whose synchronous standby does not exist."""
    settings = {"synchronous_standby_names": "nobody", "synchronous_commit": "local", "autovacuum": "off"}
    server = make_stack("postgres", postgres=settings).postgres
    if not isinstance(server, Postgres) or not (server.programs / "pg_resetwal").exists():
        pytest.skip("pg_resetwal and the server's files are not at hand")
    with capture_site(topic_prefix, server.dsn, kafka.bootstrap, tmp_path) as site:

        def make(epoch: int, xid: int) -> CaptureSite:
            for database in ("postgres", "template1", "shop"):
                with psycopg.connect(server.dsn_of(database), autocommit=True) as session:
                    session.execute("vacuum freeze")
            server.stop()
            _reset(server, epoch, xid)
            server.start()
            site.sql(*RACED)
            return site

        yield make


def _reset(server: Postgres, epoch: int, xid: int) -> None:
    """Both ids need the page of pg_xact that says what became of them, and none was ever written there."""
    segment = server.data / "pg_xact" / f"{xid // _SEGMENT_XIDS:04X}"
    if not segment.exists():
        segment.write_bytes(bytes(_SEGMENT_BYTES))
        owner = server.data.stat()
        os.chown(segment, owner.st_uid, owner.st_gid)
    tool = [str(server.programs / "pg_resetwal"), "-D", str(server.data), "-e", str(epoch), "-x", str(xid)]
    server._process.run_tool(Launch([*tool, "-u", str(xid - 1000)]), deadline_s=_TOOL_S)


def test_snapshot_is_exact_while_ids_pass_32_bits(aged: Site) -> None:
    capture = aged(3, (1 << 32) - _TO_WRAP)
    with racing(capture.dsn, seed(), writers=8, commit="on"):
        daemon = capture.running(SMALL_CHUNKS, mutant="slow_chunks:90")
        until(lambda: read_count(capture) > 0, "it reads")
        assert next_id(capture) < 4 << 32
        with capture.connect() as burner:
            while next_id(capture) <= 4 << 32:
                burner.execute("do 'begin for n in 1..200 loop perform pg_current_xact_id(); commit; end loop; end'")
        assert not daemon.events("snapshot_complete"), "in the middle of it"
        complete(capture, daemon, "public.t")
    log = capture.settled(daemon)

    found = differences(capture, log, "t")
    assert not found.any, found


def test_ids_that_are_not_widened_are_found_wrong(aged: Site) -> None:
    capture = aged(7, 3_000_000)
    with racing(capture.dsn, seed(), writers=16, commit="on"):
        daemon = capture.running(SMALL_CHUNKS, mutant="ids_as_they_are")
        complete(capture, daemon, "public.t")
    log = capture.settled(daemon)

    assert differences(capture, log, "t").any


def next_id(capture: CaptureSite) -> int:
    """As a snapshot has it, in 64 bits."""
    return int(capture.query("select pg_snapshot_xmax(pg_current_snapshot())::text")[0][0])
