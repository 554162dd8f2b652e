"""Encodes hundreds of COPY lines at once, with one call per column instead of one per value. Pure.

The bytes equal those of single rows (tests/property/test_transcoder_copied.py), at two thirds of the CPU time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final, TypeAlias

from cdc.encode.values import Encode, boolean, quoted, string, timestamp, timestamp_utc
from cdc.wire import copy_text

Column: TypeAlias = Sequence[bytes]
"""The values of one column, row by row."""

_ESCAPED: Final = bytes(byte for byte in range(32) if byte != ord("\n")) + b'"\\'
_BC: Final = b" BC"


def columns(text: bytes, encoders: Sequence[Encode], null: bytes) -> list[Column]:
    """Return the encoded columns of one or more lines with their newlines; `encoders`, `null`: see `RowFormat`.

    Raises ValueError (also UnicodeDecodeError) or DecodeError for an invalid line. The caller then encodes row by row,
    which diagnoses the error.
    """
    *lines, end = text.split(b"\n")
    found = list(zip(*[line.split(b"\t") for line in lines], strict=True))
    if end or len(found) != len(encoders):
        raise ValueError("a line has no newline, or the wrong number of columns")
    plain = b"\\" not in text
    return [
        _encoded(texts, encode) if plain else _nullable(texts, encode, null)
        for texts, encode in zip(found, encoders, strict=True)
    ]


def _encoded(texts: Column, encode: Encode) -> Column:
    if encode is None:
        return texts
    whole = _WHOLE.get(encode)
    return list(map(encode, texts)) if whole is None else whole(texts)


def _nullable(texts: Column, encode: Encode, null: bytes) -> Column:
    """Encode a column that may have nulls and escapes."""
    if not any(b"\\" in text for text in texts):
        return _encoded(texts, encode)
    found = [copy_text.value(text) if b"\\" in text else text for text in texts]
    if encode is None:
        return [null if text is None else text for text in found]
    return [null if text is None else encode(text) for text in found]


def _strings(texts: Column) -> Column:
    joined = b"\n".join(texts)
    if len(joined.translate(None, _ESCAPED)) != len(joined):
        return list(map(string, texts))
    if not joined.isascii():
        joined.decode()
    return _in_quotes(joined)


def _booleans(texts: Column) -> Column:
    return [b"true" if text == b"t" else b"false" for text in texts]


def _timestamps(texts: Column) -> Column:
    joined = b"\n".join(texts)
    return list(map(timestamp, texts)) if _BC in joined else _in_quotes(joined.replace(b" ", b"T"))


def _timestamps_utc(texts: Column) -> Column:
    joined = b"\n".join(texts)
    if _BC in joined:
        return list(map(timestamp_utc, texts))
    return _in_quotes(joined.replace(b" ", b"T").replace(b"+00", b"+00:00"))


def _quoted(texts: Column) -> Column:
    return _in_quotes(b"\n".join(texts))


def _in_quotes(joined: bytes) -> Column:
    return (b'"%b"' % joined.replace(b"\n", b'"\n"')).split(b"\n")


_WHOLE: Final[dict[Callable[[bytes], bytes], Callable[[Column], Column]]] = {
    boolean: _booleans,
    quoted: _quoted,
    string: _strings,
    timestamp: _timestamps,
    timestamp_utc: _timestamps_utc,
}


def objects(names: Sequence[bytes], values: Sequence[Column], before: bytes, behind: bytes) -> Iterator[bytes]:
    """Yield JSON objects of rows, each between the same two texts. `names` include their colons.

    Joining takes a fifth less time than a `%` template, which is parsed for every row (2026-11-22: 0.48 instead of
    0.62 us per row).
    """
    parts: list[Iterable[bytes]] = []
    for number, (name, column) in enumerate(zip(names, values, strict=True)):
        parts += (repeat((b"," if number else before + b"{") + name), column)
    return map(b"".join, zip(*parts, repeat(b"}" + behind), strict=False))
