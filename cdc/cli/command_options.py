"""Options that all commands share, and the configuration they select."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cdc.cli.environment_notes import log_environment, note_conflicts
from cdc.command_text import choose_pipeline
from cdc.config.config_file import ConfigFile
from cdc.config.load import load_all
from cdc.config.pipelines import only
from cdc.config.settings import Config
from cdc.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from outbox.table_names import Names

F = TypeVar("F", bound=Callable[..., Any])

_PIPELINE: Final = "cdc.pipeline"
_FILE_OPTION: Final = click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Configuration file  [default: cdc.toml].",
)
_PIPELINE_OPTION: Final = click.option(
    "--pipeline",
    metavar="NAME",
    expose_value=False,
    callback=lambda context, _option, name: context.meta.update({_PIPELINE: name or ""}),
    help="Which pipeline of a file with [pipelines.*]  [default: the only one].",
)


def config_option(command: F) -> F:
    """Add ``-c`` and ``--pipeline``. ``-c`` before the command works too. Pass the path to `configuration`."""
    return _FILE_OPTION(_PIPELINE_OPTION(command))


json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
"""``--json``: one document on stdout; errors are JSON on stderr."""

wait_option: Final = click.option(
    "--timeout",
    "wait_s",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Seconds to wait for Kafka, for capture and for the lake.",
)
"""``--timeout`` of commands that compare: how long they wait for what they compare with."""

schema_option: Final = click.option(
    "--schema", help="Schema of the tables  [default: from outbox.table in the configuration, else outbox]."
)


def of_outbox(dsn_variable: str, dsn_help: str) -> Callable[[F], F]:
    """Return a decorator that adds ``--dsn``, ``--schema``, ``-c`` and ``--json``, for commands on outbox tables."""

    def add(command: F) -> F:
        for option in (
            json_option,
            config_option,
            schema_option,
            click.option("--dsn", envvar=dsn_variable, show_envvar=True, help=dsn_help),
        ):
            command = option(command)
        return command

    return add


def configuration(config_path: Path | None) -> Config:
    """Load the configuration: from the option after the command, before it, or ./cdc.toml. Raises ConfigError.

    Warns on stderr if the environment leads to another pipeline, database or Kafka cluster than the file. Raises
    UsageError if the file has several pipelines and the command line chooses none.
    """
    file = chosen_file(config_path)
    note_conflicts(file)
    return file.load()


def configurations(config_path: Path | None) -> dict[str, Config]:
    """Load the chosen pipeline, or without a choice all of them, sorted by name. Raises ConfigError.

    The name is empty for the only pipeline of a file.
    """
    file = any_file(config_path)
    found = {} if file.pipeline else load_all(file.path, os.environ)
    return found if len(found) > 1 else {"": configuration(config_path)}


def chosen_file(config_path: Path | None) -> ConfigFile:
    """Return the configuration file for one pipeline. Raises UsageError if there are several and none is chosen."""
    file = any_file(config_path)
    if not file.pipeline:
        try:
            only(file.names, str(file.path))
        except UsageError as error:
            error.command = f"{click.get_current_context().command_path} --pipeline {file.names[0]}"
            raise
    return file


def any_file(config_path: Path | None) -> ConfigFile:
    """Return the configuration file with the chosen pipeline, which is empty if the command line chooses none."""
    context = click.get_current_context(silent=True)
    chosen = context.meta.get(_PIPELINE, "") if context is not None else ""
    choose_pipeline(chosen)
    return ConfigFile(config_file(config_path), os.environ, chosen)


def logged_configuration(config_path: Path | None) -> tuple[Config, ConfigFile]:
    """Like `configuration`, for a process that has a log: logs every setting that the environment overrides."""
    file = chosen_file(config_path)
    log_environment(file)
    return file.load(), file


def outbox_names(schema: str | None, config_path: Path | None) -> Names:
    """Return the names of the outbox tables, from ``[outbox] table`` if there is a configuration, else the defaults.

    If `schema` differs from the schema of ``[outbox] table``, the table has its default name. Raises ConfigError.
    """
    from outbox.errors import OutboxError
    from outbox.table_names import Names

    there = config_path is not None or config_file(None).exists()
    section = configuration(config_path).outbox if there else None
    known, _, table = (section.table if section is not None else "outbox.outbox").partition(".")
    try:
        return Names(schema=known, outbox=table) if schema in {None, known} else Names(schema=schema or known)
    except OutboxError as error:
        raise ConfigError(error.message, hint=error.hint) from error


def config_file(config_path: Path | None) -> Path:
    """Return the path of the configuration file."""
    if config_path is not None:
        return config_path
    given = click.get_current_context().find_root().obj
    return given if isinstance(given, Path) else Path("cdc.toml")
