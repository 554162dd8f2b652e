"""Brings values of PostgreSQL and of the lake into one form, in which equal values are equal texts. Pure.

The form is the text that PostgreSQL prints. Where the lake's type holds less than that text, the form follows the
lake's type: a decimal column has one scale for all rows, so trailing zeros of a number are left out of it.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

Cell: TypeAlias = str | None
"""A value in the common form; None is null."""

_WHOLE: Final = frozenset({"smallint", "integer", "bigint", "oid"})
_FLOATS: Final = frozenset({"real", "double precision"})
_JSON: Final = frozenset({"json", "jsonb"})
_MOMENTS: Final = frozenset({"timestamp without time zone", "timestamp with time zone"})
_PLAIN_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
_MOMENT: Final = re.compile(r"(\d{4,}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d+)?)(Z|[+-]\d\d(?::\d\d)?)?")


def is_float(kind: str) -> bool:
    """Return whether values of the type depend on the order in which they were added."""
    return kind in _FLOATS


def is_array(kind: str) -> bool:
    """Return whether the type is an array."""
    return kind.endswith("[]")


def source_form(kind: str, lake: str) -> Callable[[str], str]:
    """Return the function that brings PostgreSQL's text of a value into the common form.

    Args:
        kind: PostgreSQL's type as `format_type` prints it without a modifier. Arrays arrive as JSON.
        lake: type of the lake's column, as Arrow prints it.
    """
    if is_array(kind):
        return lambda text: _array(text, kind.removesuffix("[]"))
    if kind in _JSON and not (kind == "json" and lake == "string"):
        return _json
    if lake == "string":
        return _moment if kind in _MOMENTS else str
    if kind in _WHOLE or kind == "numeric":
        return _number
    if kind == "real":
        return lambda text: _float(struct.unpack("f", struct.pack("f", float(text)))[0], lake)
    if kind == "double precision":
        return lambda text: _float(float(text), lake)
    return _moment if kind in _MOMENTS else str


def lake_form(kind: str, lake: str) -> Callable[[Any], str]:
    """Return the function that brings a Python value of the lake into the common form; arguments as `source_form`."""
    if is_array(kind):
        return lambda value: _array(value, kind.removesuffix("[]"))
    if kind in _JSON and not (kind == "json" and lake == "string"):
        return lambda value: _json(value) if isinstance(value, str) else _dumped(_tree(value))
    if kind in _FLOATS and lake != "string":
        return lambda value: _float(value, lake)
    return lambda value: _plain(value, kind)


def _plain(value: Any, kind: str) -> str:
    if isinstance(value, str):
        return _moment(value) if kind in _MOMENTS else value
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, float):
        # PostgreSQL has no float here; an exact number shows the difference to any other.
        return _number(str(Decimal(value))) if kind in _WHOLE or kind == "numeric" else repr(value)
    if isinstance(value, int | Decimal):
        return _number(str(value))
    if isinstance(value, datetime):
        return _stamp(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return _dumped(_tree(value))


def _number(text: str) -> str:
    """Return a number without trailing zeros of its fraction."""
    plain = text
    if not _PLAIN_NUMBER.fullmatch(text):
        try:
            value = Decimal(text)
        except InvalidOperation:
            return text
        if not value.is_finite():
            return str(value)
        plain = f"{value:f}"
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if plain in {"-0", ""} else plain


def _float(value: Any, lake: str) -> str:
    """Return a float's own text, which tells -0 from 0; against a column of exact numbers, its exact value."""
    if isinstance(value, float) and lake in {"float", "double"}:
        return repr(value)
    return _number(str(Decimal(value)))


def _moment(text: str) -> str:
    """Return a timestamp as PostgreSQL prints it; the log has it in ISO 8601."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        return text
    day, clock, zone = match.groups()
    zone = "+00" if zone == "Z" else (zone or "").removesuffix(":00")
    return f"{day} {clock}{zone}"


def _stamp(value: datetime) -> str:
    zone = "" if value.tzinfo is None else "+00"
    plain = value if value.tzinfo is None else value.astimezone(UTC)
    text = plain.replace(tzinfo=None).isoformat(sep=" ")
    return (text.rstrip("0") if "." in text else text) + zone


def _json(text: str) -> str:
    try:
        return _dumped(_tree(json.loads(text, parse_float=Decimal, parse_int=Decimal)))
    except ValueError:
        return text


def _array(value: Any, kind: str) -> str:
    """Return an array, or its text in JSON, with every element in the form of its type."""
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_float=Decimal, parse_int=Decimal)
        except ValueError:
            return str(value)
    return _dumped(_element(value, kind))


def _tree(value: Any) -> Any:
    """Return a document whose texts and numbers are marked: numbers are compared by value."""
    if isinstance(value, dict):
        return {str(name): _tree(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tree(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return f"text {value}"
    if isinstance(value, int | Decimal):
        return f"number {_number(str(value))}"
    return f"number {value!r}" if isinstance(value, float) else f"text {_plain(value, '')}"


def _element(value: Any, kind: str) -> Any:
    """Return an array with every element as a text in the form of its type."""
    if isinstance(value, list | tuple):
        return [_element(item, kind) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if kind in _JSON:
        return _json(value) if isinstance(value, str) else _dumped(_tree(value))
    if kind in _WHOLE or kind == "numeric":
        return _number(str(Decimal(value)) if isinstance(value, float) else str(value))
    if kind in _FLOATS:
        return repr(float(value))
    return _plain(value, kind)


def _dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def close(one: Sequence[Cell], other: Sequence[Cell], relative: float) -> bool:
    """Return whether floats agree pairwise, up to a share of the greater one."""

    def alike(left: Cell, right: Cell) -> bool:
        if left is None or right is None:
            return left == right
        a, b = float(left), float(right)
        return left == right or abs(a - b) <= relative * max(abs(a), abs(b))

    return len(one) == len(other) and all(map(alike, one, other))
