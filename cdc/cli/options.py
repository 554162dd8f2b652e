"""Options that every command spells the same way, and the configuration they lead to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cdc.config.load import load
from cdc.config.settings import Config

F = TypeVar("F", bound=Callable[..., Any])

config_option: Final = click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="The configuration file  [default: cdc.toml].",
)
"""``-c`` after the command; before it works too. Hand the value to `configuration`."""

json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
"""``--json``: one document on stdout; errors are JSON on stderr."""


def of_outbox(dsn_variable: str, dsn_help: str) -> Callable[[F], F]:
    """The options of commands that work in the outbox's schema: where it is, ``-c`` and ``--json``."""

    def add(command: F) -> F:
        for option in (
            json_option,
            config_option,
            click.option("--schema", default="outbox", show_default=True, help="The schema of the tables."),
            click.option("--dsn", envvar=dsn_variable, show_envvar=True, help=dsn_help),
        ):
            command = option(command)
        return command

    return add


def configuration(config_path: Path | None) -> Config:
    """The configuration of this call: after the command, before it, or ./cdc.toml. Raises ConfigError."""
    return load(config_file(config_path), os.environ)


def config_file(config_path: Path | None) -> Path:
    """The file `configuration` reads."""
    if config_path is not None:
        return config_path
    given = click.get_current_context().find_root().obj
    return given if isinstance(given, Path) else Path("cdc.toml")
