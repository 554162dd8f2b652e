"""A named stack: servers that belong together, kept apart from every other stack's by folder and ports.

    with Stack("demo") as stack:
        connect(stack.postgres.dsn, stack.kafka.bootstrap)
        stack.postgres.kill()      # as a crash does
        stack.postgres.start()     # same port, same data

A new server is one file that fulfils `cdc.local.local_server.Server` and one line in `_KINDS`.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Final, TypeVar

from cdc.artifacts.cache_folder import locked
from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError
from cdc.local.kafka_server import Kafka
from cdc.local.local_server import Description, Server, ServerOptions, StopMode
from cdc.local.opensearch_server import OpenSearch
from cdc.local.postgres_server import Postgres
from cdc.local.registry_server import Registry
from cdc.local.valkey_server import Valkey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from cdc.artifacts.download_progress import Progress

_S = TypeVar("_S")

_KINDS: Final[Mapping[str, Callable[[Path, Machine, ServerOptions], Server]]] = {
    "postgres": Postgres,
    "kafka": Kafka,
    "registry": Registry,
    "opensearch": OpenSearch,
    "valkey": Valkey,
}
SERVERS: Final = tuple(_KINDS)
DEFAULT_SERVERS: Final = ("postgres", "kafka")
"""Those that are started when nobody names any."""
DEFAULT: Final = "default"
# A name is a folder's name and part of a socket's path.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
# Another command may be fetching, which is waited for, or archiving classes at a first stop.
_LOCK_DEADLINE_S: Final = 900.0


class Stack:
    """Servers under one name. As a context: up on entry; on exit those that the entry started are stopped.

    Args:
        name: lower case letters, digits, ``-`` and ``_``.
        servers: which; see `SERVERS`.
        options: by server; a server without any runs as it does by default.
        machine: where; this machine unless a test says otherwise.
        wipe: on exit stop all of them and remove the data.

    Raises:
        LocalError: the name is none, or a server is not known.
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
                f"not a name of a stack: {name!r}",
                hint="up to 40 lower case letters, digits, - and _, beginning with a letter or digit",
            )
        unknown = sorted({*servers, *(options or {})} - set(_KINDS))
        if unknown:
            raise LocalError(f"there is no local server {', '.join(unknown)}", hint=f"there are: {', '.join(SERVERS)}")
        self.name = name
        self.machine = machine or Machine.here()
        self.home = self.machine.stacks / name
        self._wipe = wipe
        self._started: list[Server] = []
        chosen = options or {}
        self._servers = {
            kind: _KINDS[kind](self.home / kind, self.machine, chosen.get(kind, ServerOptions()))
            for kind in dict.fromkeys(servers)
        }

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers of this object, in the order given."""
        return tuple(self._servers.values())

    @property
    def postgres(self) -> Postgres:
        """The PostgreSQL server; raises LocalError when the stack was made without one."""
        return self._server("postgres", Postgres)

    @property
    def kafka(self) -> Kafka:
        """The Kafka broker; raises LocalError when the stack was made without one."""
        return self._server("kafka", Kafka)

    @property
    def registry(self) -> Registry:
        """The schema registry; raises LocalError when the stack was made without one."""
        return self._server("registry", Registry)

    @property
    def opensearch(self) -> OpenSearch:
        """The OpenSearch node; raises LocalError when the stack was made without one."""
        return self._server("opensearch", OpenSearch)

    @property
    def valkey(self) -> Valkey:
        """The Valkey server; raises LocalError when the stack was made without one."""
        return self._server("valkey", Valkey)

    def up(self, progress: Progress | None = None) -> list[Description]:
        """Start what does not run and wait until all answer; what runs is left as it is.

        If one fails, or this is interrupted, those that did not run before do not run after.
        """
        told = _Interruptible(progress or NoProgress())
        with self._locked():
            idle = [server for server in self.servers if server.describe().pid is None]

            def give_up() -> None:
                told.interrupt()
                for server in idle:
                    with contextlib.suppress(LocalError):
                        server.stop("kill")

            try:
                self._each(lambda server: _bring_up(server, told), give_up)
            except BaseException:
                give_up()  # once more, now that nobody can have started one since
                raise
        self._started += [server for server in idle if server not in self._started]
        return self.describe()

    def down(self, mode: StopMode = "fast", *, wipe: bool = False) -> list[Description]:
        """Stop the servers of this object; with `wipe` remove their data too."""
        with self._locked():
            self._each(lambda server: server.stop(mode))
            described = self.describe()
            for server in self.servers if wipe else ():
                if (self.home / server.name).exists():
                    shutil.rmtree(self.home / server.name)
            with contextlib.suppress(OSError):
                self.home.rmdir()  # only when it holds no data of any server
        self._started.clear()
        return described

    def describe(self) -> list[Description]:
        """How every server does; changes nothing."""
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

    def _each(self, work: Callable[[Server], None], interrupt: Callable[[], None] = lambda: None) -> None:
        """Do it for every server at once. All are waited for, then the first failure is raised.

        `interrupt` is called when one fails or we are interrupted, before the others are waited for.
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
            raise LocalError(f"stack {self.name} was made without {name}", hint=f"name {name} among its servers")
        return server


def made(name: str, machine: Machine | None = None) -> tuple[str, ...]:
    """The servers to speak of: the ordinary ones, and those others that the stack of that name has."""
    home = (machine or Machine.here()).stacks / name
    return tuple(kind for kind in SERVERS if kind in DEFAULT_SERVERS or (home / kind).exists())


class _Interruptible:
    """A `Progress` by which threads that fetch and prepare learn that their work is not wanted any more."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._over = Event()

    def interrupt(self) -> None:
        """From now on everything but `end` raises LocalError."""
        self._over.set()

    def check(self) -> None:
        """Raise LocalError when it was interrupted."""
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


def _bring_up(server: Server, progress: _Interruptible) -> None:
    server.prepare(progress)
    progress.check()
    server.start()
