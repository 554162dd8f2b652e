"""Signals that arrive while the process is already exiting."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

_PROGRAM: Final = """
import os, signal, threading
from cdc.run.shutdown import Shutdown

Shutdown(threading.Event(), deadline_s=60)

class Late:
    def __del__(self, kill=os.kill, pid=os.getpid()):
        kill(pid, signal.SIGTERM if signal else 15)

late = Late()
"""


def test_signal_that_comes_while_the_interpreter_ends_does_not_change_the_exit_code() -> None:
    assert subprocess.run([sys.executable, "-c", _PROGRAM], check=False).returncode == 0
