"""The lock file of a Java server: which files it needs, and the checksum each must have. Pure.

One file a line: ``sha256 size group:artifact:version[:classifier][@packaging] folder``, a jar unless it says otherwise.
It names no registry: the address of one comes from `cdc.artifacts.fetch.base_url`. A maintainer makes it with Maven, a
user only ever reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cdc.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
# A part of a coordinate becomes a part of a path, so nothing in it may climb out of the cache folder.
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Artifact:
    """One pinned file of a Maven repository.

    `folder` says where it lies in the server's program, as ``lib`` or ``modules/reindex``.
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
        """The file's own name, as Maven's repository layout gives it."""
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{tail}.{self.packaging}"

    @property
    def path(self) -> str:
        """Where it lies below the root of a repository; slashes, never absolute."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"

    @property
    def coordinate(self) -> str:
        """The name people know it by."""
        tail = f":{self.classifier}" if self.classifier else ""
        return f"{self.group}:{self.artifact}:{self.version}{tail}"


def parse_lock(text: str, *, name: str) -> tuple[Artifact, ...]:
    """Read a lock file, in its own order; blank lines and ``#`` comments are skipped.

    Raises:
        LocalError: a line is not one, or two lines name the same file. `name` is the file it speaks of.
    """
    artifacts: dict[str, Artifact] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        artifact = _parse_line(line.split())
        if artifact is None or artifact.path in artifacts:
            raise LocalError(
                f"{name}: line {number} is not `sha256 size group:artifact:version folder`, or repeats a file",
                hint="the lock file is part of the package: install it again",
                file=name,
                line=number,
            )
        artifacts[artifact.path] = artifact
    return tuple(artifacts.values())


def version_of(artifacts: Iterable[Artifact], artifact: str) -> str:
    """The pinned version of the artifact of that name; raises LocalError when the lock has none."""
    for candidate in artifacts:
        if candidate.artifact == artifact:
            return candidate.version
    raise LocalError(f"the lock file names no artifact {artifact}", hint="install the package again")


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
