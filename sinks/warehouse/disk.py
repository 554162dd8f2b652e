"""Writes small files so that a crash at any moment, of the process or of the machine, leaves the old or the new one.

The local file system only. Raises LakeUnready with the file's name.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from cdc.errors import LakeUnready

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Disk(Protocol):
    """What the manifest needs of storage: both steps are durable when they return, and atomic."""

    def replace(self, path: Path, data: bytes) -> None:
        """Make `path` a file with `data`. A crash leaves what was there before, and maybe a file ``.<name>.tmp``."""

    def remove(self, path: Path) -> None:
        """Make `path` not be there. It may be missing already."""


class LocalDisk:
    """A local file system. Not for two writers of one file at once."""

    def replace(self, path: Path, data: bytes) -> None:
        """Write beside it, fsync, rename over it, fsync the folder."""
        with unready(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.tmp")
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            sync(path.parent)

    def remove(self, path: Path) -> None:
        """Unlink and fsync the folder."""
        with unready(path):
            path.unlink(missing_ok=True)
            sync(path.parent)


def sync(path: Path) -> None:
    """Fsync a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def unready(path: Path) -> Iterator[None]:
    """Turn an operating system error about `path` into LakeUnready."""
    try:
        yield
    except OSError as error:
        raise LakeUnready(
            f"storage of the lake cannot be used: {path}: {error.strerror or error}",
            hint="free space, or mend what the message names; the cut is tried again by itself",
            file=str(path),
        ) from error
