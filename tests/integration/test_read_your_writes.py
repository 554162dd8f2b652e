"""Read your own writes of a cache: `cdc.client`, `cdc wait`, HTTP, and the application of docs/howto."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc.client import Waiter, written_lsn
from cdc.errors import SinkBehind, UsageError
from cdc.local.valkey_server import Valkey
from cdc.lsn import Lsn
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.daemon import CaptureSite, Sections
from tests.fixtures.servers.http_probe import ask
from tests.fixtures.servers.valkey import client_of
from tests.fixtures.sinks.sink_process import SinkProcess
from tests.integration.test_cli_status import free_address

TABLE = "create table customers (id int primary key, name text)"


@contextmanager
def cached(capture: CaptureSite, valkey: Valkey) -> Iterator[tuple[Path, SinkProcess, int]]:
    """Capture and a cache of `customers`; the configuration, the cache's worker, the daemon's port."""
    sections: dict[str, dict[str, Any]] = {
        "sinks.cache": {"kind": "cache", "url": valkey.url, "tables": ["public.customers"]}
    }
    capture.sql(TABLE, "create table other (id int primary key)", "insert into customers values (1, 'first')")
    daemon = capture.running(sections)
    capture.settled(daemon)
    path = capture.folder / "cdc-0.toml"
    with SinkProcess(path, "cache") as worker:
        yield path, worker, daemon.events("http_listening")[0]["port"]


def test_commit_that_was_waited_for_is_read_in_the_cache(capture: CaptureSite, valkey: Valkey) -> None:
    with cached(capture, valkey) as (path, _, _), Waiter(path) as waiter, client_of(valkey) as reader:
        for n in range(15):
            with capture.connect() as connection:
                connection.execute("delete from customers where id = 2")
                connection.execute("insert into customers values (2, %s)", (f"n{n}",))
                connection.execute("insert into other values (%s)", (n,))
                lsn = written_lsn(connection)

            found = waiter.wait("cache", lsn, key='{"id": 2}', timeout_s=60)

            row = json.loads(reader.get(f"{capture.name}:cache:public.customers:2") or b"{}")
            assert row == {"id": 2, "name": f"n{n}"}
            assert Lsn.parse(found.lsn) >= Lsn.parse(lsn).before_header()


def test_wait_does_not_succeed_for_a_cache_that_does_not_apply(capture: CaptureSite, valkey: Valkey) -> None:
    with cached(capture, valkey) as (path, worker, port), Waiter(path) as waiter:
        waiter.wait("cache", str(capture.wal()), timeout_s=60)
        worker.freeze()
        lsn = str(capture.sql("insert into customers values (3, 'x')"))
        with pytest.raises(SinkBehind, match=f"sink 'cache' is at .* and not at {lsn}"):
            waiter.wait("cache", lsn, timeout_s=1)
        asked = ask("127.0.0.1", port, f"/sinks/cache/wait?lsn={lsn}&timeout_s=0.5")
        behind = cdc("wait", "--sink", "cache", "--lsn", lsn, "--timeout", "0.5", "-c", path)
        waiting = threading.Thread(target=waiter.wait, args=("cache", lsn), kwargs={"timeout_s": 60})
        waiting.start()

        worker.thaw()

        waiting.join(60)
        assert not waiting.is_alive()
        reached = ask("127.0.0.1", port, f"/sinks/cache/wait?lsn={lsn}&timeout_s=60&key=%7B%22id%22:3%7D")
        shown = cdc("wait", "--sink", "cache", "--lsn", lsn, "--json", "-c", path)
        with pytest.raises(UsageError, match="no sink 'nope'"):
            waiter.wait("nope", lsn)
    assert (asked[0], behind.code, reached[0], shown.code) == (504, 1, 200, 0)
    assert json.loads(shown.out)["sink"] == "cache"


def test_commit_that_a_snapshot_has_not_read_is_not_taken_for_written(capture: CaptureSite, valkey: Valkey) -> None:
    """Rows from before capture come with the snapshot; what is written now is streamed, and found at once."""
    sections: Sections = {
        "sinks.cache": {"kind": "cache", "url": valkey.url, "tables": ["public.customers"]},
        "snapshot": {"mode": "initial", "chunk_bytes": 8192, "rows_per_s_max": 2},
        "http": {"listen": free_address()},
    }
    capture.sql(TABLE, "insert into customers select n, repeat('x', 700) from generate_series(1, 300) n")
    old = str(capture.wal())
    daemon = capture.running(sections)
    config = capture.write_config(sections)
    with SinkProcess(config, "cache"), Waiter(config) as waiter:
        assert cdc("snapshot", "pause", "-c", config).code == 0
        new = str(capture.sql("update customers set name = 'new' where id = 299"))
        waiter.wait("cache", new, timeout_s=60)
        with pytest.raises(SinkBehind, match=r"snapshots are still reading public.customers: changes before"):
            waiter.wait("cache", old, timeout_s=1)
        shown = cdc("wait", "--sink", "cache", "--lsn", old, "--timeout", "1", "-c", config)
        listening = daemon.events("http_listening")[0]["port"]
        code, _, answer = ask("127.0.0.1", listening, f"/sinks/cache/wait?lsn={old}&timeout_s=0.5")
        assert cdc("snapshot", "resume", "-c", config).code == 0
        assert daemon.stop() == 0
        capture.running({"snapshot": {"mode": "initial"}})
        waiter.wait("cache", old, timeout_s=60)

    assert shown.code == 1
    assert "cdc snapshot status" in shown.err
    assert (code, json.loads(answer)["snapshotting"]) == (504, ["public.customers"])


def test_the_web_application_of_the_documents_shows_each_user_what_he_wrote(
    capture: CaptureSite, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[2] / "docs/howto/read-your-writes.md").read_text()
    program = text.split("```python\n")[1].split("```")[0].replace("shop:cache", f"{capture.name}:cache")
    with cached(capture, valkey) as (path, worker, _):
        monkeypatch.chdir(path.parent)
        Path("cdc.toml").write_text(path.read_text())  # a worker that starts again needs its own file
        monkeypatch.setenv("DATABASE_URL", capture.dsn)
        monkeypatch.setenv("CACHE_URL", valkey.url)
        names: dict[str, Any] = {"__name__": "application"}
        exec(compile(program, "read-your-writes.md", "exec"), names)
        browser = names["app"].test_client()
        seen = []
        for n in range(10):
            assert browser.post("/customers/1", data={"name": f"n{n}"}).status_code == 200
            seen.append(browser.get("/customers/1").json)
        worker.freeze()
        browser.post("/customers/1", data={"name": "cache is away"})
        seen.append(browser.get("/customers/1").json)
        worker.thaw()
        names["waiter"].close()
        names["cache"].close()

    assert seen == [{"id": 1, "name": name} for name in (*(f"n{n}" for n in range(10)), "cache is away")]
