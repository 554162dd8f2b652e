"""Answers /actions: performs the action of a JSON body, and lists the newest recorded actions.

Both need the bearer token. An action that needs Kafka or a lake may take long, so `perform` and `listed` block; the
caller runs them in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs

from cdc.control.action_log import Newest
from cdc.control.action_record import LIMIT_MAX, Actor, document
from cdc.control.perform import Outcome
from cdc.control.requests import ActionRequest, parse
from cdc.errors import InvariantError, SinkBehind, TailraceError, UsageError
from cdc.telemetry import log
from cdc.web.wait_endpoint import Answer, error_answer, unknown_parameter

BODY_BYTES_MAX: Final = 64 << 10
RUNNING_MAX: Final = 4
"""Requests at a time, because each has a thread and connections to Kafka; further ones are refused at once."""

LIMIT_DEFAULT: Final = 20
WHO: Final = "token"


@dataclass(frozen=True, slots=True)
class ActionsRoute:
    """Performs and lists actions. Thread-safe."""

    perform: Callable[[ActionRequest, Actor], Outcome]
    newest: Callable[[int], Newest]

    def performed(self, body: bytes, client: str) -> Answer:
        """Perform the action of a body that a client at this address sent."""
        try:
            request = parse(body)
        except UsageError as error:
            return Answer(HTTPStatus.BAD_REQUEST, _error(error))
        outcome = self.perform(request, Actor(WHO, client, "http"))
        log.get().info("action", action=outcome.action, result=outcome.result, client=client)
        found: dict[str, Any] = {
            "action": outcome.action,
            "result": outcome.result,
            "recorded": not outcome.warning,
        }
        if outcome.warning:
            log.get().warning("action_not_recorded", action=outcome.action, client=client, reason=outcome.warning)
            found["warning"] = outcome.warning
        if outcome.error is not None:
            return Answer(_code(outcome.error), {**found, **_error(outcome.error)})
        return Answer(HTTPStatus.OK, {**found, "facts": outcome.facts})

    def listed(self, query: str) -> Answer:
        """Return the newest recorded actions, the oldest first."""
        try:
            limit = _limit(query)
        except UsageError as error:
            return Answer(HTTPStatus.BAD_REQUEST, _error(error))
        try:
            found = self.newest(limit)
        except TailraceError as error:
            return Answer(_code(error), _error(error))
        return Answer(
            HTTPStatus.OK, {"actions": [document(record) for record in found.records], "unreadable": found.unreadable}
        )


def refusal(*, configured: bool, authorised: bool) -> Answer | None:
    """Return the answer to a request without the token; None if it has it."""
    if not configured:
        return error_answer(HTTPStatus.FORBIDDEN, "actions need a bearer token, and http.token is not configured")
    if not authorised:
        return error_answer(HTTPStatus.UNAUTHORIZED, "expected Authorization: Bearer TOKEN with http.token")
    return None


def _code(error: TailraceError) -> HTTPStatus:
    if isinstance(error, InvariantError):
        return HTTPStatus.INTERNAL_SERVER_ERROR
    if isinstance(error, SinkBehind):
        return HTTPStatus.GATEWAY_TIMEOUT
    return HTTPStatus.SERVICE_UNAVAILABLE if error.retry == "timed" else HTTPStatus.CONFLICT


def _error(error: TailraceError) -> dict[str, str]:
    found = {"error": error.message, "class": type(error).__name__, "hint": error.hint, "command": error.command}
    return {name: text for name, text in found.items() if text}


def _limit(query: str) -> int:
    wrong = unknown_parameter(query, ("limit",))
    if wrong:
        raise UsageError(wrong, hint="expected e.g. ?limit=100")
    text = parse_qs(query, keep_blank_values=True).get("limit", [str(LIMIT_DEFAULT)])[-1]
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(LIMIT_MAX)) and 1 <= int(text) <= LIMIT_MAX):
        raise UsageError(f"invalid limit {text[:20]!r}", hint=f"expected 1 to {LIMIT_MAX}")
    return int(text)
