"""Translates functions of text that are not plain entries of the table: letter case, trim, concat, format. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning import functions
from sinks.warehouse.views.meaning.casts import as_text
from sinks.warehouse.views.meaning.coercion import coerced, unpadded
from sinks.warehouse.views.meaning.patterns import lowered, uppered
from sinks.warehouse.views.meaning.pg_types import BOOL, BYTEA, TEXT, TEXTS
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import NULL, Typed, text_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.warehouse.views.meaning.expressions import Expressions

_TRIMS: Final = {"": "btrim", "BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_CASES: Final[dict[type[exp.Expr], str]] = {exp.Upper: "upper", exp.Lower: "lower", exp.Initcap: "initcap"}
_FORMAT: Final = re.compile(r"[^%]+|%s|%%")


def _cased(walk: Expressions, node: exp.Upper | exp.Lower | exp.Initcap) -> Typed:
    found, name = walk.of(node.this), _CASES[type(node)]
    if found.type.name not in {*TEXTS, "unknown", "lake"}:
        raise NotProven(node, f"uses {name}({found.type})", "cast it to text")
    found = unpadded(coerced(node, found, TEXT))
    if not found.c:
        raise NotProven(
            node,
            f"uses {name}(), which follows the collation of the database",
            f'write {name}(x collate "C") for ASCII letters, or declare the collation: -- collation: C',
        )
    if name == "initcap":
        words = f"regexp_extract_all({lowered(found.sql)}, '[a-z0-9]+|[^a-z0-9]+', 0)"
        return found.of(
            f"array_join(transform({words}, w -> concat({uppered('left(w, 1)')}, substring(w, 2))), '')", TEXT
        )
    return found.of(uppered(found.sql) if name == "upper" else lowered(found.sql), TEXT)


def _trimmed(walk: Expressions, node: exp.Trim) -> Typed:
    name = _TRIMS.get(str(node.args.get("position") or ""))
    if name is None or node.args.get("collation") is not None:
        raise NotProven(node, "uses trim() in this form", "write trim(both 'x' from y)")
    characters = node.args.get("expression")
    return _called(walk, node, name, [node.this, *([] if characters is None else [characters])])


def _padded(walk: Expressions, node: exp.Pad) -> Typed:
    fill = node.args.get("fill_pattern")
    parts = [node.this, node.expression, *([] if fill is None else [fill])]
    return _called(walk, node, "lpad" if node.args.get("is_left") else "rpad", parts)


def _character(walk: Expressions, node: exp.Chr) -> Typed:
    return _called(walk, node, "chr", node.expressions)


def _encoded(walk: Expressions, node: exp.Encode) -> Typed:
    found, form = walk.of(node.this), node.args.get("charset")
    if found.type != BYTEA or not isinstance(form, exp.Literal) or form.name.lower() != "hex":
        raise NotProven(node, "uses encode() in this form", "write encode(x, 'hex')")
    return Typed(f"lower(hex({found.sql}))", TEXT)


def _called(walk: Expressions, node: exp.Expr, name: str, parts: Sequence[exp.Expr]) -> Typed:
    return functions.called(node, name, [walk.of(part) for part in parts])


def _shown(node: exp.Expr, found: Typed) -> Typed:
    """Return a value as concat() and format() write it: with the output function of its type, and '' for null."""
    if found.sql == NULL:
        return Typed("''", TEXT)
    if found.type == BOOL:
        return Typed(f"case when {found.sql} then 't' when not {found.sql} then 'f' else '' end", TEXT)
    return _of_null(_written(node, found), "''")


def _written(node: exp.Expr, found: Typed) -> Typed:
    if found.type == BOOL:
        return Typed(f"case when {found.sql} then 't' when not {found.sql} then 'f' end", TEXT)
    # A char(n) keeps its padding here.
    return found if found.type.name == "bpchar" else as_text(node, found)


def _of_null(found: Typed, other: str) -> Typed:
    return found if found.literal is not None else found.of(f"coalesce({found.sql}, {other})", TEXT)


def _concatenated(walk: Expressions, node: exp.Concat) -> Typed:
    parts = [_shown(node, walk.of(one)) for one in node.expressions]
    return Typed(f"concat({', '.join(part.sql for part in parts)})", TEXT, c=any(part.c for part in parts))


def _joined(walk: Expressions, node: exp.ConcatWs) -> Typed:
    separator, *values = (walk.of(one) for one in node.expressions)
    between = unpadded(coerced(node, separator, TEXT))
    parts = [_written(node, one) for one in values if one.sql != NULL]
    shown = ", ".join([between.sql, *(part.sql for part in parts)])
    return Typed(f"concat_ws({shown})", TEXT, c=any(part.c for part in (between, *parts)))


def _formatted(walk: Expressions, node: exp.Format) -> Typed:
    form = walk.of(node.this).literal
    pieces = _FORMAT.findall(form or "")
    if form is None or "".join(pieces) != form:
        raise NotProven(node, "uses format() with more than %s and %%", "write concat(a, ' ', b)")
    values = [walk.of(one) for one in node.expressions]
    if pieces.count("%s") != len(values):
        raise NotProven(node, f"uses format() with {len(values)} values for {pieces.count('%s')} times %s")
    given = iter([_shown(node, value).sql for value in values])
    texts = {"%%": "'%'"}
    parts = [next(given) if piece == "%s" else texts.get(piece, text_literal(piece)) for piece in pieces]
    return Typed(f"concat({', '.join(parts)})" if parts else "''", TEXT, c=any(value.c for value in values))


HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    **dict.fromkeys(_CASES, _cased),
    exp.Trim: _trimmed,
    exp.Pad: _padded,
    exp.Chr: _character,
    exp.Encode: _encoded,
    exp.Concat: _concatenated,
    exp.ConcatWs: _joined,
    exp.Format: _formatted,
}
