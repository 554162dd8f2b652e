"""Translates calls of functions by the table in `known`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning import decimals
from sinks.warehouse.views.meaning.coercion import coerced, unpadded
from sinks.warehouse.views.meaning.conditions import lowered, uppered
from sinks.warehouse.views.meaning.known import ALIASES, FUNCTIONS, Function
from sinks.warehouse.views.meaning.pg_types import INTEGERS, TEXTS, PgType
from sinks.warehouse.views.meaning.refusal import NotProven, as_written
from sinks.warehouse.views.meaning.typed import Typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.warehouse.views.meaning.expressions import Expressions

_ARGUMENTS: Final[dict[type[exp.Expr], tuple[str, tuple[str, ...]]]] = {
    exp.Length: ("length", ("this",)),
    exp.MD5: ("md5", ("this",)),
    exp.Abs: ("abs", ("this",)),
    exp.Reverse: ("reverse", ("this",)),
    exp.Left: ("left", ("this", "expression")),
    exp.Right: ("right", ("this", "expression")),
    exp.Replace: ("replace", ("this", "expression", "replacement")),
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.StrPosition: ("strpos", ("this", "substr")),
}
"""sqlglot's class -> PostgreSQL's function, and the parts that are its arguments; a call with others is refused."""
_NO_FLAGS: Final = frozenset({"binary", "encoding"})
_TRIMS: Final = {"": "btrim", "BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}


def call(walk: Expressions, node: exp.Func) -> Typed:
    """Translate a call. Raises NotProven if it is not in the table."""
    if type(node) in _ARGUMENTS:
        name, keys = _ARGUMENTS[type(node)]
        others = {key for key, value in node.args.items() if value} - set(keys) - _NO_FLAGS
        if others:
            raise NotProven(node, f"uses {name}() with {', '.join(sorted(others))}")
        parts = [node.args[key] for key in keys if node.args.get(key) is not None]
    elif type(node) is exp.Anonymous:
        name, parts = node.name.lower(), list(node.expressions)
    else:
        raise NotProven(node, f"uses {as_written(node)}, which is not known to be equal in Spark")
    name = ALIASES.get(name, name)
    found = [walk.of(part) for part in parts]
    entries = FUNCTIONS.get(name, ())
    for entry in entries:
        arguments = _fitting(node, entry, found)
        if arguments is not None:
            return _written(entry, arguments)
    shown = ", ".join(str(one.type) for one in found)
    raise NotProven(node, f"uses {name}({shown}), which is not known to be equal in Spark")


def _fitting(node: exp.Expr, entry: Function, found: Sequence[Typed]) -> list[Typed] | None:
    """Return the arguments in the types of an entry; None if they do not fit."""
    if len(entry.arguments) != len(found):
        return None
    arguments = []
    for place, (name, one) in enumerate(zip(entry.arguments, found, strict=True)):
        if place in entry.literal and not (
            one.type.name in INTEGERS and one.literal is not None and entry.low <= int(one.literal) <= entry.high
        ):
            return None
        if name == "text" and one.type.name in {*TEXTS, "unknown", "lake"}:
            arguments.append(unpadded(coerced(node, one, PgType("text"))))
        elif one.type.name == name:
            arguments.append(one)
        else:
            return None
    return arguments


def _written(entry: Function, arguments: Sequence[Typed]) -> Typed:
    result = arguments[0].type if entry.result == "numeric" else PgType(entry.result)
    sql = entry.spark.format(*(one.sql for one in arguments))
    return Typed(sql, result, c=any(one.c for one in arguments))


def _cased(walk: Expressions, node: exp.Upper | exp.Lower) -> Typed:
    found = walk.of(node.this)
    name = "upper" if isinstance(node, exp.Upper) else "lower"
    if found.type.name not in {*TEXTS, "unknown"}:
        raise NotProven(node, f"uses {name}({found.type})", "cast it to text")
    found = unpadded(coerced(node, found, PgType("text")))
    if not found.c:
        raise NotProven(
            node,
            f"uses {name}(), which follows the collation of the database",
            f'write {name}(x collate "C") for ASCII letters, or declare the collation: -- collation: C',
        )
    return found.of(uppered(found.sql) if name == "upper" else lowered(found.sql), found.type)


def _trimmed(walk: Expressions, node: exp.Trim) -> Typed:
    name = _TRIMS.get(str(node.args.get("position") or ""))
    if name is None or node.args.get("expression") is not None or node.args.get("collation") is not None:
        raise NotProven(node, "uses trim() with other characters than spaces", "write trim(x)")
    return call(walk, exp.Anonymous(this=name, expressions=[node.this.copy()], parent=node.parent))


def _rounded(walk: Expressions, node: exp.Round) -> Typed:
    found, places = walk.of(node.this), node.args.get("decimals")
    digits = walk.of(places).literal if places is not None else "0"
    if found.type.name in INTEGERS and places is not None:
        found = decimals.as_decimal(found)
    if found.type.name != "numeric" or digits is None or not digits.isdigit() or int(digits) > 30:
        raise NotProven(node, f"uses round({found.type}) with these digits", "write round(numeric, n) with a literal n")
    return decimals.rounded(node, found, int(digits))


HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    exp.Upper: _cased,
    exp.Lower: _cased,
    exp.Trim: _trimmed,
    exp.Round: _rounded,
}
