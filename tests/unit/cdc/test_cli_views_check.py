"""`cdc views check`: which comparisons run, what is printed, and the exit code."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from cdc.cli import view_check_command
from cdc.cli.main import run
from cdc.config.load import load
from cdc.config.sink_kinds import lakes
from cdc.doctor.finding import Level
from cdc.doctor.view_checks import examine_collations, examine_views
from cdc.errors import CutNotReached, SourceUnreachable
from cdc.lsn import Lsn
from cdc.replication import collations, connect
from cdc.verify import source_views
from cdc.verify.source_views import SourceViewReport, SourceViews
from sinks.warehouse.read.view_check import ViewReport
from sinks.warehouse.verify.row_multiset import Compared

if TYPE_CHECKING:
    from pathlib import Path

_CONFIG = """
name = "shop"
[source]
dsn = "postgresql://db/shop"
[kafka]
bootstrap = "broker:9092"
[sinks.lake]
kind = "warehouse"
path = "lake"
views = "views"
"""
_EQUAL = SourceViewReport(name="equal", cut=7, state="equal", found=Compared(rows=3, source_rows=3))
_NEVER = SourceViewReport(name="never", cut=7, state="not_checkable", reason="it is written in Spark SQL")
_WRONG = SourceViewReport(
    name="wrong",
    cut=7,
    state="different",
    found=Compared(
        rows=2,
        source_rows=2,
        missing=1,
        extra=1,
        examples=[("extra", ("5", "secret 1")), ("missing", ("5", "secret 2"))],
        columns={1: 1},
    ),
    columns=("id", "note"),
    key=("id",),
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "views").mkdir()
    file = tmp_path / "cdc.toml"
    file.write_text(_CONFIG)
    return file


@pytest.fixture(autouse=True)
def _spark(monkeypatch: pytest.MonkeyPatch) -> None:
    of_spark = ViewReport(name="equal", cut=7, rows=3)
    monkeypatch.setattr(view_check_command, "_on_spark", lambda *_: (7, [of_spark]))


def _source(monkeypatch: pytest.MonkeyPatch, *reports: SourceViewReport, error: Exception | None = None) -> None:
    def check(*_: Any, **__: Any) -> SourceViews:
        if error is not None:
            raise error
        return SourceViews(7, Lsn(0x1B014F8), reports)

    monkeypatch.setattr(source_views, "check_views_at_source", check)


def _run(config: Path, *words: str) -> int:
    return run(["views", "check", *words, "-c", str(config)])


def test_keys_are_shown_and_values_only_on_request(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _source(monkeypatch, _WRONG)

    assert _run(config, "wrong", "--source") == 1
    shown = "".join(capsys.readouterr())
    assert "only in PostgreSQL: id=5" in shown
    assert "rows differ in note" in shown
    assert "secret" not in shown

    assert _run(config, "wrong", "--source", "--json") == 1
    text = capsys.readouterr().out
    (view,) = json.loads(text)["source"]["views"]
    assert (view["state"], view["missing"], view["extra"], view["columns"]) == ("different", 1, 1, ["note"])
    assert view["examples"] == [{"kind": "extra", "key": {"id": "5"}}, {"kind": "missing", "key": {"id": "5"}}]
    assert "secret" not in text

    assert _run(config, "wrong", "--source", "--values") == 1
    assert "id=5, note=secret 2" in "".join(capsys.readouterr())


def test_views_that_postgresql_can_never_run_fail_only_if_they_are_named(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _source(monkeypatch, _EQUAL, _NEVER)
    assert _run(config, "--all", "--source") == 0
    assert "never: cannot be checked: it is written in Spark SQL" in "".join(capsys.readouterr())

    _source(monkeypatch, _NEVER)
    assert _run(config, "never", "--source") == 1
    assert _run(config, "--all", "--source") == 1, "nothing was compared"


@pytest.mark.parametrize("state", ["undecided", "not_compared"])
def test_a_view_that_could_not_be_compared_fails_with_source(
    config: Path, monkeypatch: pytest.MonkeyPatch, state: Any
) -> None:
    _source(monkeypatch, _EQUAL, SourceViewReport(name="late", cut=7, state=state, reason="why"))

    assert _run(config, "--all", "--source") == 1
    assert _run(config, "--all") == 0, "Spark's comparison decides"


def test_without_an_option_both_sides_are_compared(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _source(monkeypatch, _EQUAL)
    assert _run(config, "--all", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [view["name"] for view in document["views"]] == ["equal"]
    assert (document["source"]["lsn"], document["source"]["problem"]) == ("0/1B014F8", None)

    _source(monkeypatch, _WRONG)
    assert _run(config, "--all") == 1


def test_a_source_that_cannot_be_reached_is_left_out_unless_it_is_asked_for(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _source(monkeypatch, error=SourceUnreachable("cannot connect to PostgreSQL: refused"))

    assert _run(config, "--all") == 0
    assert "not compared with PostgreSQL: cannot connect to PostgreSQL: refused" in "".join(capsys.readouterr())
    assert _run(config, "--all", "--source") == 1
    for words in (("--no-source",), ("--at", "3")):
        assert _run(config, "--all", *words) == 0
        assert "PostgreSQL" not in "".join(capsys.readouterr()).partition("refused")[2]


@pytest.mark.parametrize("words", [("--source", "--no-source"), ("--source", "--at", "3")])
def test_options_that_contradict_each_other_are_refused(config: Path, words: tuple[str, ...]) -> None:
    assert _run(config, "--all", *words) == 2


def test_doctor_warns_of_views_that_differ(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(config, {})
    _source(monkeypatch, _EQUAL, _WRONG, _NEVER)

    found = list(examine_views(loaded, "lake", lakes(loaded)["lake"]))

    assert [one.level for one in found] == [Level.WARNING, Level.OK]
    assert found[0].command == "cdc views check wrong --source"
    assert "1 of 3 views" in found[1].message
    assert "1 cannot be checked there" in found[1].message
    _source(monkeypatch, error=CutNotReached("the lake did not catch up within 10 s"))
    (one,) = examine_views(loaded, "lake", lakes(loaded)["lake"])
    assert (one.level, "did not catch up" in one.message) == (Level.OK, True)


def test_view_with_a_wrong_collation_fails_though_its_rows_are_equal(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "it declares the collation C, but the database has de_DE.UTF-8"
    _source(monkeypatch, SourceViewReport(name="sorted", cut=7, state="equal", collations=(why,)))

    assert _run(config, "sorted", "--source") == 1
    assert f"sorted: can differ from PostgreSQL: {why}" in "".join(capsys.readouterr())
    assert _run(config, "sorted", "--source", "--json") == 1
    (view,) = json.loads(capsys.readouterr().out)["source"]["views"]
    assert (view["state"], view["collations"]) == ("equal", [why])


@pytest.mark.parametrize(
    ("database", "level", "text"),
    [
        ("C", Level.OK, "views that declare the collation C: 1; the database has it"),
        ("de_DE.UTF-8", Level.WARNING, "view sorted can differ from PostgreSQL: it declares the collation C"),
    ],
)
def test_doctor_compares_declared_collations_with_the_database(
    config: Path, monkeypatch: pytest.MonkeyPatch, database: str, level: Level, text: str
) -> None:
    loaded = load(config, {})
    views = config.parent / "views"
    (views / "plain.sql").write_text("select id from t")
    (views / "sorted.sql").write_text("-- dialect: postgres\n-- collation: C\nselect max(name) as x from t")
    settings = structs.replace(lakes(loaded)["lake"], views=str(views))
    found = collations.Collations(collations.of_database("c", database, database, ""))
    monkeypatch.setattr(connect, "connect", lambda *_, **__: io.BytesIO())
    monkeypatch.setattr(collations, "collations", lambda _: found)

    (one,) = examine_collations(loaded, "lake", settings)

    assert (one.level, one.check) == (level, "view_collation")
    assert text in one.message
    assert one.command == ("" if level is Level.OK else "cdc views check sorted --source")
