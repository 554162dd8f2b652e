"""The callbacks of every client of Kafka: errors, log lines, and OAuth tokens from `kafka.oauth_command`.

librdkafka asks for a token when a client is created, and again after 80 % of its lifetime, in a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Final

from cdc.config.credential import output_of
from cdc.config.settings import Kafka
from cdc.errors import BrokerUnreachable, CredentialUnavailable
from cdc.kafka.client_events import LOG, ClientEvents
from cdc.kafka.oauth_token import OauthToken, parse_token

_KEY: Final = "kafka.oauth_command"
_SHARED_S: Final = 60.0
"""A start creates a dozen clients: a token this young is shared, if most of its lifetime is left."""


def callbacks(kafka: Kafka, events: ClientEvents) -> dict[str, object]:
    """Return the options of a client that are functions. Every client needs them.

    Raises BrokerUnreachable if there is no token now: the client would wait ten seconds for it and then blame an option
    (confluent-kafka 2.16).
    """
    found: dict[str, object] = {"error_cb": events.on_error, "logger": events}
    if kafka.oauth_command:
        try:
            tokens_of(kafka.oauth_command).take(renewed=False)
        except CredentialUnavailable as error:
            raise BrokerUnreachable(f"cannot log in to Kafka: {error.message}", hint=error.hint) from None
        found["oauth_cb"] = _asked(events, tokens_of(kafka.oauth_command).take)
    return found


class Tokens:
    """The tokens that one command prints. Thread-safe: clients that ask at the same time share one run."""

    def __init__(self, run: Callable[[], str], *, wall_s: Callable[[], float] = time.time, key: str = _KEY) -> None:
        self._run = run
        self._wall_s = wall_s
        self._key = key
        self._lock = threading.Lock()
        self._newest: tuple[float, OauthToken] | None = None

    def take(self, *, renewed: bool) -> OauthToken:
        """Return a token; with `renewed` always a new one. Raises CredentialUnavailable."""
        asked_s = self._wall_s()
        with self._lock:
            if self._newest is not None:
                made_s, token = self._newest
                now_s = self._wall_s()
                fresh = 0 <= now_s - made_s < min(_SHARED_S, (token.expires_s - made_s) / 2)
                if fresh and (not renewed or made_s >= asked_s):
                    return token
            token = parse_token(self._run(), self._wall_s(), self._key)
            self._newest = self._wall_s(), token
            return token


@cache
def tokens_of(command: tuple[str, ...]) -> Tokens:
    """Return the tokens of a command; the clients of this process share them."""
    return Tokens(lambda: output_of(command, _KEY))


def _asked(events: ClientEvents, take: Callable[..., OauthToken]) -> Callable[[str], tuple[str, float, str]]:
    """Return the `oauth_cb` of a client. An exception in it becomes an error event without its text."""
    asked = False

    def answer(_config: str) -> tuple[str, float, str]:
        nonlocal asked
        renewed, asked = asked, True
        try:
            found = take(renewed=renewed)
        except CredentialUnavailable as error:
            events.credential_failed(error)
            LOG.warning("%s", error.message)
            raise
        events.credential_failed(None)
        return found.token, found.expires_s, found.principal

    return answer
