"""Writes files and folders into the cache atomically, and locks parts of it against other processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from cdc.artifacts.machine import Machine
from cdc.errors import LocalError

_POLL_S: Final = 0.05


@contextlib.contextmanager
def locked(file: Path, *, machine: Machine, deadline_s: float) -> Iterator[None]:
    """Hold the lock `file`. The lock ends with the process, so a crash needs no cleanup.

    Not reentrant. The file is never removed: otherwise two processes could hold two locks with the same name.

    Raises:
        LocalError: another process held the lock for longer than `deadline_s` seconds.
    """
    machine.folder(file.parent)
    end = time.monotonic() + deadline_s
    with file.open("a") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > end:
                    raise LocalError(
                        f"another command has held {file} for {deadline_s:.0f} s",
                        hint="wait for it to end, or find it",
                        command=f"fuser -v {file}",
                    ) from error
                time.sleep(_POLL_S)
        yield


def copy_trees(sources: Mapping[str, Path], target: Path, *, machine: Machine) -> None:
    """Copy folders with programs so that every user can read them. Does nothing if `target` exists.

    Args:
        sources: folders by their names in `target`; programs may refer to each other by relative paths.
        target: its name contains the version, so a copy never becomes stale. It is complete or absent.
        machine: the machine that owns the cache.
    """

    def copy(folder: Path) -> None:
        for name, source in sources.items():
            shutil.copytree(source, folder / name, symlinks=True)

    make_tree(copy, target, machine=machine)


def make_tree(fill: Callable[[Path], None], target: Path, *, machine: Machine) -> None:
    """Let `fill` write programs into a folder that every user can read. Does nothing if `target` exists.

    Args:
        fill: is called with an empty temporary folder, which is then renamed to `target`.
        target: its name contains the version. It is complete or absent.
        machine: the machine that owns the cache.
    """
    if target.exists():
        return
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    machine.folder(part)
    fill(part)
    for path in (part, *part.rglob("*")):
        if not path.is_symlink():
            program = path.stat().st_mode & stat.S_IXUSR  # a folder, or a program
            path.chmod(0o755 if program else 0o644)
    part.rename(target)


def write_file(path: Path, text: str) -> None:
    """Write a small file atomically, readable for the servers' user."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text)
    part.chmod(0o644)
    part.replace(path)


def copy_file(source: Path, target: Path, *, machine: Machine) -> None:
    """Copy a file that the servers' user may have written into the cache, atomically.

    Raises:
        OSError: `source` is not a file, or it is a link: root must not follow links of another user.
    """
    machine.folder(target.parent)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as read, part.open("wb") as write:
        shutil.copyfileobj(read, write)
    part.chmod(0o644)
    part.replace(target)
