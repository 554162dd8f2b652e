"""Sends one HTTP request to a receiver. Certificates are verified, redirects are not followed, waits are bounded."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPMessage
from typing import IO, Final

from cdc import __version__
from cdc.config.secret import Secret

TIMEOUT_S: Final = 10.0
"""Of connecting, and of each wait for the answer."""

_ANSWER_BYTES: Final = 1024  # only the status matters


class NotDelivered(Exception):
    """The receiver did not accept a request. The text has no address, which is a secret.

    Attributes:
        passes: a later attempt may succeed.
    """

    def __init__(self, why: str, *, passes: bool) -> None:
        super().__init__(why)
        self.why = why
        self.passes = passes


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Return None, so that the redirect is an error: it would send the message to another server."""


def post(url: Secret, body: bytes, headers: dict[str, str], *, timeout_s: float = TIMEOUT_S) -> int:
    """Post and return the status of the answer, 200 to 299. Raises NotDelivered."""
    own = {"User-Agent": f"tailrace/{__version__}", "Content-Type": "application/json", **headers}
    request = urllib.request.Request(url.reveal(), body, own, method="POST")  # noqa: S310 - http or https: `resolved`
    opener = urllib.request.build_opener(
        _NoRedirects, urllib.request.HTTPSHandler(context=ssl.create_default_context())
    )
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            answer.read(_ANSWER_BYTES)
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            said = "a redirect, which is not followed" if 300 <= error.code < 400 else error.reason
            passes = error.code >= 500 or error.code in {408, 425, 429}
            raise NotDelivered(f"the receiver answered HTTP {error.code} ({said})", passes=passes) from None
    except urllib.error.URLError as error:
        raise NotDelivered(_reason(error.reason), passes=True) from None
    except (OSError, HTTPException) as error:
        raise NotDelivered(_reason(error), passes=True) from None


def _reason(error: object) -> str:
    """Return why there was no answer; texts of libraries may have the address."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the receiver is not valid: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "the receiver did not answer in time"
    if isinstance(error, OSError) and error.strerror:
        return f"the receiver cannot be reached: {error.strerror}"
    return f"the receiver cannot be reached: {type(error).__name__}"
