"""Everything fails at random while a search sink is fed; then `cdc verify` finds no difference in topics and sink.

A short form in CI, in which no server dies; ``make sink-nemesis`` runs ten minutes (TAILRACE_NEMESIS_S) on servers of
its own and prints its seed (TAILRACE_NEMESIS_SEED repeats it).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from tests.fixtures.daemon import CaptureSite, capture_site
from tests.fixtures.searching import ask
from tests.fixtures.servers import fresh_database
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.search import OpenSearchServer
    from tests.fixtures.servers import MakeStack, Servers

SECONDS: Final = float(os.environ.get("TAILRACE_NEMESIS_S", "0"))  # 0: each fault once
SEED: Final = int(os.environ.get("TAILRACE_NEMESIS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
ROOT: Final = Path(__file__).parents[2]
TABLE: Final = "create table t (id int primary key, v int, body text)"


class Workers:
    """Processes of `cdc sink run find`."""

    def __init__(self, config: Path, count: int) -> None:
        self._config = config
        self._log = config.with_name("workers.log")
        self.processes = [self._start() for _ in range(count)]

    def kill(self, at: int) -> None:
        """SIGKILL, and another one."""
        self.processes[at].kill()
        self.processes[at].wait()
        self.processes[at] = self._start()

    def revive(self) -> None:
        """Those that ended by themselves start again, as a supervisor does."""
        for at, process in enumerate(self.processes):
            if process.poll() is not None:
                self.processes[at] = self._start()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "cdc", "sink", "run", "find", "-c", str(self._config)]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=ROOT)


@contextmanager
def written(dsn: str, draw: random.Random) -> Iterator[None]:
    """Rows of 300 keys come, change and go, whatever becomes of the connection."""
    stop = threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set():
            with suppress(psycopg.Error), psycopg.connect(dsn, autocommit=True, connect_timeout=3) as session:
                while not stop.wait(0.005):
                    number += 1
                    key = draw.randrange(300)
                    if draw.random() < 0.2:
                        session.execute("delete from t where id = %s", (key,))
                    else:
                        session.execute(
                            "insert into t values (%s, %s, 'body') on conflict (id) do update set v = excluded.v",
                            (key, number),
                        )
            stop.wait(0.3)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def again(server: Any) -> Callable[[], None]:
    """Kill it, and start it a moment later."""

    def act() -> None:
        server.kill()
        time.sleep(1.0)
        server.start()

    return act


def verified(config: Path, *more: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "cdc", "verify", "find", "-c", str(config), "--json", *more]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, check=False)
    return done.returncode, json.loads(done.stdout or done.stderr)


def level(config: Path) -> None:
    """Wait until the sink has everything that is there now."""

    def look() -> bool:
        code, found = verified(config)
        return code == 0 and found["ok"]

    until(look, "topics and sink agree", within_s=180, every_s=2)


def nemesis(site: CaptureSite, workers: Workers, stack: Servers, search: OpenSearchServer) -> None:
    """One fault after the other, each survived by a moment."""

    def capture() -> None:
        site.daemons[-1].kill()

    def freeze() -> None:
        process = draw.choice(workers.processes)
        process.send_signal(19)
        time.sleep(draw.uniform(0.5, 3.0 if SECONDS else 1.0))
        process.send_signal(18)

    draw = random.Random(SEED)
    acts: list[Callable[[], None]] = [
        capture,
        lambda: workers.kill(draw.randrange(2)),
        freeze,
        *((again(stack.kafka), again(stack.postgres), again(search)) if SECONDS else ()),
    ]
    ends_s = time.monotonic() + SECONDS
    draw.shuffle(acts)
    turn = 0
    while time.monotonic() < ends_s or turn < len(acts):
        acts[turn % len(acts)]()
        turn += 1
        time.sleep(draw.uniform(0.5, 2.0))
        workers.revive()
        if not site.daemons[-1].alive:
            site.daemon(SECTIONS)


SECTIONS: dict[str, dict[str, Any]] = {}


@pytest.mark.timeout(SECONDS + 600)
def test_topics_and_sink_agree_after_everything_failed_at_random(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    sys.stdout.write(f"nemesis seed: {SEED}\n")
    make: MakeStack = request.getfixturevalue("make_stack")
    stack: Servers = make() if SECONDS else request.getfixturevalue("stack")
    search: OpenSearchServer = request.getfixturevalue("own_opensearch" if SECONDS else "opensearch")
    SECTIONS["sinks.find"] = {"kind": "search", "url": search.url}
    SECTIONS["sinks.find.index"] = {"number_of_replicas": 0}
    with (
        fresh_database(stack.postgres) as database,
        capture_site(database.name, database.dsn, stack.kafka.bootstrap, tmp_path) as site,
    ):
        site.sql(TABLE)
        site.running(SECTIONS)
        config = tmp_path / "cdc-0.toml"
        workers = Workers(config, 2)
        try:
            with written(database.dsn, random.Random(SEED)):
                nemesis(site, workers, stack, search)
            level(config)
            planted_are_found_and_repaired(site, config, search.url)
        except BaseException:
            sys.stdout.write((tmp_path / "workers.log").read_text(errors="replace")[-3000:])
            raise
        finally:
            workers.end()


def planted_are_found_and_repaired(site: CaptureSite, config: Path, url: str) -> None:
    """An edited document, one that was deleted, and one too many."""
    index = f"{site.name}.find.public.t"
    keys = [row[0] for row in site.query("select id from t order by id limit 3")]
    ask(url, "PUT", f"/{index}/_doc/{keys[0]}", {"id": keys[0], "v": -1})
    ask(url, "DELETE", f"/{index}/_doc/{keys[1]}")
    ask(url, "PUT", f"/{index}/_doc/99999?refresh=true", {"id": 99999})

    code, found = verified(config, "--no-source")
    (one,) = found["topics_sink"]
    assert (code, one["different"], one["missing"], one["extra"], one["stale"]) == (1, 1, 1, 1, 0), one
    code, found = verified(config, "--no-source", "--repair")
    (one,) = found["topics_sink"]
    assert (code, one["repaired"], one["unrepaired"]) == (0, 3, 0), one
    assert verified(config)[0] == 0
