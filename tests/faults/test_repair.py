"""Repair of topics in place: killed meanwhile, and after LSNs went back. See also `test_slot_recreate`."""

from __future__ import annotations

import shutil
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from cdc.lsn import Lsn
from tests.faults.test_identity import restore
from tests.fixtures.capture.repair_scenes import assert_repaired, captured, repaired, swept
from tests.fixtures.capture.snapshot_waits import INITIAL, RACED, SMALL_CHUNKS, complete, racing
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.capture.topic_log import LogRecord
    from tests.fixtures.servers.daemon import CaptureSite, Sections
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack

_PART: Final = 50
_BACK: Final = 9005  # nobody else writes to it
_UNSEEN: Final = (
    "delete from t where id % 5 = 0",
    "update t set n = n + 1 where id % 7 = 1",
    "update t set id = id + 10000 where id % 11 = 3",
    "insert into t select n, 5, 'new' from generate_series(5001, 5050) n",
)


def test_repair_killed_while_it_sweeps_is_exact_while_others_write(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    """A key comes back in a commit that hangs: streamed when its candidates are known, and not to be seen in the table.

    Here it is the publication that was gone.
    """
    settings = {"synchronous_standby_names": "nobody", "synchronous_commit": "local"}
    source, go_on = make_stack("postgres", postgres=settings).postgres, tmp_path / "go on"
    with capture_site(topic_prefix, source.dsn, kafka.bootstrap, tmp_path) as capture:
        captured(capture, *RACED, f"insert into t values ({_BACK}, 0, 'before')")
        capture.sql(f"drop publication {capture.slot}", *_UNSEEN, f"delete from t where id = {_BACK}")
        repaired(capture, capture.daemon(INITIAL).stopped_with()["command"])
        with racing(capture.dsn, seed(), writers=3, pause_s=0.05):
            assert capture.daemon(SMALL_CHUNKS, mutant=f"die_sweeping:{_PART}").exit_code() == -signal.SIGKILL
            part = len(swept(capture, capture.log()))
            daemon = capture.running(SMALL_CHUNKS, mutant=f"hold_sweep:{go_on}")
            until(lambda: daemon.events("sweep_held"), "candidates are known")
            with _hanging(capture, f"insert into t values ({_BACK}, 7, 'back')"):
                until(lambda: any(event.op == "c" for event in _events(capture, _BACK)), "it is streamed")
                go_on.touch()
                complete(capture, daemon, "public.t")
        log = capture.settled(daemon)

        assert 0 < part < len(swept(capture, log))
        assert [event.op for event in _events(capture, _BACK)] == ["r", "c"]
        assert_repaired(capture, log)


def _events(capture: CaptureSite, key: int) -> list[LogRecord]:
    return [event for event in capture.log().events_of(capture.topic("t")) if event.key == b'{"id":%d}' % key]


@contextmanager
def _hanging(capture: CaptureSite, statement: str) -> Iterator[None]:
    """Its commit waits for a standby that is not there, until this ends."""
    with capture.connect() as session:
        session.execute("set synchronous_commit = on")
        commit = threading.Thread(target=session.execute, args=(statement.encode(),))
        commit.start()
        try:
            yield
        finally:
            capture.query("select pg_cancel_backend(%s)", session.info.backend_pid)
            commit.join()


def test_restored_database_is_repaired_by_the_command_that_diverged_names(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    """Its LSNs are lower than those of the log; and whoever repairs twice, or is killed in between, does no harm.

    Ids go back, too: what the one copy of a table without a key saw are others now.
    """
    both: Sections = {**INITIAL, "source": {"keyless": ["public.k"]}}
    source = make_stack("postgres").postgres
    data = getattr(source, "data", None)
    if data is None:
        pytest.skip("the data folder of a container is not ours to copy")
    with capture_site(topic_prefix, source.dsn, kafka.bootstrap, tmp_path) as capture:
        later: Sections = {**both, "snapshot": {"mode": "initial", "tables": {"public.k": "never"}}}
        captured(capture, *RACED, "create table k (v int)", sections=later)
        source.stop()
        shutil.copytree(data, tmp_path / "copy", symlinks=True)
        source.start()
        capture.sql(*_UNSEEN, *["insert into k values (1)"] * 20)
        daemon = capture.running(both)
        assert len(daemon.events("keyless_copied")) == 1
        daemon.until_position(capture.wal())
        assert daemon.stop() == 0
        source.stop()
        restore(tmp_path / "copy", data)
        source.start()
        capture.sql("delete from t where id = 1", "insert into t values (6000, 1, 'after')")
        stop = capture.daemon(both).stopped_with()
        assert (stop["state"], stop["exit_code"]) == ("DIVERGED", 3)

        done = repaired(capture, stop["command"], sections=both)
        again = repaired(capture, stop["command"], sections=both)
        daemon = capture.running(both)
        capture.sql("insert into k values (2)")
        log = complete(capture, daemon, "public.t")

        assert (done["epoch"], again["epoch"]) == (2, 3)
        assert Lsn.parse(done["resumes_at"]) < Lsn.parse(done["known_to"]), "the test is of LSNs that go back"
        assert_repaired(capture, log)
        assert [event.after["v"] for event in log.events_of(capture.topic("k"))] == [1] * 20 + [2]
