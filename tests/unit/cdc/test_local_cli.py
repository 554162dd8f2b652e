from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from cdc.cli.local_command import group
from cdc.errors import LocalError, UsageError
from cdc.local.stack import Stack

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(group, arguments)


def test_the_commands_are_the_fixed_ones() -> None:
    assert set(group.commands) == {"up", "down", "status", "logs", "env"}


def test_status_of_a_stack_that_never_was_is_no_failure() -> None:
    result = run("status", "--json")

    assert result.exit_code == 0
    assert [s["condition"] for s in json.loads(result.stdout)["servers"]] == ["absent", "absent"]


def test_down_twice_is_no_failure(tmp_path: Path) -> None:
    assert run("down", "--wipe").exit_code == 0
    assert run("down", "--wipe", "--stack", "never").exit_code == 0
    assert list((tmp_path).glob("stacks/*")) == []


@pytest.mark.parametrize("command", ["env", "logs"])
def test_a_command_that_needs_servers_says_how_to_start_them(command: str) -> None:
    result = run(command, "--stack", "other")

    assert isinstance(result.exception, LocalError)
    assert result.exception.command == "cdc local up --stack other"


def test_a_setting_without_a_value_is_a_usage_error() -> None:
    assert isinstance(run("up", "--pg-set", "fsync").exception, UsageError)


def test_an_unknown_server_is_a_usage_error_that_names_the_known() -> None:
    result = run("up", "oracle")

    assert result.exit_code == 2
    assert "postgres" in result.stderr


@pytest.mark.parametrize("name", ["", "../x", "A", "a b", "-a", "x" * 41])
def test_a_name_that_could_be_a_path_is_no_stack(name: str) -> None:
    with pytest.raises(LocalError, match="invalid name"):
        Stack(name)


def test_a_server_that_is_not_of_the_stack_is_an_error() -> None:
    with pytest.raises(LocalError, match="without kafka"):
        _ = Stack("x", ("postgres",)).kafka
    with pytest.raises(LocalError, match="unknown local server oracle"):
        Stack("x", ("oracle",))
