"""Serves /livez, /readyz, /metrics, /status and /sinks/<sink>/wait over HTTP; read only.

The standard library's server is enough for a few requests per second from probes and people. Row keys are shown only
to requests with the configured bearer token. The number of connections, and the size and duration of a request's head
are limited (`cdc.web.bounded_requests`). Capture and every sink run a server of their own and report to it through
`Reported` and `Rendered`.
"""

from __future__ import annotations

import hmac
import re
import socket
import sys
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import msgspec

from cdc.errors import ConfigError
from cdc.telemetry import log
from cdc.telemetry.exposition import Rendered, Reported
from cdc.web.bounded_requests import bounded_head
from cdc.web.wait_endpoint import WaitRoute, error_answer, unknown_parameter

CONNECTIONS_MAX: Final = 128
"""Concurrent connections: more than `wait_endpoint.WAITING_MAX`, so that probes are still answered."""

_REQUEST_TIMEOUT_S: Final = 5
_PATHS: Final = frozenset({"/livez", "/readyz", "/metrics", "/status"})
_STOP_POLL_S: Final = 0.05  # interval at which the server notices a close
_LISTEN: Final = re.compile(r"(\[.+\]|[^:\[\]]+):(\d{1,5})")
_PORT_MAX: Final = 65535
_TEXT: Final = "text/plain; charset=utf-8"


class WebServer:
    """Serves until closed; `port` is the actual port if 0 was configured."""

    def __init__(
        self,
        listen: str,
        status: Reported,
        metrics: Rendered,
        *,
        waits: WaitRoute | None = None,
        setting: str = "http.listen",
        token: str = "",
    ) -> None:
        """`token` authorises a request that bears it; without one no request is authorised.

        `setting` is where `listen` comes from. Raises ConfigError naming it when it cannot be listened on.
        """
        host, port = _address(listen, setting)

        class Handler(_Handler):
            pass

        Handler.status = status
        Handler.metrics = metrics
        Handler.waits = self._waits = waits
        Handler.token = token.encode()
        try:
            self._server = (_Server6 if ":" in host else _Server)((host, port), Handler)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {setting} = {listen!r}: {error.strerror}",
                hint='if another program uses the port, choose another one, or "" to disable it',
                command=_example(setting),
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_STOP_POLL_S,), name="http", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving and free the port; waiting requests are answered."""
        if self._waits is not None:
            self._waits.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a request in a thread; answer and close a connection beyond the limit here."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.settimeout(0)
            request.send(b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Release the connection's place afterwards."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class has them
        """Log an unexpected error as an event; a client that has disconnected is not one."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            log.get().error("http_request_failed", error=log.origin(error))

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; pause when no file descriptor is free, or the base class retries in a busy loop."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_STOP_POLL_S)
            raise


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    status: Reported
    metrics: Rendered
    waits: WaitRoute | None
    token: bytes
    timeout = _REQUEST_TIMEOUT_S
    server_version = "tailrace"
    sys_version = ""

    def setup(self) -> None:
        """Limit the head of the request."""
        super().setup()
        self.rfile = bounded_head(self.connection, _REQUEST_TIMEOUT_S)

    def handle(self) -> None:
        """Answer a head that is too long."""
        self.requestline, self.request_version, self.command = "", "HTTP/1.0", ""
        try:
            super().handle()
        except LineTooLong:
            with suppress(OSError):
                self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def do_GET(self) -> None:
        """Answer one of the known paths."""
        path, _, query = self.path.partition("?")
        sink = WaitRoute.sink_of(path)
        wrong = unknown_parameter(query, ()) if query and path in _PATHS else ""
        if wrong:
            self._answer_json(HTTPStatus.BAD_REQUEST, error_answer(HTTPStatus.BAD_REQUEST, wrong).document)
        elif path == "/livez":
            self._answer(HTTPStatus.OK, _TEXT, b"ok\n")
        elif path == "/readyz":
            code = HTTPStatus.OK if self.status.ready else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(code, _TEXT, f"{self.status.state}\n".encode())
        elif path == "/metrics":
            self._answer(HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", self.metrics.render())
        elif path == "/status":
            self._answer_json(HTTPStatus.OK, self.status.snapshot())
        elif sink is not None and self.waits is not None:
            self._wait(self.waits, sink, query)
        else:
            more = "" if self.waits is None else " /sinks/<sink>/wait?lsn=X/Y"
            self._answer(HTTPStatus.NOT_FOUND, _TEXT, f"try /livez /readyz /metrics /status{more}\n".encode())

    def _wait(self, waits: WaitRoute, sink: str, query: str) -> None:
        given = self.headers.get("Authorization", "")
        authorised = self._is_authorised(given)
        if given and not authorised and self.token:
            self._answer_json(HTTPStatus.UNAUTHORIZED, {"error": "the bearer token does not match http.token"})
            return
        found = waits.answer(sink, query, authorised=authorised)
        self._answer_json(found.code, found.document)

    def _is_authorised(self, given: str) -> bool:
        kind, _, token = given.partition(" ")
        # compare_digest takes the same time wherever the texts differ.
        same = hmac.compare_digest(token.strip().encode("utf-8", "surrogateescape"), self.token)
        return bool(self.token) and kind.lower() == "bearer" and same

    def do_HEAD(self) -> None:
        """Answer as GET, without the body."""
        self.do_GET()

    def _answer_json(self, code: HTTPStatus, document: object) -> None:
        self._answer(code, "application/json", msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")

    def _answer(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        # A client that waited for long may have disconnected, which is not worth a log line.
        with suppress(ConnectionError):
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Log nothing for a request."""


def _address(listen: str, setting: str) -> tuple[str, int]:
    match = _LISTEN.fullmatch(listen)
    if match is None or int(match[2]) > _PORT_MAX:
        raise ConfigError(f"invalid {setting} {listen!r}; expected host:port", command=_example(setting))
    return match[1].strip("[]"), int(match[2])


def _example(setting: str) -> str:
    section, _, key = setting.rpartition(".")
    return f'[{section}] {key} = "127.0.0.1:0"'
