"""Which lake a command reads: the only one of the configuration, or one by name, folder or URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from msgspec import structs

from cdc.cli.main import run
from cdc.cli.views_command import group
from cdc.errors import EXIT_OK, EXIT_USAGE
from cdc.run import app
from tests.fixtures.lake.small_lakes import SmallLake

if TYPE_CHECKING:
    from collections.abc import Callable

START: Final = 'name = "shop"\nsource.dsn = "dbname=shop"\nkafka.bootstrap = "localhost:9092"\n'
TABLE: Final = "mirror/public.orders"
COMMANDS: Final[dict[str, list[str]]] = {
    "list": ["views", "list"],
    "show": ["views", "show", "v"],
    "at": ["views", "at", "1", "v"],
    "plan": ["views", "plan", "v"],
    "explain": ["views", "explain", "v"],
    "check": ["views", "check", "v"],
    "sql": ["views", "sql", "v"],
    "chart": ["views", "chart", "v", "--x", "id", "--y", "n", "-o", "v.png"],
    "compare": ["views", "compare", "v"],
    "swap": ["views", "swap", "v", "--yes", "--wait", "0"],
    "rollback": ["views", "rollback", "v", "--yes", "--wait", "0"],
    "query": ["views", "query", "select * from v"],
    "history": ["history", "orders", "7"],
}
REACHED: Final = {  # what a command that cannot succeed here says of the lake
    "compare": "v has no new version",
    "swap": "v has no new version",
    "rollback": "v has no previous version",
    "history": "archive/shop.public.orders has outbox events, not rows",
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two lakes, `near` and `far`, each with the view `v`, in the working directory; `check` runs without Spark."""
    monkeypatch.chdir(tmp_path)
    for name in ("near", "far"):
        made = SmallLake(tmp_path / f"{name}-lake")
        made.write(TABLE, pa.table({"id": [7], "n": [1]}))
        made.tables[TABLE] = structs.replace(made.tables[TABLE], key=("id",))
        made.write("archive/shop.public.orders", pa.table({"id": [7]}))
        made.view("v", pa.table({"id": [7], "n": [1]}))
        made.publish()
        folder = tmp_path / f"{name}-views"
        folder.mkdir()
        (folder / "v.sql").write_text(f"select id, n as {name} from orders")
    configure(tmp_path, "near")

    def check(location: Any, files: Any, *_: Any, **__: Any) -> tuple[int, list[Any]]:
        assert [view.sql for view in files.views] == [f"select id, n as {Path(location.root).name[:-5]} from orders"]
        return 1, []

    monkeypatch.setattr(app, "check_lake_views", check)
    return tmp_path


def configure(place: Path, *names: str) -> None:
    sinks = (f'[sinks.{name}]\nkind = "warehouse"\npath = "{name}-lake/"\nviews = "{name}-views"\n' for name in names)
    (place / "cdc.toml").write_text(START + "".join(sinks))


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def call(*arguments: str) -> tuple[int, str]:
        code = run(list(arguments))
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    return call


def reached(command: str, found: tuple[int, str]) -> bool:
    code, shown = found
    return REACHED[command] in shown if command in REACHED else code == EXIT_OK


def test_every_command_of_views_is_here() -> None:
    assert set(group.commands) == COMMANDS.keys() - {"history"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_only_lake_needs_no_option(command: str, call: Callable[..., tuple[int, str]]) -> None:
    found = call(*COMMANDS[command])

    assert reached(command, found), found


@pytest.mark.parametrize("command", COMMANDS)
def test_of_several_lakes_one_is_chosen_by_name_or_place(
    command: str, place: Path, call: Callable[..., tuple[int, str]]
) -> None:
    configure(place, "near", "far")

    for text in ("far", "far-lake", f"{place}/far-lake/"):
        found = call(*COMMANDS[command], "--lake", text)
        assert reached(command, found), (text, found)
    code, shown = call(*COMMANDS[command])
    assert (code, "2 warehouse sinks: far, near" in shown, "--lake far" in shown) == (EXIT_USAGE, True, True)
    code, shown = call(*COMMANDS[command], "--lake", "fare")
    assert code == EXIT_USAGE
    assert "no lake 'fare'" in shown
    assert "warehouse sinks in the configuration: far, near" in shown


def test_views_are_those_of_the_chosen_lake(place: Path, call: Callable[..., tuple[int, str]]) -> None:
    configure(place, "near", "far")

    assert call("views", "sql", "v", "--lake", "near")[1] == "select id, n as near from orders\n"
    assert call("views", "sql", "v", "--lake", "far-lake")[1] == "select id, n as far from orders\n"
    assert call("views", "sql", "v", "--views", "far-views")[1] == "select id, n as far from orders\n"


def test_folder_is_read_without_a_valid_configuration(place: Path, call: Callable[..., tuple[int, str]]) -> None:
    (place / "cdc.toml").write_text("name = ")
    assert call("views", "show", "v", "--lake", "near-lake")[0] == EXIT_OK
    code, shown = call("views", "show", "v", "--lake", "near")
    assert code != EXIT_OK
    assert "cdc.toml" in shown

    (place / "cdc.toml").unlink()
    assert call("views", "show", "v", "--lake", "near-lake")[0] == EXIT_OK
    code, shown = call("views", "plan", "v", "--lake", "near-lake")
    assert code == EXIT_USAGE
    assert "the folder of the views is unknown" in shown
