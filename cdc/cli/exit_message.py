"""Reports why a long-running command ended: once, as a log event or as text on a terminal."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from cdc.errors import EXIT_OK, InvariantError, TailraceError


def run_logged(work: Callable[[], int | None], last_event: str, *, as_json: bool) -> int:
    """Run `work`, whose end is logged as `last_event`; return its exit code, or 0. Logging must be configured.

    With JSON logs an error is that event only, logged here if `work` has not logged it. On a terminal the error is
    raised, so that it is printed in full, and the event is dropped.
    """
    from cdc.telemetry import log

    last = _FinalEvent(last_event, drop=not as_json)
    last.listen()
    try:
        return work() or EXIT_OK
    except TailraceError as error:
        if not as_json or isinstance(error, InvariantError):
            raise
        if not last.logged:
            log.get().error(last_event, state=error.state, **log.error_fields(error))
        return error.exit_code


class _FinalEvent:
    """A structlog processor that notices the event that ends a run.

    With `drop` it also drops the event, because the error is printed in full afterwards.
    """

    def __init__(self, event: str, *, drop: bool) -> None:
        self.logged = False
        self._event = event
        self._drop = drop

    def listen(self) -> None:
        """Insert this processor before the renderer."""
        import structlog

        structlog.configure(processors=[self, *structlog.get_config()["processors"]])

    def __call__(self, logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ARG002 - structlog's signature
        """See structlog.typing.Processor."""
        import structlog

        if event.get("event") == self._event:
            self.logged = True
            if self._drop:
                raise structlog.DropEvent
        return event
