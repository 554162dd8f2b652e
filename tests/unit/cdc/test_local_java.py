from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.java import Java, choose_java, find_java, parse_release
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError


def java(version: str) -> Java:
    return Java(Path(f"/java/{version}/bin/java"), version)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('IMPLEMENTOR="x"\nJAVA_VERSION="25.0.2"\n', "25.0.2"),
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', "17.0.15"),
        ('java version "1.8.0_402"', "1.8.0_402"),
        ('FULL_JAVA_VERSION="25"', None),
        ("", None),
    ],
)
def test_the_version_is_found_in_what_javas_say(text: str, version: str | None) -> None:
    assert parse_release(text) == version


@given(st.text())
def test_any_text_has_a_version_or_none(text: str) -> None:
    parse_release(text)


def test_the_old_way_of_counting_versions_is_known() -> None:
    assert java("1.8.0_402").major == 8
    assert java("17.0.15").major == 17
    assert java("25-ea").major == 25


def test_one_with_an_ahead_of_time_cache_wins_over_an_older_one_before_it() -> None:
    assert choose_java([java("17.0.15"), java("25.0.2")]) == java("25.0.2")


def test_the_first_wins_among_equals() -> None:
    assert choose_java([java("26"), java("25.0.2")]) == java("26")
    assert choose_java([java("21"), java("17")]) == java("21")


def test_one_that_is_too_old_is_not_taken() -> None:
    assert choose_java([java("11.0.2")]) is None
    assert choose_java([java("17.0.15")], 21) is None
    assert choose_java([java("17.0.15"), java("21")], 21) == java("21")


def test_an_archive_is_used_when_there_is_one_and_else_written() -> None:
    archive, output = Path("/a"), Path("/o")

    assert "-XX:AOTCache=/a" in java("25").archive_options(archive, output)
    assert "-XX:AOTCacheOutput=/o" in java("25").archive_options(None, output)
    assert "-XX:SharedArchiveFile=/a" in java("17").archive_options(archive, output)
    assert "-XX:ArchiveClassesAtExit=/o" in java("17").archive_options(None, output)


def test_a_named_java_is_taken_as_it_is(tmp_path: Path) -> None:
    program = fake_java(tmp_path, "17.0.1")

    assert find_java(Machine(tmp_path, java=str(program), path=""), NoProgress()) == Java(program, "17.0.1")


def test_a_named_java_that_is_too_old_is_an_error_that_says_so(tmp_path: Path) -> None:
    program = fake_java(tmp_path, "11.0.1")

    with pytest.raises(LocalError, match="JAVA="):
        find_java(Machine(tmp_path, java=str(program), path=""), NoProgress())


def fake_java(folder: Path, version: str) -> Path:
    home = folder.resolve() / f"java-{version}"
    for part in ("bin", "lib"):
        (home / part).mkdir(parents=True)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    (home / "lib" / "modules").touch()
    program = home / "bin" / "java"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program
