"""The base class of local servers, and their options. Each server has one file, `*_server.py`.

A server knows how to run on this machine, and nothing about the stack it belongs to. It keeps its data in one folder,
records its process in a state file there, and ends only that process and its children.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

from cdc.artifacts.download_progress import Progress
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError
from cdc.local.process import Launch, ServerProcess
from cdc.local.server_description import Description

# fast: the server's own orderly shutdown, which disconnects clients; the next start needs no recovery.
# immediate: at once, with recovery at the next start. Kill, if the server has no such shutdown.
# kill: SIGKILL of the process and its children, like a crash or the OOM killer.
StopMode = Literal["fast", "immediate", "kill"]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How to run a server.

    Attributes:
        port: port for clients; None keeps the last port, or chooses a free one.
        settings: the server's own settings by name; they override ours.
        fast_start: for tests: ready sooner, but slower under load. It does not change durability.
        short_pauses: for measurements: collect garbage as Kafka's own scripts do, which needs more memory.
        heap: memory of a Java server as the JVM writes it ("512m"); None: the server's default. Others ignore it.
        version: major version of PostgreSQL ("16"); None: that of the data, else the default. Others ignore it.
    """

    port: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    fast_start: bool = False
    short_pauses: bool = False
    heap: str | None = None
    version: str | None = None


class LocalServer(ABC):
    """One local server with its data in `home`. Not thread-safe, but different servers may be used in parallel.

    Call any method in any state of the server. All raise LocalError on failure.
    """

    name: ClassVar[str]
    """Name on the command line, of the folder, and of the clients' port in the state file."""

    _other_ports: ClassVar[tuple[str, ...]] = ()
    _ready_s: ClassVar[float]
    _stop_s: ClassVar[float] = 30.0

    def __init__(self, home: Path, machine: Machine, options: ServerOptions, *, version: str) -> None:
        self.home = home
        self.options = options
        self._machine = machine
        self._data = home / "data"
        self._process = ServerProcess(home, machine, name=self.name, version=version)

    @property
    def port(self) -> int:
        """The port for clients; 0 before the first start."""
        return self._process.ports.get(self.name, 0)

    @property
    @abstractmethod
    def address(self) -> str:
        """The address for clients, without secrets."""

    @property
    def pid(self) -> int | None:
        """The pid of the running server, or None."""
        running = self._process.running
        return running.pid if running else None

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self._process.log

    @property
    def data(self) -> Path:
        """The folder with the server's data."""
        return self._data

    @abstractmethod
    def prepare(self, progress: Progress) -> None:
        """Download, verify and initialize program and data folder. Cheap if everything is in place."""

    def start(self) -> bool:
        """Start the server and wait until it answers. Returns False if it was running already."""
        if self._process.running is None:
            self._start()
            return True
        self._process.check_settings(self.options.settings, port=self.options.port)
        self._process.await_ready(self.ready, self._ready_s)
        return False

    def ready(self) -> bool:
        """Return whether the server answers its own protocol now. Never raises."""
        return self.port > 0 and self._process.running is not None and self._answers()

    def stop(self, mode: StopMode = "fast") -> None:
        """End the process and its children, and wait until they are gone. Does nothing if it does not run."""
        self._process.stop([(signal.SIGTERM, self._stop_s)] if mode == "fast" else ())

    def kill(self) -> None:
        """Send SIGKILL to the process and its children. They are gone on return, and `start` works."""
        self.stop("kill")

    def pause(self) -> None:
        """Freeze the server: it keeps its connections and answers nothing, until `resume` or its end."""
        self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `pause`."""
        self._process.signal(signal.SIGCONT)

    def restart(self, mode: StopMode = "fast", *, settings: Mapping[str, str] | None = None) -> None:
        """Stop and start the server on the same port. `settings` replace those of the options from now on."""
        self.stop(mode)
        if settings is not None:
            self.options = replace(self.options, settings=settings)
        self.start()

    def describe(self) -> Description:
        """Describe the server without changing anything."""
        return self._process.describe(self.ready, address=self.address, exports=self._exports())

    @abstractmethod
    def _start(self) -> None:
        """Start the process of a server that does not run."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether the running server answers. Never raises."""

    @abstractmethod
    def _exports(self) -> Mapping[str, str]:
        """Return the environment variables that a program needs to reach the server."""

    def _launch(
        self,
        command: Callable[[Mapping[str, int]], Launch],
        *,
        probe: Callable[[], bool] | None = None,
        ready_s: float | None = None,
    ) -> None:
        """Run `command`, which is given the ports by name, and wait until `probe` (default: `ready`) is true."""
        port = self.options.port
        self._process.launch(
            command,
            probe or self.ready,
            roles=(self.name, *self._other_ports),
            wanted={self.name: port} if port else {},
            settings=self.options.settings,
            ready_s=ready_s or self._ready_s,
        )

    def _unprepared(self) -> LocalError:
        return LocalError(f"{self.name} was not prepared", hint="call prepare first")
