"""Turns Ctrl-C, SIGTERM and SIGHUP into KeyboardInterrupt for `cdc dev`: once, and once more for a user in a hurry."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Final

_SAME_SIGNAL_S: Final = 1.0
"""`make` and the kernel may both signal this process: signals within this time count as one."""


class DevSignals:
    """Installs the handlers. A signal that the parent ignores, as SIGHUP under nohup, stays ignored."""

    def __init__(self) -> None:
        self.ignored = False
        self._last_s: float | None = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        if number == signal.SIGHUP:
            _leave_terminal()
        now_s = time.monotonic()
        if self.ignored or (self._last_s is not None and now_s - self._last_s < _SAME_SIGNAL_S):
            return
        self._last_s = now_s
        raise KeyboardInterrupt


def _leave_terminal() -> None:
    """Write to nowhere from now on: the terminal is gone, and a failed write must not stop the end."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
