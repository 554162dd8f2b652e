"""Runs a named stack of local servers, with folders and ports of its own.

    with Stack("demo") as stack:
        connect(stack.postgres.dsn, stack.kafka.bootstrap)
        stack.postgres.kill()      # like a crash
        stack.postgres.start()     # same port, same data

To add a server, derive a class from `cdc.local.local_server.LocalServer` in a file of its own, and add it to `_KINDS`.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Final, Self, TypeVar

from cdc.artifacts.cache_folder import locked
from cdc.artifacts.download_progress import NoProgress, Progress
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError
from cdc.local.kafka_server import Kafka
from cdc.local.local_server import LocalServer, ServerOptions, StopMode
from cdc.local.opensearch_server import OpenSearch
from cdc.local.postgres_server import Postgres
from cdc.local.registry_server import Registry
from cdc.local.server_description import Description
from cdc.local.valkey_server import Valkey

_S = TypeVar("_S")

_KINDS: Final[Mapping[str, Callable[[Path, Machine, ServerOptions], LocalServer]]] = {
    "postgres": Postgres,
    "kafka": Kafka,
    "registry": Registry,
    "opensearch": OpenSearch,
    "valkey": Valkey,
}
SERVERS: Final = tuple(_KINDS)
DEFAULT_SERVERS: Final = ("postgres", "kafka")
"""Servers that `cdc local up` starts without arguments."""
DEFAULT: Final = "default"
# A name becomes the name of a folder and part of the path of a socket.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
# Another command may be downloading, or archiving classes at a first stop.
_LOCK_DEADLINE_S: Final = 900.0


class Stack:
    """Servers with a common name. As a context manager, it starts them on entry and stops those it started on exit.

    Args:
        name: lower case letters, digits, ``-`` and ``_``.
        servers: names of servers, see `SERVERS`.
        options: options by server; default options for the others.
        machine: this machine, unless a test passes another one.
        wipe: stop all servers on exit and remove their data.

    Raises:
        LocalError: the name is invalid, or a server is unknown.
    """

    def __init__(
        self,
        name: str = DEFAULT,
        servers: Sequence[str] = DEFAULT_SERVERS,
        *,
        options: Mapping[str, ServerOptions] | None = None,
        machine: Machine | None = None,
        wipe: bool = False,
    ) -> None:
        if _NAME.fullmatch(name) is None:
            raise LocalError(
                f"invalid name of a stack: {name!r}",
                hint="expected up to 40 lower-case letters, digits, - and _, beginning with a letter or digit",
            )
        unknown = sorted({*servers, *(options or {})} - set(_KINDS))
        if unknown:
            raise LocalError(f"unknown local server {', '.join(unknown)}", hint=f"available: {', '.join(SERVERS)}")
        self.name = name
        self.machine = machine or Machine.here()
        self.home = self.machine.stacks / name
        self._wipe = wipe
        self._started: list[LocalServer] = []
        chosen = options or {}
        self._servers = {
            kind: _KINDS[kind](self.home / kind, self.machine, chosen.get(kind, ServerOptions()))
            for kind in dict.fromkeys(servers)
        }

    @property
    def servers(self) -> tuple[LocalServer, ...]:
        """The servers of this object, in the given order."""
        return tuple(self._servers.values())

    @property
    def postgres(self) -> Postgres:
        """The PostgreSQL server; raises LocalError if this object has none."""
        return self._server("postgres", Postgres)

    @property
    def kafka(self) -> Kafka:
        """The Kafka broker; raises LocalError if this object has none."""
        return self._server("kafka", Kafka)

    @property
    def registry(self) -> Registry:
        """The schema registry; raises LocalError if this object has none."""
        return self._server("registry", Registry)

    @property
    def opensearch(self) -> OpenSearch:
        """The OpenSearch node; raises LocalError if this object has none."""
        return self._server("opensearch", OpenSearch)

    @property
    def valkey(self) -> Valkey:
        """The Valkey server; raises LocalError if this object has none."""
        return self._server("valkey", Valkey)

    def up(self, progress: Progress | None = None) -> list[Description]:
        """Start the servers that do not run, and wait until all answer. Running servers are not changed.

        If one fails, or at an interrupt, all servers that this call started are killed.
        """
        interruptible = _Interruptible(progress or NoProgress())
        with self._locked():
            idle = [server for server in self.servers if server.describe().pid is None]

            def give_up() -> None:
                interruptible.interrupt()
                for server in idle:
                    with contextlib.suppress(LocalError):
                        server.stop("kill")

            try:
                self._each(lambda server: _bring_up(server, interruptible), give_up)
            except BaseException:
                give_up()  # again, because a thread may have started a server after the first call
                raise
        self._started += [server for server in idle if server not in self._started]
        return self.describe()

    def down(self, mode: StopMode = "fast", *, wipe: bool = False) -> list[Description]:
        """Stop the servers of this object; with `wipe`, also remove their data. At an interrupt, they are killed."""

        def hurry() -> None:
            for server in self.servers if isinstance(sys.exception(), KeyboardInterrupt) else ():
                with contextlib.suppress(LocalError):
                    server.stop("kill")

        with self._locked():
            self._each(lambda server: server.stop(mode), hurry)
            described = self.describe()
            for server in self.servers if wipe else ():
                if (self.home / server.name).exists():
                    shutil.rmtree(self.home / server.name)
            with contextlib.suppress(OSError):
                self.home.rmdir()  # fails if data of a server is left
        self._started.clear()
        return described

    def describe(self) -> list[Description]:
        """Describe every server without changing anything."""
        return [server.describe() for server in self.servers]

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._wipe:
            self.down("immediate", wipe=True)
            return
        for server in self._started:
            server.stop()
        self._started.clear()

    def _each(self, work: Callable[[LocalServer], None], interrupt: Callable[[], None] = lambda: None) -> None:
        """Call `work` for all servers in parallel. Wait for all of them, then raise the first failure.

        `interrupt` is called at a failure or an interrupt, before the wait for the other servers.
        """
        pool = ThreadPoolExecutor(max(1, len(self._servers)))
        try:
            for job in [pool.submit(work, server) for server in self.servers]:
                job.result()
        except BaseException:
            interrupt()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self.machine.cache / "locks" / f"stack-{self.name}"
        with locked(lock, machine=self.machine, deadline_s=_LOCK_DEADLINE_S):
            yield

    def _server(self, name: str, kind: type[_S]) -> _S:
        server = self._servers.get(name)
        if not isinstance(server, kind):
            raise LocalError(f"stack {self.name} was created without {name}", hint=f"add {name} to its servers")
        return server


def existing_servers(name: str, machine: Machine | None = None) -> tuple[str, ...]:
    """Return the default servers, and the other servers that the stack of this name has."""
    home = (machine or Machine.here()).stacks / name
    return tuple(kind for kind in SERVERS if kind in DEFAULT_SERVERS or (home / kind).exists())


class _Interruptible:
    """A `Progress` that stops threads which download or prepare, after `interrupt`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._over = Event()

    def interrupt(self) -> None:
        """From now on, all methods except `end` raise LocalError."""
        self._over.set()

    def check(self) -> None:
        """Raise LocalError after `interrupt`."""
        if self._over.is_set():
            raise LocalError("interrupted, or another server failed")

    def step(self, text: str) -> None:
        """See `Progress`."""
        self.check()
        self._progress.step(text)

    def begin(self, what: str, total_bytes: int) -> None:
        """See `Progress`."""
        self.check()
        self._progress.begin(what, total_bytes)

    def advance(self, what: str, count_bytes: int) -> None:
        """See `Progress`."""
        if count_bytes > 0:
            self.check()
        self._progress.advance(what, count_bytes)

    def end(self, what: str) -> None:
        """See `Progress`."""
        self._progress.end(what)


def _bring_up(server: LocalServer, progress: _Interruptible) -> None:
    server.prepare(progress)
    progress.check()
    server.start()
