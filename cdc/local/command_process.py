"""Runs `cdc` commands as child processes on an owned stack, with a log file for each."""

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

from cdc.errors import LocalError
from cdc.local.owned_stack import OwnedStack
from cdc.local.process_identity import identify, kill_tree

WORKING: Final = ("RUNNING", "CATCHING_UP")
_STOP_S: Final = 20.0
_KILL_S: Final = 10.0
_READY_S: Final = 60.0
_POLL_S: Final = 0.05
_ANSWER_S: Final = 1.0
_LOG_LINES: Final = 8


def run_command(owned: OwnedStack, *arguments: str) -> tuple[bool, str]:
    """Run ``cdc <arguments> -c <configuration of the stack>`` to its end. Returns success and standard output."""
    with (owned.folder / f"{arguments[0]}.log").open("ab") as log:
        done = subprocess.run(
            _command(owned, arguments), stdout=subprocess.PIPE, stderr=log, env=_environ(), check=False
        )
    return done.returncode == 0, done.stdout.decode(errors="replace")


class CommandProcess:
    """``cdc <arguments> -c <configuration of the stack>`` in the background. `name` is the name of its log file."""

    def __init__(self, owned: OwnedStack, name: str, *arguments: str, with_parent: bool = False) -> None:
        """`with_parent`: the command has `--until-eof`, so it also stops when this process ends, even by a kill."""
        self.name = name
        self.log = owned.folder / f"{name}.log"
        self._owned = owned
        self._arguments = (*arguments, "--until-eof") if with_parent else arguments
        self._with_parent = with_parent
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def exit_code(self) -> int | None:
        """The exit code of an ended process; None before the start and while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int | None:
        """The process id; None while no process runs."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def start(self) -> None:
        """Start the process."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                _command(self._owned, self._arguments),
                stdin=subprocess.PIPE if self._with_parent else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environ(),
                start_new_session=True,  # Ctrl-C is for the parent, which stops its processes in order
            )
        self._owned.remember(self._process.pid)

    def check(self) -> None:
        """Raise LocalError with the end of the log if the process has ended."""
        if self.pid is None:
            raise LocalError(f"{self.name} ended with exit code {self.exit_code}", hint=self.end_of_log())

    def kill(self) -> None:
        """Send SIGKILL to the process, not to its children, and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._close()

    def kill_tree(self) -> None:
        """Send SIGKILL to the process and its children, and wait for their end."""
        if self._process is not None and (identity := identify(self._process.pid)) is not None:
            kill_tree(identity, deadline_s=_KILL_S)
            self._close()

    def stop(self, deadline_s: float = _STOP_S) -> bool:
        """Send SIGTERM, and at the deadline SIGKILL, also to the children. Returns whether it stopped in time."""
        if self._process is None or self._process.poll() is not None:
            return True
        self._process.terminate()
        try:
            self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill_tree()
            return False
        self._close()
        return True

    def _close(self) -> None:
        if self._process is not None:
            self._process.wait()
            if self._process.stdin is not None:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()

    def end_of_log(self) -> str:
        """Return the error of the last log event, or else the last lines of the log."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        with contextlib.suppress(ValueError, KeyError, IndexError):
            last = json.loads(lines[-1])
            return f"{last['state']}: {last['message']}\n{last.get('hint', '')}"
        return "\n".join(["its log ends with:", *lines[-_LOG_LINES:]])


class CaptureProcess(CommandProcess):
    """`cdc run`. `port` is that of its /status."""

    def __init__(self, owned: OwnedStack, port: int, *options: str, with_parent: bool = False) -> None:
        super().__init__(owned, "capture", "run", *options, with_parent=with_parent)
        self._port = port

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
        return read_status(self._port)


def read_status(port: int) -> dict[str, Any]:
    """Return the document of /status on this port of loopback; empty without an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=_ANSWER_S) as answer:
            return dict(json.load(answer))
    except (OSError, ValueError, HTTPException):
        return {}


def _command(owned: OwnedStack, arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "cdc", *arguments, "-c", str(owned.config)]


def _environ() -> dict[str, str]:
    # The environment may contain settings of the user's own pipeline.
    return {
        name: value
        for name, value in os.environ.items()
        if name == "TAILRACE_CACHE" or not name.startswith("TAILRACE_")
    }
