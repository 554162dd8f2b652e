"""Limits the connections of a server in number and in time.

uvicorn has no deadline for a request that arrives slowly, nor for an answer that is read slowly. asyncio accepts any
number of connections, and each that does not finish its TLS handshake holds 256 KiB.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from cdc.telemetry import log

HEAD_BYTES_MAX: Final = 16 << 10
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_NO_FILES_PAUSE_S: Final = 1.0


class Incomplete(Protocol):
    """A connection without a complete request."""

    def hang_up(self) -> None:
        """Close it without waiting for the client."""


@dataclass(slots=True)
class Limits:
    """The limits of one server, and the connections to which they apply.

    connections_max   open connections; one more takes the place of the one that has been without a complete request
                      for longest, or is answered 503 if every other one is being answered
    receive_s         for a whole request, from the connection or the answer before it; also how long an idle connection
                      is kept
    answer_s          for computing an answer; and for sending what the client has not read when it is complete
    """

    connections_max: int
    receive_s: float
    answer_s: float
    receiving: dict[Incomplete, None] = field(default_factory=dict)
    """Connections without a complete request, the oldest first."""

    def make_room(self) -> bool:
        """Close the oldest connection without a complete request. Return whether there was one."""
        if not self.receiving:
            return False
        oldest = next(iter(self.receiving))
        del self.receiving[oldest]
        oldest.hang_up()
        return True


class BoundedProtocol(H11Protocol):
    """One connection, with a deadline at each moment."""

    def __init__(self, limits: Limits, **uvicorn_arguments: Any) -> None:
        super().__init__(**uvicorn_arguments)
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self._answering: object = None
        """The request that is complete and not answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the deadline of the first request."""
        super().connection_made(transport)
        self._receive()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._limits.receiving.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Begin the deadline of the answer once the request is complete."""
        super().data_received(data)
        self._see()

    def on_response_complete(self) -> None:
        """Begin the deadline of the next request, which may have arrived already.

        While the client still reads the answer, that of the answer; uvicorn closes idle connections itself.
        """
        self._answering = None
        super().on_response_complete()
        self._receive()
        if self.transport.get_write_buffer_size():
            self._within(self._limits.answer_s)
        self._see()

    def hang_up(self) -> None:
        """Close the connection without waiting for the client to read what was sent."""
        self.transport.abort()

    def _receive(self) -> None:
        self._limits.receiving.pop(self, None)
        self._limits.receiving[self] = None
        self._within(self._limits.receive_s)

    def _see(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn declares it without None
        if cycle is None or cycle.more_body or cycle.response_complete or cycle is self._answering:
            return
        self._answering = cycle
        self._limits.receiving.pop(self, None)
        self._within(self._limits.answer_s)

    def _within(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.hang_up)


class _Handshake:
    """A connection whose TLS handshake is not complete."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def hang_up(self) -> None:
        self._task.cancel()


@dataclass(slots=True)
class Acceptor:
    """Accepts connections on a socket, within the limits. `open_count` counts those that have a protocol."""

    listening: socket.socket
    limits: Limits
    protocol: Callable[[], BoundedProtocol]
    open_count: Callable[[], int]
    tls: ssl.SSLContext | None = None
    _handshakes: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        """Accept until cancelled."""
        self.listening.settimeout(0)
        failing = False
        while True:
            try:
                connection, _ = await asyncio.get_running_loop().sock_accept(self.listening)
            except OSError as error:  # no file descriptor is free, or the client has disconnected
                if not failing:
                    log.get().warning("http_connection_not_accepted", error=str(error))
                failing = True
                await asyncio.sleep(_NO_FILES_PAUSE_S)
                continue
            failing = False
            if self.open_count() + len(self._handshakes) >= self.limits.connections_max and not self.limits.make_room():
                self._refuse(connection)
                continue
            task = asyncio.create_task(self._take(connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)
            await asyncio.sleep(0)  # let connections that were closed leave

    def _refuse(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            if self.tls is None:
                connection.send(_FULL)

    async def _take(self, connection: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        place = _Handshake(task)
        self.limits.receiving[place] = None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self.protocol,
                connection,
                ssl=self.tls,
                ssl_handshake_timeout=self.limits.receive_s if self.tls is not None else None,
            )
        except (OSError, asyncio.CancelledError) as error:  # the handshake failed, or the place was needed
            # asyncio's error refers to its own frame, and so to 256 KiB, which garbage collection finds late.
            traceback.clear_frames(error.__traceback__)
            connection.close()
        finally:
            self.limits.receiving.pop(place, None)
