"""`cdc sink run`: options that override the configuration."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from cdc.artifacts.download_progress import NoProgress
from cdc.config.load import load
from cdc.config.sink_kinds import lakes
from cdc.errors import UsageError
from cdc.run import app
from sinks.warehouse import start

if TYPE_CHECKING:
    from pathlib import Path

    from cdc.config.settings import Config

CONFIG = """
name = "shop"
[source]
dsn = "postgresql://db/shop"
[kafka]
bootstrap = "broker:9092"
[sinks.lake]
kind = "warehouse"
path = "lake"
[sinks.other]
kind = "warehouse"
path = "other"
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "cdc.toml"
    file.write_text(CONFIG)
    return load(file, {})


@pytest.mark.parametrize(("given", "wanted"), [(None, "local[*]"), ("spark://spark.example.com:7077", None)])
def test_master_of_the_command_line_is_for_the_sink_that_is_run(
    config: Config, monkeypatch: pytest.MonkeyPatch, given: str | None, wanted: str | None
) -> None:
    started: list[dict[str, str]] = []

    def note(config: Config, *_: object, **__: object) -> Any:
        started.append({name: settings.master for name, settings in lakes(config).items()})
        raise UsageError("enough")

    monkeypatch.setattr(start, "start", note)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(app, "heartbeats", lambda *_, **__: nullcontext())  # heartbeats need Kafka
    with pytest.raises(UsageError, match="enough"):
        app.run_sink(config, "lake", NoProgress(), master=given)

    assert started == [{"lake": wanted or given, "other": "local[*]"}]


def test_sink_that_is_not_configured_is_named(config: Config) -> None:
    with pytest.raises(UsageError, match="lakes"):
        app.run_sink(config, "lakes", NoProgress(), master="local[1]")
