"""Writes small files so that a crash at any moment, of the process or of the machine, leaves the old or the new one.

Here for the local file system, in `objectdisk` for object stores. Raises LakeUnready with the file's name.
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
    """What the manifest needs of storage: the files of one folder, by name. A change is durable and atomic."""

    def read(self, name: str) -> bytes | None:
        """What a file has; None when there is none."""

    def names(self) -> list[str]:
        """Of the files there are, in no order; none when there is no folder. There may be others than ours."""

    def replace(self, name: str, data: bytes) -> None:
        """Make `name` a file with `data`. A crash leaves what was there before, and maybe a file ``.<name>.tmp``."""

    def remove(self, name: str) -> None:
        """Make `name` not be there. It may be missing already."""


class LocalDisk:
    """A folder of a local file system, made with its first file. Not for two writers of one file at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes | None:
        """See `Disk`."""
        path = self._folder / name
        with unready(path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def names(self) -> list[str]:
        """See `Disk`."""
        with unready(self._folder):
            return [path.name for path in self._folder.iterdir()] if self._folder.is_dir() else []

    def replace(self, name: str, data: bytes) -> None:
        """Write beside it, fsync, rename over it, fsync the folder."""
        path = self._folder / name
        with unready(path):
            self._folder.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{name}.tmp")
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            sync(self._folder)

    def remove(self, name: str) -> None:
        """Unlink and fsync the folder."""
        path = self._folder / name
        with unready(path):
            path.unlink(missing_ok=True)
            sync(self._folder)


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
