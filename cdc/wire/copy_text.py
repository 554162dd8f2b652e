r"""Splits lines of ``COPY … TO STDOUT`` in text format into the column texts that pgoutput would send. Pure.

Implements https://www.postgresql.org/docs/18/sql-copy.html#SQL-COPY-FILE-FORMATS as far as the server writes it
(CopyAttributeOutText in src/backend/commands/copyto.c): a tab between columns, ``\N`` for null, a newline at the end,
``\\`` for a backslash, and ``\b \f \n \r \t \v``. It never writes octal or hex escapes.
"""

from __future__ import annotations

from typing import Final

from cdc.errors import DecodeError

_TAG: Final = "COPY"
_NULL: Final = b"\\N"
_PLAIN: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_RAW: Final = (b"\b", b"\f", b"\n", b"\r", b"\v")  # always escaped; a tab ends a column


def texts(line: bytes, column_count: int) -> list[bytes | None]:
    """Return the column texts of one CopyData message, None for null.

    Args:
        line: with its newline.
        column_count: of the statement; with 0 columns the line is empty.

    Raises:
        DecodeError: the line is invalid.
    """
    if line[-1:] != b"\n":
        raise DecodeError(_TAG, len(line), detail="line without a newline")
    body = line[:-1]
    if column_count == 0 and not body:
        return []
    for raw in _RAW:
        if raw in body:
            raise DecodeError(_TAG, body.index(raw), detail="unescaped control character")
    found: list[bytes | None] = body.split(b"\t")  # type: ignore[assignment]
    if len(found) != column_count:
        raise DecodeError(_TAG, 0, detail=f"{len(found)} columns, the statement has {column_count}")
    if b"\\" in body:
        for index, text in enumerate(found):
            if text is not None and b"\\" in text:
                found[index] = value(text)
    return found


def value(text: bytes) -> bytes | None:
    """Decode the text between two tabs, None for null. Raises DecodeError."""
    return None if text == _NULL else _unescaped(text)


def _unescaped(text: bytes) -> bytes:
    r"""Resolve escapes. ``\\`` is split off first, so every remaining backslash begins an escape."""
    return b"\\".join(_letters(part) for part in text.split(b"\\\\"))


def _letters(text: bytes) -> bytes:
    first, *rest = text.split(b"\\")
    if not rest:
        return text
    pieces = [first]
    for piece in rest:
        character = _PLAIN.get(piece[:1])
        if character is None:
            raise DecodeError(_TAG, 0, detail="unsupported escape sequence")
        pieces += (character, piece[1:])
    return b"".join(pieces)
