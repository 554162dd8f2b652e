"""The cache folder: one process at a time in a part of it, and files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import time
from typing import TYPE_CHECKING, Final

from cdc.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from cdc.artifacts.machine import Machine

_POLL_S: Final = 0.05


@contextlib.contextmanager
def locked(file: Path, *, machine: Machine, deadline_s: float) -> Iterator[None]:
    """Hold the lock of that name; it goes with the process, so a crash leaves nothing to clean up.

    Not reentrant. The file stays: removing it would let two processes hold two locks of one name.

    Raises:
        LocalError: another process held it for longer than `deadline_s` seconds.
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
                        hint="wait for it, or look for it",
                        command=f"fuser -v {file}",
                    ) from error
                time.sleep(_POLL_S)
        yield


def copy_trees(sources: Mapping[str, Path], target: Path, *, machine: Machine) -> None:
    """Copy folders of programs so that every user can read them, unless the copies are there already.

    Args:
        sources: by their names in `target`; programs may find each other by where they lie.
        target: carries the version in its name, so that a copy never goes stale. It appears whole or not at all.
        machine: whose cache it is in.
    """

    def copy(folder: Path) -> None:
        for name, source in sources.items():
            shutil.copytree(source, folder / name, symlinks=True)

    make_tree(copy, target, machine=machine)


def make_tree(fill: Callable[[Path], None], target: Path, *, machine: Machine) -> None:
    """Have `fill` write programs into a folder that every user can read, unless `target` is there already.

    Args:
        fill: given an empty folder beside `target`.
        target: carries the version in its name. It appears whole or not at all.
        machine: whose cache it is in.
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
    """Write a small file into a folder of ours that the servers' user reads: whole, or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text)
    part.chmod(0o644)
    part.replace(path)


def copy_file(source: Path, target: Path, *, machine: Machine) -> None:
    """Copy a file that the servers' user may have written into the cache: whole, or not at all.

    Raises:
        OSError: it is no file, or a link, which as root we must not follow.
    """
    machine.folder(target.parent)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as read, part.open("wb") as write:
        shutil.copyfileobj(read, write)
    part.chmod(0o644)
    part.replace(target)
