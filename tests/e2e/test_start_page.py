"""docs/start.md: its commands run as shown, with the addresses of real servers.

Installing is the one step that is not repeated: `make test` has just done it, so `make setup` finds it done.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.fixtures.faults.secured import free_ports
from tests.fixtures.servers.commands import psql_folder
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.servers.running_servers import Database, KafkaServer

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "start.md"
RUN: Final = "cdc run"


class Reader:
    """Somebody who follows the page: a folder, a shell, and a second terminal for `cdc run`."""

    def __init__(self, folder: Path, database: Database, kafka: KafkaServer) -> None:
        self._folder = folder
        self._log = folder / "run.log"
        self._running: subprocess.Popen[bytes] | None = None
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        app = f"{database.name}_app"
        self._names = {
            "postgresql://app@db.example.com:5432/shop": shlex.quote(make_conninfo(database.dsn, user=app)),
            "postgresql://cdc@db.example.com:5432/shop": database.dsn,
            "postgresql://postgres@db.example.com:5432/shop": database.dsn,
            "kafka.example.com:9092": kafka.bootstrap,
            "cdc_shop": f"cdc_{database.name}",
        }
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], psql_folder()])
        password = str(conninfo_to_dict(database.dsn).get("password", ""))
        self._environ = {
            **os.environ,
            "PATH": path,
            "TAILRACE_HTTP_LISTEN": listen,
            "TAILRACE_SOURCE_PASSWORD": password,
        }

    def follow(self, block: str) -> str:
        """Run a block; `cdc run` goes on in its own terminal. Returns what was printed on both streams."""
        for name, real in self._names.items():
            block = block.replace(name, real)
        if block.strip() == RUN:
            self._start()
            return ""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{block}\nended with {done.returncode}:\n{done.stdout}\n{self._said()}"
        return done.stdout

    def stop(self) -> int:
        """Ctrl-C in the second terminal."""
        assert self._running is not None
        self._running.send_signal(signal.SIGINT)
        return self._running.wait(90)

    def close(self) -> None:
        """Leave nothing running."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()

    def _start(self) -> None:
        with self._log.open("wb") as out:
            self._running = subprocess.Popen(
                RUN.split(), cwd=self._folder, env=self._environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        until(lambda: "capture_started" in self._said(), "capture starts", within_s=120)

    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""


@pytest.fixture
def reader(tmp_path: Path, database: Database, kafka: KafkaServer) -> Iterator[Reader]:
    """Somebody with a table of customers, in a clone in which everything is installed already."""
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.prefix) / "bin")
    (tmp_path / ".venv" / "ready").touch()
    with psycopg.connect(database.dsn, autocommit=True) as session:
        session.execute("create table customers (id int generated always as identity primary key, name text not null)")
        session.execute("insert into customers (name) values ('was there before')")
        session.execute(f"create role {database.name}_app login".encode())
        session.execute(f"grant insert on customers to {database.name}_app".encode())
    following = Reader(tmp_path, database, kafka)
    yield following
    following.close()
    with psycopg.connect(database.dsn, autocommit=True) as session:
        session.execute(f"drop owned by {database.name}_app; drop role {database.name}_app".encode())


def test_page_works_as_shown(reader: Reader) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    said: dict[str, str] = {}

    for block in blocks:
        if "slot drop" in block:
            assert reader.stop() == 0
        said[block] = reader.follow(block)

    def output_of(command: str) -> str:
        (found,) = [text for block, text in said.items() if command in block]
        return found

    assert "cdc, version" in output_of("--version")
    assert "wrote cdc.toml" in output_of("cdc init")
    assert "can start" in output_of("cdc doctor\n")
    assert "pg_create_logical_replication_slot" in output_of("doctor --sql")
    assert "insert public.customers  id=2  name=Ann" in output_of("cdc tail")
    assert "was there before" not in output_of("cdc tail")
    assert "RUNNING" in output_of("cdc status")
    assert "dropped" in output_of("slot drop")
    assert RUN in {block.strip() for block in blocks}
