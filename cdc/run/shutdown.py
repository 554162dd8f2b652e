"""Ends a process in order at a signal, at once at a second one, and after a deadline in any case."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

from cdc.errors import EXIT_OK
from cdc.telemetry import log

_SAME_SIGNAL_S: Final = 1.0  # a process manager may signal both the process and its group: count them as one signal
_STDIN: Final = 0
_PIPE_BYTES: Final = 4096  # any size: no data arrives


class Shutdown:
    """Sets `stop` at the first signal; exits the process at a second one or after the deadline.

    `last` is called before an exit at the deadline. Create it in the main thread, because it installs signal handlers.
    """

    def __init__(self, stop: threading.Event, *, deadline_s: float) -> None:
        self.last: Callable[[], None] = lambda: None
        self._stop = stop
        self._deadline_s = deadline_s
        self._first_s: float | None = None
        self._work_ended = False
        self._timer: threading.Timer | None = None
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)
        atexit.register(_ignore_signals)

    def at_eof(self) -> None:
        """Act as at the first signal when standard input ends: the process that holds the other side has ended."""
        threading.Thread(target=_request_at_eof, args=(self,), name="until-eof", daemon=True).start()

    def request(self) -> None:
        """Act as at the first signal. Does nothing after a signal."""
        if self._first_s is not None:
            return
        self._first_s = time.monotonic()
        self._stop.set()
        if not self._work_ended:
            self._timer = threading.Timer(self._deadline_s, self._exit)
            self._timer.daemon = True
            self._timer.start()

    def work_ended(self) -> None:
        """Cancel the deadline: the work has ended. Steps that follow have their own deadlines."""
        self._work_ended = True
        if self._timer is not None:
            self._timer.cancel()

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        if self._first_s is not None and time.monotonic() - self._first_s > _SAME_SIGNAL_S:
            os._exit(EXIT_OK)
        self.request()

    def _exit(self) -> None:
        log.get().warning("stop_deadline_passed", seconds=self._deadline_s)
        self.last()
        os._exit(EXIT_OK)


def _ignore_signals() -> None:
    """Ignore signals while the interpreter exits: it resets the handlers, and a signal would change the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _request_at_eof(shutdown: Shutdown) -> None:
    # Not sys.stdin: a thread that reads from it would keep the interpreter from exiting.
    with suppress(OSError):
        while os.read(_STDIN, _PIPE_BYTES):
            pass
    shutdown.request()
