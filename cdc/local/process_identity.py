"""Identifies processes by pid and start time, so that a reused pid is never mistaken for the original process.

Reads /proc if it exists, else the output of `ps` (macOS). The parsers are pure.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a process, valid until the machine restarts. `started` is opaque: only compare it."""

    pid: int
    started: str


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """A row of the process table."""

    identity: Identity
    parent: int
    ended: bool


def parse_stat(text: str, boot: str) -> ProcessEntry | None:
    """Parse /proc/PID/stat (proc_pid_stat(5)). The name may contain blanks and brackets, so count from the last ``)``.

    A killed process is a zombie as soon as its first thread has ended, but it holds its ports and files until the last
    thread has ended. The number of threads shows that.
    """
    head, bracket, tail = text.rpartition(")")
    fields = tail.split()
    pid = head.split(" ", 1)[0]
    if not bracket or len(fields) < 20 or not pid.isdigit():
        return None
    return ProcessEntry(
        Identity(int(pid), f"{boot}:{fields[19]}"), int(fields[1]), fields[0] in "ZX" and int(fields[17]) <= 1
    )


def parse_ps(line: str) -> ProcessEntry | None:
    """Parse a line of ``ps -axo pid=,ppid=,stat=,lstart=``."""
    fields = line.split(None, 3)
    if len(fields) < 4 or not (fields[0].isdigit() and fields[1].isdigit()):
        return None
    return ProcessEntry(Identity(int(fields[0]), fields[3].strip()), int(fields[1]), fields[2].startswith("Z"))


def identify(pid: int) -> Identity | None:
    """Return the identity of a running process; None if there is none, or only a zombie."""
    entry = _entry(pid)
    return None if entry is None or entry.ended else entry.identity


def alive(identity: Identity) -> bool:
    """Return whether exactly this process still runs. Collects the exit status of an ended child of this process."""
    entry = _entry(identity.pid)
    if entry is None or entry.identity != identity:
        return False
    if entry.ended:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(identity.pid, os.WNOHANG)
    return not entry.ended


def descendants(root: Identity) -> tuple[Identity, ...]:
    """Return all descendants of a running process."""
    table = list(_table())
    found: list[Identity] = []
    parents = {root.pid}
    while parents:
        level = [e for e in table if e.parent in parents and not e.ended]
        found += [e.identity for e in level]
        parents = {e.identity.pid for e in level}
    return tuple(found)


def kill_tree(root: Identity, *, deadline_s: float) -> bool:
    """Send SIGKILL to a process and its descendants, and wait until they are gone. Returns whether they are.

    The process is stopped first, so that it cannot start a child between listing and killing.
    """
    if not send(root, signal.SIGSTOP):
        return True
    family = (root, *descendants(root))
    for member in family:
        send(member, signal.SIGKILL)
    return wait_gone(family, deadline_s=deadline_s)


def send(identity: Identity, number: signal.Signals) -> bool:
    """Signal exactly this process. Returns False if it is gone."""
    if not alive(identity):
        return False
    try:
        os.kill(identity.pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_gone(identities: Iterable[Identity], *, deadline_s: float) -> bool:
    """Wait until all processes have ended. Returns False at the deadline."""
    end = time.monotonic() + deadline_s
    for identity in identities:
        while alive(identity):
            if time.monotonic() > end:
                return False
            time.sleep(_POLL_S)
    return True


def rss_bytes(identity: Identity) -> int | None:
    """Return the resident memory of a process plus the unshared memory of its descendants; None if unknown."""
    if not alive(identity) or not _PROC.joinpath("self").exists():
        return None
    pages = 0
    for member in (identity, *descendants(identity)):
        try:
            fields = (_PROC / str(member.pid) / "statm").read_text().split()
        except OSError:
            continue
        pages += int(fields[1]) - (int(fields[2]) if member != identity else 0)
    return pages * os.sysconf("SC_PAGE_SIZE")


def command_line(pid: int) -> str:
    """Return the command line of a process with blanks between arguments; empty if it cannot be read."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def processes_in_folder(folder: Path) -> tuple[Identity, ...]:
    """Return visible processes whose working directory is exactly `folder`; empty without /proc."""
    found = []
    for entry in _table() if _PROC.joinpath("self").exists() else ():
        with contextlib.suppress(OSError):
            if (_PROC / str(entry.identity.pid) / "cwd").readlink() == folder.resolve():
                found.append(entry.identity)
    return tuple(found)


def _entry(pid: int) -> ProcessEntry | None:
    if not _PROC.joinpath("self").exists():
        return next((e for e in _ps("-p", str(pid))), None)
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_text(), _boot())
    except (FileNotFoundError, ProcessLookupError):
        return None


def _table() -> Iterable[ProcessEntry]:
    if not _PROC.joinpath("self").exists():
        yield from _ps("-ax")
        return
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and (entry := _entry(int(folder.name))) is not None:
            yield entry


def _ps(*which: str) -> list[ProcessEntry]:
    done = subprocess.run(["ps", *which, "-o", "pid=,ppid=,stat=,lstart="], capture_output=True, text=True, check=False)
    return [entry for line in done.stdout.splitlines() if (entry := parse_ps(line)) is not None]


@cache
def _boot() -> str:
    """Return the boot id. Start times count from boot, so it is part of an identity."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
