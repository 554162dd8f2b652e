"""What a terminal adds to an action: a question before it, and a notice while it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cdc.control.action_record import Result

WAIT_S: Final = 30.0
"""How long a request over HTTP waits for workers; below the deadline of its answer."""


class Done(NamedTuple):
    """What an action did, and facts about it for the answer; they may name keys of rows, and are not recorded."""

    result: Result
    facts: Mapping[str, Any]


class Declined(Exception):
    """The operator answered no: nothing was done, and nothing is recorded."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """How an action is performed besides its request; the defaults are those of HTTP.

    Attributes:
        reading: entered while the action reads what it will change.
        agreed: called with what the action found, before it changes anything; False ends it (`Declined`).
        wait_s: how long to wait for the workers of a sink.
    """

    reading: Callable[[], AbstractContextManager[object]] = nullcontext
    agreed: Callable[[Any], bool] = lambda _: True
    wait_s: float = WAIT_S

    def ask(self, found: object) -> None:
        """Raise `Declined` unless the operator agrees."""
        if not self.agreed(found):
            raise Declined
