"""One of our commands as a process of its own, started, killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import Final

from cdc.demo.place import Place
from cdc.errors import LocalError

_STOP_S: Final = 20.0
_LOG_LINES: Final = 8


class Program:
    """``cdc <arguments> -c <the demo's configuration>``. Not thread-safe."""

    def __init__(self, place: Place, name: str, *arguments: str) -> None:
        """`name` is what people call it, and its log file's."""
        self._place = place
        self._name = name
        self._arguments = arguments
        self._log = place.folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process; 0 before the first start."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start it."""
        # Settings of the caller's own cdc.toml may lie in the environment; they are not for this one.
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cdc", *self._arguments, "-c", str(self._place.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environ,
                start_new_session=True,  # Ctrl-C is for the demo, which ends its daemons in order
            )
        self._place.remember(self._process.pid)

    def check(self) -> None:
        """Raise LocalError when the process has ended by itself."""
        if not self.alive:
            code = self._process.returncode if self._process is not None else None
            raise LocalError(f"{self._name} ended with exit code {code}", hint=self.last_words())

    def kill(self) -> None:
        """As kill -9 does; gone on return."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that takes too long."""
        if self._process is None or not self.alive:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def last_words(self) -> str:
        """What it said before it ended: why it stopped, or else the end of its log."""
        try:
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        with contextlib.suppress(ValueError, KeyError, IndexError):
            last = json.loads(lines[-1])
            return f"{last['state']}: {last['message']}\n{last.get('hint', '')}"
        return "\n".join(["its log ends with:", *lines[-_LOG_LINES:]])
