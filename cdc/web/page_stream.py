"""Sends the picture to all viewers as server-sent events; computed once a second for all of them, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from anyio import to_thread
from starlette.responses import Response, StreamingResponse

from cdc.telemetry import log
from cdc.web.answers import HEADERS, json_answer

if TYPE_CHECKING:
    from starlette.requests import Request

VIEWERS_MAX: Final = 32
"""Streams at a time, of the connections that the server accepts."""

STREAM_S: Final = 55.0
"""A stream ends after this time, within the deadline of every answer, and the browser connects again."""

_EVERY_S: Final = 1.0
_BEGIN: Final = b"retry: 1000\n\n"


class PictureStream:
    """The streams of one server; used in its event loop only."""

    def __init__(self, picture: Callable[[], dict[str, Any]]) -> None:
        self._picture = picture
        self._viewers: set[asyncio.Queue[bytes]] = set()
        self._task: asyncio.Task[None] | None = None

    async def answer(self, request: Request) -> Response:
        """Return the stream."""
        if request.method == "HEAD":
            return Response(headers=HEADERS, media_type="text/event-stream")
        if len(self._viewers) >= VIEWERS_MAX:
            said = f"{VIEWERS_MAX} pages are already open; try again later"
            return json_answer({"error": said}, HTTPStatus.SERVICE_UNAVAILABLE)
        return StreamingResponse(self._events(), headers=HEADERS, media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[bytes]:
        pictures: asyncio.Queue[bytes] = asyncio.Queue(1)
        self._viewers.add(pictures)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._compute())
        loop = asyncio.get_running_loop()
        end_s = loop.time() + STREAM_S
        try:
            yield _BEGIN + await self._newest()
            while (left_s := end_s - loop.time()) > 0:
                try:
                    yield await asyncio.wait_for(pictures.get(), left_s)
                except TimeoutError:
                    return
        finally:
            self._viewers.discard(pictures)

    async def _compute(self) -> None:
        """Compute the picture every second while there are viewers."""
        while self._viewers:
            await asyncio.sleep(_EVERY_S)
            event = await self._newest()
            for pictures in list(self._viewers):
                if pictures.full():  # a slow viewer gets only the newest one
                    pictures.get_nowait()
                pictures.put_nowait(event)

    async def _newest(self) -> bytes:
        try:
            found = await to_thread.run_sync(self._picture, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 - the stream must say that it has no picture
            log.get().error("picture_failed", error=log.origin(error))
            return b'event: failed\ndata: {"error": "the picture could not be computed; the log has its origin"}\n\n'
        return b"event: picture\ndata: " + msgspec.json.encode(found) + b"\n\n"
