"""Measures the cost of `cdc verify` for many keys: time, its CPU and memory, and the work of source, Kafka and store.

A snapshot reads the table, and sinks fill a cache and an index. Then the command runs as users run it, once per sink.
The CPU of servers is the CPU time of their processes during the command, from /proc.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psycopg

from cdc.client import Waiter, written_lsn
from cdc.local.stack import Stack
from tests.bench.daemon import BenchDaemon, write_config
from tests.fixtures.servers.commands import command
from tests.fixtures.servers.valkey import client_of
from tests.fixtures.sinks.search_targets import ask
from tests.fixtures.sinks.sink_process import SinkProcess

_FILL_S: Final = 3600.0
_TABLE: Final = "verified"
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_ROWS: Final = """
insert into verified
select n, 'customer ' || n, 'c' || n || '@example.com', n % 1000, now() from generate_series(1, {}) n
"""


def measure_verify(stack: Stack, search: Stack, folder: Path, keys: int) -> dict[str, object]:
    """Measure both sinks, and the topic against its table."""
    path = write_config(stack, folder, _TABLE, f"public.{_TABLE}", snapshot="initial")
    url = search.opensearch.url
    with path.open("a") as file:
        file.write(f'[sinks.cache]\nkind = "cache"\nurl = "{stack.valkey.url}"\n')
        file.write(f'[sinks.find]\nkind = "search"\nurl = "{url}"\n[sinks.find.index]\nnumber_of_replicas = 0\n')
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        sql.execute(f"create table {_TABLE} (id int primary key, name text, mail text, n int, at timestamptz)".encode())
        sql.execute(_ROWS.format(keys).encode())
        sql.execute(f"vacuum analyze {_TABLE}".encode())
        with BenchDaemon(path) as daemon, Waiter(path) as waiter:
            daemon.wait_for(_is_copied, _FILL_S)
            with SinkProcess(path, "cache"), SinkProcess(path, "find"):
                for sink in ("cache", "find"):
                    waiter.wait(sink, written_lsn(sql), timeout_s=_FILL_S)
                servers = {
                    "postgres": _pid(stack, "postgres"), "kafka": _pid(stack, "kafka"),
                    "valkey": _pid(stack, "valkey"), "opensearch": _pid(search, "opensearch"),
                }  # fmt: skip
                return {
                    "keys": keys,
                    "cache": _cost(path, ("cache", "--no-source"), servers, lambda: _of_valkey(stack)),
                    "search": _cost(path, ("find", "--no-source"), servers, lambda: _of_opensearch(url)),
                    "source": _cost(path, ("--topics",), servers, lambda: _of_postgres(sql)),
                }


def _is_copied(status: dict[str, Any]) -> bool:
    return bool(status["snapshots"]) and all(one["state"] == "complete" for one in status["snapshots"])


def _cost(path: Path, arguments: tuple[str, ...], servers: Mapping[str, int], asked: Any) -> dict[str, object]:
    before, cpu, asked_before = resource.getrusage(resource.RUSAGE_CHILDREN), _cpu_s(servers), asked()
    began_s = time.monotonic()
    ran = subprocess.run(command("verify", *arguments, "--json", "-c", path), capture_output=True, check=False)
    took_s, after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = {name: round(now - cpu[name], 1) for name, now in _cpu_s(servers).items()}
    document = json.loads(ran.stdout)
    compared = sum(one["compared"] for one in document["source_topics"] + document["topics_sink"])
    assert ran.returncode == 0, document
    own_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "compared": compared,
        "seconds": round(took_s, 1),
        "keys_per_second": round(compared / took_s),
        "own_cpu_s": round(own_s, 1),
        "own_cpu_us_per_key": round(own_s * 1e6 / compared, 1),
        "server_cpu_s": cpu,
        "asked": {name: count - asked_before[name] for name, count in asked().items()},
    }


def _pid(stack: Stack, server: str) -> int:
    running = getattr(stack, server)._process.running
    assert running is not None
    return int(running.pid)


def _cpu_s(servers: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU seconds of each server so far, including its child processes."""
    return {name: sum(map(_used_s, (pid, *_children(pid)))) for name, pid in servers.items()}


def _used_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) * _TICK_S  # with children that it has waited for


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _of_valkey(stack: Stack) -> dict[str, int]:
    with client_of(stack.valkey) as client:
        stats = client.info("stats")
    return {"commands": int(stats["total_commands_processed"])}


def _of_opensearch(url: str) -> dict[str, int]:
    found = ask(url, "GET", f"/{_TABLE}.find.*/_stats/search,get")["_all"]["primaries"]
    return {"searches": found["search"]["query_total"], "gets": found["get"]["total"]}


def _of_postgres(sql: psycopg.Connection[Any]) -> dict[str, int]:
    time.sleep(1.5)  # backends tell of what they read when they have been idle for a second
    query = "select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables where relname = %s"
    row = sql.execute(query, (_TABLE,)).fetchone()
    return {"rows_read": 0 if row is None else int(row[0])}
