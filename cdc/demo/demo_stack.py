"""Owns the servers and files of a demo: a stack of `cdc local`, and a folder with configuration and logs.

The folder marks the stack as a demo's. So a later demo can wipe what a killed or kept demo left, but it never wipes
another stack.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc.artifacts.cache_folder import locked
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError
from cdc.local.ports import choose_ports
from cdc.local.process_identity import Identity, identify, send, wait_gone
from cdc.local.stack import SERVERS, Stack

NAME: Final = "demo"
"""`name` in cdc.toml: the prefix of topics, slot and publication."""

_GONE_S: Final = 10.0
_PROCESSES: Final = "processes.json"
_CONFIG: Final = """\
name = "{name}"                          # topics: {name}.<schema>.<table>

[source]
dsn = "{dsn}"
tables = ["public.pgbench_*", "shop.*"]
keyless = ["public.pgbench_history"]   # no key: its topic is not compacted

[kafka]
bootstrap = "{bootstrap}"
replication_factor = 1                 # one broker, on this machine:
allow_unreplicated = true              # leave both out in production

[http]
listen = "127.0.0.1:{port}"             # /status /metrics /readyz
"""
_STORES: Final = """
[sinks.search]
kind = "search"                        # an index per table
url = "{search}"
tables = ["shop.products", "shop.orders"]
index = {{ number_of_replicas = 0 }}     # one node

[sinks.cache]
kind = "cache"                         # a key per row
url = "{cache}"
tables = ["shop.customers", "shop.products"]

[sinks.documents]
kind = "search"                        # a view of the lake, as an index
url = "{search}"
tables = ["views.order_document"]
index = {{ number_of_replicas = 0 }}

[sinks.answers]
kind = "cache"                         # two views, as keys
url = "{cache}"
tables = ["views.top_customers", "views.timeline"]
"""
_LAKE: Final = """
[sinks.lake]
kind = "warehouse"                     # tables and views, maintained by Spark
path = "{path}"
tables = ["shop.*"]
history = ["shop.orders"]              # every version of each order
views = "{views}"

[sinks.lake.spark]                     # it runs for two minutes: compile quickly rather than well
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


@dataclass(slots=True)
class DemoStack:
    """Servers and files of one demo. `keeps_files` and `keeps_all` decide what stays after the demo."""

    stack: Stack
    folder: Path
    keeps_files: bool = False
    keeps_all: bool = False

    @property
    def config(self) -> Path:
        """The cdc.toml of the demo."""
        return self.folder / "cdc.toml"

    @property
    def lake(self) -> Path:
        """The folder of the lake."""
        return self.folder / "lake"

    def up(self) -> None:
        """Start the servers with `cdc local up`, which shows its downloads."""
        servers = [server.name for server in self.stack.servers]
        command = ["cdc", "local", "up", *servers, "--stack", self.stack.name]
        if subprocess.run([sys.executable, "-m", *command], stdout=subprocess.DEVNULL, check=False).returncode:
            raise LocalError("cannot start the servers", hint="the lines above show why", command=" ".join(command))

    def write_config(self, views: Path | None) -> str:
        """Write cdc.toml for the running servers, with sinks if there is a folder of views. Returns its text."""
        port = choose_ports(["http"], wanted={}, remembered={})["http"]
        stack = self.stack
        text = _CONFIG.format(name=NAME, dsn=stack.postgres.printable_dsn, bootstrap=stack.kafka.bootstrap, port=port)
        if views is not None:
            text += _STORES.format(search=stack.opensearch.url, cache=stack.valkey.url)
            text += _LAKE.format(path=self.lake, views=views)
        self.config.write_text(text, encoding="utf-8")
        return text

    def remember(self, pid: int) -> None:
        """Record a process that a later demo must end if this one is killed."""
        identity = identify(pid)
        if identity is not None:
            file = self.folder / _PROCESSES
            text = json.dumps([*_remembered(file), [identity.pid, identity.started]])
            file.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def demo_stack(stack_name: str, servers: Sequence[str] = SERVERS) -> Iterator[DemoStack]:
    """Provide an empty stack. On exit, servers and files are removed; after an error the files stay.

    Raises LocalError if another demo uses the stack, or if the stack has data of another program.
    """
    machine = Machine.here()
    stack = Stack(stack_name, servers, machine=machine)
    whole = Stack(stack_name, SERVERS, machine=machine)  # an earlier demo may have left any server
    folder = machine.cache / "demo" / stack_name
    with _held(machine, stack_name):
        if stack.home.exists() and not folder.exists():
            raise LocalError(
                f"stack {stack_name!r} exists and does not belong to a demo",
                hint="a demo wipes its stack; use another name",
                command="python -m cdc.demo --stack demo-2",
            )
        _clear(whole, folder)
        machine.folder(folder)
        demo = DemoStack(stack, folder)
        try:
            yield demo
        except BaseException as error:
            _clear(whole, folder, keep_files=not isinstance(error, KeyboardInterrupt))
            raise
        if not demo.keeps_all:
            _clear(whole, folder, keep_files=demo.keeps_files)


def _clear(stack: Stack, folder: Path, *, keep_files: bool = False) -> None:
    """End the processes and servers of a demo and remove its data; with `keep_files`, the folder stays."""
    for pid, started in _remembered(folder / _PROCESSES):
        left = Identity(pid, started)
        if send(left, signal.SIGKILL):
            wait_gone([left], deadline_s=_GONE_S)
    if stack.home.exists():
        stack.down("kill", wipe=True)
    if not keep_files:
        shutil.rmtree(folder, ignore_errors=True)


def _remembered(file: Path) -> list[tuple[int, str]]:
    """Return the recorded processes as pid and start time; none if the file is missing or incomplete."""
    with contextlib.suppress(OSError, ValueError):
        return [(int(pid), str(started)) for pid, started in json.loads(file.read_text(encoding="utf-8"))]
    return []


@contextlib.contextmanager
def _held(machine: Machine, stack_name: str) -> Iterator[None]:
    """Hold the lock of this demo; it ends with the process."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(machine.cache / "locks" / f"demo-{stack_name}", machine=machine, deadline_s=0))
        except LocalError as error:
            raise LocalError(
                f"another demo uses stack {stack_name!r}",
                hint="wait for its end, or use another stack",
                command="python -m cdc.demo --stack demo-2",
            ) from error
        yield
