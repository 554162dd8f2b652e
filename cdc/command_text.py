"""Adds --pipeline to the commands that errors, findings and causes suggest, when a file has several pipelines."""

from __future__ import annotations

import re
from typing import Any, Final

_WITHOUT: Final = "init|dev|local|--"
_KEY: Final = "command"
_COMMAND: Final = re.compile(rf"((?:^|&& )cdc (?!{_WITHOUT})[^|&;>#\n]*[^|&;>#\s])", re.MULTILINE)
_chosen = ""


def choose_pipeline(name: str) -> None:
    """Set the pipeline of this process; empty for none. Call it before errors are raised."""
    global _chosen
    _chosen = name


def with_pipeline(command: str) -> str:
    """Return a suggested command for the pipeline of this process."""
    return command_of(_chosen, command)


def command_of(pipeline: str, command: str) -> str:
    """Return a suggested command with --pipeline; the same if it has one, or if it is not a command of `cdc`."""
    if not pipeline or "--pipeline" in command or command.endswith("--help"):
        return command
    return _COMMAND.sub(rf"\1 --pipeline {pipeline}", command)


def document_of(pipeline: str, document: Any) -> Any:
    """Return a JSON document whose suggested commands are for `pipeline`."""
    if isinstance(document, dict):
        return {
            key: command_of(pipeline, value) if key == _KEY and isinstance(value, str) else document_of(pipeline, value)
            for key, value in document.items()
        }
    return [document_of(pipeline, one) for one in document] if isinstance(document, list) else document
