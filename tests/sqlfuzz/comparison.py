"""Compares rows of a view with PostgreSQL's, each value as PostgreSQL prints it, by the type of its column.

Rows are compared without their order: a view is a table, and ORDER BY matters only with LIMIT.

A numeric is compared by its value and not by its trailing zeros: a decimal column of the lake has one scale for all
rows. Every other type is compared exactly: floats by their bits, except that all NaNs are equal, and text by its
characters, including the blanks of a char(n).
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from tests.sqlfuzz.on_postgres import Answer

_INTEGERS: Final = frozenset({"int2", "int4", "int8", "oid"})
_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}]+)|([{}])', re.DOTALL)
_SHOWN: Final = 3


def difference(answer: Answer, rows: Sequence[tuple[Any, ...]]) -> str:
    """Return how the rows differ; empty if they are equal."""
    try:
        have = [tuple(map(of_spark, answer.types, row)) for row in rows]
    except (TypeError, ValueError) as error:
        return f"a value of another type: {error}"
    want = [tuple(map(of_postgres, answer.types, row)) for row in answer.rows]
    if Counter(have) == Counter(want):
        return ""
    extra = list((Counter(have) - Counter(want)).elements())
    missing = list((Counter(want) - Counter(have)).elements())
    return f"PostgreSQL {missing[:_SHOWN]}, view {extra[:_SHOWN]} ({len(want)} and {len(have)} rows)"


def of_postgres(kind: str, text: str | None) -> Any:
    """Return a comparable value for the text of PostgreSQL."""
    if text is None:
        return None
    if kind in _INTEGERS:
        return int(text)
    if kind == "numeric":
        return _numeric(Decimal(text))
    if kind in {"float4", "float8"}:
        return _float(kind, float(text))
    if kind == "bool":
        return text == "t"
    if kind == "bytea":
        return bytes.fromhex(text[2:])
    if kind == "timestamptz":
        return text.replace("+00", "", 1)  # before BC
    if kind.startswith("_"):
        return _array(kind[1:], text)
    return text


def of_spark(kind: str, value: Any) -> Any:
    """Return a comparable value for a value of Spark. Raises TypeError, ValueError."""
    if value is None:
        return None
    if kind in _INTEGERS:
        found = _typed(kind, value, int, Decimal)
        return _typed(kind, value, int) if found != int(found) else int(found)
    if kind == "numeric":
        return _numeric(Decimal(_typed(kind, value, int, Decimal, str)))
    if kind in {"float4", "float8"}:
        return _float(kind, _typed(kind, value, float))
    if kind == "bool":
        return _typed(kind, value, bool)
    if kind == "bytea":
        return bytes(_typed(kind, value, bytes, bytearray))
    if kind in {"timestamp", "timestamptz"}:
        return value if isinstance(value, str) else _moment(_typed(kind, value, datetime))
    if kind == "date":
        return value if isinstance(value, str) else _typed(kind, value, date).isoformat()
    if kind.startswith("_"):
        items = json.loads(value, parse_float=Decimal) if isinstance(value, str) else _typed(kind, value, list)
        return tuple(of_spark(kind[1:], item) for item in items)
    return _typed(kind, value, str)


def _typed(kind: str, value: Any, *types: type) -> Any:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise TypeError(f"{type(value).__name__} for {kind}: {value!r}")
    return value


def _numeric(value: Decimal) -> Any:
    return "NaN" if value.is_nan() else value


def _float(kind: str, value: float) -> Any:
    if value != value:
        return "NaN"
    return struct.pack("<f" if kind == "float4" else "<d", value).hex()


def _moment(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if "." in text else text


def _array(kind: str, text: str) -> Any:
    """Parse the text of an array; elements that are quoted are never null."""
    stack: list[list[Any]] = [[]]
    for match in _ELEMENT.finditer(text[text.index("{") :]):
        quoted, plain, brace = match.groups()
        if brace == "{":
            stack.append([])
        elif brace == "}":
            done = tuple(stack.pop())
            stack[-1].append(done)
        elif plain is not None:
            stack[-1].append(None if plain.upper() == "NULL" else of_postgres(kind, plain))
        else:
            stack[-1].append(of_postgres(kind, re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)))
    return stack[0][0]
