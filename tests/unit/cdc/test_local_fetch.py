from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from cdc.artifacts.fetch import base_url, fetch
from cdc.artifacts.lock_file import Artifact
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONTENT = b"the bytes of a jar" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ARTIFACT = Artifact(SHA256, len(CONTENT), "org.acme", "tool", "1.0")


class Counted:
    """Counts the reported bytes."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self.done_bytes = 0
        self.ended = False

    def step(self, text: str) -> None: ...

    def begin(self, what: str, total_bytes: int) -> None:
        self.total_bytes += total_bytes

    def advance(self, what: str, count_bytes: int) -> None:
        self.done_bytes += count_bytes

    def end(self, what: str) -> None:
        self.ended = True


def no_sleep(seconds: float) -> None:
    pass


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A repository in a folder, with a file: URL instead of an https: URL."""
    file = tmp_path / "mirror" / ARTIFACT.path
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    return file


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "cache", maven_url=(tmp_path / "mirror").as_uri() + "/")


def get(machine: Machine, sleep: Callable[[float], None] = no_sleep) -> tuple[Path, Counted]:
    counted = Counted()
    (file,) = fetch([ARTIFACT], machine=machine, progress=counted, label="tool", sleep=sleep)
    return file, counted


def test_a_jar_is_fetched_once(machine: Machine, mirror: Path) -> None:
    file, first = get(machine)
    mirror.unlink()
    again, second = get(machine)

    assert file.read_bytes() == CONTENT
    assert again == file
    assert (first.done_bytes, first.total_bytes, first.ended) == (len(CONTENT), len(CONTENT), True)
    assert second.total_bytes == 0


def test_a_wrong_file_in_the_cache_is_noticed_and_replaced(machine: Machine, mirror: Path) -> None:
    file, _ = get(machine)
    file.write_bytes(CONTENT[:-1] + b"?")

    get(machine)

    assert file.read_bytes() == CONTENT


def test_a_half_finished_download_is_recovered_from(machine: Machine, mirror: Path) -> None:
    target = machine.cache / "maven" / ARTIFACT.path
    target.parent.mkdir(parents=True)
    target.write_bytes(CONTENT[:100])
    target.with_name(f"{target.name}.part").write_bytes(CONTENT[:500])

    get(machine)

    assert [f.name for f in target.parent.iterdir()] == [target.name]
    assert target.read_bytes() == CONTENT


def test_a_transfer_that_breaks_is_tried_again(machine: Machine, mirror: Path) -> None:
    mirror.write_bytes(CONTENT[:-10])
    waits: list[float] = []

    def mend(seconds: float) -> None:
        waits.append(seconds)
        mirror.write_bytes(CONTENT)

    file, counted = get(machine, mend)

    assert file.read_bytes() == CONTENT
    assert len(waits) == 1
    assert counted.done_bytes == len(CONTENT)


def test_another_file_than_the_pinned_one_is_never_kept(machine: Machine, mirror: Path) -> None:
    mirror.write_bytes(bytes(len(CONTENT)))

    with pytest.raises(LocalError, match="checksum mismatch"):
        get(machine)

    assert list((machine.cache / "maven" / ARTIFACT.path).parent.iterdir()) == []


def test_an_endless_answer_is_cut_off(machine: Machine, mirror: Path) -> None:
    mirror.write_bytes(CONTENT * 100)

    with pytest.raises(LocalError, match="checksum mismatch"):
        get(machine)


def test_a_repository_that_cannot_be_reached_is_an_error_after_some_tries(machine: Machine, mirror: Path) -> None:
    mirror.unlink()
    waits: list[float] = []

    with pytest.raises(LocalError, match=r"cannot download org\.acme:tool:1\.0") as caught:
        get(machine, waits.append)

    assert waits == sorted(waits)
    assert len(waits) == 4
    assert "MAVEN_REPO_URL" in caught.value.hint


def test_the_address_is_the_mirrors_or_the_one_the_package_knows(machine: Machine, tmp_path: Path) -> None:
    assert not base_url(machine).endswith("/")
    assert base_url(Machine(tmp_path)).startswith("https://")
