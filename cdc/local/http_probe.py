"""Checks a local server with one HTTP request."""

from __future__ import annotations

import http.client
from typing import Final

from cdc.local.ports import LOOPBACK

_TIMEOUT_S: Final = 5.0


def get(port: int, path: str) -> bytes | None:
    """Return the body of a response with status 200, or None. Never raises."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read() if answer.status == http.client.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
