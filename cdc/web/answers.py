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
