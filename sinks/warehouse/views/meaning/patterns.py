"""Translates LIKE and ILIKE, and the letter case of collation C. Pure.

Spark's own escape character is the backslash. A pattern is read as PostgreSQL reads it, with its own escape character,
and written again for Spark.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning.coercion import coerced, unpadded
from sinks.warehouse.views.meaning.pg_types import BOOL, TEXT, TEXTS
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed, raising, text_literal

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_UPPER_TO_LOWER: Final = (string.ascii_uppercase, string.ascii_lowercase)
_LOWER: Final = str.maketrans(*_UPPER_TO_LOWER)
_SPECIAL: Final = "%_"
_CASE_HINT: Final = 'write x collate "C" ilike ... for ASCII letters, or declare the collation: -- collation: C'


def lowered(sql: str) -> str:
    """Return text in lower case as collation C has it: ASCII only."""
    return f"translate({sql}, '{_UPPER_TO_LOWER[0]}', '{_UPPER_TO_LOWER[1]}')"


def uppered(sql: str) -> str:
    """Return text in upper case as collation C has it."""
    return f"translate({sql}, '{_UPPER_TO_LOWER[1]}', '{_UPPER_TO_LOWER[0]}')"


def _like(walk: Expressions, node: exp.Like | exp.ILike, escape: str = "\\") -> Typed:
    from sinks.warehouse.views.meaning.conditions import check_nesting

    check_nesting(node)
    value, pattern = walk.of(node.this), walk.of(node.expression)
    if value.type.name in {"unknown", "lake"}:
        value = coerced(node, value, TEXT)
    if pattern.type.name == "lake":
        pattern = coerced(node, pattern, TEXT)
    if value.type.name not in TEXTS or pattern.type.name not in {*TEXTS, "unknown"}:
        raise NotProven(node, f"uses like with {value.type} and {pattern.type}", "cast both to text")
    if isinstance(node, exp.ILike) and not (value.c or pattern.c):
        raise NotProven(node, "compares without case by the collation of the database", _CASE_HINT)
    any_case = isinstance(node, exp.ILike)
    # like is the one operator of char(n) that sees its padding.
    subject = lowered(value.sql) if any_case else value.sql
    if pattern.literal is not None:
        text = _rewritten(node, pattern.literal, escape)
        return Typed(f"({subject} like {text_literal(text.translate(_LOWER) if any_case else text)})", BOOL)
    if escape != "\\":
        raise NotProven(node, "uses escape with a pattern that is not a literal", "write the pattern as a literal")
    other = unpadded(coerced(node, pattern, TEXT)).sql
    failed = raising("a backslash in a pattern of like that is not a literal", "boolean")
    matched = f"{subject} like {lowered(other) if any_case else other}"
    return Typed(f"case when contains({other}, '\\\\') then {failed} else {matched} end", BOOL)


def _rewritten(node: exp.Expr, pattern: str, escape: str) -> str:
    """Return a literal pattern in Spark's form. Raises NotProven if it ends with the escape character."""
    found, rest = [], iter(pattern)
    for one in rest:
        if one != escape:
            found.append("\\\\" if one == "\\" else one)
            continue
        escaped = next(rest, "")
        if not escaped:
            raise NotProven(node, "ends a like pattern with its escape character", "write the character twice")
        found.append(f"\\{escaped}" if escaped in f"{_SPECIAL}\\" else escaped)
    return "".join(found)


def _escape(walk: Expressions, node: exp.Escape) -> Typed:
    inner, escape = node.this, node.expression
    if not isinstance(inner, exp.Like | exp.ILike) or not isinstance(escape, exp.Literal) or len(escape.this) > 1:
        raise NotProven(node, "uses escape in this form", "write like 'pattern' escape '!'")
    found = _like(walk, inner, str(escape.this))
    return Typed(f"(not {found.sql})", BOOL) if inner.args.get("negate") else found


def _similar(walk: Expressions, node: exp.SimilarTo) -> Typed:  # noqa: ARG001  handlers have one form
    raise NotProven(node, "uses similar to", "write x ~ '^(...)$' with a regular expression")


HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.SimilarTo: _similar,
}
