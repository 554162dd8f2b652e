"""Performs an action for a command: with its questions and notices, and with a warning if it is not recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from cdc.cli import output

if TYPE_CHECKING:
    from cdc.config.settings import Config
    from cdc.control.action_record import ActionRecord
    from cdc.control.perform import Outcome
    from cdc.control.requests import ActionRequest


def act(
    config: Config,
    request: ActionRequest,
    *,
    reading: Callable[[], AbstractContextManager[object]] = nullcontext,
    agreed: Callable[[Any], bool] = lambda _: True,
    wait_s: float = 0.0,
) -> Outcome:
    """Perform the action as the user of this process. See `cdc.control.terminal.Terminal`.

    Raises the error of the action, and `Declined` if the operator answers no.
    """
    from cdc.control import action_log
    from cdc.control.perform import cli_actor, perform
    from cdc.control.terminal import Terminal

    def write(config: Config, record: ActionRecord) -> int:
        with output.waiting("recording the action"):
            return action_log.write(config, record)

    outcome = perform(config, request, cli_actor(), terminal=Terminal(reading, agreed, wait_s), write=write)
    if outcome.warning:
        output.note(f"warning: {outcome.warning}")
    if outcome.error is not None:
        raise outcome.error
    return outcome
