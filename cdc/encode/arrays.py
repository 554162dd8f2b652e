r"""Converts PostgreSQL's array text to a JSON array. Pure.

Implements https://www.postgresql.org/docs/18/arrays.html#ARRAYS-IO: ``{1,NULL,"a \"b\""}``, nested to any depth,
with ``[2:4]=`` in front where lower bounds are not 1 (dropped, as `to_jsonb` does).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final

from cdc.errors import DecodeError

_BOUNDS: Final = re.compile(rb"(?:\[-?\d+:-?\d+\])+=")


def array_encoder(element: Callable[[bytes], bytes] | None, delimiter: bytes = b",") -> Callable[[bytes], bytes]:
    """Return an encoder for arrays; `element` encodes an element, None keeps its text.

    The encoder raises DecodeError for invalid array text.
    """
    mark = re.escape(delimiter)
    # Matches runs of characters: with `(?:[^"\\]|\\.)*` an element of 15 MB took 9 s and 2 GB.
    token = re.compile(rb'\{|\}|%b|"([^"\\]*+(?:\\.[^"\\]*+)*+)"|([^{}"\\%b]+)' % (mark, mark), re.DOTALL)

    def encode(text: bytes) -> bytes:
        if text[:1] == b"[":
            match = _BOUNDS.match(text)
            if match is None:
                raise DecodeError("array", 0, detail="invalid bounds")
            text = text[match.end() :]
        if text == b"{}":
            return b"[]"
        if text[:1] != b"{" or text[-1:] != b"}":
            raise DecodeError("array", 0, detail="missing braces")
        if element is None and b'"' not in text and b"N" not in text and b"{" not in text[1:]:
            return b"[%b]" % text[1:-1]
        return _walk(text)

    def _walk(text: bytes) -> bytes:
        out: list[bytes] = []
        depth = at = 0
        complete = False  # whether a value ends at `at`, so that only a delimiter or a closing brace may follow
        while at < len(text):
            match = token.match(text, at)
            piece = b"" if match is None else match[0]
            if match is None or complete is not (piece == delimiter or piece == b"}"):
                raise DecodeError("array", at, detail="invalid element")
            at = match.end()
            complete = piece != b"{" and piece != delimiter
            if piece == b"{":
                depth += 1
                out.append(b"[")
            elif piece == b"}":
                depth -= 1
                out.append(b"]")
                if depth == 0 and at != len(text):
                    raise DecodeError("array", at, detail="text after the end")
            elif piece == delimiter:
                out.append(b",")
            elif match[1] is not None:
                value = unescaped(match[1])
                out.append(value if element is None else element(value))
            elif piece == b"NULL":
                out.append(b"null")
            else:
                out.append(piece if element is None else element(piece))
        if depth != 0:
            raise DecodeError("array", at, detail="unexpected end")
        return b"".join(out)

    return encode


def flat_elements(text: bytes, delimiter: bytes) -> list[bytes | None] | None:
    """Return the element texts of an array, None for null; None for several dimensions. Raises DecodeError."""
    if text[:1] == b"[":
        match = _BOUNDS.match(text)
        if match is None:
            raise DecodeError("array", 0, detail="invalid bounds")
        text = text[match.end() :]
    if text[:1] != b"{" or text[-1:] != b"}":
        raise DecodeError("array", 0, detail="missing braces")
    if text == b"{}":
        return []
    if text[1:2] == b"{":
        return None
    if b'"' not in text and b"N" not in text and b"\\" not in text and text.count(b"{") == text.count(b"}") == 1:
        bare_elements: list[bytes | None] = list(text[1:-1].split(delimiter))
        if b"" not in bare_elements:
            return bare_elements
    token = _element(delimiter)
    elements: list[bytes | None] = []
    at = 1
    while True:
        match = token.match(text, at)
        if match is None:
            raise DecodeError("array", at, detail="invalid element")
        quoted, bare, after = match.groups()
        elements.append(unescaped(quoted) if quoted is not None else None if bare == b"NULL" else bare)
        at = match.end()
        if after == b"}":
            break
    if at != len(text):
        raise DecodeError("array", at, detail="text after the end")
    return elements


@cache
def _element(delimiter: bytes) -> re.Pattern[bytes]:
    mark = re.escape(delimiter)
    return re.compile(rb'(?:"([^"\\]*+(?:\\.[^"\\]*+)*+)"|([^{}"\\%b]+))(%b|\})' % (mark, mark), re.DOTALL)


def unescaped(text: bytes) -> bytes:
    r"""Remove escapes; ``\\`` is split off first, so every remaining backslash only escapes the next character."""
    return b"\\".join(part.replace(b"\\", b"") for part in text.split(b"\\\\"))
