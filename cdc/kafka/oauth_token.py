"""Reads an OAuth token from the output of a command: JSON, or a bare JSON Web Token. Pure.

{"token": "...", "lifetime_s": 900, "principal": "cdc"}
{"access_token": "...", "expires_in": 900}
eyJhbGciOi....eyJleHAiOjE3....c2lnbmF0dXJl

Errors never show a part of the text.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from cdc.errors import CredentialUnavailable

_PRINCIPAL: Final = "tailrace"  # librdkafka requires one; the broker takes it from the token
_JWT_PARTS: Final = 3
FORMS: Final = 'expected {"token": "...", "lifetime_s": 900}, expires_at instead of lifetime_s, or a JSON Web Token'


@dataclass(frozen=True, slots=True)
class OauthToken:
    """A bearer token. `expires_s`: seconds since 1970."""

    token: str
    expires_s: float
    principal: str

    def __repr__(self) -> str:
        return f"OauthToken(***, expires_s={self.expires_s})"


def parse_token(text: str, now_s: float, key: str) -> OauthToken:
    """Return the token of a text. `key` names the setting in errors. Raises CredentialUnavailable."""
    text = text.strip()
    given: Mapping[str, Any] = {}
    token: object = text
    if text.startswith("{"):
        try:
            given = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError):
            raise _wrong(key, "printed text that begins with { and is not JSON") from None
        token = given.get("token", given.get("access_token"))
    if not isinstance(token, str) or not token or len(token.split()) != 1 or not token.isascii():
        raise _wrong(key, "printed no token")
    claims = _claims(token)
    expires_s = _expiry(given, claims, now_s, key)
    if expires_s <= now_s:
        raise _wrong(key, f"printed a token that expired {now_s - expires_s:.0f} s ago by the clock of this machine")
    principal = given.get("principal", claims.get("sub"))
    return OauthToken(token, expires_s, principal if isinstance(principal, str) and principal else _PRINCIPAL)


def is_jwt(token: str) -> bool:
    """Whether a token looks like a signed JSON Web Token."""
    return all(token.split(".")) and bool(_claims(token))


def _expiry(given: Mapping[str, Any], claims: Mapping[str, Any], now_s: float, key: str) -> float:
    for name in ("lifetime_s", "expires_in"):
        if name in given:
            return now_s + _number(given[name], name, key)
    if "expires_at" in given:
        at = given["expires_at"]
        if isinstance(at, str) and not at.replace(".", "", 1).isdigit():
            try:
                return datetime.fromisoformat(at).astimezone().timestamp()
            except (ValueError, OverflowError):
                raise _wrong(key, "printed an expires_at that is neither seconds since 1970 nor ISO 8601") from None
        return _number(at, "expires_at", key)
    if "exp" in claims:
        return _number(claims["exp"], "exp", key)
    raise _wrong(key, "printed a token without its expiry")


def _number(value: object, name: str, key: str) -> float:
    try:
        found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found) or found > 1e11:
        raise _wrong(key, f"printed a value of {name} that is not a number of seconds")
    return found


def _claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a JSON Web Token; none for another token. The broker checks its signature, not this code."""
    parts = token.split(".")
    if len(parts) != _JWT_PARTS:
        return {}
    body = parts[1] + "=" * (-len(parts[1]) % 4)
    try:
        found: dict[str, Any] = msgspec.json.decode(base64.urlsafe_b64decode(body), type=dict[str, Any])
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        return {}
    return found


def _wrong(key: str, why: str) -> CredentialUnavailable:
    return CredentialUnavailable(f"{key}: the command {why}", hint=FORMS)
