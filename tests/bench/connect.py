"""Runs Kafka Connect with Debezium's PostgreSQL connector from Maven's jars, for comparison with Tailrace.

One distributed Connect worker runs as its documentation recommends, with the given heap. Exactly once uses Connect's
`exactly.once.source.support`; without it the connector delivers at least once.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from psycopg.conninfo import conninfo_to_dict

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.fetch import fetch
from cdc.artifacts.java import find_java
from cdc.artifacts.lock_file import parse_lock, version_of
from cdc.artifacts.machine import Machine
from cdc.local.stack import Stack
from tests.bench.daemon import free_port

_LOCK: Final = Path(__file__).with_name("debezium.lock")
OWN_HEAP: Final = "2G"
"""What bin/connect-distributed.sh grants."""

_READY_S: Final = 120.0
_PARTITIONS: Final = 4  # as many as a topic of ours has by default

# What Debezium's and Kafka's own pages name for throughput; the producer's as ours is. `poll.interval.ms` is how long
# the connector waits for more when its queue is empty: half a second by default, which would be its latency.
_TUNED: Final = {
    "max.batch.size": "20480",
    "max.queue.size": "81920",
    "poll.interval.ms": "5",
    "producer.override.linger.ms": "5",
    "producer.override.batch.size": "1000000",
    "producer.override.buffer.memory": "67108864",
    "producer.override.compression.type": "lz4",
}


class Connect:
    """One worker; use as a context manager."""

    def __init__(self, stack: Stack, folder: Path, name: str, *, exactly_once: bool, heap: str = OWN_HEAP) -> None:
        """Create a worker. `heap` is the largest heap of the JVM, for example `512M`."""
        self._heap = ("-Xms256M", f"-Xmx{heap}")
        self._exactly_once = exactly_once
        self._stack = stack
        self._folder = folder
        self._name = name
        self._url = f"http://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        machine = Machine.here()
        artifacts = parse_lock(_LOCK.read_text(encoding="utf-8"), name=_LOCK.name)
        jars = fetch(artifacts, machine=machine, progress=NoProgress(), label="Debezium")
        properties = self._folder / f"{self._name}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        command = [str(find_java(machine, NoProgress()).program), *self._heap, "-cp", os.pathsep.join(map(str, jars))]
        with (self._folder / f"{self._name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "org.apache.kafka.connect.cli.ConnectDistributed", str(properties)], stdout=log, stderr=log
            )
        self._until("the worker answers", lambda: self._ask("GET", "/connectors") is not None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """The pid of the worker's JVM."""
        assert self._process is not None
        return self._process.pid

    def start(
        self,
        name: str,
        table: str,
        *,
        slot: str,
        snapshot: str = "no_data",
        tuned: bool = True,
        more: Mapping[str, str] | None = None,
    ) -> str:
        """Start a connector on an existing slot with the additional settings `more`. Returns the topic of the table."""
        config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            **self._source(),
            "plugin.name": "pgoutput",
            "slot.name": slot,
            "publication.name": f"cdc_{name}",
            "publication.autocreate.mode": "disabled",
            "table.include.list": table,
            "topic.prefix": name,
            "snapshot.mode": snapshot,
            "topic.creation.default.partitions": str(_PARTITIONS),
            "topic.creation.default.replication.factor": "1",
            **({"exactly.once.support": "required"} if self._exactly_once else {}),
            **(_TUNED if tuned else {}),
            **(more or {}),
        }
        self._until(
            f"the connector {name} is accepted",
            lambda: self._ask("POST", "/connectors", {"name": name, "config": config}) is not None,
        )
        self._until(f"the task of {name} runs", lambda: self._task(name) == "RUNNING")
        return f"{name}.{table}"

    def stop(self, name: str) -> None:
        """Remove a connector but keep its slot."""
        self._until("it is removed", lambda: self._ask("DELETE", f"/connectors/{name}") is not None)

    def _task(self, name: str) -> str:
        status = self._ask("GET", f"/connectors/{name}/status") or {}
        states = [task["state"] for task in status.get("tasks", [])]
        if "FAILED" in states:
            raise SystemExit(f"bench: Debezium's task failed:\n{status['tasks'][0]['trace'][:2000]}")
        return states[0] if states else ""

    def _source(self) -> dict[str, str]:
        server = conninfo_to_dict(self._stack.postgres.dsn)
        return {
            "database.hostname": str(server["host"]),
            "database.port": str(server["port"]),
            "database.user": str(server["user"]),
            "database.password": str(server.get("password", "")),
            "database.dbname": str(server["dbname"]),
        }

    def _settings(self) -> dict[str, str]:
        converter = "org.apache.kafka.connect.json.JsonConverter"
        topics = {f"{use}.storage.topic": f"{self._name}-{use}" for use in ("config", "offset", "status")}
        return {
            "bootstrap.servers": self._stack.kafka.bootstrap,
            "group.id": self._name,
            "listeners": self._url,
            "key.converter": converter,
            "value.converter": converter,
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "exactly.once.source.support": "enabled" if self._exactly_once else "disabled",
            "connector.client.config.override.policy": "All",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            **topics,
            **{f"{use}.storage.replication.factor": "1" for use in ("config", "offset", "status")},
        }

    def _until(self, what: str, done: Any) -> None:
        deadline_s = time.monotonic() + _READY_S
        while not done():
            if time.monotonic() > deadline_s or (self._process and self._process.poll() is not None):
                log = (self._folder / f"{self._name}.log").read_text(errors="replace")
                raise SystemExit(f"bench: Kafka Connect: not so in {_READY_S:.0f} s: {what}\n{log[-4000:]}")
            time.sleep(0.2)

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any] | None:
        """Return the answer, or None without one."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return {"answer": json.loads(text)} if path == "/connectors" else dict(json.loads(text or b"{}"))
        except urllib.error.HTTPError as error:
            if error.code == 400:
                raise SystemExit(f"bench: Kafka Connect refuses: {error.read().decode()[:2000]}") from None
            return None
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return None


def version() -> str:
    """Return the version of Debezium."""
    return version_of(parse_lock(_LOCK.read_text(encoding="utf-8"), name=_LOCK.name), "debezium-connector-postgres")
