"""`cdc run`: the daemon, in the foreground, until a signal or until a person is needed."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final

import click

from cdc.cli.options import config_option, configuration

_LAST_EVENT: Final = "capture_stopped"


@click.command("run")
@click.option("--json-logs", is_flag=True, help="Log JSON also to a terminal (a pipe or file always gets JSON).")
@click.option("-v", "--verbose", is_flag=True, help="Log every batch and every retry.")
@config_option
def command(json_logs: bool, verbose: bool, config_path: Path | None) -> int:
    """Capture changes into Kafka until stopped.

    SIGTERM and Ctrl-C end it in order; being killed at any moment loses nothing either. It waits by itself for
    servers that are away; exit code 3 means that a person must act, and the error says what to do.
    """
    from cdc.errors import EXIT_OK, InvariantError, TailraceError
    from cdc.telemetry import log

    as_json = json_logs or not sys.stderr.isatty()
    log.configure(json=as_json, verbose=verbose)
    last = _LastWord(told_otherwise=not as_json)
    last.listen()
    try:
        config = configuration(config_path)
        from cdc.app import run_capture

        run_capture(config)
    except TailraceError as error:
        if not as_json or isinstance(error, InvariantError):
            raise
        if not last.said:
            log.get().error(_LAST_EVENT, state=error.state, **log.error_fields(error))
        return error.exit_code
    return EXIT_OK


class _LastWord:
    """A structlog processor that sees the event that ends capture.

    On a terminal it takes that event out: the error is printed in full afterwards (`told_otherwise`).
    """

    def __init__(self, *, told_otherwise: bool) -> None:
        self.said = False
        self._told_otherwise = told_otherwise

    def listen(self) -> None:
        """Stand before the renderer."""
        import structlog

        structlog.configure(processors=[self, *structlog.get_config()["processors"]])

    def __call__(self, logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ARG002 - structlog's signature
        """See structlog.typing.Processor."""
        import structlog

        if event.get("event") == _LAST_EVENT:
            self.said = True
            if self._told_otherwise:
                raise structlog.DropEvent
        return event
