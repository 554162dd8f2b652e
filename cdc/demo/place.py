"""Where a demo takes place: a stack of servers of its own, a folder for its files, and nobody else's data.

The folder marks the stack of that name as the demo's, so that a later demo may wipe what an earlier one left behind
(it was killed, or kept on purpose), and never wipes another stack.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

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
kind = "search"                        # an index of each table
url = "{search}"
tables = ["shop.products", "shop.orders"]
index = {{ number_of_replicas = 0 }}     # one node

[sinks.cache]
kind = "cache"                         # a key of each row
url = "{cache}"
tables = ["shop.customers", "shop.products"]

[sinks.documents]
kind = "search"                        # a view of the lake, as an index
url = "{search}"
tables = ["views.order_document"]
index = {{ number_of_replicas = 0 }}

[sinks.answers]
kind = "cache"                         # and two as keys
url = "{cache}"
tables = ["views.top_customers", "views.timeline"]
"""
_LAKE: Final = """
[sinks.lake]
kind = "warehouse"                     # tables and views, kept by Spark
path = "{path}"
tables = ["shop.*"]
history = ["shop.orders"]              # every version of each order
views = "{views}"

[sinks.lake.spark]                     # it lives for two minutes: compile quickly rather than well
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


@dataclass(slots=True)
class Place:
    """The stack, and the files of one demo. `leave` says what of it is left when the demo is over."""

    stack: Stack
    folder: Path
    leave: Literal["nothing", "files", "everything"] = "nothing"

    @property
    def config(self) -> Path:
        """The cdc.toml of the demo."""
        return self.folder / "cdc.toml"

    @property
    def lake(self) -> Path:
        """Where the lake is."""
        return self.folder / "lake"

    def write_config(self, views: Path | None) -> str:
        """Write cdc.toml for the running servers and return its text; with sinks when there is a folder of views."""
        port = choose_ports(["http"], wanted={}, remembered={})["http"]
        stack = self.stack
        text = _CONFIG.format(name=NAME, dsn=stack.postgres.printable_dsn, bootstrap=stack.kafka.bootstrap, port=port)
        if views is not None:
            text += _STORES.format(search=stack.opensearch.url, cache=stack.valkey.url)
            text += _LAKE.format(path=self.lake, views=views)
        self.config.write_text(text, encoding="utf-8")
        return text

    def remember(self, pid: int) -> None:
        """Note a process that a later demo must end if this one cannot."""
        identity = identify(pid)
        if identity is not None:
            file = self.folder / _PROCESSES
            text = json.dumps([*_remembered(file), [identity.pid, identity.started]])
            file.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def take_place(stack_name: str, servers: Sequence[str] = SERVERS) -> Iterator[Place]:
    """A fresh place with these servers. All of it is gone on exit, unless it says otherwise; after an error files stay.

    Raises LocalError when another demo runs there, or when the stack is not a demo's.
    """
    machine = Machine.here()
    stack = Stack(stack_name, servers, machine=machine)
    whole = Stack(stack_name, SERVERS, machine=machine)  # what an earlier demo may have left
    folder = machine.cache / "demo" / stack_name
    with _held(machine, stack_name):
        if stack.home.exists() and not folder.exists():
            raise LocalError(
                f"there is a stack {stack_name!r} with data that is not a demo's",
                hint="a demo wipes its stack; name another one",
                command="python -m cdc.demo --stack demo-2",
            )
        _clear(whole, folder)
        machine.folder(folder)
        place = Place(stack, folder)
        try:
            yield place
        except BaseException as error:
            _clear(whole, folder, keep_files=not isinstance(error, KeyboardInterrupt))
            raise
        if place.leave != "everything":
            _clear(whole, folder, keep_files=place.leave == "files")


def _clear(stack: Stack, folder: Path, *, keep_files: bool = False) -> None:
    """End the process of a demo and its servers, and remove everything; with `keep_files` all but logs and config."""
    for pid, started in _remembered(folder / _PROCESSES):
        left = Identity(pid, started)
        if send(left, signal.SIGKILL):
            wait_gone([left], deadline_s=_GONE_S)
    if stack.home.exists():
        stack.down("kill", wipe=True)
    if not keep_files:
        shutil.rmtree(folder, ignore_errors=True)


def _remembered(file: Path) -> list[tuple[int, str]]:
    """Processes of a demo: pid and start; none when the file is not there or was being written."""
    with contextlib.suppress(OSError, ValueError):
        return [(int(pid), str(started)) for pid, started in json.loads(file.read_text(encoding="utf-8"))]
    return []


@contextlib.contextmanager
def _held(machine: Machine, stack_name: str) -> Iterator[None]:
    """The lock of this demo's name; it goes with the process."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(machine.cache / "locks" / f"demo-{stack_name}", machine=machine, deadline_s=0))
        except LocalError as error:
            raise LocalError(
                f"another demo runs on stack {stack_name!r}",
                hint="wait for it, or name another stack",
                command="python -m cdc.demo --stack demo-2",
            ) from error
        yield
