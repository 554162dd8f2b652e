"""/livez /readyz /metrics /status and /sinks/<sink>/wait over HTTP: read only, loopback unless told otherwise.

The standard library's server is enough: a few requests a second, from probes and people. Nothing here changes state.
Row keys are shown only to a request with the configured bearer token. Connections are bounded in number, and the head
of a request in bytes and time, however slowly its bytes come (`cdc.web.bounded_requests`). Capture and every sink have
a server of their own: what they report comes through two small contracts.
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
from typing import Any, Final, Protocol

import msgspec

from cdc.errors import ConfigError
from cdc.telemetry import log
from cdc.web.bounded_requests import bounded_head
from cdc.web.wait_endpoint import WaitRoute, error_answer, unknown_parameter

CONNECTIONS_MAX: Final = 128
"""At a time: more than may wait for sinks, so that probes are answered meanwhile."""

_REQUEST_TIMEOUT_S: Final = 5
_PATHS: Final = frozenset({"/livez", "/readyz", "/metrics", "/status"})
_STOP_POLL_S: Final = 0.05  # how late a close is noticed
_LISTEN: Final = re.compile(r"(\[.+\]|[^:\[\]]+):(\d{1,5})")
_PORT_MAX: Final = 65535
_TEXT: Final = "text/plain; charset=utf-8"


class Reported(Protocol):
    """What a process does now. Asked from many threads."""

    @property
    def state(self) -> object:
        """Its name is the text of /readyz."""

    @property
    def ready(self) -> bool:
        """Whether /readyz is 200."""

    def snapshot(self) -> dict[str, Any]:
        """The document of /status."""


class Rendered(Protocol):
    """The metrics of a process. Asked from many threads."""

    def render(self) -> bytes:
        """The page of /metrics."""


class WebServer:
    """Serves until closed; `port` is the real one when 0 was asked for."""

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
                hint='another program has the port; choose another one, or "" for none',
                command=_example(setting),
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_STOP_POLL_S,), name="http", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving and free the port; those who wait get an answer."""
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
        """As the base class has it, in a thread; a connection too many is answered and closed here."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.settimeout(0)
            request.send(b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As the base class has it."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class has them
        """Log an unexpected error as an event; that a client is gone is none."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            log.get().error("http_request_failed", error=log.origin(error))

    def get_request(self) -> tuple[socket.socket, Any]:
        """As the base class has it, which comes back at once, for ever, when there are no files left."""
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
        """As the base class has it, with a bounded head."""
        super().setup()
        self.rfile = bounded_head(self.connection, _REQUEST_TIMEOUT_S)

    def handle(self) -> None:
        """As the base class has it; a head that is too long is answered."""
        self.requestline, self.request_version, self.command = "", "HTTP/1.0", ""
        try:
            super().handle()
        except LineTooLong:
            with suppress(OSError):
                self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def do_GET(self) -> None:
        """Answer one of the paths there are."""
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
            self._answer_json(HTTPStatus.UNAUTHORIZED, {"error": "the bearer token is not http.token"})
            return
        found = waits.answer(sink, query, authorised=authorised)
        self._answer_json(found.code, found.document)

    def _is_authorised(self, given: str) -> bool:
        kind, _, token = given.partition(" ")
        # The comparison takes the same time wherever the texts differ.
        same = hmac.compare_digest(token.strip().encode("utf-8", "surrogateescape"), self.token)
        return bool(self.token) and kind.lower() == "bearer" and same

    def do_HEAD(self) -> None:
        """As GET, without the body."""
        self.do_GET()

    def _answer_json(self, code: HTTPStatus, document: object) -> None:
        self._answer(code, "application/json", msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")

    def _answer(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        # Who waited for long may be gone by now, which is no fault of ours that a log should show.
        with suppress(ConnectionError):
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Requests are not logged."""


def _address(listen: str, setting: str) -> tuple[str, int]:
    match = _LISTEN.fullmatch(listen)
    if match is None or int(match[2]) > _PORT_MAX:
        raise ConfigError(f"{setting} is {listen!r}; it must be host:port", command=_example(setting))
    return match[1].strip("[]"), int(match[2])


def _example(setting: str) -> str:
    section, _, key = setting.rpartition(".")
    return f'[{section}] {key} = "127.0.0.1:0"'
