"""Translates operators and functions of jsonb. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning import arrays, json_text
from sinks.warehouse.views.meaning.casts import as_text
from sinks.warehouse.views.meaning.pg_types import BOOL, INT4, INTEGERS, JSONB, TEXT, TEXTS
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import NULL, Typed, text_literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sinks.warehouse.views.meaning.expressions import Expressions

_PATH: Final = re.compile(r"\{(|[^\s\"\\{},]+(?:,[^\s\"\\{},]+)*)\}")
_KEY_HINT: Final = "write the key as a literal: x -> 'key' or x -> 0"
_PATH_HINT: Final = "write a literal path without quotes and blanks: x #>> '{a,b,0}'"
_JSON_HINT: Final = "make the column jsonb in PostgreSQL: json keeps blanks, order and repeated keys"
_STEPS: Final = (exp.JSONExtract, exp.JSONBExtract)


def _marked(walk: Expressions, node: exp.Expr, part: exp.Expr) -> str:
    """Return the marked value of a jsonb; steps on it are not written as text in between."""
    inner = part.unnest()
    if isinstance(inner, exp.JSONExtract):
        return _step(walk, inner)
    if isinstance(inner, exp.JSONBExtract):
        return _path(walk, inner)
    found = walk.of(part)
    if found.type.name == "json":
        raise NotProven(node, "reads a json", _JSON_HINT)
    if found.type != JSONB:
        raise NotProven(node, f"uses an operator of jsonb with {found.type}", "use a column of type jsonb")
    return json_text.marked(found.sql)


def _step(walk: Expressions, node: exp.JSONExtract | exp.JSONExtractScalar) -> str:
    """Translate ``->`` and ``->>``."""
    value, key = _marked(walk, node, node.this), node.expression
    if isinstance(key, exp.JSONPath):
        _, *steps = key.expressions
        if len(steps) == 1 and isinstance(steps[0], exp.JSONPathKey) and isinstance(steps[0].this, str):
            return json_text.member(value, steps[0].this)
        place = steps[0].this if len(steps) == 1 and isinstance(steps[0], exp.JSONPathSubscript) else None
        if isinstance(place, int) and abs(place) < json_text.PLACES:
            return json_text.element(value, place, at_top=True)
    elif not isinstance(key, exp.Column):
        found = walk.of(key)
        number = int(found.literal) if found.literal is not None and found.type.name in {"int2", "int4"} else None
        if number is not None and abs(number) < json_text.PLACES:
            return json_text.element(value, number, at_top=True)
        if found.type.name in {*TEXTS, "unknown"} and found.literal is not None:
            return json_text.member(value, found.literal)
    raise NotProven(node, "takes a value of a jsonb by a key that is not a literal", _KEY_HINT)


def _path(walk: Expressions, node: exp.JSONBExtract | exp.JSONBExtractScalar) -> str:
    """Translate ``#>`` and ``#>>``."""
    value, path = _marked(walk, node, node.this), node.expression
    text = path.name if isinstance(path, exp.Literal) and path.is_string else ""
    match = _PATH.fullmatch(text)
    steps = match[1].split(",") if match and match[1] else []
    if match is None or any(step.lower() == "null" for step in steps):
        raise NotProven(node, "uses this path into a jsonb", _PATH_HINT)
    for step in steps:
        value = json_text.at_step(value, step)
    return value


def _as_json(steps: Callable[[Expressions, Any], str]) -> Callable[[Expressions, exp.Expr], Typed]:
    return lambda walk, node: Typed(json_text.as_json(steps(walk, node)), JSONB)


def _as_text(steps: Callable[[Expressions, Any], str]) -> Callable[[Expressions, exp.Expr], Typed]:
    return lambda walk, node: Typed(json_text.as_text(steps(walk, node)), TEXT, c=walk.scope.c)


def _has(walk: Expressions, node: exp.Binary) -> Typed:
    """Translate ``?``, ``?|`` and ``?&``."""
    value, keys = _marked(walk, node, node.this), node.expression
    several = not isinstance(node, exp.JSONBContainsTopKey)
    items = keys.expressions if several and isinstance(keys, exp.Array) else [keys]
    if (several and not isinstance(keys, exp.Array)) or not items:
        raise NotProven(node, "asks for keys in this form", "write x ?| array['a', 'b']")
    names = [walk.of(one).literal for one in items]
    tests = [json_text.has(value, name) for name in names if name is not None]
    if len(tests) < len(names):
        raise NotProven(node, "asks for a key that is not a literal", _KEY_HINT)
    word = " and " if isinstance(node, exp.JSONBContainsAllTopKeys) else " or "
    return Typed(f"({word.join(tests)})", BOOL)


def _contains(walk: Expressions, node: exp.ArrayContainsAll) -> Typed:
    """Translate ``@>`` of a jsonb with a literal, or of arrays."""
    if walk.of(node.this).type.name not in {"json", "jsonb"}:
        return arrays.contains(walk, node)
    value = _marked(walk, node, node.this)
    found = walk.of(node.expression)
    if found.literal is None or found.type.name not in {"unknown", "jsonb"}:
        raise NotProven(node, "uses @> with what is not a literal", 'write x @> \'{"key": "value"}\'')
    try:
        document = json_text.document(found.literal)
    except ValueError as error:
        raise NotProven(node, "uses @> with invalid JSON", 'write x @> \'{"key": "value"}\'') from error
    return Typed(json_text.contains(value, document), BOOL)


def _kind(walk: Expressions, node: exp.Anonymous) -> Typed:
    return Typed(json_text.kind(_only(walk, node)), TEXT, c=walk.scope.c)


def _length(walk: Expressions, node: exp.Anonymous) -> Typed:
    return Typed(json_text.length(_only(walk, node)), INT4)


def _only(walk: Expressions, node: exp.Anonymous) -> str:
    if len(node.expressions) != 1:
        raise NotProven(node, f"uses {node.name.lower()}() with {len(node.expressions)} arguments")
    return _marked(walk, node, node.expressions[0])


def _extracted(walk: Expressions, node: exp.Anonymous) -> Typed:
    """Translate jsonb_extract_path() and jsonb_extract_path_text()."""
    document, *keys = node.expressions
    value = _marked(walk, node, document)
    for key in keys:
        step = walk.of(key).literal
        if step is None:
            raise NotProven(node, "uses a path into a jsonb that is not a literal", _PATH_HINT)
        value = json_text.at_step(value, step)
    if node.name.lower().endswith("_text"):
        return Typed(json_text.as_text(value), TEXT, c=walk.scope.c)
    return Typed(json_text.as_json(value), JSONB)


def to_json(node: exp.Expr, found: Typed) -> str:
    """Return a value as JSON, as to_jsonb() writes it."""
    name = found.type.name
    if found.sql == NULL:
        return "'null'"
    if found.literal is not None and name in {"unknown", "text", "varchar"}:
        return text_literal(json_text.string(found.literal))
    if name in {*TEXTS, "unknown", "uuid", "enum"}:
        # A char(n) keeps its padding here.
        text = json_text.quoted_text(found.sql if name == "bpchar" else as_text(node, found).sql)
    elif name in {*INTEGERS, "numeric", "bool"}:
        text = as_text(node, found).sql
    elif name == "jsonb":
        text = found.sql
    elif name == "date":
        text = f"""concat('"', {as_text(node, found).sql}, '"')"""
    elif name in {"timestamp", "timestamptz"}:
        zone = ":00" if name == "timestamptz" else ""
        text = f"""concat('"', replace({as_text(node, found).sql}, ' ', 'T'), '{zone}"')"""
    else:
        raise NotProven(node, f"writes {found.type} as JSON", "cast it to text, or to numeric(p,s)")
    return f"coalesce({text}, 'null')"


def _built_object(walk: Expressions, node: exp.Anonymous) -> Typed:
    parts = node.expressions
    keys = [walk.of(one).literal for one in parts[::2]]
    if len(parts) % 2 or any(key is None for key in keys):
        raise NotProven(node, "builds an object whose keys are not literals", "write jsonb_build_object('key', value)")
    values: dict[str, str] = {}
    for key, part in zip(keys, parts[1::2], strict=True):
        values[str(key)] = to_json(node, walk.of(part))
    order = sorted(values, key=lambda key: (len(key.encode()), key.encode()))
    members = [f"{text_literal(f'{json_text.string(key)}: ')}, {values[key]}" for key in order]
    return _enclosed("{", members, "}")


def _built_array(walk: Expressions, node: exp.Anonymous) -> Typed:
    return _enclosed("[", [to_json(node, walk.of(part)) for part in node.expressions], "]")


def _enclosed(start: str, members: Sequence[str], end: str) -> Typed:
    inside = ", ', ', ".join(members)
    return Typed(f"concat('{start}', {inside}, '{end}')" if members else f"'{start}{end}'", JSONB)


def _to_jsonb(walk: Expressions, node: exp.Anonymous) -> Typed:
    if len(node.expressions) != 1:
        raise NotProven(node, f"uses {node.name.lower()}() with {len(node.expressions)} arguments")
    found = walk.of(node.expressions[0])
    if found.type.name == "unknown":
        raise NotProven(node, "uses to_jsonb() of a literal without a type", "write to_jsonb('x'::text)")
    text = to_json(node, found)
    return Typed(f"case when {found.sql} is not null then {text} end", JSONB)


FUNCTIONS: Final[dict[str, Callable[[Expressions, exp.Anonymous], Typed]]] = {
    "jsonb_typeof": _kind,
    "jsonb_array_length": _length,
    "jsonb_extract_path": _extracted,
    "jsonb_extract_path_text": _extracted,
    "jsonb_build_object": _built_object,
    "jsonb_build_array": _built_array,
    "to_jsonb": _to_jsonb,
}
"""Function without a class of the parser -> its handler."""

HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    exp.JSONExtract: _as_json(_step),
    exp.JSONExtractScalar: _as_text(_step),
    exp.JSONBExtract: _as_json(_path),
    exp.JSONBExtractScalar: _as_text(_path),
    exp.JSONBContainsTopKey: _has,
    exp.JSONBContainsAnyTopKeys: _has,
    exp.JSONBContainsAllTopKeys: _has,
    exp.ArrayContainsAll: _contains,
}
