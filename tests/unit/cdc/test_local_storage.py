from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc.artifacts.cache_folder import copy_file, copy_trees, locked, write_file
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError
from cdc.local.class_archives import ClassArchives
from cdc.local.server_logs import read_lines

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    file = tmp_path / "locks" / "x"

    first = locked(file, machine=machine, deadline_s=0)
    second = locked(file, machine=machine, deadline_s=0)

    with first, pytest.raises(LocalError, match="another command"), second:
        pass
    with locked(file, machine=machine, deadline_s=0):
        pass


def test_a_copy_is_readable_and_executable_by_all_users(tmp_path: Path) -> None:
    source = tmp_path / "package"
    (source / "bin").mkdir(parents=True, mode=0o700)
    (source / "bin" / "tool").touch(mode=0o700)
    (source / "data").touch(mode=0o600)
    (source / "link").symlink_to("data")

    copy_trees({"package": source}, tmp_path / "copy", machine=Machine(tmp_path))

    copy = tmp_path / "copy" / "package"
    modes = {name: (copy / name).stat().st_mode & 0o777 for name in ("bin", "bin/tool", "data")}
    assert modes == {"bin": 0o755, "bin/tool": 0o755, "data": 0o644}
    assert (copy / "link").is_symlink()


def test_a_half_made_copy_is_made_again(tmp_path: Path) -> None:
    source = tmp_path / "package"
    source.mkdir()
    (source / "new").touch()
    (tmp_path / "copy.part" / "package").mkdir(parents=True)
    (tmp_path / "copy.part" / "package" / "old").touch()

    copy_trees({"package": source}, tmp_path / "copy", machine=Machine(tmp_path))

    assert [f.name for f in (tmp_path / "copy" / "package").iterdir()] == ["new"]


def test_a_link_left_by_the_servers_user_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    (tmp_path / "link").symlink_to(secret)

    with pytest.raises(OSError, match="link"):
        copy_file(tmp_path / "link", tmp_path / "out", machine=Machine(tmp_path))

    assert not (tmp_path / "out").exists()


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_file(tmp_path / "conf", "old")
    write_file(tmp_path / "conf", "new")

    assert (tmp_path / "conf").read_text() == "new"
    assert [f.name for f in tmp_path.iterdir()] == ["conf"]


def test_an_archive_is_found_under_what_it_is_good_for(tmp_path: Path) -> None:
    archives = ClassArchives(Machine(tmp_path), "kafka")
    (tmp_path / "written").write_bytes(b"classes")

    archives.keep("a", tmp_path / "written")

    found = archives.find("a")
    assert found is not None
    assert found.read_bytes() == b"classes"
    assert archives.find("b") is None
    assert not (tmp_path / "written").exists()


def test_a_damaged_archive_is_removed(tmp_path: Path) -> None:
    archives = ClassArchives(Machine(tmp_path), "kafka")
    (tmp_path / "written").write_bytes(b"classes")
    archives.keep("a", tmp_path / "written")
    found = archives.find("a")
    assert found is not None

    found.write_bytes(b"classe?")

    assert archives.find("a") is None
    assert not found.exists()


def test_an_archive_that_was_not_written_is_no_error(tmp_path: Path) -> None:
    archives = ClassArchives(Machine(tmp_path), "kafka")
    (tmp_path / "empty").touch()

    archives.keep("a", tmp_path / "missing")
    archives.keep("a", tmp_path / "empty")

    assert archives.find("a") is None


def test_old_archives_do_not_pile_up(tmp_path: Path) -> None:
    archives = ClassArchives(Machine(tmp_path), "kafka")

    for number in range(10):
        (tmp_path / "written").write_bytes(b"%d" % number)
        archives.keep(f"a{number % 7}", tmp_path / "written")

    assert len(list((tmp_path / "archives" / "kafka").iterdir())) == 4


def test_only_whole_lines_of_a_log_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\ntwo\nthr")

    lines, end = read_lines(log, 0, last=1)
    log.write_bytes(b"one\ntwo\nthree\n")
    more, _ = read_lines(log, end)

    assert lines == ["two"]
    assert more == ["three"]


def test_a_log_that_was_rotated_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"new\n")

    assert read_lines(log, 1000) == (["new"], 4)
    assert read_lines(tmp_path / "none", 1000) == ([], 0)
