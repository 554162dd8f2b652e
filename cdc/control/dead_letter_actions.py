"""Requests the retry or skip of dead letters; the workers of the sink carry it out."""

from __future__ import annotations

from msgspec import UNSET

from cdc.config.settings import Config
from cdc.control.requests import DeadLettersRequest, DeadLettersRetry
from cdc.control.terminal import Done, Terminal
from sinks.operate.dead_letter_view import DeadLetterView, KeyFilter


def send(config: Config, request: DeadLettersRequest, terminal: Terminal) -> Done:
    """Request it for the blocked keys that match now; without any, nothing is left to do.

    The terminal is asked about the list of `BlockedRow`. The facts count keys and records. Raises UsageError for a sink
    without dead letters.
    """
    choice = KeyFilter(request.tables or (), request.error or "", None if request.key is UNSET else request.key)
    with DeadLetterView(config, request.sink) as view:
        with terminal.reading():
            chosen = [row for row in view.blocked() if choice.fits(row)]
        if not chosen:
            return Done("done", {"keys": 0, "records": 0})
        terminal.ask(chosen)
        view.ask(chosen, "retry" if isinstance(request, DeadLettersRetry) else "skip")
    return Done("requested", {"keys": len(chosen), "records": sum(row.block.record_count for row in chosen)})
