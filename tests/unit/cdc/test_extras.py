"""The error about a missing package names its extra, without a traceback."""

from __future__ import annotations

import tomllib

import pytest

from cdc.cli.main import run
from cdc.config.load import parse
from cdc.doctor.sink_checks import examine_sinks
from cdc.run.extras import _EXTRAS, missing_extra
from tests.tidy.tree import ROOT

CONFIG = """
name = "shop"
[source]
dsn = "postgresql://nobody@127.0.0.1:1/none"
[kafka]
bootstrap = "127.0.0.1:2"
[sinks.find]
kind = "search"
url = "http://127.0.0.1:3"
"""
_OF_PACKAGE = {"opensearchpy": "opensearch-py"}


def _not_there(*_: object, **__: object) -> None:
    raise ModuleNotFoundError(name="opensearchpy")


def test_command_without_its_extra_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cdc.cli.main.cli.main", _not_there)

    assert run(["sink", "run", "find"]) == 2

    shown = capsys.readouterr().err
    assert "the package 'opensearchpy' is not installed" in shown
    assert "pip install 'tailrace[capture,search]'" in shown


def test_doctor_finds_that_the_extra_of_a_sink_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.checkups.import_module", _not_there)

    (finding,) = examine_sinks(parse(CONFIG, {}), None)

    assert finding.level == "error"
    assert finding.command == "pip install 'tailrace[capture,search]'"


def test_each_package_is_of_the_extra_that_pyproject_says() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]

    for package, extra in _EXTRAS.items():
        wanted = _OF_PACKAGE.get(package, package)
        assert any(one.startswith(wanted) for one in extras[extra]), package
    assert missing_extra(ModuleNotFoundError(name="cdc.nothing")) is None
