"""`make release`: the files of a release, from the commit and reproducible."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.tidy.tree import ROOT, loaded

CHANGELOG: Final = """# Changes

## Unreleased

### Added

- the next

## 0.2.0 - 2026-11-28

### Added

- this one

## 0.1.0 - 2026-01-01

- the first
"""


release: Final = loaded(ROOT / "docker" / "release.py")


def test_notes_are_the_section_of_the_version_alone() -> None:
    assert release.notes(CHANGELOG, "0.2.0") == "### Added\n\n- this one\n"
    assert release.notes(CHANGELOG, "0.1.0") == "- the first\n"
    assert release.notes(CHANGELOG, "0.3.0", draft=True) == "### Added\n\n- the next\n"


def test_version_without_its_section_is_not_released() -> None:
    with pytest.raises(ValueError, match=r"no section '## 0\.3\.0 - YYYY-MM-DD'; rename '## Unreleased'"):
        release.notes(CHANGELOG, "0.3.0")
    with pytest.raises(ValueError, match="is empty"):
        release.notes("## 0.3.0 - 2026-11-28\n\n## 0.2.0 - 2026-11-27\n", "0.3.0")
    with pytest.raises(ValueError, match=r"no section '## 0\.2\.0"):
        release.notes(CHANGELOG.replace("0.2.0", "0.2.01"), "0.2.0")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two releases of one commit."""
    if not (ROOT / ".git").exists():
        pytest.skip("the repository is not a clone")
    first, second = (tmp_path_factory.mktemp("release") for _ in range(2))
    for folder in (first, second):
        command = [sys.executable, str(ROOT / "docker" / "release.py"), "--draft", "--into", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return first, second


def test_release_is_the_same_again_for_the_same_commit(built: tuple[Path, Path]) -> None:
    first, second = ((folder / release.SUMS).read_text(encoding="utf-8") for folder in built)

    assert first == second
    listed = dict(reversed(line.split("  ")) for line in first.splitlines())
    assert {Path(name).suffix for name in listed} == {".whl", ".gz", ".md", ".json"}
    for name, checksum in listed.items():
        assert hashlib.sha256((built[0] / name).read_bytes()).hexdigest() == checksum


def test_wheel_has_everything_of_the_page_and_nothing_of_the_tests(built: tuple[Path, Path]) -> None:
    (wheel,) = built[0].glob("*.whl")
    assets = [file for file in (ROOT / "cdc" / "web" / "page").rglob("*") if file.is_file() and file.suffix != ".pyc"]

    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    assert len(assets) > 5
    assert {file.relative_to(ROOT).as_posix() for file in assets} <= names
    assert {"outbox/_migrations/env.py", "sinks/warehouse/spark/spark.lock"} <= names
    assert [name for name in names if name.startswith(("tests/", "docker/"))] == []


def test_source_archive_has_what_the_wheel_is_built_from(built: tuple[Path, Path]) -> None:
    (source,) = built[0].glob("*.tar.gz")

    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {"pyproject.toml", "LICENSE", "CHANGELOG.md", "cdc/__init__.py", "migrations/env.py"} <= names


def test_list_of_packages_has_every_locked_package_with_its_hashes_and_no_address(built: tuple[Path, Path]) -> None:
    (file,) = built[0].glob("*.cdx.json")
    document = json.loads(file.read_text(encoding="utf-8"))
    found = {
        (one["name"], one["version"]): {each["content"] for each in one["hashes"]} for one in document["components"]
    }
    pinned = {
        (name, version): set(hashes)
        for listed in release.LISTS
        for name, version, hashes in release.locked((ROOT / listed).read_text(encoding="utf-8"))
    }

    assert len(pinned) > 60
    assert found == pinned
    assert all(pinned.values())
    assert document["metadata"]["component"]["name"] == "tailrace"
    assert document["bomFormat"] == "CycloneDX"
    assert [one for one in document["components"] if "externalReferences" in one] == []
