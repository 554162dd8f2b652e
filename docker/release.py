"""Makes the files of a release in dist/: wheel, sdist, notes, list of packages (SBOM) and checksums.

    python docker/release.py [--draft] [--into FOLDER]

Everything comes from the commit, never from uncommitted files, and is the same again for the same commit. The notes are
the section of CHANGELOG.md with the version and its date; `--draft` takes "Unreleased" instead.
docs/contributing/release.md has the whole procedure.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT: Final = Path(__file__).resolve().parents[1]
LISTS: Final = ("docker/requirements.txt", "docker/requirements-full.txt")
SUMS: Final = "SHA256SUMS"
_UNRELEASED: Final = "Unreleased"
_NAMESPACE: Final = uuid.UUID("6f1d7a52-2a50-4c3e-9d0e-4c0a3f6b7a10")  # drawn once, for the serial numbers of our SBOMs


def version_of(text: str) -> str:
    """Return the version that cdc/__init__.py sets."""
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    assert match is not None
    return match[1]


def notes(changelog: str, version: str, *, draft: bool = False) -> str:
    """Return the section of a version, without its heading. Raises ValueError if there is none, or an empty one."""
    wanted = _UNRELEASED if draft else rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d"
    match = re.search(rf"^## {wanted}\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if match is None:
        raise ValueError(
            f"CHANGELOG.md has no section '## {_UNRELEASED}'"
            if draft
            else f"CHANGELOG.md has no section '## {version} - YYYY-MM-DD'; rename '## {_UNRELEASED}', or use --draft"
        )
    if not match[1].strip():
        raise ValueError(f"the section of {version} in CHANGELOG.md is empty")
    return match[1].strip() + "\n"


def locked(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, version and sha256 of the files of each package in a list of pins."""
    for entry in re.split(r"^(?=[^\s#])", text, flags=re.MULTILINE):
        match = re.match(r"([\w.-]+)==([^\s;\\]+)", entry)
        if match is not None:
            yield match[1], match[2], re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)


def sbom(version: str, lists: list[str], at: dt.datetime) -> str:
    """Return a CycloneDX document with the packages of the images. It names versions and hashes, no address."""
    project = _component("tailrace", version, [], ComponentType.APPLICATION)
    bom = Bom(serial_number=uuid.uuid5(_NAMESPACE, "\n".join([version, *lists])))
    bom.metadata.component, bom.metadata.timestamp = project, at
    packages = [_component(*found) for text in lists for found in locked(text)]
    bom.components.update(packages)
    bom.register_dependency(project, packages)
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"


def _component(name: str, version: str, sha256: list[str], kind: ComponentType = ComponentType.LIBRARY) -> Component:
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=one) for one in sha256]
    purl = PackageURL(type="pypi", name=name, version=version)
    return Component(name=name, version=version, type=kind, purl=purl, bom_ref=str(purl), hashes=hashes)


def build(folder: Path, *, draft: bool = False) -> list[Path]:
    """Write the files of the release of the current commit into `folder`. Raises ValueError as `notes` does."""
    folder.mkdir(parents=True, exist_ok=True)
    at = int(_git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as name:
        source = Path(name)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        (source / "source.tar").write_bytes(archive)
        with tarfile.open(source / "source.tar") as tar:
            tar.extractall(source / "tree", filter="tar")
        tree = source / "tree"
        version = version_of(_text(tree, "cdc/__init__.py"))
        said = notes(_text(tree, "CHANGELOG.md"), version, draft=draft)
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(at), "TZ": "UTC", "TAILRACE_PURE": "1"}
        command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder.resolve())]
        subprocess.run(command, cwd=tree, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        lists = [_text(tree, name) for name in LISTS]
    texts = {
        f"tailrace-{version}.notes.md": said,
        f"tailrace-{version}.cdx.json": sbom(version, lists, dt.datetime.fromtimestamp(at, tz=dt.UTC)),
    }
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    built = sorted(file for file in folder.iterdir() if version in file.name)
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in built]
    (folder / SUMS).write_text("".join(sums), encoding="utf-8")
    return [*built, folder / SUMS]


def _text(tree: Path, name: str) -> str:
    return (tree / name).read_text(encoding="utf-8")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Build a release from the command line."""
    parser = argparse.ArgumentParser(description="Make the files of a release from the current commit.")
    parser.add_argument("--draft", action="store_true", help="take the notes from the section Unreleased")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="the folder  [default: dist]")
    given = parser.parse_args()
    changed = _git("status", "--porcelain").rstrip()
    if changed and not given.draft:
        sys.exit(f"error: there are uncommitted changes, which the release would not have:\n{changed}")
    try:
        files = build(given.into, draft=given.draft)
    except ValueError as error:
        sys.exit(f"error: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: {error}\n{error.stderr.decode(errors='replace') if error.stderr else ''}")
    sys.stdout.writelines(f"{file}\n" for file in files)


if __name__ == "__main__":
    main()
