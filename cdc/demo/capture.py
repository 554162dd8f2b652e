"""`cdc run` as a process of its own, started, killed and started again."""

from __future__ import annotations

import json
import time
import urllib.request
from http.client import HTTPException
from typing import Any, Final

from cdc.demo.place import Place
from cdc.demo.program import Program
from cdc.errors import LocalError

_POLL_S: Final = 0.05
_READY_S: Final = 60.0
_ANSWER_S: Final = 1.0
_WORKING: Final = ("RUNNING", "CATCHING_UP")


class Capture(Program):
    """The daemon. Not thread-safe, but for `status` and `state`."""

    def __init__(self, place: Place, port: int) -> None:
        super().__init__(place, "capture", "run")
        self._url = f"http://127.0.0.1:{port}/status"

    def await_running(self) -> None:
        """Wait until it captures. Raises LocalError with the end of its log when it ends or takes too long."""
        deadline_s = time.monotonic() + _READY_S
        while self.state() not in _WORKING:
            self.check()
            if time.monotonic() > deadline_s:
                raise LocalError(
                    f"capture is {self.state() or 'silent'} after {_READY_S:.0f} s", hint=self.last_words()
                )
            time.sleep(_POLL_S)

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
