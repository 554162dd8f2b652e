from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc.artifacts.machine import Machine, ServerUser, cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

STRANGER = ServerUser("stranger", 54321, 54321)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can open; pytest's own folder is closed to other users."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        yield folder


@pytest.mark.parametrize(
    ("environ", "root", "folder"),
    [
        ({"HOME": "/home/a"}, False, "/home/a/.cache/tailrace"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "/c"}, False, "/c/tailrace"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "relative"}, False, "/home/a/.cache/tailrace"),
        ({"HOME": "/root", "XDG_CACHE_HOME": "/c"}, True, "/var/cache/tailrace"),
        ({"HOME": "/root", "TAILRACE_CACHE": "/elsewhere"}, True, "/elsewhere"),
    ],
)
def test_the_cache_is_where_the_user_keeps_caches(environ: dict[str, str], root: bool, folder: str) -> None:
    assert cache_folder(environ, root=root) == Path(folder)


def test_an_empty_variable_is_one_that_is_not_set() -> None:
    machine = Machine.here({"MAVEN_REPO_URL": "", "JAVA": "", "HOME": "/home/a"})

    assert machine.maven_url is None
    assert machine.java is None


def test_a_file_below_a_closed_folder_cannot_be_read_by_others(open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir()
    file = closed / "file"
    file.touch()
    file.chmod(0o644)
    machine = Machine(open_folder, STRANGER)

    closed.chmod(0o755)
    assert machine.can_read(file)
    closed.chmod(0o700)
    assert not machine.can_read(file)
    closed.chmod(0o755)
    file.chmod(0o600)
    assert not machine.can_read(file)


def test_the_way_a_link_leads_is_what_counts(open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    (closed / "file").touch()
    link = open_folder / "link"
    link.symlink_to(closed / "file")

    assert not Machine(open_folder, STRANGER).can_read(link)


def test_folders_are_open_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        Machine(tmp_path).folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)

    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o755, 0o755]


def test_a_link_in_the_place_of_a_private_folder_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (tmp_path / "run").symlink_to(victim)

    with pytest.raises(OSError, match="run"):
        Machine(tmp_path).private_folder(tmp_path / "run")

    assert victim.stat().st_mode & 0o777 == 0o755
