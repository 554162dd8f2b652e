"""Translates FROM: tables, subqueries, rows, joins and LATERAL. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.views.meaning.joins import Joined, joined
from sinks.warehouse.views.meaning.pg_types import PgType
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.relation import Relation, renamed
from sinks.warehouse.views.meaning.row_sources import SERIES, rows_of
from sinks.warehouse.views.meaning.scope import Input, Scope, Visible, folded, unique

_TABLE_PARTS: Final = frozenset({"this", "alias", "joins"})

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


@dataclass(frozen=True, slots=True)
class From:
    """Translates the FROM of one SELECT.

    Attributes:
        scope: gets the inputs.
        sources: tables and WITH queries by name.
        derived: translates a subquery in a scope.
    """

    scope: Scope
    sources: Mapping[str, Source]
    derived: Derived

    def clause(self, node: exp.Select) -> str:
        """Translate FROM with its joins, and add the inputs to the scope."""
        first = node.args.get("from_")
        if first is None:
            return ""
        if node.args.get("laterals"):
            raise NotProven(node, "uses lateral in this form", "write cross join lateral (select ...) as x")
        items: list[Joined] = []
        current = self._item(first.this, items)
        for join in node.args.get("joins") or ():
            if _is_comma(join):
                items.append(current)
                current = self._item(join.this, items)
            else:
                current = self._join(current, join, items)
        items.append(current)
        self.scope.inputs = [one for item in items for one in item.inputs]
        self.scope.visible = [one for item in items for one in item.visible]
        aliases = [one.alias for one in self.scope.inputs]
        if not unique(aliases):
            twice = next(alias for alias in aliases if aliases.count(alias) > 1)
            raise NotProven(node, f"two inputs are named {twice}", "rename one: ... as name")
        return " from " + ", ".join(item.sql for item in items)

    def _join(self, left: Joined, join: exp.Join, before: list[Joined]) -> Joined:
        right = self._item(join.this, [*before, left])
        return joined(self.scope, left, right, join)

    def _item(self, node: exp.Expr, before: list[Joined]) -> Joined:
        """Translate one input, with joins that are inside of it; `before` is what LATERAL sees."""
        inside = node
        while isinstance(inside, exp.Subquery) and isinstance(inside.this, exp.Subquery | exp.Table):
            inside = inside.this
        if isinstance(inside, exp.Table) and inside is not node:
            if node.args.get("alias") is not None or node.args.get("joins"):
                raise NotProven(node, "names a join in parentheses", "name its tables, and remove the name of the join")
            found = self._item(inside, before)
            return Joined(f"({found.sql})", found.inputs, found.visible)
        found = self._single(node, before)
        joins = node.args.get("joins") or ()
        for join in joins:
            found = self._join(found, join, before)
        return Joined(f"({found.sql})", found.inputs, found.visible) if joins else found

    def _single(self, node: exp.Expr, before: list[Joined]) -> Joined:
        lateral = isinstance(node, exp.Lateral)
        core = node.this if isinstance(node, exp.Lateral) else node
        alias = node.args.get("alias")
        if isinstance(core, exp.Table) and isinstance(core.this, exp.Identifier) and not lateral:
            return self._table(core)
        scope = self.scope.of([one for item in before for one in item.inputs], _visible(before))
        series = core.this if isinstance(core, exp.Table) else core
        if isinstance(series, exp.Unnest | SERIES):
            return rows_of(scope, node, series)
        inner = core.this if isinstance(core, exp.Subquery) else core
        if not isinstance(inner, exp.Query | exp.Values) or isinstance(inner, exp.Table):
            shown = core.sql("postgres", comments=False)[:60]
            raise NotProven(node, f"reads from {shown}", "read a table or a subquery; compute rows in PostgreSQL")
        if alias is None:
            raise NotProven(node, "reads a subquery without a name", "write (select ...) as name")
        return self._derived(node, inner, scope if lateral else self.scope.above)

    def _derived(self, node: exp.Expr, inner: exp.Expr, above: Scope | None) -> Joined:
        alias = node.args["alias"]
        relation = self.derived(inner, above)
        relation = named(node, relation, [folded(one) for one in alias.columns])
        found = Input(folded(alias.this), {one.name: one.value.type for one in relation.columns})
        lateral = "lateral " if isinstance(node, exp.Lateral) else ""
        sql = f"{lateral}({relation.render()}) as {quoted(found.alias)}"
        return Joined(
            sql, [found], [Visible(one.name, found) for one in relation.columns if one.name], lateral=bool(lateral)
        )

    def _table(self, node: exp.Table) -> Joined:
        for key, value in node.args.items():
            if value and key not in _TABLE_PARTS:
                raise NotProven(node, f"reads a table with {key}", "read the table alone")
        name, alias = folded(node.this), node.args.get("alias")
        source = self.sources.get(name)
        if source is None:
            raise NotProven(
                node, f"types of the columns of {name} are not known yet", "they are known after the next cut"
            )
        shown = folded(alias.this) if alias is not None else name
        found = Input(shown, None, {}, name if source.name else "", source.name or name)
        if source.columns is not None:
            found.columns, found.hidden = dict(source.columns), dict(source.hidden)
        _rename(node, found, [folded(one) for one in alias.columns] if alias is not None else [])
        sql = quoted(name) if shown == name else f"{quoted(name)} as {quoted(shown)}"
        visible = (
            [Visible(one, found) for one in found.columns if one] if found.columns is not None else [Visible("", found)]
        )
        return Joined(sql, [found], visible)


def _rename(node: exp.Expr, found: Input, names: list[str]) -> None:
    """Give the first columns of a table the names of its alias."""
    if not names:
        return
    if found.columns is None:
        raise NotProven(node, "renames the columns of a view in Spark SQL", "rename them in select: ... as name")
    if len(names) > len(found.columns):
        raise NotProven(node, f"names more columns than {found.name} has", "remove names")
    renamed = [*names, *list(found.columns)[len(names) :]]
    if not unique(renamed):
        raise NotProven(node, "has two columns with the same name", "rename one in the alias")
    found.names = dict(zip(renamed, found.columns, strict=True))
    found.columns = dict(zip(renamed, found.columns.values(), strict=True))


def _is_comma(join: exp.Join) -> bool:
    """Whether a comma joins it; the parser sets `pivots` for the word JOIN only."""
    return "pivots" not in join.args and not any(join.args.get(key) for key in ("side", "kind", "method"))


def _visible(items: list[Joined]) -> list[Visible]:
    return [one for item in items for one in item.visible]


def named(node: exp.Expr, found: Relation, names: list[str]) -> Relation:
    """Give the first columns of a query these names. Raises NotProven if two are the same."""
    if len(names) > len(found.columns):
        raise NotProven(node, "names more columns than its query has", "remove names")
    found = renamed(found, [*names, *(one.name for one in found.columns[len(names) :])])
    listed = [one.name for one in found.columns if one.name]
    if not unique(listed):
        raise NotProven(node, "has two columns with the same name", "rename one: ... as name")
    return found
