"""The list of settings: every one is there, with its origin, and no secret is."""

from __future__ import annotations

import tomllib
from pathlib import Path

from cdc.config.load import parse
from cdc.config.shown import settings_shown

_FILE = """
name = "shop"
[source]
dsn = "postgresql://cdc:hidden1@db/shop"
[kafka]
bootstrap = "kafka:9092"
options."sasl.password" = "hidden2"
[registry]
url = "https://reader:hidden7@registry:8081"
[http]
token = "hidden3"
[sinks.search]
kind = "search"
url = "https://search:9200"
options.password = "hidden4"
"""


def _shown(**environ: str) -> dict[str, tuple[str, str]]:
    found = settings_shown(parse(_FILE, environ), tomllib.loads(_FILE), environ)
    return {one["key"]: (one["value"], one["origin"]) for one in found}


def test_no_secret_is_shown() -> None:
    shown = _shown(TAILRACE_SOURCE_PASSWORD="hidden5")

    assert "hidden" not in str(shown)
    assert shown["http.token"] == ("***", "file")
    assert shown["kafka.options.sasl.password"] == ("***", "file")
    assert shown["registry.url"] == ('"https://reader:***@registry:8081"', "file")
    assert shown["sinks.search.options.password"] == ("***", "file")


def test_origin_says_what_the_environment_overrides() -> None:
    shown = _shown(TAILRACE_KAFKA_BOOTSTRAP="other:9092", TAILRACE_SINK_SEARCH_OPTION_PASSWORD="hidden6")

    assert shown["kafka.bootstrap"] == ('"other:9092"', "environment")
    assert shown["sinks.search.options.password"] == ("***", "environment")
    assert shown["source.dsn"] == ("postgresql://cdc:***@db/shop", "file")
    assert shown["kafka.partitions"] == ("4", "default")


def test_origin_of_what_a_file_or_command_gives_is_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hidden8")
    text = _FILE.replace('token = "hidden3"', f'token_file = "{tmp_path}/secret"').replace(
        'options.password = "hidden4"', 'options.password_command = ["echo", "hidden9"]'
    )

    found = settings_shown(parse(text, {}), tomllib.loads(text), {})

    shown = {one["key"]: (one["value"], one["origin"]) for one in found}
    assert shown["http.token"] == ("***", "file")
    assert shown["sinks.search.options.password"] == ("***", "file")
    assert "hidden" not in str(found)


def test_password_from_the_environment_changes_the_origin_of_the_dsn() -> None:
    assert _shown(TAILRACE_SOURCE_PASSWORD="hidden5")["source.dsn"][1] == "environment"
