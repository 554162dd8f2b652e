"""Kinds of sinks that other packages provide: found by their entry point, refused when nobody has them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from cdc.config.load import parse
from cdc.config.settings import Applied, Config, Plugin
from cdc.config.sink_kinds import applied_of, kind_of
from cdc.errors import ConfigError, SinkUnfit
from sinks.compose import target_of
from sinks.contract import Verifiable
from sinks.plugin.checkup import checkup
from tests.fixtures.sinks.plugin_package import install

BASE = 'name = "shop"\n[source]\ndsn = "postgresql://db/shop"\n[kafka]\nbootstrap = "k:9092"\n'
MODULE = """
from cdc.errors import SinkUnfit
from sinks.contract import Target
from sinks.store_findings import StoreFinding

class Notes(Target):
    def __init__(self, *made):
        self.made = made

    def checkup(self):
        yield StoreFinding("warning", "notes", "the pencil is blunt")

def notes(pipeline, sink, options):
    if "path" not in options:
        raise SinkUnfit("no path", hint="set it")
    return Notes(pipeline, sink, options)

def broken(pipeline, sink, options):
    raise KeyError(options["password"])
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(
        tmp_path,
        "tailrace-notes",
        {"notes_sink.py": MODULE},
        {"notes": "notes_sink:notes", "broken": "notes_sink:broken", "absent": "notes_sink:absent"},
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


def config(section: str) -> Config:
    return parse(f"{BASE}[sinks.jotter]\n{section}", {})


@pytest.mark.usefixtures("package")
def test_kind_of_an_installed_package_has_the_common_settings_and_its_own_options() -> None:
    text = (
        'kind = "notes"\ntables = ["public.t"]\nrequest_records = 5\noptions = {path = "p", deep.er = 2, token = "s"}\n'
    )
    found = applied_of(config(text), "jotter")

    assert isinstance(found, Plugin)
    assert (kind_of(found), found.tables, found.request_records, found.parallel) == ("notes", ("public.t",), 5, 4)
    target = target_of(config(text), "jotter", found)
    assert vars(target)["made"] == ("shop", "jotter", {"path": "p", "deep.er": "2", "token": "s"})
    assert not isinstance(target, Verifiable)
    assert "token" in repr(found)
    assert "'s'" not in repr(found.options)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("section", "message", "hint"),
    [
        (
            'kind = "note"\n',
            "sinks.jotter.kind: unknown kind 'note'; did you mean notes",
            "known kinds are absent, bro",
        ),
        ('kind = "serch"\n', "unknown kind 'serch'; did you mean search", "cache, notes, search, warehouse"),
        ('kind = "plugin"\nplugin = "notes"\n', "unknown kind 'plugin'", "add-a-sink.md"),
        ('kind = "notes"\nplugin = "broken"\n', "unknown key sinks.jotter.plugin", "[sinks.jotter.options]"),
        ('kind = "notes"\nurl = "x"\n', "url", ""),
        ("kind = 3\n", "sinks.jotter.kind must be a string", ""),
    ],
)
def test_kind_that_no_package_provides_is_refused_with_those_there_are(section: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        config(section)

    assert hint in refused.value.hint


def test_kind_of_two_packages_is_refused_with_both(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(package / "other", "tailrace-jot", {}, {"notes": "jot:notes"})
    monkeypatch.syspath_prepend(str(package / "other"))

    with pytest.raises(ConfigError, match=r"several packages .* 'notes': tailrace-jot 1\.0, tailrace-notes 1\.0"):
        config('kind = "notes"\n')


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('kind = "notes"\n', "no path"),
        ('kind = "absent"\n', r"notes_sink:absent of tailrace-notes 1\.0 cannot be imported: AttributeError"),
        ('kind = "broken"\noptions = {password = "hunter2"}\n', "broken of tailrace-notes .* its options: KeyError"),
    ],
)
def test_package_that_cannot_make_its_sink_is_a_named_stop_without_secrets(section: str, message: str) -> None:
    made = config(section)
    settings = applied_of(made, "jotter")
    with pytest.raises(SinkUnfit, match=message) as stopped:
        target_of(made, "jotter", settings)

    assert stopped.value.hint
    assert "hunter2" not in f"{stopped.value.message} {stopped.value.hint} {stopped.value.facts}"


def test_package_that_was_uninstalled_since_is_a_named_stop(package: Path) -> None:
    made = config('kind = "notes"\noptions = {path = "p"}\n')
    for file in (package / "tailrace_notes-1.0.dist-info").iterdir():
        file.unlink()
    importlib.invalidate_caches()

    with pytest.raises(SinkUnfit, match="no installed package provides the kind 'notes'"):
        target_of(made, "jotter", _of(made))


@pytest.mark.usefixtures("package")
def test_doctor_names_the_package_and_what_its_own_check_finds() -> None:
    made = config('kind = "notes"\noptions = {path = "p"}\n')
    settings = _of(made)
    assert isinstance(settings, Plugin)

    found = [(one.level, one.check, one.message) for one in checkup(made, "jotter", settings)]

    assert found == [
        ("ok", "sink_plugin", "kind 'notes' of tailrace-notes 1.0"),
        ("warning", "notes", "the pencil is blunt"),
    ]


def _of(made: Config) -> Applied:
    return applied_of(made, "jotter")
