"""Runs the daemon as a child process and reads its CPU time and memory from the kernel."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cdc.config.load import load
from cdc.local.stack import Stack

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def write_config(stack: Stack, folder: Path, name: str, table: str, *, snapshot: str = "never") -> Path:
    """Write a configuration with default values, except for addresses, the single broker and snapshots."""
    path = folder / f"{name}.toml"
    path.write_text(
        f'name = "{name}"\n[source]\ndsn = "{stack.postgres.dsn}"\ntables = ["{table}"]\n'
        f'[kafka]\nbootstrap = "{stack.kafka.bootstrap}"\nreplication_factor = 1\nallow_unreplicated = true\n'
        f'[http]\nlisten = "127.0.0.1:{free_port()}"\n[snapshot]\nmode = "{snapshot}"\n',
        encoding="utf-8",
    )
    return path


def safety(config: Path) -> dict[str, object]:
    """Return the settings for exactly-once delivery. Raises if a setting weakens it."""
    from cdc.kafka.client_options import producer_options

    parsed = load(config, {})
    producer = producer_options(parsed.kafka, parsed.transactional_id, message_bytes_max=parsed.capture.row_bytes_max)
    found = {key: str(producer[key]) for key in ("acks", "enable.idempotence", "transactional.id")}
    if found["acks"] not in {"all", "-1"} or found["enable.idempotence"] != "true" or parsed.kafka.options:
        raise SystemExit(f"bench: a safety is off: {found}")
    return {**found, "offsets_checked": True, "acknowledged_after_commit": True, "cut_index": True}


class BenchDaemon:
    """`cdc run` on a configuration; use as a context manager."""

    def __init__(self, config: Path, *, start_s: float = 120, program: Sequence[str] = ("cdc",)) -> None:
        """`program`: the module that runs, and its arguments before those of `cdc`."""
        self._config, self._start_s, self._program = config, start_s, program
        self._url = f"http://{load(config, {}).http.listen}/status"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        log = self._config.with_suffix(".log").open("ab")
        command = [sys.executable, "-m", *self._program, "run", "-c", str(self._config)]
        with log:
            self._process = subprocess.Popen(command, stderr=log, stdout=log)
        self.wait_for(lambda status: status["state"] in {"RUNNING", "CATCHING_UP"}, self._start_s)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def status(self) -> dict[str, Any]:
        """Return the document of /status, empty without an answer."""
        try:
            with urllib.request.urlopen(self._url, timeout=5) as answer:
                document: dict[str, Any] = json.load(answer)
                return document
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return {}

    def wait_for(self, condition: Any, timeout_s: float) -> dict[str, Any]:
        """Poll /status until `condition` holds. Polls rarely: each answer costs the daemon a millisecond of CPU."""
        assert self._process is not None
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            status = self.status()
            if status and condition(status):
                return status
            if self._process.poll() is not None:
                raise SystemExit(f"bench: the daemon ended:\n{self._config.with_suffix('.log').read_text()}")
            time.sleep(0.2)
        raise SystemExit(f"bench: the daemon did not get there in {timeout_s} s: {self.status()}")

    def cpu_s(self) -> float:
        """User and system time of the process so far."""
        return cpu_s(self.pid)

    def peak_rss_bytes(self) -> int:
        """Return the peak memory of the process."""
        return peak_rss_bytes(self.pid)

    @property
    def pid(self) -> int:
        """The pid of the daemon."""
        assert self._process is not None
        return self._process.pid


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def peak_rss_bytes(pid: int | str) -> int:
    """Return the peak memory of a process; ``self`` is this process."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    line = next(line for line in text.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def free_port() -> int:
    """Return a free port on loopback."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
