"""Writes the images' lists of pinned packages, taken with their hashes from constraints.txt.

    python docker/pins.py

`requirements.txt` has the packages for `tailrace[capture,avro,outbox,otel,search,cache]`, `requirements-full.txt` those
that `tailrace[warehouse,iceberg,charts]` adds, `requirements-build.txt` those for building the wheel. constraints.txt
has more than an image needs (test tools, local servers). A test fails if the lists are out of date.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import requires
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "docker"
_IMAGE: Final = {"python_version": "3.13", "python_full_version": "3.13.0", "sys_platform": "linux"}
_CAPTURE: Final = ("capture", "avro", "outbox", "otel", "search", "cache")
_FULL: Final = ("warehouse", "iceberg", "charts")
_NOTICE: Final = "# Written by docker/pins.py from constraints.txt; run it again when that changes.\n"


def pages() -> dict[str, str]:
    """Return file name -> text of each list."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pinned = _pinned((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    service = [package for extra in _CAPTURE for package in _packages(extras, extra)]
    capture = _closure(project["project"]["dependencies"] + service)
    full = _closure([package for extra in _FULL for package in _packages(extras, extra)])
    lists = {
        "requirements.txt": capture,
        "requirements-full.txt": full - capture,
        "requirements-build.txt": _closure(project["build-system"]["requires"]),
    }
    return {name: _NOTICE + "".join(pinned[package] for package in sorted(names)) for name, names in lists.items()}


def _packages(extras: Mapping[str, list[str]], extra: str) -> Iterator[str]:
    """Yield the packages of an extra, which may contain other extras."""
    for package in extras[extra]:
        requirement = Requirement(package)
        if requirement.name == "tailrace":
            for inner in requirement.extras:
                yield from _packages(extras, inner)
        else:
            yield package


def _pinned(constraints: str) -> dict[str, str]:
    """Return package -> its lines in constraints.txt: the pin and the hashes."""
    entries = re.findall(r"^[^\s#].*?(?=^[^\s#]|\Z)", constraints, re.MULTILINE | re.DOTALL)
    return {canonicalize_name(re.split(r"[=\[; ]", entry, maxsplit=1)[0]): entry for entry in entries}


def _closure(direct: Iterable[str]) -> set[str]:
    """Return the names of the packages and of all their dependencies on the image's Python."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in direct]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        requirement = waiting.pop()
        name, extras = canonicalize_name(requirement.name), tuple(sorted(requirement.extras))
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found.add(name)
        waiting += [inner for inner in map(Requirement, requires(name) or ()) if _applies(inner, ("", *extras))]
    return found


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    return requirement.marker is None or any(
        requirement.marker.evaluate({**_IMAGE, "extra": extra}) for extra in extras
    )


def main() -> None:
    """Write the lists."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {FOLDER / name}\n")


if __name__ == "__main__":
    main()
