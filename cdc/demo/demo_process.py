"""Runs commands of Tailrace for the demo, as child processes."""

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

from cdc.demo.demo_stack import DemoStack
from cdc.errors import LocalError

WORKING: Final = ("RUNNING", "CATCHING_UP")
_STOP_S: Final = 20.0
_READY_S: Final = 60.0
_POLL_S: Final = 0.05
_ANSWER_S: Final = 1.0
_LOG_LINES: Final = 8


def run_command(demo: DemoStack, *arguments: str) -> tuple[bool, str]:
    """Run ``cdc <arguments> -c <configuration of the demo>`` to its end. Returns success and standard output."""
    with (demo.folder / f"{arguments[0]}.log").open("ab") as log:
        done = subprocess.run(
            _command(demo, arguments), stdout=subprocess.PIPE, stderr=log, env=_environ(), check=False
        )
    return done.returncode == 0, done.stdout.decode(errors="replace")


class DemoProcess:
    """``cdc <arguments> -c <configuration of the demo>`` in the background. `name` is the name of its log file."""

    def __init__(self, demo: DemoStack, name: str, *arguments: str) -> None:
        self._demo = demo
        self._name = name
        self._arguments = arguments
        self._log = demo.folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                _command(self._demo, self._arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environ(),
                start_new_session=True,  # Ctrl-C is for the demo, which stops its processes in order
            )
        self._demo.remember(self._process.pid)

    def check(self) -> None:
        """Raise LocalError with the end of the log if the process has ended."""
        if self._process is None or self._process.poll() is not None:
            code = self._process.returncode if self._process is not None else None
            raise LocalError(f"{self._name} ended with exit code {code}", hint=self.end_of_log())

    def kill(self) -> None:
        """Send SIGKILL and wait for the end of the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL at the deadline."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def end_of_log(self) -> str:
        """Return the error of the last log event, or else the last lines of the log."""
        try:
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        with contextlib.suppress(ValueError, KeyError, IndexError):
            last = json.loads(lines[-1])
            return f"{last['state']}: {last['message']}\n{last.get('hint', '')}"
        return "\n".join(["its log ends with:", *lines[-_LOG_LINES:]])


class CaptureProcess(DemoProcess):
    """`cdc run`. `port` is that of its /status."""

    def __init__(self, demo: DemoStack, port: int) -> None:
        super().__init__(demo, "capture", "run")
        self._url = f"http://127.0.0.1:{port}/status"

    def await_running(self) -> None:
        """Wait until it captures. Raises LocalError if it ends or takes too long."""
        deadline_s = time.monotonic() + _READY_S
        while (state := self.status().get("state")) not in WORKING:
            self.check()
            if time.monotonic() > deadline_s:
                raise LocalError(f"capture is in state {state} after {_READY_S:.0f} s", hint=self.end_of_log())
            time.sleep(_POLL_S)

    def status(self) -> dict[str, Any]:
        """Return the document of /status; empty without an answer."""
        try:
            with urllib.request.urlopen(self._url, timeout=_ANSWER_S) as answer:  # noqa: S310 - our own server
                return dict(json.load(answer))
        except (OSError, ValueError, HTTPException):
            return {}


def _command(demo: DemoStack, arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "cdc", *arguments, "-c", str(demo.config)]


def _environ() -> dict[str, str]:
    # The environment may contain settings of the user's own pipeline.
    return {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
