"""Translates casts. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning import decimals
from sinks.warehouse.views.meaning.arrays import array_literal
from sinks.warehouse.views.meaning.coercion import coerced, literal, unpadded
from sinks.warehouse.views.meaning.known import CASTS
from sinks.warehouse.views.meaning.known_numbers import numeric_of_text
from sinks.warehouse.views.meaning.nullness import is_constant
from sinks.warehouse.views.meaning.pg_types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    FLOATS,
    INT2,
    INT4,
    INT8,
    INTEGERS,
    JSONB,
    TEXT,
    TEXTS,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    PgType,
    numeric,
)
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import NULL, Typed, once

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_T = exp.DataType.Type
_TYPES: Final = {
    _T.SMALLINT: INT2,
    _T.INT: INT4,
    _T.BIGINT: INT8,
    _T.FLOAT: FLOAT4,
    _T.DOUBLE: FLOAT8,
    _T.BOOLEAN: BOOL,
    _T.TEXT: TEXT,
    _T.DATE: DATE,
    _T.TIMESTAMP: TIMESTAMP,
    _T.TIMESTAMPTZ: TIMESTAMPTZ,
    _T.VARBINARY: BYTEA,
    _T.UUID: UUID,
    _T.TIME: PgType("time"),
    _T.INET: PgType("inet"),
    _T.JSONB: JSONB,
}
_NAMED: Final = {name: PgType(name) for name in ("macaddr", "macaddr8", "varbit")}
_DIGITS_MAX: Final = 38


def as_text(node: exp.Expr, found: Typed) -> Typed:
    """Return a value as text, as PostgreSQL's cast and || write it."""
    if found.type.name in {"unknown", "lake", *TEXTS}:
        return coerced(node, found, TEXT)
    if found.type.name == "numeric":
        if found.type.mixed or found.type.quotient:
            raise NotProven(node, "writes a numeric as text, whose scale differs from row to row", "round it first")
        return found.of(f"cast({found.sql} as string)", TEXT)
    form = CASTS.get((found.type.name, "text"))
    if form is None:
        raise NotProven(node, f"writes {found.type} as text", "compare or select the value itself")
    return replace(found.of(form.format(found.sql, type="string"), TEXT), c=found.c or found.type.name == "name")


def target(node: exp.DataType) -> PgType:
    """Return the type that a cast names. Raises NotProven."""
    kind = node.this
    sizes = [int(one.name) for one in node.expressions if isinstance(one, exp.DataTypeParam) and one.name.isdigit()]
    if len(sizes) != len(node.expressions):
        raise NotProven(node, f"casts to {node.sql('postgres')}")
    if kind == _T.DECIMAL:
        if not sizes or not 1 <= sizes[0] <= _DIGITS_MAX or (sizes[1:] and sizes[1] > sizes[0]):
            raise NotProven(
                node, f"casts to {node.sql('postgres').lower()}", "write numeric(p,s) with p up to 38: it needs limits"
            )
        return numeric(sizes[0], sizes[1] if sizes[1:] else 0)
    if kind in {_T.VARCHAR, _T.CHAR, _T.BPCHAR}:
        if kind == _T.VARCHAR:
            return PgType("varchar", length=sizes[0] if sizes else 0)
        return PgType("bpchar", length=sizes[0] if sizes else 1)
    found = _TYPES.get(kind) if kind != _T.USERDEFINED else _NAMED.get(node.sql("postgres").lower())
    if found is None or sizes:
        raise NotProven(node, f"casts to {node.sql('postgres').lower()}")
    return found


def _cast(walk: Expressions, node: exp.Cast) -> Typed:
    if isinstance(node.this, exp.IntDiv):
        return walk.of(node.this)  # the parser's own cast of div(), which is numeric in PostgreSQL
    if node.to.this == _T.ARRAY and len(node.to.expressions) == 1 and isinstance(node.this, exp.Literal):
        return array_literal(node, str(node.this.this), target(node.to.expressions[0]))
    kind, found = target(node.to), walk.of(node.this)
    have = found.type
    if have.name == "unknown" and found.literal is None:
        return Typed(f"cast({NULL} as {kind.spark})", kind)
    if kind.name in {"text", "varchar", "bpchar"}:
        return _text(node, as_text(node, found) if have.name != kind.name else found, kind)
    if have.name == "unknown":
        value = literal(node, found.literal or "", kind)
        return _sized(node, value, kind) if kind.name == "numeric" else value
    if have.name == "lake":
        return coerced(node, found, kind)
    if kind.name == "numeric" and have.name in {*INTEGERS, "numeric"}:
        return _sized(node, decimals.as_decimal(found), kind)
    if have == kind:
        return found
    return _known(node, found, kind)


def _known(node: exp.Expr, found: Typed, kind: PgType) -> Typed:
    """Return a cast of the table."""
    have = found.type
    if have.name == "varchar":
        found, have = coerced(node, found, TEXT), TEXT
    if have == TEXT and kind.name == "numeric":
        form: str | None = numeric_of_text(kind.spark)
    else:
        form = CASTS.get((have.name, kind.name))
    if form is None:
        hint = "cast it to text first" if have.name == "bpchar" else "keep its type, or cast in PostgreSQL"
        raise NotProven(node, f"casts {have} to {kind}", hint)
    if is_constant(node) and (have == TEXT or (kind.name in INTEGERS and not _fits(found, kind))):
        # PostgreSQL casts a constant while it plans, and may raise an error that no row of the view needs.
        raise NotProven(node, f"casts a constant {have} to {kind}", f"write the constant as {kind} '...'")
    return found.of(once(form.replace("{type}", kind.spark), [found]), kind)


def _fits(found: Typed, kind: PgType) -> bool:
    """Whether a constant is certainly in the range of an integer type."""
    have, limit = found.type.name, {"int2": 2**15, "int4": 2**31, "int8": 2**63}[kind.name]
    if have not in INTEGERS:
        return have not in FLOATS and have != "numeric"
    literal_fits = found.literal is not None and -limit <= int(found.literal) < limit
    return literal_fits or INTEGERS[have] <= INTEGERS[kind.name]


def _sized(node: exp.Expr, found: Typed, kind: PgType) -> Typed:  # noqa: ARG001  casts have one form
    return found.of(f"cast({found.sql} as {kind.spark})", kind)


def _text(node: exp.Expr, found: Typed, kind: PgType) -> Typed:
    if kind.name == "text":
        return coerced(node, found, TEXT)
    if found.type.name == kind.name == "bpchar" and found.type.length == kind.length:
        return found
    text = unpadded(found)
    if kind.name == "bpchar":
        raise NotProven(node, "casts to char(n)", "cast to text")
    if not kind.length:
        return replace(text, type=PgType("varchar"))
    return Typed(f"substring({text.sql}, 1, {kind.length})", PgType("varchar"), c=text.c)


HANDLERS: Final[dict[type[exp.Expr], Any]] = {exp.Cast: _cast}
