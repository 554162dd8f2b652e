"""Translates calls of functions by the table in `known`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from sinks.warehouse.views.meaning import arrays, documents
from sinks.warehouse.views.meaning.coercion import coerced, unpadded
from sinks.warehouse.views.meaning.known import ALIASES, ALTERNATIVES, FUNCTIONS
from sinks.warehouse.views.meaning.known_entry import Function
from sinks.warehouse.views.meaning.pg_types import INTEGERS, TEXTS, PgType, read
from sinks.warehouse.views.meaning.refusal import OTHERWISE, NotProven, as_written
from sinks.warehouse.views.meaning.typed import Typed, once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.warehouse.views.meaning.expressions import Expressions

_ARGUMENTS: Final[dict[type[exp.Expr], tuple[str, tuple[str, ...]]]] = {
    exp.Length: ("length", ("this",)),
    exp.MD5: ("md5", ("this",)),
    exp.Abs: ("abs", ("this",)),
    exp.Sqrt: ("sqrt", ("this",)),
    exp.UnixToTime: ("to_timestamp", ("this",)),
    exp.Reverse: ("reverse", ("this",)),
    exp.Left: ("left", ("this", "expression")),
    exp.Right: ("right", ("this", "expression")),
    exp.Replace: ("replace", ("this", "expression", "replacement")),
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.StrPosition: ("strpos", ("this", "substr")),
    exp.StartsWith: ("starts_with", ("this", "expression")),
    exp.SplitPart: ("split_part", ("this", "delimiter", "part_index")),
    exp.Translate: ("translate", ("this", "from_", "to")),
    exp.Repeat: ("repeat", ("this", "times")),
    exp.Overlay: ("overlay", ("this", "expression", "from_", "for_")),
    exp.Ascii: ("ascii", ("this",)),
    exp.BitLength: ("bit_length", ("this",)),
    exp.Hex: ("to_hex", ("this",)),
}
"""sqlglot's class -> PostgreSQL's function, and the parts that are its arguments; a call with others is refused."""
_NO_FLAGS: Final = frozenset({"binary", "encoding"})


def call(walk: Expressions, node: exp.Func) -> Typed:
    """Translate a call. Raises NotProven if it is not in the table."""
    if type(node) in _ARGUMENTS:
        name, keys = _ARGUMENTS[type(node)]
        others = {key for key, value in node.args.items() if value} - set(keys) - _NO_FLAGS
        if others:
            raise NotProven(node, f"uses {name}() with {', '.join(sorted(others))}")
        parts = [node.args[key] for key in keys if node.args.get(key) is not None]
    elif type(node) is exp.Anonymous and node.name.lower() == "cardinality":
        return arrays.cardinality(walk, node)
    elif type(node) is exp.Anonymous:
        name, parts = node.name.lower(), list(node.expressions)
        if name in documents.FUNCTIONS:
            return documents.FUNCTIONS[name](walk, node)
    else:
        hint = ALTERNATIVES.get(node.sql_name().lower(), OTHERWISE)
        raise NotProven(node, f"uses {as_written(node)}, which is not known to be equal in Spark", hint)
    return called(node, name, [walk.of(part) for part in parts])


def called(node: exp.Expr, name: str, found: Sequence[Typed]) -> Typed:
    """Return a call of a function of the table. Raises NotProven if it is not known for these types."""
    name = ALIASES.get(name, name)
    entries = FUNCTIONS.get(name, ())
    # With a choice of integers, PostgreSQL may find the call ambiguous.
    widens = all("int8" not in entry.arguments for entry in entries)
    for entry in entries:
        arguments = _fitting(node, entry, found, widens=widens)
        if arguments is not None:
            return _written(entry, arguments)
    shown = ", ".join(str(one.type) for one in found)
    raise NotProven(
        node, f"uses {name}({shown}), which is not known to be equal in Spark", ALTERNATIVES.get(name, OTHERWISE)
    )


def _fitting(node: exp.Expr, entry: Function, found: Sequence[Typed], *, widens: bool) -> list[Typed] | None:
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
        elif widens and one.type.name in INTEGERS and name in INTEGERS and INTEGERS[one.type.name] < INTEGERS[name]:
            arguments.append(coerced(node, one, PgType(name)))
        else:
            return None
    return arguments


def _written(entry: Function, arguments: Sequence[Typed]) -> Typed:
    result = arguments[0].type if entry.result == "numeric" else read(f"{entry.result}|")[0]
    return Typed(once(entry.spark, arguments), result, c=any(one.c for one in arguments))
