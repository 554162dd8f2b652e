"""Passes requests on to the process of one pipeline, which serves HTTP on a Unix socket.

Speaks HTTP/1.0, in which the end of the connection ends an answer: streams need nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from cdc.web.answers import body_of, json_answer, too_long
from cdc.web.wait_endpoint import TIMEOUT_MAX_S

if TYPE_CHECKING:
    from starlette.requests import Request

Headers = Sequence[tuple[bytes, bytes]]

CONNECT_S: Final = 2.0
ANSWER_S: Final = 5.0
"""For a whole answer that the parent process itself uses, such as /metrics."""
HEAD_S: float = TIMEOUT_MAX_S + 30.0
"""Until an answer begins; more than the longest wait for a sink. A frozen process must not hold requests forever."""

_PIECE_BYTES: Final = 64 << 10
_PASSED_ON: Final = frozenset(
    {b"accept", b"authorization", b"content-type", b"host", b"if-modified-since", b"if-none-match", b"last-event-id"}
)
_OF_CONNECTION: Final = frozenset({b"connection", b"keep-alive", b"transfer-encoding"})


class NoAnswer(Exception):
    """The process does not answer, or not with HTTP."""


@dataclass(slots=True)
class _Answer:
    code: int
    headers: Headers
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            while piece := await self.reader.read(_PIECE_BYTES):
                yield piece
        except OSError:
            return  # the process was killed: the client sees that the answer ends early
        finally:
            self.close()

    def close(self) -> None:
        self.writer.close()


async def fetched(socket: str, target: str) -> tuple[int, bytes]:
    """Return code and body of the answer to a GET. Raises NoAnswer."""
    try:
        async with asyncio.timeout(ANSWER_S):
            answer = await _asked(socket, b"GET", target.encode(), [])
            return answer.code, b"".join([piece async for piece in answer.pieces()])
    except TimeoutError:
        raise NoAnswer(f"no answer within {ANSWER_S:.0f} s") from None


async def relayed(request: Request, socket: str, target: bytes, bytes_max: int) -> Response:
    """Return the answer of the process to a request. Raises NoAnswer."""
    try:
        body = await body_of(request, bytes_max)
    except ClientDisconnect:
        return json_answer({"error": "the body is incomplete"}, HTTPStatus.BAD_REQUEST)
    if body is None:
        return too_long(bytes_max)
    headers = [(name, value) for name, value in request.headers.raw if name in _PASSED_ON]
    if request.client is not None:
        host = f"[{request.client.host}]" if ":" in request.client.host else request.client.host
        headers.append((b"x-forwarded-for", f"{host}:{request.client.port}".encode()))
    answer = await _asked(socket, request.method.encode(), target, headers, body)
    found: Response = StreamingResponse(answer.pieces(), answer.code)
    found.raw_headers = [(name, value) for name, value in answer.headers if name not in _OF_CONNECTION]
    return found


def not_running(name: str, said: str, *, hint: str = "", command: str = "") -> Response:
    """Return the answer for a pipeline whose process does not answer."""
    found = {"error": f"the pipeline {name} does not answer: {said}", "hint": hint, "command": command}
    return json_answer({key: text for key, text in found.items() if text}, HTTPStatus.SERVICE_UNAVAILABLE)


async def _asked(socket: str, method: bytes, target: bytes, headers: Headers, body: bytes = b"") -> _Answer:
    """Send a request and read the head of its answer. Raises NoAnswer."""
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_unix_connection(socket)
    except (OSError, TimeoutError) as error:
        raise NoAnswer(getattr(error, "strerror", None) or "it accepts no connection") from error
    try:
        length = [(b"content-length", str(len(body)).encode())] if body else []
        lines = [b"%s %s HTTP/1.0" % (method, target), *(b"%s: %s" % one for one in [*headers, *length])]
        writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        async with asyncio.timeout(HEAD_S):
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
        status, *fields = head[:-4].split(b"\r\n")
        pairs = [(name.strip().lower(), value.strip()) for name, _, value in (one.partition(b":") for one in fields)]
        return _Answer(int(status.split(b" ")[1]), pairs, reader, writer)
    except TimeoutError as error:
        writer.close()
        raise NoAnswer(f"no answer within {HEAD_S:.0f} s") from error
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError) as error:
        writer.close()
        raise NoAnswer("it ended before it answered") from error
    except BaseException:
        with suppress(OSError):
            writer.close()
        raise
