"""Writes small files atomically: a crash of the process or machine leaves either the old or the new content.

This is the local file system; `object_disk` is for object stores. Raises LakeUnready with the file's name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from cdc.errors import LakeUnready


class Disk(Protocol):
    """What the manifest needs of storage: the files of one folder, by name. Every change is durable and atomic."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""

    def names(self) -> list[str]:
        """Return the names of all files, in no order, also of foreign ones; empty if there is no folder."""

    def replace(self, name: str, data: bytes) -> None:
        """Write `data` as file `name`. A crash leaves the previous file, and possibly a file ``.<name>.tmp``."""

    def remove(self, name: str) -> None:
        """Delete file `name`. It may be missing already."""


class LocalDisk:
    """A folder of a local file system, created with its first file. Two writers of one file must not run at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes | None:
        """See `Disk`."""
        path = self._folder / name
        with translating_os_errors(path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def names(self) -> list[str]:
        """See `Disk`."""
        with translating_os_errors(self._folder):
            return [path.name for path in self._folder.iterdir()] if self._folder.is_dir() else []

    def replace(self, name: str, data: bytes) -> None:
        """Write a temporary file, fsync it, rename it, and fsync the folder."""
        path = self._folder / name
        with translating_os_errors(path):
            self._folder.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{name}.tmp")
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            sync(self._folder)

    def remove(self, name: str) -> None:
        """Delete the file and fsync the folder."""
        path = self._folder / name
        with translating_os_errors(path):
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
def translating_os_errors(path: Path) -> Iterator[None]:
    """Turn an operating system error about `path` into LakeUnready."""
    try:
        yield
    except OSError as error:
        raise LakeUnready(
            f"storage of the lake cannot be used: {path}: {error.strerror or error}",
            hint="free space, or fix what the message names; the cut is retried automatically",
            file=str(path),
        ) from error
