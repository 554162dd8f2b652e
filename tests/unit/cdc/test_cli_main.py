"""The command line as programs use it: exit codes, streams, and no needless imports."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cdc.cli import main, output
from cdc.errors import InvariantError, SourceGap, SourceRefused, SourceUnreachable, TailraceError
from cdc.lsn import Lsn
from cdc.model import units


def test_help_loads_no_driver_and_no_client() -> None:
    script = (
        "import sys; from cdc.cli.main import run; code = run(['--help']); "
        "heavy = {'psycopg', 'confluent_kafka', 'msgspec', 'prometheus_client', 'structlog'} & set(sys.modules); "
        "assert code == 0 and not heavy, heavy"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "doctor" in done.stdout


def test_every_command_that_help_shows_loads() -> None:
    shown = main.cli.list_commands(click.Context(main.cli))

    for name in shown:
        assert isinstance(main.cli.get_command(click.Context(main.cli), name), click.Command)
    assert {"init", "doctor", "slot"} <= set(shown)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["sattus"], "Did you mean 'status'?"),
        (["sink", "statsu"], "Did you mean 'status'?"),
        (["qqq"], ""),
    ],
)
def test_mistyped_command_is_answered_with_the_closest_one(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 2

    err = capsys.readouterr().err
    assert f"No such command '{arguments[-1]}'." in err
    assert ("Did you mean" in err, meant in err) == (bool(meant), True)


@pytest.mark.parametrize("arguments", [["nix"], ["slot", "list", "--nix"], ["slot"], ["--config"]])
def test_wrong_usage_is_exit_2_on_stderr(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 2

    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("arguments", [[], ["slot"], ["sink"]])
def test_command_line_without_a_command_is_answered_with_the_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 2

    answered = capsys.readouterr()
    assert main.run([*arguments, "--help"]) == 0
    assert (answered.out, answered.err) == ("", capsys.readouterr().out)


def test_no_description_is_cut_off_in_the_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for group in [one for one in main.COMMANDS if isinstance(_command(one), click.Group)]:
        main.run([group, "--help"])

        assert "..." not in capsys.readouterr().out.partition("\nCommands:")[2], group


def test_missing_file_is_named_with_the_command_that_makes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["-c", str(tmp_path / "nix.toml"), "doctor"]) == 2

    text = capsys.readouterr().err
    assert "nix.toml" in text
    assert "try: cdc init" in text


@pytest.mark.parametrize("before", [True, False])
def test_config_may_stand_before_or_after_the_command(
    before: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    option = ["-c", str(tmp_path / "mine.toml")]

    main.run([*option, "slot", "list"] if before else ["slot", "list", *option])

    assert "mine.toml" in capsys.readouterr().err


def test_unknown_key_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cdc.toml"
    file.write_text('name = "shop"\n[source]\ndsn = "host=db password=s3cret"\ntabels = []\n[kafka]\nbootstrap = "k"\n')

    assert main.run(["-c", str(file), "doctor"]) == 2

    text = capsys.readouterr().err
    assert "unknown key source.tabels" in text
    assert "s3cret" not in text


@pytest.mark.parametrize(
    ("error", "code"),
    [(SourceRefused("no"), 3), (SourceUnreachable("no"), 1), (SourceGap("no"), 3)],
)
def test_exit_code_is_that_of_the_error(
    error: TailraceError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raise_from_a_command(monkeypatch, error)

    assert main.run(["slot"]) == code
    assert capsys.readouterr().err.startswith("error")


def test_error_says_what_where_hint_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    error = SourceGap(
        "WAL is gone", known_to=Lsn(1), hint="make it again", command="cdc slot create", slot="cdc_shop", table="a\nb"
    )

    output.show_error(error)

    assert capsys.readouterr().err.splitlines() == [
        "error GAP: WAL is gone",
        "where: slot cdc_shop, table a\\nb",
        " hint: make it again",
        "  try: cdc slot create",
    ]


def test_error_for_programs_is_json_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raise_from_a_command(monkeypatch, SourceGap("gone", known_to=Lsn(0x100000002), slot="s"))

    assert main.run(["slot", "list", "--json"]) == 3

    captured = capsys.readouterr()
    error = json.loads(captured.err)["error"]
    assert captured.out == ""
    assert (error["class"], error["state"], error["exit_code"]) == ("SourceGap", "GAP", 3)
    assert error["facts"] == {"known_to": "1/2", "slot": "s"}


def test_bug_of_ours_is_shown_and_raised(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    raise_from_a_command(monkeypatch, InvariantError("impossible"))

    with pytest.raises(InvariantError):
        main.run(["slot"])
    assert "impossible" in capsys.readouterr().err


def test_interrupt_is_exit_1_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raise_from_a_command(monkeypatch, KeyboardInterrupt())

    assert main.run(["slot"]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_names_cannot_steer_the_terminal() -> None:
    assert output.plain("a\x1b[2Jb\nc\x9bd\u202ee") == "a\\x1b[2Jb\\nc\\x9bd\\u202ee"
    assert output.statement("select\n\t1\x1b") == "select\n\t1\\x1b"


@pytest.mark.parametrize(
    ("count", "text"), [(None, ""), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes_are_for_people(count: int | None, text: str) -> None:
    assert units.size(count) == text


def test_question_without_a_terminal_is_answered_no() -> None:
    assert not output.confirm("sure?", yes=False)
    assert output.confirm("sure?", yes=True)


def _command(name: str) -> click.Command | None:
    return main.cli.get_command(click.Context(main.cli), name)


def raise_from_a_command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """`cdc slot` and `cdc slot list` raise."""

    def fail(*_: object, **__: object) -> None:
        raise error

    module = importlib.import_module("cdc.cli.slot_command")
    monkeypatch.setattr(module, "group", click.Command("slot", callback=fail, context_settings=_ANYTHING))


_ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}
