"""Finds the common type of expressions as PostgreSQL does, and writes the casts that Spark needs. Pure."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
import uuid
from dataclasses import replace
from typing import Final

from sqlglot import exp

from sinks.warehouse.views.meaning import json_text
from sinks.warehouse.views.meaning.decimals import aligned, as_decimal
from sinks.warehouse.views.meaning.known import CASTS, COMPARE_HINTS
from sinks.warehouse.views.meaning.known_numbers import WHOLE_TO_SINGLE
from sinks.warehouse.views.meaning.pg_types import (
    COMPARED,
    FLOAT4,
    FLOAT8,
    FLOATS,
    INTEGERS,
    ORDERED,
    TEXT,
    TEXTS,
    TIMES,
    PgType,
    numeric,
)
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.text_values import printed
from sinks.warehouse.views.meaning.typed import Typed, text_literal

_TIMES_ORDER: Final = ("date", "timestamp", "timestamptz")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?))?")
_ZONE: Final = re.compile(r"(?:Z|[+-]\d\d(?::?\d\d)?)$")
_INTEGER: Final = re.compile(r"[+-]?\d{1,18}")
_NUMBER: Final = re.compile(r"-?(\d{1,20})(?:\.(\d{1,17}))?")
_PLAIN_FLOAT: Final = re.compile(r"-?\d{1,40}(?:\.\d{1,40})?(?:e-?\d{1,3})?")
_CAST_HINT: Final = "cast one side to the other's type"


def common(node: exp.Expr, found: list[Typed], *, one_result: bool = False) -> tuple[list[Typed], PgType]:
    """Return expressions in one type, which PostgreSQL chooses as well. Raises NotProven.

    Args:
        node: what has them.
        found: the expressions.
        one_result: whether they are values of one result, as of CASE. The operands of an operator may have another
            type: an integer + a float4 is a float8, and a CASE of both is a float4.
    """
    kinds = [one.type for one in found if one.type.name != "unknown"]
    lake = [kind for kind in kinds if kind.name == "lake"]
    kinds = [kind for kind in kinds if kind.name != "lake"]
    if not kinds:
        if lake:
            raise NotProven(node, "compares columns of views in Spark SQL", "cast one of them, as in x::text")
        return [coerced(node, one, TEXT) for one in found], TEXT
    kind = kinds[0]
    for other in kinds[1:]:
        kind = _wider(node, kind, other, one_result=one_result)
    return [coerced(node, one, kind) for one in found], kind


def compared(node: exp.Expr, left: Typed, right: Typed, *, order: bool) -> tuple[Typed, Typed]:
    """Return both sides of a comparison, so that Spark's result is PostgreSQL's. Raises NotProven."""
    c = left.c or right.c
    if left.type.name in INTEGERS and right.type.name in INTEGERS:
        return left, right  # Spark compares integers of all widths
    if {left.type.name, right.type.name} == {"varchar", "bpchar"}:
        # PostgreSQL compares them as char(n): without blanks at the end of either.
        if order and not c:
            refuse_order(node)
        return _trimmed(left), _trimmed(right)
    (left, right), kind = common(node, [left, right])
    check_comparable(node, kind)
    if kind.name == "numeric":
        return aligned(left, right)
    if kind.name in TEXTS and order and not c:
        refuse_order(node)
    if kind.name == "enum" and order:
        raise NotProven(node, "orders an enum, whose order is not in the log", "compare it with = or in (...)")
    if kind.name not in ORDERED and order:
        raise NotProven(node, f"orders values of type {kind}", "compare them with = or in (...)")
    return unpadded(left), unpadded(right)


def _trimmed(found: Typed) -> Typed:
    return found.of(f"rtrim({found.sql})", TEXT)


def check_comparable(node: exp.Expr, kind: PgType) -> None:
    """Refuse types whose equality is not known. Raises NotProven."""
    if kind.name.endswith("[]"):
        raise NotProven(node, f"compares {kind}, whose lower bounds the lake does not keep", "write a[:] = b[:]")
    if (kind.element or kind).name not in COMPARED - (FLOATS if kind.element else frozenset()):
        hint = COMPARE_HINTS.get(kind.name, "compare a column of another type")
        raise NotProven(node, f"compares values of type {kind}", hint)


def refuse_order(node: exp.Expr) -> None:
    """Refuse an order that depends on the database's collation."""
    raise NotProven(
        node,
        "orders text by the collation of the database, which Spark does not have",
        'write x collate "C", or declare the collation above the query if the database has it: -- collation: C',
    )


def unpadded(found: Typed) -> Typed:
    """Return text without the padding of char(n), as PostgreSQL compares it and casts it to text."""
    if found.type.name != "bpchar":
        return found
    if found.literal is not None:
        return Typed(text_literal(found.literal.rstrip(" ")), TEXT, found.literal.rstrip(" "), c=found.c)
    return found.of(f"rtrim({found.sql})", TEXT)


def coerced(node: exp.Expr, found: Typed, kind: PgType) -> Typed:
    """Return an expression in a type that PostgreSQL casts it to implicitly. Raises NotProven."""
    have, name = found.type, kind.name
    if have == kind:
        return found
    if have.name == "unknown":
        return _null(kind) if found.literal is None else literal(node, found.literal, kind)
    if have.name == "lake":
        return _claimed(node, found, kind)
    if have.name in INTEGERS and name in INTEGERS and INTEGERS[have.name] < INTEGERS[name]:
        return found.of(f"cast({found.sql} as {kind.spark})", kind)
    if name == "numeric" and have.name in {*INTEGERS, "numeric"}:
        return as_decimal(found)
    if name == "float8" and have.name in {*INTEGERS, *FLOATS, "numeric"}:
        return found.of(f"cast({found.sql} as double)", FLOAT8)
    if name == "float4" and have.name in {*INTEGERS, "numeric"}:
        form = WHOLE_TO_SINGLE if have.name in INTEGERS else "cast({0} as float)"
        return found.of(form.format(found.sql), FLOAT4)
    if name == "text" and have.name in TEXTS:
        return unpadded(found) if have.name == "bpchar" else replace(found, type=TEXT)
    if name == "varchar" and have.name in {"text", "varchar"}:
        return replace(found, type=kind)
    if name == "bpchar" and have.name == "bpchar":
        return found
    if name in TIMES and have.name in TIMES and _TIMES_ORDER.index(have.name) < _TIMES_ORDER.index(name):
        return found.of(CASTS[have.name, name].format(found.sql, type=kind.spark), kind)
    raise NotProven(node, f"uses {have} as {kind}", _CAST_HINT)


def literal(node: exp.Expr, text: str, kind: PgType) -> Typed:
    """Return a text literal as a value of a type. Raises NotProven for a form that is not known."""
    sql = _literal(text, kind)
    if sql is None:
        hint = COMPARE_HINTS.get(kind.name, "write it in ISO 8601, or a number")
        raise NotProven(node, f"{text[:60]!r} is not known to mean the same {kind}", hint)
    if kind.name == "numeric":
        match = _NUMBER.fullmatch(text)
        assert match is not None
        return Typed(sql, numeric(len(match[1]) + len(match[2] or ""), len(match[2] or "")), text)
    return Typed(sql, kind, text)


def _literal(text: str, kind: PgType) -> str | None:
    name = kind.name
    if name in {*TEXTS, "enum"}:
        return text_literal(text)
    if name in INTEGERS:
        return f"cast({int(text)} as {kind.spark})" if _INTEGER.fullmatch(text) else None
    if name == "numeric":
        match = _NUMBER.fullmatch(text)
        digits = (len(match[1]) + len(match[2] or ""), len(match[2] or "")) if match else (0, 0)
        return f"cast({text} as decimal({digits[0]},{digits[1]}))" if match else None
    if name in FLOATS:
        return _float(text, kind)
    if name == "bool":
        return text if text in {"true", "false"} else None
    if name == "date":
        return f"date {text_literal(text)}" if _DATE.fullmatch(text) and _is_date(text) else None
    if name in {"timestamp", "timestamptz"}:
        return _moment(text, name)
    if name == "jsonb":
        return _document(text)
    if name == "uuid":
        try:
            return text_literal(str(uuid.UUID(text))) if len(text) == 36 else None
        except ValueError:
            return None
    shown = printed(text, name)
    return None if shown is None else text_literal(shown)


def _float(text: str, kind: PgType) -> str | None:
    """Return a number, NaN or an infinity that this type can hold."""
    if text not in {"NaN", "Infinity", "-Infinity"}:
        if _PLAIN_FLOAT.fullmatch(text) is None or (text.startswith("-") and float(text) == 0):
            return None  # for Spark's optimizer, the constants 0 and -0 are one
        try:
            value = struct.unpack("f", struct.pack("f", float(text)))[0] if kind.name == "float4" else float(text)
        except OverflowError:
            return None
        if math.isinf(value) or (value == 0) != (float(text) == 0):
            return None
    return f"cast({text_literal(text)} as {kind.spark})"


def _document(text: str) -> str | None:
    try:
        return text_literal(json_text.printed(json_text.document(text)))
    except ValueError:
        return None


def _moment(text: str, name: str) -> str | None:
    zone = _ZONE.search(text) if len(text) > 10 else None
    plain = text[: zone.start()] if zone else text
    match = _MOMENT.fullmatch(plain)
    if match is None or not _is_date(match[1]) or (zone is not None and name == "timestamp"):
        return None
    shown = match[0].replace("T", " ") if match[2] else f"{match[1]} 00:00:00"
    kind = "timestamp_ntz" if name == "timestamp" else "timestamp"
    try:
        dt.datetime.fromisoformat(shown)
    except ValueError:
        return None
    at = "" if zone is None or zone[0] == "Z" else zone[0]
    if at and (":" not in at):
        at = f"{at[:3]}:{at[3:] or '00'}"
    return f"cast({text_literal(shown + (at or ('Z' if name == 'timestamptz' else '')))} as {kind})"


def _is_date(text: str) -> bool:
    try:
        return dt.date.fromisoformat(text).year > 0
    except ValueError:
        return False


def _claimed(node: exp.Expr, found: Typed, kind: PgType) -> Typed:
    """Return a column of a view in Spark's SQL in the type that its use requires. Each run checks that it has it."""
    if found.source is not None and found.claims is not None:
        if found.claims.setdefault(found.source[1], kind.spark) != kind.spark:
            raise NotProven(node, f"uses {found.source[1]} as several types", "cast it in the view that it is from")
        return Typed(found.sql, kind, None, found.source, found.c)
    raise NotProven(node, f"uses {found.type} as {kind}", "use the column of that view directly")


def _null(kind: PgType) -> Typed:
    return Typed(f"cast(null as {kind.spark})", kind)


def _wider(node: exp.Expr, a: PgType, b: PgType, *, one_result: bool) -> PgType:
    """Return the type that PostgreSQL uses for two types."""
    names = {a.name, b.name}
    if a.name == b.name:
        if a.name == "numeric":
            return _numeric(a, b)
        if a.name == "array" and a != b:
            raise NotProven(node, f"uses {a} and {b} together", _CAST_HINT)
        return a if a == b or a.name != "bpchar" else PgType("bpchar")
    if names <= INTEGERS.keys():
        return a if INTEGERS[a.name] > INTEGERS[b.name] else b
    if "numeric" in names and names <= {*INTEGERS, "numeric"}:
        whole, other = (a, b) if a.name in INTEGERS else (b, a)
        return _numeric(numeric(INTEGERS[whole.name], 0), other)
    if names & FLOATS and names <= {*INTEGERS, *FLOATS, "numeric"}:
        return FLOAT4 if one_result and "float8" not in names else FLOAT8
    if names == {"text", "varchar"} and one_result:
        return a  # each can be the other, so the first one counts
    if names <= TEXTS and names != {"varchar", "bpchar"}:
        return TEXT
    if names <= TIMES:
        return max((a, b), key=lambda kind: _TIMES_ORDER.index(kind.name))
    raise NotProven(node, f"uses {a} and {b} together", _CAST_HINT)


def _numeric(a: PgType, b: PgType) -> PgType:
    scale = max(a.scale, b.scale)
    precision = max(a.precision - a.scale, b.precision - b.scale) + scale
    mixed = a.mixed or b.mixed or a.scale != b.scale
    return numeric(precision, scale, mixed=mixed, quotient=a.quotient or b.quotient)


def unified(node: exp.Expr, found: list[Typed]) -> tuple[list[Typed], PgType]:
    """As `common`, for values of one result: a numeric has one decimal type, and char(n) one length."""
    names = {one.type.name for one in found}
    if "bpchar" in names and names & {"text", "varchar"}:
        raise NotProven(
            node, "combines char(n) with text", "cast char(n) to text: which type it becomes depends on order"
        )
    found, kind = common(node, found, one_result=True)
    if kind.name == "numeric":
        if kind.scale + max(one.type.precision - one.type.scale for one in found) > 38:
            kind = numeric(38, kind.scale, mixed=kind.mixed, quotient=kind.quotient)
        return [one.of(f"cast({one.sql} as {kind.spark})", kind) for one in found], kind
    if kind.name == "bpchar" and any(one.type != kind or one.literal is not None for one in found):
        raise NotProven(node, "combines char(n) of several lengths", "cast them to text")
    return found, kind
