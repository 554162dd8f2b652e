"""Serves the HTTP endpoints of capture or of a sink, in a thread of its own.

Starlette and uvicorn do the work. Connections are limited in number and time (`cdc.web.bounded_protocol`). Capture and
every sink run a server of their own and report to it through `Reported` and `Rendered`.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from cdc.errors import ConfigError
from cdc.telemetry import log
from cdc.web.access import Access, is_loopback
from cdc.web.bounded_protocol import HEAD_BYTES_MAX, Acceptor, BoundedProtocol, Limits
from cdc.web.routes import application
from cdc.web.wait_endpoint import TIMEOUT_MAX_S

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from cdc.overview.desk import Desk
    from cdc.telemetry.exposition import Rendered, Reported
    from cdc.web.actions_endpoint import ActionsRoute
    from cdc.web.wait_endpoint import WaitRoute

CONNECTIONS_MAX: Final = 128
"""Concurrent connections: more than `wait_endpoint.WAITING_MAX`, so that probes are still answered."""

REQUEST_S: Final = 5.0
ANSWER_S: Final = TIMEOUT_MAX_S + 10
_STOP_S: Final = 1  # for answers that are being sent when the server is closed
_CERTIFICATE_EVERY_S: Final = 60.0
_LISTEN: Final = re.compile(r"(\[.+\]|[^:\[\]]+):(\d{1,5})")
_PORT_MAX: Final = 65535


class HttpServer:
    """Serves an application until closed; `port` is the actual port if 0 was configured."""

    def __init__(
        self,
        listen: str,
        application: Callable[[bool], ASGIApp],
        *,
        setting: str = "http.listen",
        access: Access | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`listen` is host:port, or the path of a Unix socket; `setting` is where it comes from.

        `application` gets whether only this machine reaches the server by its address. Raises ConfigError that names
        `setting` if it cannot be listened on.
        """
        on_socket = listen.startswith("/")
        host, port = ("", 0) if on_socket else _address(listen, setting)
        access = access or Access()
        config = uvicorn.Config(
            application(is_loopback(host)),
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            log_level="critical",  # what fails is logged as our own event
            access_log=False,
            proxy_headers=on_socket,  # only the parent process reaches the socket, and says who the client is
            forwarded_allow_ips="*",
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=_STOP_S,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        certificate = _Certificate(access) if access.certificate else None
        try:
            self._socket = _unix_socket(listen) if on_socket else _tcp_socket(host, port)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {setting} = {listen!r}: {error.strerror or error}",
                hint='if another program uses the port, choose another one, or "" to disable it',
                command=_example(setting),
            ) from error
        self.port: int = 0 if on_socket else self._socket.getsockname()[1]
        """The port that the server listens on; 0 for a Unix socket."""
        self._server = _Server(config, limits or Limits(CONNECTIONS_MAX, REQUEST_S, ANSWER_S), certificate)
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)
        self._thread.start()
        self._server.serving.wait()

    def _serve(self) -> None:
        try:
            self._server.run([self._socket])
        finally:
            self._server.serving.set()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.stop()
        self._thread.join()


class WebServer(HttpServer):
    """Serves the endpoints of capture or of a sink."""

    def __init__(
        self,
        listen: str,
        status: Reported,
        metrics: Rendered,
        *,
        waits: WaitRoute | None = None,
        actions: ActionsRoute | None = None,
        desk: Desk | None = None,
        setting: str = "http.listen",
        access: Access | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`setting` is where `listen` comes from. Raises ConfigError that names it if it cannot be listened on."""
        access = access or Access()
        self._waits = waits

        def made(on_loopback: bool) -> ASGIApp:  # noqa: FBT001 - the form of HttpServer
            return application(status, metrics, waits, access, on_loopback=on_loopback, actions=actions, desk=desk)

        super().__init__(listen, made, setting=setting, access=access, limits=limits)

    def close(self) -> None:
        """Stop serving and free the port; waiting requests are answered."""
        if self._waits is not None:
            self._waits.close()
        super().close()


def _tcp_socket(host: str, port: int) -> socket.socket:
    return socket.create_server(
        (host, port),
        family=socket.AF_INET6 if ":" in host else socket.AF_INET,
        backlog=CONNECTIONS_MAX,
        dualstack_ipv6=":" in host and socket.has_dualstack_ipv6(),
    )


def _unix_socket(path: str) -> socket.socket:
    Path(path).unlink(missing_ok=True)  # of the process before this one, which was killed
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(path)
        listening.listen(CONNECTIONS_MAX)
    except OSError:
        listening.close()
        raise
    return listening


class _Server(uvicorn.Server):
    """Waits for its end without a timer, and gives each connection its limits."""

    def __init__(self, config: uvicorn.Config, limits: Limits, certificate: _Certificate | None) -> None:
        super().__init__(config)
        self.serving = threading.Event()
        self._limits = limits
        self._certificate = certificate

    def stop(self) -> None:
        """End the server from another thread."""
        with suppress(RuntimeError, AttributeError):  # it has ended, or failed to start
            self._loop.call_soon_threadsafe(self._ending.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on the one socket."""
        assert sockets is not None
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(_log_failure)
        tls = self._certificate.context if self._certificate is not None else None
        connections = self.server_state.connections
        acceptor = Acceptor(sockets[0], self._limits, self._connection, lambda: len(connections), tls)
        self._accepting = asyncio.create_task(acceptor.run())
        self.servers = []  # of asyncio: there is none
        self.started = True
        self.serving.set()

    def _connection(self) -> BoundedProtocol:
        return BoundedProtocol(
            self._limits, config=self.config, server_state=self.server_state, app_state={}, _loop=self._loop
        )

    async def main_loop(self) -> None:
        """Return when the server is to end; load a new certificate until then."""
        every_s = _CERTIFICATE_EVERY_S if self._certificate is not None else None
        while not self._ending.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), every_s)
            if self._certificate is not None:
                self._certificate.renew()
        self._accepting.cancel()


def _log_failure(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that no request has, for example that no file descriptor is free for a connection."""
    error = context.get("exception")
    log.get().error("http_server_error", error=f"{context['message']}: {error}" if error else context["message"])


class _Certificate:
    """The certificate of the server, which is loaded again when its files change."""

    def __init__(self, access: Access) -> None:
        """Raises ConfigError if the files cannot be read."""
        self._key = access.key or None
        self._files = [access.certificate, *filter(None, [access.key])]
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            self._seen = self._changed_at()
            self._load(self.context)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"cannot load the certificate {access.certificate!r} of http.tls_certificate: {_said(error)}",
                hint="set http.tls_certificate to a PEM file with the chain, http.tls_key to one with the key",
                command=f"openssl x509 -noout -subject -enddate -in {access.certificate}",
            ) from error

    def renew(self) -> None:
        """Load the files again if they have changed; keep the old certificate if they cannot be read."""
        try:
            seen = self._changed_at()
            if seen == self._seen:
                return
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # a pair that is half written changes nothing
            self._load(self.context)
            self._seen = seen
            log.get().info("http_certificate_loaded", file=self._files[0])
        except (OSError, ssl.SSLError) as error:
            log.get().warning("http_certificate_not_loaded", file=self._files[0], error=_said(error))

    def _load(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self._files[0], self._key, password=lambda: "")  # without it OpenSSL asks the terminal

    def _changed_at(self) -> list[int]:
        return [Path(file).stat().st_mtime_ns for file in self._files]


def _said(error: OSError) -> str:
    return error.strerror or str(error)


def _address(listen: str, setting: str) -> tuple[str, int]:
    match = _LISTEN.fullmatch(listen)
    if match is None or int(match[2]) > _PORT_MAX:
        raise ConfigError(f"invalid {setting} {listen!r}; expected host:port", command=_example(setting))
    return match[1].strip("[]"), int(match[2])


def _example(setting: str) -> str:
    section, _, key = setting.rpartition(".")
    return f'[{section}] {key} = "127.0.0.1:0"'
