"""`cdc run` as a process of its own, started, killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from http.client import HTTPException
from typing import Any, Final

from cdc.demo.place import Place
from cdc.errors import LocalError

_POLL_S: Final = 0.05
_READY_S: Final = 60.0
_STOP_S: Final = 20.0
_ANSWER_S: Final = 1.0
_LOG_LINES: Final = 8
_WORKING: Final = ("RUNNING", "CATCHING_UP")


class Capture:
    """The daemon. Not thread-safe, but for `status` and `state`."""

    def __init__(self, place: Place, port: int) -> None:
        self._place = place
        self._url = f"http://127.0.0.1:{port}/status"
        self._log = place.folder / "capture.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> str:
        """What a person would type."""
        return f"cdc run -c {self._place.config}"

    @property
    def alive(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process; 0 before the first start."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start it; `await_running` says when it captures."""
        # Settings of the caller's own cdc.toml may lie in the environment; they are not for this one.
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cdc", "run", "-c", str(self._place.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environ,
                start_new_session=True,  # Ctrl-C is for the demo, which ends its daemon in order
            )
        self._place.remember(self._process.pid)

    def await_running(self) -> None:
        """Wait until it captures. Raises LocalError with the end of its log when it ends or takes too long."""
        deadline_s = time.monotonic() + _READY_S
        while self.state() not in _WORKING:
            self.check()
            if time.monotonic() > deadline_s:
                raise LocalError(
                    f"capture is {self.state() or 'silent'} after {_READY_S:.0f} s", hint=self._last_words()
                )
            time.sleep(_POLL_S)

    def check(self) -> None:
        """Raise LocalError when the process has ended by itself."""
        if not self.alive:
            code = self._process.returncode if self._process is not None else None
            raise LocalError(f"capture ended with exit code {code}", hint=self._last_words())

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

    def status(self) -> dict[str, Any]:
        """The document of /status; empty while nothing answers."""
        try:
            with urllib.request.urlopen(self._url, timeout=_ANSWER_S) as answer:  # noqa: S310 - an address of ours
                document: dict[str, Any] = json.load(answer)
        except (OSError, ValueError, HTTPException):
            return {}
        return document

    def state(self) -> str:
        """The state of /status; empty while nothing answers."""
        return str(self.status().get("state", ""))

    def _last_words(self) -> str:
        """What it said before it ended: why it stopped, or else the end of its log."""
        try:
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        with contextlib.suppress(ValueError, KeyError, IndexError):
            last = json.loads(lines[-1])
            return f"{last['state']}: {last['message']}\n{last.get('hint', '')}"
        return "\n".join(["its log ends with:", *lines[-_LOG_LINES:]])
