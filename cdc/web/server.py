"""/livez /readyz /metrics /status over HTTP: read only, loopback unless told otherwise.

The standard library's server is enough: a few requests a second, from probes and people. Nothing here changes
state, so there is nothing to protect by a token; requests have a small size and a deadline.
"""

from __future__ import annotations

import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import msgspec

from cdc.errors import ConfigError
from cdc.telemetry.metrics import Metrics
from cdc.telemetry.status import Status

_REQUEST_TIMEOUT_S: Final = 5
_STOP_POLL_S: Final = 0.05  # how late a close is noticed


class WebServer:
    """Serves until closed; `port` is the real one when 0 was asked for."""

    def __init__(self, listen: str, status: Status, metrics: Metrics) -> None:
        host, _, port = listen.rpartition(":")

        class Handler(_Handler):
            pass

        Handler.status = status
        Handler.metrics = metrics
        try:
            self._server = (_Server6 if ":" in host else ThreadingHTTPServer)((host.strip("[]"), int(port)), Handler)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on http.listen = {listen!r}: {error.strerror}",
                hint='another program has the port; choose another one, or "" for none',
                command='[http] listen = "127.0.0.1:0"',
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
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    status: Status
    metrics: Metrics
    timeout = _REQUEST_TIMEOUT_S
    server_version = "tailrace"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one of four paths."""
        path = self.path.partition("?")[0]
        if path == "/livez":
            self._answer(HTTPStatus.OK, "text/plain; charset=utf-8", b"ok\n")
        elif path == "/readyz":
            ready = self.status.ready
            code = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(code, "text/plain; charset=utf-8", f"{self.status.state}\n".encode())
        elif path == "/metrics":
            self._answer(HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", self.metrics.render())
        elif path == "/status":
            body = msgspec.json.format(msgspec.json.encode(self.status.snapshot()), indent=2) + b"\n"
            self._answer(HTTPStatus.OK, "application/json", body)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"try /livez /readyz /metrics /status\n")

    def do_HEAD(self) -> None:
        """As GET, without the body."""
        self.do_GET()

    def _answer(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Requests are not logged."""
