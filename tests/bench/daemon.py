"""The daemon as a child process, and what the kernel says it cost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cdc.config.load import load
from cdc.local.stack import Stack

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def write_config(stack: Stack, folder: Path, name: str, table: str, *, snapshot: str = "never") -> Path:
    """A configuration as a user has it: everything at its default but addresses, the single broker and snapshots."""
    path = folder / f"{name}.toml"
    path.write_text(
        f'name = "{name}"\n[source]\ndsn = "{stack.postgres.dsn}"\ntables = ["{table}"]\n'
        f'[kafka]\nbootstrap = "{stack.kafka.bootstrap}"\nreplication_factor = 1\nallow_unreplicated = true\n'
        f'[http]\nlisten = "127.0.0.1:{free_port()}"\n[snapshot]\nmode = "{snapshot}"\n',
        encoding="utf-8",
    )
    return path


def safety(config: Path) -> dict[str, object]:
    """What keeps exactly once; raises where a setting would weaken it."""
    from cdc.kafka.client_options import producer_options

    parsed = load(config, {})
    producer = producer_options(parsed.kafka, parsed.transactional_id, message_bytes_max=parsed.capture.row_bytes_max)
    found = {key: str(producer[key]) for key in ("acks", "enable.idempotence", "transactional.id")}
    if found["acks"] not in {"all", "-1"} or found["enable.idempotence"] != "true" or parsed.kafka.options:
        raise SystemExit(f"bench: a safety is off: {found}")
    return {**found, "offsets_checked": True, "acknowledged_after_commit": True, "cut_index": True}


class BenchDaemon:
    """`cdc run` on a configuration; use as a context manager."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._url = f"http://{load(config, {}).http.listen}/status"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        log = self._config.with_suffix(".log").open("ab")
        command = [sys.executable, "-m", "cdc", "run", "-c", str(self._config)]
        with log:
            self._process = subprocess.Popen(command, stderr=log, stdout=log)
        self.wait_for(lambda status: status["state"] in {"RUNNING", "CATCHING_UP"}, 120)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def status(self) -> dict[str, Any]:
        """The document of /status, empty while nobody answers."""
        try:
            with urllib.request.urlopen(self._url, timeout=5) as answer:
                document: dict[str, Any] = json.load(answer)
                return document
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return {}

    def wait_for(self, condition: Any, timeout_s: float) -> dict[str, Any]:
        """Ask /status until it is as wanted, rarely: each answer costs the daemon a millisecond of its interpreter."""
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
        """The most memory it ever had."""
        return peak_rss_bytes(self.pid)

    @property
    def pid(self) -> int:
        """The daemon."""
        assert self._process is not None
        return self._process.pid


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def peak_rss_bytes(pid: int | str) -> int:
    """The most memory a process ever had; ``self`` is this one."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    line = next(line for line in text.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def free_port() -> int:
    """A port of the loopback that nobody has now."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
