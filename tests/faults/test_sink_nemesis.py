"""Random faults everywhere while an index and a cache are fed; afterwards `cdc verify` finds no difference.

Workers and capture are killed and frozen, servers are killed, Kafka is also stopped in order for short and long times,
columns are added and dropped, and tables are created. No operator acts: workers are only started again when they were
killed, as a process manager does, and one that ends by itself with exit code 2 or 3 fails the test.

A short form in CI, in which no server dies; ``make sink-nemesis`` runs ten minutes (TAILRACE_NEMESIS_S) on servers of
its own and prints its seed (TAILRACE_NEMESIS_SEED repeats it).
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from cdc.errors import EXIT_OPERATOR, EXIT_USAGE
from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.daemon import CaptureSite, capture_site
from tests.fixtures.servers.running_servers import fresh_database
from tests.fixtures.servers.valkey import client_of
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.search_targets import ask
from tests.fixtures.sinks.sink_process import SinkProcess

if TYPE_CHECKING:
    from cdc.local.valkey_server import Valkey
    from tests.fixtures.servers.opensearch import OpenSearchServer
    from tests.fixtures.servers.running_servers import MakeStack, Servers
    from tests.fixtures.servers.valkey import MakeValkey

SECONDS: Final = float(os.environ.get("TAILRACE_NEMESIS_S", "0"))  # 0: each fault once
SEED: Final = int(os.environ.get("TAILRACE_NEMESIS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
TABLE: Final = "create table t (id int primary key, v int, body text)"


class Workers:
    """Two of the index, one of the cache."""

    def __init__(self, config: Path) -> None:
        instances = (("find", "a"), ("find", "b"), ("fast", "a"))
        self.processes = [SinkProcess(config, sink, instance=instance) for sink, instance in instances]
        for process in self.processes:
            process.start()

    def kill(self, at: int) -> None:
        """SIGKILL, and another one."""
        self.processes[at].kill()
        self.processes[at].start()

    def revive(self) -> None:
        """Start those that ended by themselves, as a process manager does: none may need an operator."""
        for process in self.processes:
            if not process.alive:
                assert process.exit_code not in {EXIT_USAGE, EXIT_OPERATOR}, process.log_text()[-3000:]
                process.start()

    def end(self) -> None:
        for process in self.processes:
            process.kill()

    def log_text(self) -> str:
        return "".join(self.processes[at].log_text()[-3000:] for at in (0, 2))


@contextmanager
def written(dsn: str, draw: random.Random) -> Iterator[None]:
    """Rows of 300 keys come, change and go, whatever becomes of the connection."""

    def work(stop: threading.Event) -> None:
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

    with beside(work):
        yield


class Schema:
    """Columns that come and go on `t` while it is written, and tables that are created and written."""

    def __init__(self, dsn: str, draw: random.Random) -> None:
        self.tables = ["t"]
        self.changes = 0
        self._dsn = dsn
        self._draw = draw
        self._columns: list[str] = []

    def change(self) -> None:
        """One of: ADD COLUMN, DROP COLUMN, a rewrite by a default, and a new table with rows."""
        acts = [self._add, self._add_with_default, self._create, *([self._drop] if self._columns else [])]
        act = self._draw.choice(acts)
        for _ in range(_SCHEMA_TRIES):
            with suppress(psycopg.Error):  # the server may be down: it is tried again
                with psycopg.connect(self._dsn, autocommit=True, connect_timeout=3) as session:
                    session.execute("set lock_timeout = '3s'")
                    act(session)
                self.changes += 1
                return
            time.sleep(1.0)

    def _add(self, session: psycopg.Connection[Any]) -> None:
        name = f"c{self.changes}"
        session.execute(f"alter table t add column if not exists {name} text".encode())
        self._columns.append(name)

    def _add_with_default(self, session: psycopg.Connection[Any]) -> None:
        name = f"d{self.changes}"
        session.execute(f"alter table t add column if not exists {name} int not null default {self.changes}".encode())
        self._columns.append(name)

    def _drop(self, session: psycopg.Connection[Any]) -> None:
        name = self._columns.pop(self._draw.randrange(len(self._columns)))
        session.execute(f"alter table t drop column if exists {name}".encode())

    def _create(self, session: psycopg.Connection[Any]) -> None:
        name = f"n{self.changes}"
        session.execute(f"create table if not exists {name} (id int primary key, v text)".encode())
        session.execute(f"insert into {name} select i, 'row ' || i from generate_series(1, 50) i".encode())
        self.tables.append(name)


_SCHEMA_TRIES: Final = 20


def stopped(kafka: Any, draw: random.Random) -> Callable[[], None]:
    """Stop Kafka in order, and start it again at once or after a while."""

    def act() -> None:
        kafka.stop()
        time.sleep(draw.choice([0.0, draw.uniform(1.0, 5.0), draw.uniform(10.0, 40.0)]))
        kafka.start()

    return act


def again(server: Any) -> Callable[[], None]:
    """Kill it, and start it a moment later."""

    def act() -> None:
        server.kill()
        time.sleep(1.0)
        server.start()

    return act


def verified(config: Path, sink: str, *more: str) -> tuple[int, dict[str, Any]]:
    done = cdc("verify", sink, "-c", config, "--json", *more, timeout_s=300)
    return done.code, json.loads(done.out or done.err)


def until_complete(site: CaptureSite) -> None:
    """Start capture once more, so that tables which were created last are captured, and wait for their rows."""
    site.daemons[-1].kill()
    daemon = site.daemon(SECTIONS).until_running(120.0)

    def complete() -> bool:
        return all(one["state"] == "complete" for one in daemon.status().get("snapshots") or [{"state": "unknown"}])

    until(complete, "every snapshot is complete", within_s=180.0)


def level(site: CaptureSite, config: Path) -> None:
    """Wait until source, topics and both sinks agree."""
    lsn = site.wal()
    for sink in ("find", "fast"):
        assert cdc("wait", "--sink", sink, "--lsn", lsn, "--timeout", "180", "-c", config, timeout_s=200).code == 0
        code, found = verified(config, sink)
        assert (code, found["ok"]) == (0, True), found


def nemesis(site: CaptureSite, workers: Workers, servers: Sequence[Any], schema: Schema, kafka: Any = None) -> None:
    """One fault after the other, with a moment between."""

    def capture() -> None:
        site.daemons[-1].kill()

    def freeze() -> None:
        process = draw.choice(workers.processes)
        process.freeze()
        time.sleep(draw.uniform(0.5, 3.0 if SECONDS else 1.0))
        process.thaw()

    draw = random.Random(SEED)
    acts: list[Callable[[], None]] = [
        capture,
        *(lambda at=at: workers.kill(at) for at in range(len(workers.processes))),
        freeze,
        schema.change,
        schema.change,
        *map(again, servers),
        *([] if kafka is None else [stopped(kafka, draw)]),
    ]
    ends_s = time.monotonic() + SECONDS
    draw.shuffle(acts)
    turn = 0
    while time.monotonic() < ends_s or turn < len(acts):
        acts[turn % len(acts)]()
        turn += 1
        time.sleep(draw.uniform(0.5, 2.0))
        workers.revive()
        daemon = site.daemons[-1]
        if not daemon.alive:
            assert daemon.exit_code() not in {EXIT_USAGE, EXIT_OPERATOR}, daemon.log_text()[-3000:]
            site.daemon(SECTIONS)


SECTIONS: dict[str, dict[str, Any]] = {}


@pytest.mark.timeout(SECONDS + 600)
def test_topics_and_sinks_agree_after_everything_failed_at_random(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    sys.stdout.write(f"nemesis seed: {SEED}\n")
    make: MakeStack = request.getfixturevalue("make_stack")
    stack: Servers = make() if SECONDS else request.getfixturevalue("stack")
    search: OpenSearchServer = request.getfixturevalue("own_opensearch" if SECONDS else "opensearch")
    make_valkey: MakeValkey = request.getfixturevalue("make_valkey")
    valkey = make_valkey(appendonly="yes")
    SECTIONS["snapshot"] = {"mode": "initial"}  # new tables have rows from before they are captured
    SECTIONS["sinks.find"] = {"kind": "search", "url": search.url}
    SECTIONS["sinks.find.index"] = {"number_of_replicas": 0}
    SECTIONS["sinks.fast"] = {"kind": "cache", "url": valkey.url}
    with (
        fresh_database(stack.postgres) as database,
        capture_site(database.name, database.dsn, stack.kafka.bootstrap, tmp_path) as site,
    ):
        site.sql(TABLE)
        site.running(SECTIONS)
        config = tmp_path / "cdc-0.toml"
        workers = Workers(config)
        try:
            schema = Schema(database.dsn, random.Random(SEED + 1))
            with written(database.dsn, random.Random(SEED)):
                if SECONDS:
                    nemesis(site, workers, (stack.kafka, stack.postgres, search, valkey), schema, stack.kafka)
                else:
                    nemesis(site, workers, (), schema)
            until_complete(site)
            sys.stdout.write(f"changes of the schema: {schema.changes}, tables: {len(schema.tables)}\n")
            level(site, config)
            plant_in_index(site, search.url)
            plant_in_cache(site, valkey)
            for sink in ("find", "fast"):
                planted_are_found_and_repaired(config, sink)
        except BaseException:
            sys.stdout.write(workers.log_text())
            raise
        finally:
            workers.end()


def plant_in_index(site: CaptureSite, url: str) -> None:
    """An edited document, one that was deleted, and one too many."""
    index = f"{site.name}.find.public.t"
    edited, deleted = some_keys(site)
    ask(url, "PUT", f"/{index}/_doc/{edited}", {"id": edited, "v": -1})
    ask(url, "DELETE", f"/{index}/_doc/{deleted}")
    ask(url, "PUT", f"/{index}/_doc/99999?refresh=true", {"id": 99999})


def plant_in_cache(site: CaptureSite, valkey: Valkey) -> None:
    """As in the index."""
    edited, deleted = some_keys(site)
    with client_of(valkey) as client:
        client.set(f"{site.name}:fast:public.t:{edited}", b'{"id":%d,"v":-1,"body":"b"}' % edited)
        assert client.delete(f"{site.name}:fast:public.t:{deleted}") == 1
        client.set(f"{site.name}:fast:public.t:99999", b"{}")


def some_keys(site: CaptureSite) -> list[int]:
    return [row[0] for row in site.query("select id from t order by id limit 2")]


def planted_are_found_and_repaired(config: Path, sink: str) -> None:
    """All three, and no other; afterwards source, topic and sink agree."""
    code, found = verified(config, sink, "--no-source")
    one = planted_in(found)
    assert (code, one["different"], one["missing"], one["extra"], one["stale"]) == (1, 1, 1, 1, 0), one
    code, found = verified(config, sink, "--no-source", "--repair")
    one = planted_in(found)
    assert (code, one["repaired"], one["unrepaired"]) == (0, 3, 0), one
    assert verified(config, sink)[0] == 0


def planted_in(found: dict[str, Any]) -> Any:
    """What was found in the table with the planted differences; in the tables that were made meanwhile, nothing."""
    counts = ("different", "missing", "extra", "stale", "repaired", "unrepaired")
    (one,) = [table for table in found["topics_sink"] if table["table"] == "public.t"]
    others = [table for table in found["topics_sink"] if table is not one]
    assert [[table[count] for count in counts] for table in others] == [[0] * len(counts)] * len(others)
    return one
