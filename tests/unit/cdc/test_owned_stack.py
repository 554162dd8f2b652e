"""A stack that one program owns: one run at a time, and what stays after it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from cdc.artifacts.machine import Machine
from cdc.errors import LocalError
from cdc.local.owned_stack import OwnedStack, Owner, owned_stack

if TYPE_CHECKING:
    from pathlib import Path

OWNER: Final = Owner("dev", "trial", "trial --stack other")


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A cache of the test's own."""
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    return Machine.here()


def run(*, keep: bool | None = None, fail: BaseException | None = None) -> tuple[OwnedStack, list[Path]]:
    """One run that writes a file; returns its stack, and the folders that were left."""
    left: list[Path] = []

    def leave(folder: Path) -> bool:
        left.append(folder)
        return True

    with owned_stack(OWNER, "mine", (), leave=leave) as owned:
        (owned.folder / "file").touch()
        if keep is not None:
            owned.keep_data(keep=keep)
        if fail is not None:
            raise fail
    return owned, left


def test_a_second_run_is_refused_with_pid_and_address_of_the_first() -> None:
    with owned_stack(OWNER, "mine", ()) as first:
        first.announce("http://127.0.0.1:1/")
        with pytest.raises(LocalError) as caught:
            run()

    assert caught.value.message == f"another trial uses stack 'mine' (pid {os.getpid()}, http://127.0.0.1:1/)"
    assert caught.value.command == OWNER.command


def test_by_default_nothing_stays_and_the_folder_is_left_first() -> None:
    owned, left = run()

    assert not owned.folder.exists()
    assert left == [owned.folder]


def test_data_that_is_kept_stays_until_it_is_given_up() -> None:
    owned, left = run(keep=True)
    again, _ = run()
    assert (owned.folder / "file").exists()
    assert left == []
    assert again.has_data
    assert not owned.has_data

    last, left = run(keep=False)
    assert not last.folder.exists()
    assert left == [last.folder]


def test_a_failed_run_keeps_its_logs_and_the_next_one_starts_empty(machine: Machine) -> None:
    folder = machine.cache / "dev" / "mine"
    with pytest.raises(LocalError):
        run(fail=LocalError("failed"))
    assert (folder / "file").exists()

    with owned_stack(OWNER, "mine", ()) as owned:
        assert not (owned.folder / "file").exists()


def test_an_interrupted_run_keeps_nothing(machine: Machine) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(fail=KeyboardInterrupt())

    assert not (machine.cache / "dev" / "mine").exists()


def test_files_stay_while_something_is_left_elsewhere(machine: Machine) -> None:
    with owned_stack(OWNER, "mine", (), leave=lambda folder: False) as owned:  # noqa: ARG005
        (owned.folder / "file").touch()

    assert (machine.cache / "dev" / "mine" / "file").exists()


def test_a_stack_of_another_program_is_refused(machine: Machine) -> None:
    (machine.stacks / "mine").mkdir(parents=True)

    with pytest.raises(LocalError, match="does not belong to a trial"):
        run()
    assert (machine.stacks / "mine").exists()
