"""Configures structlog: events with fields on stderr, as JSON, or in columns for a terminal.

Never log row values, keys or DSNs; errors contain none of them.
"""

from __future__ import annotations

import io
import logging
import sys
import traceback
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Literal, TextIO, cast

import structlog

from cdc.errors import TailraceError


def configure(*, json: bool, verbose: bool = False, stream: TextIO | None = None, pipeline: str = "") -> None:
    """Send all logs of the process, including librdkafka's, to `stream` (default: stderr).

    `pipeline` is a field of every event, because the processes of several pipelines share a log; none if empty.
    """

    def named(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {"pipeline": pipeline, **event} if pipeline else event

    target = cast("TextIO", _Unfailing(stream or sys.stderr))  # it implements all that a log needs
    level = logging.DEBUG if verbose else logging.INFO
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        named,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=target.isatty())
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


def set_level(level: Literal["debug", "info", "warning"]) -> None:
    """Drop the events of this process below `level`. Does not change the log of libraries."""
    number = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}[level]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(number))


class _Unfailing(io.TextIOBase):
    """A stream that ignores a full disk or a closed pipe: the log line is lost, and capture continues."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


def get() -> structlog.typing.FilteringBoundLogger:
    """Return the logger; events are snake_case words, facts are fields."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger


def bound(**facts: str) -> AbstractContextManager[None]:
    """Add `facts` to every event of this thread inside the context, because several processes may share a log."""
    return structlog.contextvars.bound_contextvars(**facts)


def error_fields(error: TailraceError) -> dict[str, object]:
    """Return the log fields of an error: class, message, hint, command, and its facts."""
    facts = {key: str(value) for key, value in error.facts.items() if value is not None}
    fields: dict[str, object] = {"error": type(error).__name__, "message": error.message, **facts}
    if error.hint:
        fields["hint"] = error.hint
    if error.command:
        fields["command"] = error.command
    return fields


def origin(error: BaseException) -> str:
    """Return class and location of an unexpected error, without its text, which may quote values."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {'/'.join(Path(frames[-1].filename).parts[-2:])}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{at}"
