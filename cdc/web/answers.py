"""Forms of answers that all routes share."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import PlainTextResponse, Response

if TYPE_CHECKING:
    from starlette.requests import Request

HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def json_answer(found: object, code: int = HTTPStatus.OK) -> Response:
    """Return a JSON document, indented for people."""
    body = msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
    return Response(body, code, headers=HEADERS | {"Content-Type": "application/json"})


def text_answer(body: str, code: int = HTTPStatus.OK) -> Response:
    """Return plain text."""
    return PlainTextResponse(body, code, headers=HEADERS)


def query_of(request: Request) -> str:
    """Return the query of a request as sent."""
    return bytes(request.scope["query_string"]).decode("latin-1")


async def body_of(request: Request, bytes_max: int) -> bytes | None:
    """Return the body; None if it is longer than `bytes_max`, without reading the rest."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > bytes_max:
            return None
    return bytes(body)


def too_long(bytes_max: int) -> Response:
    """Return the answer to a body that is too long."""
    said = f"the body is too long; at most {bytes_max >> 10} KiB are accepted"
    return json_answer({"error": said}, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
