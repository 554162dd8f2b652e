"""Gives Spark's Kafka client the tokens of `kafka.oauth_command`, as a token endpoint of OAuth on this machine.

The Java client cannot run a command, and reads a token file only once (3.9). But it asks such an endpoint again before
each token expires. It takes JSON Web Tokens only.
https://kafka.apache.org/documentation/#security_sasl_oauthbearer_clientauthentication
https://www.rfc-editor.org/rfc/rfc6749#section-4.4
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final, Protocol

from cdc.errors import BrokerUnreachable, CredentialUnavailable, SinkUnfit
from cdc.kafka.oauth_token import OauthToken, is_jwt

_HOST: Final = "127.0.0.1"
_CLIENT: Final = "tailrace"
_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_IDLE_S: Final = 30.0  # for a request to arrive; a command has 15 seconds after that
_BODY_BYTES_MAX: Final = 1 << 10  # it is "grant_type=client_credentials"


class TokenSource(Protocol):
    """What prints the tokens."""

    def take(self, *, renewed: bool) -> OauthToken:
        """Return a token; with `renewed` a new one. Raises CredentialUnavailable."""


@contextmanager
def token_endpoint(tokens: TokenSource) -> Iterator[Mapping[str, str]]:
    """Answer on a free port of the loopback interface; yields the options of the Java client.

    A random secret in the options protects it from other users of this machine.

    Raises:
        BrokerUnreachable: there is no token now.
        SinkUnfit: the tokens are not JSON Web Tokens.
    """
    try:
        first = tokens.take(renewed=False)
    except CredentialUnavailable as error:
        raise BrokerUnreachable(f"cannot log in to Kafka: {error.message}", hint=error.hint) from None
    if not is_jwt(first.token):
        raise SinkUnfit(
            "kafka.oauth_command prints a token that is not a JSON Web Token; Spark's Kafka client takes no others",
            hint="set kafka.sasl.jaas.config and kafka.sasl.login.callback.handler.class of the Java client in the "
            "sink's `spark` table, with the vendor's library in spark.jars",
            option="kafka.oauth_command",
        )
    secret = secrets.token_urlsafe(32)
    with ThreadingHTTPServer((_HOST, 0), _handler(tokens, secret)) as server:
        thread = Thread(target=server.serve_forever, name="kafka-tokens", daemon=True)
        thread.start()
        try:
            yield {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f'{_MODULE} required clientId="{_CLIENT}" clientSecret="{secret}";',
                "sasl.login.callback.handler.class": _HANDLER,
                "sasl.oauthbearer.token.endpoint.url": f"http://{_HOST}:{server.server_port}/token",
            }
        finally:
            server.shutdown()
            thread.join()


def _handler(tokens: TokenSource, secret: str) -> type[BaseHTTPRequestHandler]:
    given = base64.b64encode(f"{_CLIENT}:{secret}".encode()).decode()

    class Answering(BaseHTTPRequestHandler):
        timeout = _IDLE_S

        def do_POST(self) -> None:
            if not hmac.compare_digest(self.headers.get("Authorization", "").encode(), f"Basic {given}".encode()):
                return self._answer(HTTPStatus.UNAUTHORIZED, {"error": "invalid_client"})
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > _BODY_BYTES_MAX:
                return self._answer(HTTPStatus.BAD_REQUEST, {"error": "invalid_request"})
            self.rfile.read(int(length))
            try:
                token = tokens.take(renewed=False)  # young enough: no more than half of its lifetime is over
            except CredentialUnavailable as error:
                said = {"error": "temporarily_unavailable", "error_description": error.message}
                return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, said)
            return self._answer(HTTPStatus.OK, {"access_token": token.token, "token_type": "Bearer"})

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Nothing: a failed command is logged where it runs."""

        def _answer(self, status: HTTPStatus, document: Mapping[str, str]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Answering
