"""`cdc config` and what the environment changes: every override and every mistyped variable is named, no secret is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import structlog

from cdc.cli import main
from cdc.cli.command_options import configuration
from cdc.cli.environment_notes import log_environment
from cdc.config.config_file import ConfigFile
from cdc.config.environment import overrides, unknown_variables
from cdc.config.load import load
from cdc.config.shown import read_raw, settings_shown
from cdc.inspect import pipeline_state

_FILE = """
name = "shop"
[source]
dsn = "postgresql://cdc:hidden1@db/shop"
[kafka]
bootstrap = "kafka:9092"
options."sasl.password" = "hidden2"
[sinks.index]
kind = "search"
url = "https://search:9200"
options.password = "hidden3"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "cdc.toml"
    made.write_text(_FILE)
    monkeypatch.chdir(tmp_path)
    return made


def _run(*arguments: str) -> int:
    return main.run(["config", *arguments])


def test_check_lists_each_setting_of_the_environment_and_warns_of_a_mistyped_variable(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAILRACE_AUDIT_INTERVAL_S", "3")
    monkeypatch.setenv("TAILRACE_SINK_INDEX_OPTION_PASSWORD", "hidden4")
    monkeypatch.setenv("TAILRACE_SOURCE_DNS", "postgresql://hidden5")

    assert _run("check", "-c", str(file)) == 0

    out, err = capsys.readouterr()
    assert "TAILRACE_AUDIT_INTERVAL_S" in out
    assert "sinks.index.options.password" in out
    assert "TAILRACE_SOURCE_DNS matches no setting" in err
    assert "did you mean TAILRACE_SOURCE_DSN?" in err
    assert "hidden" not in out + err


def test_check_names_the_mistyped_variable_also_when_the_file_is_not_valid(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(_FILE.replace("dsn =", "# dsn ="))
    monkeypatch.setenv("TAILRACE_SOURCE_DNS", "postgresql://db/shop")

    assert _run("check") == 2

    err = capsys.readouterr().err
    assert "did you mean TAILRACE_SOURCE_DSN?" in err
    assert "source.dsn is missing" in err


def test_a_command_warns_when_the_environment_leads_to_another_database(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAILRACE_SOURCE_DSN", "postgresql://cdc:hidden4@elsewhere/shop")

    with structlog.testing.capture_logs() as logged:
        log_environment(
            ConfigFile(file, {"TAILRACE_SOURCE_DSN": "postgresql://cdc@elsewhere/shop", "TAILRACE_AUDITS": "1"})
        )
    configuration(file)

    err = capsys.readouterr().err
    assert "TAILRACE_SOURCE_DSN overrides source.dsn" in err
    assert "another database" in err
    assert [(one["event"], one["log_level"]) for one in logged] == [
        ("identity_overridden", "warning"),
        ("variable_unknown", "warning"),
    ]
    assert "elsewhere" not in f"{err}{logged}"


@pytest.mark.parametrize(
    ("given", "conflicts"),
    [
        ("postgresql://cdc:other@db/shop", False),
        ("postgresql://admin@db/shop?sslmode=require", False),
        ("host=db dbname=shop", False),
        ("postgresql://cdc@db/other", True),
        ("postgresql://cdc@db:5433/shop", True),
        ("not a dsn", True),
    ],
)
def test_only_another_server_or_database_is_a_conflict(file: Path, given: str, conflicts: bool) -> None:
    (one,) = overrides(read_raw(file), {"TAILRACE_SOURCE_DSN": given})

    assert one.conflicts is conflicts


def test_name_and_brokers_that_differ_from_the_file_are_conflicts(file: Path) -> None:
    found = overrides(read_raw(file), {"TAILRACE_NAME": "other", "TAILRACE_KAFKA_BOOTSTRAP": "kafka:9092"})

    assert [(one.key, one.conflicts) for one in found] == [("kafka.bootstrap", False), ("name", True)]


def test_variables_that_something_reads_are_known(file: Path) -> None:
    read = (
        "TAILRACE_NAME", "TAILRACE_SOURCE_PASSWORD", "TAILRACE_KAFKA_OPTION_SASL_PASSWORD",
        "TAILRACE_SINK_INDEX_OPTION_PASSWORD", "TAILRACE_SEARCH_URL", "TAILRACE_MIGRATE_DSN", "HOME",
    )  # fmt: skip

    assert unknown_variables(read_raw(file), dict.fromkeys(read, "x")) == []
    assert unknown_variables(read_raw(file), {"TAILRACE_SINK_INDEKS_OPTION_PASSWORD": "x"}) == [
        ("TAILRACE_SINK_INDEKS_OPTION_PASSWORD", "TAILRACE_SINK_INDEX_OPTION_")
    ]


def test_show_has_origins_and_no_secret(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert file.exists()
    assert _run("show", "--json") == 0
    shown = json.loads(capsys.readouterr().out)["settings"]
    assert _run("show", "kafka", "--all", "--json") == 0
    everything = json.loads(capsys.readouterr().out)["settings"]

    assert {one["origin"] for one in shown} == {"file"}
    assert {"key": "source.dsn", "value": "postgresql://cdc:***@db/shop", "origin": "file"} in shown
    assert {"key": "kafka.partitions", "value": "4", "origin": "default"} in everything
    assert all(one["key"].startswith("kafka.") for one in everything)
    assert "hidden" not in f"{shown}{everything}"


def test_show_of_an_unknown_part_names_the_nearest(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert file.exists()
    assert _run("show", "kafka.partition") == 2
    assert "did you mean kafka.partitions?" in capsys.readouterr().err


def test_password_of_one_environment_only_is_no_difference_to_the_running_daemon(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"TAILRACE_SOURCE_PASSWORD": "hidden4", "TAILRACE_AUDIT_INTERVAL_S": "7"}
    running = settings_shown(load(file, environ), read_raw(file), environ)
    pending = {"reload": [], "restart": ["kafka.options.sasl.password"]}
    daemon = {"name": "shop", "settings": running, "pending": pending}
    monkeypatch.setattr(pipeline_state, "ask_daemon", lambda *_: daemon)

    assert _run("diff", "-c", str(file), "--json") == 1

    out = capsys.readouterr().out
    assert [(one["key"], one["reload"], one["secret"]) for one in json.loads(out)["differences"]] == [
        ("kafka.options.sasl.password", False, True),
        ("audit.interval_s", True, False),
    ]
    assert "hidden" not in out


def test_diff_of_two_files_says_that_a_secret_differs_and_not_its_value(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = file.with_name("other.toml")
    other.write_text(_FILE.replace("hidden3", "hidden4").replace("kafka:9092", "kafka2:9092"))

    assert _run("diff", str(other), "--json") == 1
    found = json.loads(capsys.readouterr().out)["differences"]
    assert _run("diff", str(file)) == 0

    assert [(one["key"], one["secret"]) for one in found] == [
        ("kafka.bootstrap", False),
        ("sinks.index.options.password", True),
    ]
    assert "hidden" not in str(found)
