"""Starts `cdc run` and `cdc sink run` as child processes that report through a pipe and end with their parent."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cdc.model.sink_report import SinkReport, decode

_LAST_REPORT_S: Final = 2.0  # for reading the last reports of an ended process from its pipe


class ChildProcess:
    """A child process; see `cdc.run.supervisor.Child`."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], *, reports: bool = True) -> None:
        """Start the process. `reports`: the command accepts ``--report-fd``."""
        # The child has its own process group, so that Ctrl-C reaches only this process, which then signals the child.
        # A second signal would end the child in the middle of a cut.
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*command, *([] if not reports else ["--report-fd", str(writing)])],
                env=environ,
                stdin=subprocess.PIPE,
                process_group=0,
                pass_fds=(writing,),
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._report: SinkReport | None = None
        self._reader = threading.Thread(target=self._read, args=(reading,), name="child-reports", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """See `cdc.run.supervisor.Child`."""
        return self._process.pid

    @property
    def report(self) -> SinkReport | None:
        """See `cdc.run.supervisor.Child`."""
        return self._report

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb") as lines:
            for line in lines:
                self._report = decode(line) or self._report

    def wait(self) -> int:
        """See `cdc.run.supervisor.Child`."""
        code = self._process.wait()
        self._reader.join(_LAST_REPORT_S)
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        return code

    def terminate(self) -> None:
        """See `cdc.run.supervisor.Child`."""
        self._process.terminate()

    def kill(self) -> None:
        """See `cdc.run.supervisor.Child`."""
        self._process.kill()


def sink_command(sink: str, config: Path, *, json_logs: bool, instance: str = "", pipeline: str = "") -> list[str]:
    """Return the command that runs a sink.

    With the same `instance`, a restarted process gets its partitions back at once. Without it, the group notices a
    killed process only when its session ends, after 45 s.
    """
    command = [sys.executable, "-m", "cdc", "sink", "run", sink, "-c", str(config), "--until-eof"]
    command += ["--pipeline", pipeline] if pipeline else []
    command += ["--instance", instance] if instance else []
    return [*command, "--json-logs"] if json_logs else command
