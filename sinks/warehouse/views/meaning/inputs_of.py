"""Translates FROM: tables, subqueries, joins and LATERAL. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.views.meaning.pg_types import PgType
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.relation import Relation
from sinks.warehouse.views.meaning.scope import Input, Scope, folded

_JOINS: Final = {
    ("", ""): "join",
    ("", "INNER"): "join",
    ("LEFT", ""): "left join",
    ("LEFT", "OUTER"): "left join",
    ("RIGHT", ""): "right join",
    ("RIGHT", "OUTER"): "right join",
    ("FULL", ""): "full join",
    ("FULL", "OUTER"): "full join",
    ("", "CROSS"): "cross join",
}
_JOIN_PARTS: Final = frozenset({"this", "side", "kind", "on"})
_TABLE_PARTS: Final = frozenset({"this", "alias"})

Derived = Callable[[exp.Expr, Scope | None], Relation]


@dataclass(frozen=True, slots=True)
class Source:
    """What a query may read.

    Attributes:
        columns: name -> type; None for a view in Spark SQL, whose types are not known in advance.
        hidden: columns that ``*`` leaves out.
        name: as the user wrote it; empty for a WITH.
    """

    columns: Mapping[str, PgType] | None
    hidden: Mapping[str, PgType] = field(default_factory=dict)
    name: str = ""


def from_clause(node: exp.Select, scope: Scope, sources: Mapping[str, Source], derived: Derived) -> str:
    """Translate FROM with its joins, and add the inputs to the scope."""
    first = node.args.get("from_")
    if first is None:
        return ""
    if node.args.get("laterals"):
        raise NotProven(node, "uses lateral in this form", "write cross join lateral (select ...) as x")
    parts = [f" from {_input(first.this, scope, sources, derived)}"]
    parts.extend(_join(join, scope, sources, derived) for join in node.args.get("joins") or ())
    return "".join(parts)


def _join(join: exp.Join, scope: Scope, sources: Mapping[str, Source], derived: Derived) -> str:
    if join.args.get("using") or str(join.args.get("method") or ""):
        raise NotProven(join, "joins with using or natural", "write on a.x = b.x")
    for key, value in join.args.items():
        if value and key not in _JOIN_PARTS:
            raise NotProven(join, f"joins with {key}", "write join ... on ...")
    found = _input(join.this, scope, sources, derived)
    side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
    on = join.args.get("on")
    if not side and not kind and on is None:
        return f", {found}"
    word = _JOINS.get((side, kind))
    if word is None or (on is None) != (kind == "CROSS"):
        raise NotProven(join, f"uses {side} {kind} join".lower(), "write join, left join, right join, full join ... on")
    if on is None:
        return f" cross join {found}"
    from sinks.warehouse.views.meaning.expressions import Expressions

    return f" {word} {found} on {Expressions(scope).condition(on)}"


def _input(node: exp.Expr, scope: Scope, sources: Mapping[str, Source], derived: Derived) -> str:
    """Translate one input, and add it to the scope."""
    alias = node.args.get("alias")
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        found, text = _table(node, sources)
    elif isinstance(node, exp.Subquery | exp.Lateral):
        lateral = isinstance(node, exp.Lateral)
        inner = node.this.this if lateral and isinstance(node.this, exp.Subquery) else node.this
        if not isinstance(inner, exp.Query) or isinstance(inner, exp.Table) or alias is None:
            raise NotProven(node, "uses this input", "write (select ...) as name; joins without parentheses")
        relation = derived(inner, scope if lateral else scope.above)
        from sinks.warehouse.views.meaning.queries import name_columns

        name_columns(node, relation, [folded(one) for one in alias.columns])
        columns = {one.name: one.value.type for one in relation.columns}
        found = Input(folded(alias.this), columns)
        text = f"{'lateral ' if lateral else ''}({relation.render()}) as {quoted(found.alias)}"
    else:
        shown = node.sql("postgres", comments=False)[:60]
        raise NotProven(node, f"reads from {shown}", "read a table or a subquery; compute rows in PostgreSQL")
    if any(one.alias == found.alias for one in scope.inputs):
        raise NotProven(node, f"two inputs are named {found.alias}", "rename one: ... as name")
    scope.inputs.append(found)
    return text


def _table(node: exp.Table, sources: Mapping[str, Source]) -> tuple[Input, str]:
    for key, value in node.args.items():
        if value and key not in _TABLE_PARTS:
            raise NotProven(node, f"reads a table with {key}", "read the table alone")
    name, alias = folded(node.this), node.args.get("alias")
    source = sources.get(name)
    if source is None:
        raise NotProven(node, f"types of the columns of {name} are not known yet", "they are known after the next cut")
    if alias is not None and alias.columns:
        raise NotProven(node, "renames the columns of a table", "rename them in select: ... as name")
    shown = folded(alias.this) if alias is not None else name
    columns = None if source.columns is None else dict(source.columns)
    found = Input(shown, columns, dict(source.hidden), name if source.name else "", source.name or name)
    return found, quoted(name) if shown == name else f"{quoted(name)} as {quoted(shown)}"
