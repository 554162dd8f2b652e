"""Parses lock files, which list the artifacts of a server with their checksums. Pure.

Each line is one file: ``sha256 size group:artifact:version[:classifier][@packaging] folder``; the default packaging is
jar. A lock file contains no address of a repository, see `cdc.artifacts.fetch.base_url`. Maintainers create it with
Maven.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cdc.errors import LocalError

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
# Parts of a coordinate become parts of a path, so they must not lead out of the cache folder.
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Artifact:
    """One pinned file of a Maven repository.

    `folder` is its folder in the server's program, for example ``lib`` or ``modules/reindex``.
    """

    sha256: str
    size_bytes: int
    group: str
    artifact: str
    version: str
    classifier: str = ""
    packaging: str = "jar"
    folder: str = ""

    @property
    def file_name(self) -> str:
        """The file name in Maven's repository layout."""
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{tail}.{self.packaging}"

    @property
    def path(self) -> str:
        """The path below the root of a repository, with slashes; never absolute."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"

    @property
    def coordinate(self) -> str:
        """The Maven coordinate, for messages."""
        tail = f":{self.classifier}" if self.classifier else ""
        return f"{self.group}:{self.artifact}:{self.version}{tail}"


def parse_lock(text: str, *, name: str) -> tuple[Artifact, ...]:
    """Parse a lock file and keep its order; blank lines and ``#`` comments are skipped. `name` is for messages.

    Raises:
        LocalError: a line is invalid, or two lines name the same file.
    """
    artifacts: dict[str, Artifact] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        artifact = _parse_line(line.split())
        if artifact is None or artifact.path in artifacts:
            raise LocalError(
                f"{name}: line {number} is not `sha256 size group:artifact:version folder`, or repeats a file",
                hint="the lock file is part of the package; reinstall the package",
                file=name,
                line=number,
            )
        artifacts[artifact.path] = artifact
    return tuple(artifacts.values())


def version_of(artifacts: Iterable[Artifact], artifact: str) -> str:
    """Return the pinned version of an artifact. Raises LocalError if the lock file does not contain it."""
    for candidate in artifacts:
        if candidate.artifact == artifact:
            return candidate.version
    raise LocalError(f"artifact {artifact} is not in the lock file", hint="reinstall the package")


def _parse_line(fields: list[str]) -> Artifact | None:
    if len(fields) != 4:
        return None
    sha256, size, coordinate, folder = fields
    coordinate, _, packaging = coordinate.partition("@")
    parts = coordinate.split(":")
    shaped = _SHA256.fullmatch(sha256) and size.isascii() and size.isdigit() and len(parts) in {3, 4}
    if not shaped or not all(_PART.fullmatch(part) for part in (*parts, packaging or "jar", *folder.split("/"))):
        return None
    classifier = parts[3] if len(parts) == 4 else ""
    return Artifact(sha256, int(size), parts[0], parts[1], parts[2], classifier, packaging or "jar", folder)
