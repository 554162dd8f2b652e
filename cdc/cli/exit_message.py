"""How a command that runs until it is stopped says why it ended: once, as a log event or as text for people."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from cdc.errors import EXIT_OK, InvariantError, TailraceError


def run_logged(work: Callable[[], None], last_event: str, *, as_json: bool) -> int:
    """Do `work`, whose end is told by `last_event`; returns the exit code. The log is set up already.

    Where the log is JSON an error is that event and nothing else, logged here if nobody has. On a terminal it is
    raised, to be printed in full, and the event is left out.
    """
    from cdc.telemetry import log

    last = _LastWord(last_event, told_otherwise=not as_json)
    last.listen()
    try:
        work()
    except TailraceError as error:
        if not as_json or isinstance(error, InvariantError):
            raise
        if not last.said:
            log.get().error(last_event, state=error.state, **log.error_fields(error))
        return error.exit_code
    return EXIT_OK


class _LastWord:
    """A structlog processor that sees the event that ends a run.

    On a terminal it takes that event out: the error is printed in full afterwards (`told_otherwise`).
    """

    def __init__(self, event: str, *, told_otherwise: bool) -> None:
        self.said = False
        self._event = event
        self._told_otherwise = told_otherwise

    def listen(self) -> None:
        """Stand before the renderer."""
        import structlog

        structlog.configure(processors=[self, *structlog.get_config()["processors"]])

    def __call__(self, logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ARG002 - structlog's signature
        """See structlog.typing.Processor."""
        import structlog

        if event.get("event") == self._event:
            self.said = True
            if self._told_otherwise:
                raise structlog.DropEvent
        return event
