"""The client of OpenSearch: the only module that uses opensearch-py, and translates its errors.

It never retries: only the caller knows which requests may be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from opensearchpy import OpenSearch
from opensearchpy.exceptions import (
    ConnectionError as NoConnection,
)
from opensearchpy.exceptions import (
    ImproperlyConfigured,
    OpenSearchException,
    SerializationError,
    SSLError,
    TransportError,
)

from cdc.config.secret import Secret
from cdc.errors import SinkUnfit, SinkUnreachable

TIMEOUT_S: Final = 60.0
"""For a response. A bulk request of 5 MB takes well under a second; a long garbage collection of a node takes more."""
_NDJSON: Final = {"content-type": "application/x-ndjson"}
_TEXTS: Final = ("ca_certs", "client_cert", "client_key", "ssl_assert_fingerprint")
_SWITCHES: Final = {"true": True, "false": False}
OPTIONS: Final = frozenset({"username", "password", "timeout", "http_compress", "verify_certs", *_TEXTS})
# The library logs each failed request as a warning, even expected ones, and rows at lower levels.
logging.getLogger("opensearch").setLevel(logging.CRITICAL)


class Answer(msgspec.Struct, frozen=True):
    """Status and error class of an expected failure, as returned by `Client.ask`."""

    status: int
    kind: str


class Client:
    """Sends requests as path and bytes. Thread-safe."""

    def __init__(self, url: str, options: Mapping[str, Secret], *, connections: int, sink: str) -> None:
        """No connection is made yet. Raises SinkUnfit for unknown options."""
        self.url = url.rstrip("/")
        self._sink = sink
        try:
            self._client = OpenSearch(
                self.url,
                serializer=_AsText(),
                max_retries=0,
                pool_maxsize=connections,
                **_arguments(options, sink),
            )
        except (ImproperlyConfigured, ValueError, OSError) as error:
            raise SinkUnfit(
                f"sink {sink!r}: the client rejects the options: {type(error).__name__}",
                hint=f"check [sinks.{sink}.options]; files named there must be readable",
                sink=sink,
            ) from error

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str] | None = None,
        expected: frozenset[int] = frozenset(),
        ndjson: bool = False,
    ) -> str | Answer:
        """Send a request; return the body of the response, or an `Answer` if its status is in `expected`.

        Args:
            method: the HTTP method.
            path: with a leading slash.
            body: bytes are sent unchanged; anything else as JSON.
            params: the query parameters.
            expected: statuses that are not an error here.
            ndjson: the body is newline-delimited JSON.

        Raises:
            SinkUnreachable: the request may have been executed or not.
            SinkUnfit: credentials or rights are missing, or OpenSearch refuses the request itself.
        """
        sent = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        try:
            return str(
                self._client.transport.perform_request(
                    method, path, params=dict(params or {}), body=sent, headers=_NDJSON if ndjson else None
                )
            )
        except TransportError as error:
            if isinstance(error.status_code, int) and error.status_code in expected:
                return Answer(error.status_code, _kind(error))
            raise self._error(error) from error
        except (OpenSearchException, UnicodeError) as error:
            raise self._unreachable(type(error).__name__) from error

    def close(self) -> None:
        """End the connections. May be called twice."""
        self._client.close()

    def _error(self, error: TransportError) -> Exception:
        status = error.status_code
        if isinstance(error, SSLError):
            return SinkUnfit(
                f"sink {self._sink!r}: no trusted connection to {self.url}",
                hint=f"set ca_certs in [sinks.{self._sink}.options] to the file of its certificate authority",
                sink=self._sink,
            )
        if isinstance(error, NoConnection) or not isinstance(status, int):
            return self._unreachable(type(error).__name__)
        if status in {401, 403}:
            return SinkUnfit(
                f"sink {self._sink!r}: {self.url} {'rejects the credentials' if status == 401 else 'denies a right'}",
                hint=f"check username and password in [sinks.{self._sink}.options]; the user must be allowed to create "
                "and write indices",
                sink=self._sink,
            )
        if status == 429 or status >= 500:
            return self._unreachable(f"status {status}")
        return SinkUnfit(
            f"sink {self._sink!r}: {self.url} refuses a request with status {status} ({_kind(error)})",
            hint="see the log of OpenSearch",
            sink=self._sink,
        )

    def _unreachable(self, why: str) -> SinkUnreachable:
        return SinkUnreachable(
            f"sink {self._sink!r}: no valid response from {self.url} ({why})",
            hint="check that OpenSearch is running and healthy",
            command=f"curl {self.url}/_cluster/health",
            sink=self._sink,
        )


class _AsText:
    """Passes bodies through unchanged: most are decoded into types later, and rows are not decoded at all."""

    mimetype = "application/json"

    def loads(self, text: Any) -> Any:
        return text

    def dumps(self, data: Any) -> Any:
        if isinstance(data, str | bytes):
            return data
        raise SerializationError("only text is sent", type(data))


def _arguments(options: Mapping[str, Secret], sink: str) -> dict[str, Any]:
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise SinkUnfit(
            f"sink {sink!r}: unknown option {', '.join(unknown)}",
            hint=f"the options are {', '.join(sorted(OPTIONS))}",
            sink=sink,
        )
    given = {name: secret.reveal() for name, secret in options.items()}
    arguments: dict[str, Any] = {name: given[name] for name in _TEXTS if name in given}
    if "username" in given:
        arguments["http_auth"] = (given["username"], given.get("password", ""))
    for name in ("http_compress", "verify_certs"):
        if name in given:
            if given[name] not in _SWITCHES:
                raise SinkUnfit(f"sink {sink!r}: invalid option {name}; expected true or false", sink=sink)
            arguments[name] = _SWITCHES[given[name]]
    try:
        arguments["timeout"] = float(given.get("timeout", TIMEOUT_S))
    except ValueError:
        raise SinkUnfit(f"sink {sink!r}: invalid option timeout; expected a number of seconds", sink=sink) from None
    return arguments


class _Cause(msgspec.Struct):
    type: str = ""


class _Failure(msgspec.Struct):
    error: _Cause | str = ""


def _kind(error: TransportError) -> str:
    """Return the error class as OpenSearch names it; its text may contain a value."""
    info: Any = error.info
    try:
        failure = (
            msgspec.convert(info, _Failure) if isinstance(info, dict) else msgspec.json.decode(info, type=_Failure)
        )
    except (msgspec.MsgspecError, TypeError):
        return ""
    return failure.error.type if isinstance(failure.error, _Cause) else ""
