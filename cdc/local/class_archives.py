"""Keeps archives of loaded classes, which halve the start time of a JVM. A problem with an archive is never an error.

A server's JVM writes an archive into its own folder at its first orderly stop. The cache keeps it under a name that
contains the checksum of its bytes. The JVM checks little of an archive, so every use verifies the checksum (65 MB take
60 ms, 2026-11-21).
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Final

from cdc.artifacts.cache_folder import copy_file
from cdc.artifacts.machine import Machine

# One for each way to start a server, and spare ones during an upgrade of Java or the server.
_KEPT_MAX: Final = 4
_SUFFIX: Final = ".jsa"


class ClassArchives:
    """The archives of one kind of server. A `stem` identifies the JVM, jars and options: a file name without dots."""

    def __init__(self, machine: Machine, server: str) -> None:
        self._machine = machine
        self._folder = machine.cache / "archives" / server

    def find(self, stem: str) -> Path | None:
        """Return a verified archive or None. Damaged archives are removed, so that the next stop writes a new one."""
        for file in sorted(self._folder.glob(f"{stem}.*{_SUFFIX}")):
            with contextlib.suppress(OSError):
                if file.name == _name(stem, file):
                    return file
            self.drop(file)
        return None

    def keep(self, stem: str, written: Path) -> None:
        """Move the archive that the JVM wrote to `written` into the cache, if the file is not empty."""
        with contextlib.suppress(OSError):
            if written.stat(follow_symlinks=False).st_size:
                copied = self._folder / f"{stem}.part"
                copy_file(written, copied, machine=self._machine)
                kept = self._folder / _name(stem, copied)
                copied.replace(kept)
                for file in self._folder.glob(f"{stem}.*{_SUFFIX}"):
                    if file != kept:
                        self.drop(file)
                self._prune()
        with contextlib.suppress(OSError):
            written.unlink()

    def drop(self, file: Path) -> None:
        """Remove an unusable archive."""
        with contextlib.suppress(OSError):
            file.unlink()

    def _prune(self) -> None:
        files = sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda file: file.stat().st_mtime)
        for file in files[:-_KEPT_MAX]:
            self.drop(file)


def _name(stem: str, file: Path) -> str:
    with file.open("rb") as handle:
        return f"{stem}.{hashlib.file_digest(handle, 'sha256').hexdigest()[:32]}{_SUFFIX}"
