"""Fresh seeds: a failure ends the run and prints the command that repeats it, and the command repeats it."""

from __future__ import annotations

import re

import pytest

from tests import fresh
from tests.property import snapshot_mutants, test_snapshot_window


def _mutant(seed: int) -> None:
    test_snapshot_window.seeded(seed, snapshot_mutants.NothingDropped)


def test_failing_seed_is_printed_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fresh, "MODELS", {"snapshot": _mutant})

    assert not fresh.drawn({"snapshot": _mutant}, 60)

    command = re.search(r"repeat it with: python -m tests\.fresh (.+)", capsys.readouterr().out)
    assert command is not None
    assert fresh.main(command[1].split()) == 1
    assert f"--model snapshot --seed {command[1].split()[-1]}" in capsys.readouterr().out


def test_seed_that_fails_nothing_is_exit_code_0() -> None:
    assert [fresh.main(["--model", name, "--seed", "7"]) for name in fresh.MODELS] == [0] * len(fresh.MODELS)


def test_each_run_draws_other_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        fresh.drawn({"snapshot": lambda _: None}, 0)

    first, second = re.findall(r"fresh seeds from (\d+) on", capsys.readouterr().out)
    assert first != second
