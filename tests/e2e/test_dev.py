"""`cdc dev` as a new user runs it: rows reach index and cache, and Ctrl-C leaves nothing running."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cdc.artifacts.machine import Machine
from cdc.config.load import load
from cdc.errors import TailraceError
from cdc.kafka.log_reader import LogReader
from cdc.local.process_identity import Identity, alive, descendants, identify
from cdc.local.stack import SERVERS, Stack
from tests.fixtures.servers.waiting import until

pytestmark = pytest.mark.timeout(900)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.servers.running_servers import Database

ROOT: Final = Path(__file__).parents[2]
_UP_S: Final = 300.0  # 25 s on an idle machine
_END_S: Final = 90.0
_BOTH: Final = ("--without", "lake")
_NONE: Final = ("--without", "lake", "--without", "search", "--without", "cache")


class Dev:
    """A running `cdc dev`, and every process that it has started so far."""

    def __init__(self, stack: str, *options: str) -> None:
        self.stack = stack
        self.folder = Machine.here().cache / "dev" / stack
        self.log = Machine.here().cache / "dev" / f"{stack}.out"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(
                command("--stack", stack, *options), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        self.seen: set[Identity] = set()

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def address(self, label: str) -> str:
        found = until(self._found(label), f"{label} is printed", within_s=_UP_S, every_s=0.2)
        return str(found[1])

    def _found(self, label: str) -> Any:
        def found() -> re.Match[str] | None:
            assert self._process.poll() is None, self.said()
            return re.search(rf"^  {label} +(\S+)", self.said(), re.MULTILINE)

        return found

    def note_processes(self) -> None:
        """Remember every process of the run: descendants, and servers, which have no parent any more."""
        roots = [
            identify(self.pid),
            *(identify(server.pid) for server in Stack(self.stack, SERVERS).servers if server.pid),
        ]
        for root in roots:
            if root is not None:
                self.seen |= {root, *descendants(root)}

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(_END_S)

    def nothing_left(self) -> bool:
        """Whether no process of the run is alive, and no file names the stack."""
        running = subprocess.run(["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True).stdout
        named = [line for line in running.splitlines() if self.stack in line and "pytest" not in line]
        return not named and not any(alive(one) for one in self.seen) and not self.folder.exists()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        subprocess.run(
            command("--end", "--stack", self.stack), cwd=ROOT, capture_output=True, check=False, timeout=_END_S
        )
        self.log.unlink(missing_ok=True)


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "cdc", "dev", *options]


def stack_name() -> str:
    return f"test-{os.getpid()}-dev{uuid.uuid4().hex[:6]}"


@contextmanager
def dev(*options: str) -> Iterator[Dev]:
    """Run `cdc dev`; end what a failed test leaves."""
    running = Dev(stack_name(), *options)
    try:
        yield running
    finally:
        running.close()


def status(page: str) -> dict[str, Any]:
    with suppress(OSError, ValueError), urllib.request.urlopen(f"{page}status", timeout=30) as answer:
        return dict(json.load(answer))
    return {}


def documents(search: str, index: str) -> int:
    """How many documents OpenSearch itself has in an index."""
    url = f"{search}/{index}/_count"
    with suppress(OSError, ValueError, KeyError), urllib.request.urlopen(url, timeout=30) as answer:
        return int(json.load(answer)["count"])
    return 0


def keys(cache: str) -> int:
    """How many keys Valkey itself has."""
    host, _, port = cache.removeprefix("redis://").partition("/")[0].partition(":")
    with socket.create_connection((host, int(port)), 30) as link, link.makefile("rwb") as stream:
        stream.write(b"DBSIZE\r\n")
        stream.flush()
        return int(stream.readline()[1:])


def events(config_file: Path) -> int:
    """How many records the topic of the outbox has."""
    config = load(config_file, {})
    with suppress(TailraceError), LogReader(config.kafka, client_id="test") as reader:
        return sum(high for _, high in reader.end_offsets(["dev.events.order"]).values())
    return 0


def runs(page: str) -> bool:
    found = status(page)
    return found.get("state") == "RUNNING" and all(one["state"] == "RUNNING" for one in found["sinks"].values())


def test_rows_reach_index_and_cache_and_ctrl_c_leaves_no_process() -> None:
    with dev(*_BOTH) as running:
        page = running.address("page")
        search, cache = running.address("OpenSearch"), running.address("Valkey")
        until(lambda: runs(page), "capture and sinks are RUNNING", within_s=_UP_S, every_s=0.5)
        until(lambda: documents(search, "dev.search.shop.products") == 200, "every product is in the index")
        until(lambda: documents(search, "dev.search.shop.orders") > 5, "new orders are in the index")
        until(lambda: keys(cache) >= 2_200, "customers and products are in the cache")
        until(lambda: events(running.folder / "cdc.toml") > 5, "events of orders are in Kafka", every_s=0.5)
        token = re.search(r'token = "(\S+)"', (running.folder / "cdc.toml").read_text(encoding="utf-8"))
        second = subprocess.run(
            command("--stack", running.stack), cwd=ROOT, capture_output=True, text=True, check=False, timeout=180
        )
        running.note_processes()
        running.signal(signal.SIGINT)
        began_s = time.monotonic()
        code = running.wait()

        assert code == 0, running.said()
        assert time.monotonic() - began_s < 60
        assert len(running.seen) >= 8  # dev, four servers with their children, capture and two sinks
        until(running.nothing_left, "no process and no file is left", within_s=60)
        assert second.returncode == 1
        assert f"pid {running.pid}" in second.stderr
        assert page in second.stderr
        assert token is not None
        assert token[1] not in running.said()  # it is no terminal
        assert "shop RUNNING" in running.said()


def test_a_dead_server_is_named_with_its_log_and_the_rest_goes_on() -> None:
    with dev(*_NONE, "--rate", "5") as running:
        page = running.address("page")
        until(lambda: status(page).get("state") == "RUNNING", "capture is RUNNING", within_s=_UP_S, every_s=0.5)
        stack = Stack(running.stack)
        stack.postgres.kill()
        until(lambda: status(page).get("state") == "WAITING", "capture waits", every_s=0.5)

        assert "postgres has ended" in until(
            lambda: running.said() if "has ended" in running.said() else "", "it is said"
        )
        assert str(stack.postgres.log) in running.said()
        (program,) = set(re.findall(r"^  (\S.*) -c \S+ \w", running.said(), re.MULTILINE))
        assert f"start it again: {program} local up postgres --stack {running.stack}" in running.said()
        rows = status(page)["rows"]
        subprocess.run(
            [sys.executable, "-m", "cdc", "local", "up", "postgres", "--stack", running.stack],
            cwd=ROOT, check=True, capture_output=True, timeout=_UP_S,
        )  # fmt: skip
        until(lambda: status(page).get("rows", 0) > rows, "the workload and capture go on", every_s=0.5)
        until(lambda: "postgres runs again" in running.said(), "that is said, too")

        running.note_processes()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        until(running.nothing_left, "no process and no file is left", within_s=60)


def test_after_a_kill_capture_ends_by_itself_and_the_end_option_removes_the_rest() -> None:
    with dev(*_NONE, "--rate", "0") as running:
        running.address("page")
        (capture, _) = json.loads((running.folder / "processes.json").read_text(encoding="utf-8"))[0]
        identity = identify(capture)
        assert identity is not None
        running.note_processes()
        running.signal(signal.SIGKILL)
        running.wait()

        until(lambda: not alive(identity), "capture ends with its parent", within_s=60)
        ended = subprocess.run(
            command("--end", "--stack", running.stack),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert ended.returncode == 0, ended.stderr
        until(running.nothing_left, "no process and no file is left", within_s=60)


def test_a_second_ctrl_c_during_the_start_or_the_end_leaves_no_process() -> None:
    with dev(*_BOTH) as running:
        until(lambda: "starting capture" in running.said(), "the start is under way", within_s=_UP_S)
        running.note_processes()
        running.signal(signal.SIGINT)
        until(lambda: "ending everything" in running.said(), "the end has begun", within_s=90)
        running.note_processes()
        time.sleep(1.1)  # signals within a second count as one
        with suppress(ProcessLookupError):
            running.signal(signal.SIGINT)
        running.wait()

        until(running.nothing_left, "no process and no file is left", within_s=60)


@pytest.fixture
def own(database: Database) -> str:
    """The DSN of a database with a table and a role that may do everything there."""
    with psycopg.connect(database.dsn, autocommit=True) as session:
        session.execute("create table items (id int primary key, name text not null)")
        session.execute("insert into items select n, 'item ' || n from generate_series(1, 100) n")
    return database.dsn


def slots(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as session:
        return [
            name
            for (name,) in session.execute(
                "select slot_name::text from pg_replication_slots where database = current_database() "
                "union all select pubname::text from pg_publication"
            ).fetchall()
        ]


def test_an_own_database_is_captured_and_the_end_drops_slot_and_publication(own: str) -> None:
    with dev("--without", "lake", "--without", "search", "--dsn", own) as running:
        page, cache = running.address("page"), running.address("Valkey")
        until(lambda: keys(cache) >= 100, "every row is in the cache", within_s=_UP_S, every_s=0.5)
        used = slots(own)
        with psycopg.connect(own) as session:
            session.execute("insert into items values (101, 'new')")
        until(lambda: keys(cache) >= 101, "a new row is in the cache")
        until(lambda: runs(page), "all is RUNNING", every_s=0.5)
        running.note_processes()
        running.signal(signal.SIGINT)

        assert running.wait() == 0
        assert len(used) == 2
        assert slots(own) == []
        until(running.nothing_left, "no process and no file is left", within_s=60)


@pytest.mark.parametrize("why", ["unreachable", "no rights", "no tables"])
def test_a_database_that_is_not_ready_is_an_error_and_nothing_is_started(why: str, own: str) -> None:
    dsn = own
    stack = stack_name()
    role = f"r{uuid.uuid4().hex[:8]}"
    with psycopg.connect(own, autocommit=True) as session:
        if why == "unreachable":
            dsn = make_conninfo(own, host="127.0.0.1", port="1")
        elif why == "no tables":
            session.execute("drop table items")
        else:
            session.execute(f"create role {role} login password 'secret-word'".encode())
            dsn = make_conninfo(own, user=role, password="secret-word", passfile="")
        done = subprocess.run(
            command("--dsn", dsn, "--stack", stack), cwd=ROOT, capture_output=True, text=True, check=False, timeout=180
        )
        if why == "no rights":
            session.execute(f"drop role {role}".encode())

    said = {
        "unreachable": "cannot connect to PostgreSQL",
        "no rights": "has no REPLICATION attribute",
        "no tables": "has no table that can be captured",
    }
    assert done.returncode in {1, 3}
    assert said[why] in done.stdout + done.stderr
    assert "secret-word" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not (Machine.here().stacks / stack).exists()
    assert slots(own) == []
    subprocess.run(command("--end", "--stack", stack), cwd=ROOT, check=True, capture_output=True, timeout=180)
