"""Writes literals of types that the lake keeps as text in the form in which PostgreSQL prints them. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

_CLOCK: Final = re.compile(r"((?:[01]\d|2[0-3]):[0-5]\d)(?::([0-5]\d)(\.\d{1,6})?)?")
_ADDRESS: Final = re.compile(r"(\d{1,3}(?:\.\d{1,3}){3})(?:/(\d{1,2}))?")
_MAC: Final = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
_MAC8: Final = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){7}")
_BITS: Final = re.compile(r"[01]*")


def printed(text: str, name: str) -> str | None:
    """Return the text that PostgreSQL prints for a literal of a type; None if that is not known."""
    if name == "time":
        return _clock(text)
    if name == "inet":
        return _address(text)
    if name in {"macaddr", "macaddr8"}:
        form = _MAC if name == "macaddr" else _MAC8
        return text.lower() if form.fullmatch(text.lower()) else None
    if name in {"bit", "varbit"}:
        return text if _BITS.fullmatch(text) else None
    return None


def _clock(text: str) -> str | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    return f"{match[1]}:{match[2] or '00'}{(match[3] or '').rstrip('0').rstrip('.')}"


def _address(text: str) -> str | None:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2] or 0) > 32:
        return None
    try:
        address = str(ipaddress.IPv4Address(match[1]))
    except ValueError:
        return None
    return address if match[2] in {None, "32"} else f"{address}/{int(match[2])}"
