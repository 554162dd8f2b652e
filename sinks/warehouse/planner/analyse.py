"""Turns the normal form of a query into its tree. Raises Unplannable with the reason if there is none. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from sinks.warehouse.planner.parse import sources
from sinks.warehouse.planner.relations import Relation, Unplannable
from sinks.warehouse.planner.tree import (
    Base,
    Block,
    Depends,
    From,
    Inner,
    Leaf,
    Outer,
    Sets,
    aliases,
    is_aggregate,
    is_plain,
    names,
    tables_of,
)

_JOINS: Final = {"": "inner", "INNER": "inner", "CROSS": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}
_SELECT_ARGS: Final = frozenset(
    {"kind", "expressions", "from_", "joins", "where", "group", "having", "qualify", "windows", "distinct", "order"}
    | {"limit", "offset", "hint", "with_"}
)


def analyse(query: exp.Query, relations: Mapping[str, Relation]) -> Block | Sets:
    """Return the tree of a query in normal form."""
    if isinstance(query, exp.Subquery):
        return analyse(query.this, relations)
    if isinstance(query, exp.SetOperation):
        if query.args.get("limit") or query.args.get("order") or query.args.get("by_name"):
            raise Unplannable("ORDER BY, LIMIT or BY NAME of a UNION")
        return Sets(query, analyse(query.left, relations), analyse(query.right, relations))
    if not isinstance(query, exp.Select):
        raise Unplannable("it is not a single SELECT")
    return _Analysis(query, relations).block()


@dataclass(slots=True)
class _Analysis:
    select: exp.Select
    relations: Mapping[str, Relation]

    def block(self) -> Block:
        select = self.select
        strange = sorted(key for key, value in select.args.items() if value and key not in _SELECT_ARGS)
        if strange:
            raise Unplannable(f"{strange[0].strip('_').upper()} in a SELECT")
        if select.args.get("windows"):
            raise Unplannable("a WINDOW clause; write the window into OVER (...)")
        distinct = select.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise Unplannable("DISTINCT ON")
        outputs = {found.alias_or_name: found.unalias() for found in select.expressions}
        if len(outputs) != len(select.expressions) or "" in outputs or "*" in outputs:
            raise Unplannable("a column without a name of its own")
        return Block(
            select=select,
            source=self._source(),
            outputs=outputs,
            group=self._group(),
            windows=self._windows(),
            distinct=distinct is not None,
            bounded=bool(select.args.get("limit") or select.args.get("offset")),
        )

    def _group(self) -> tuple[exp.Expr, ...] | None:
        group = self.select.args.get("group")
        if group is not None:
            if group.args.get("all"):
                raise Unplannable("GROUP BY ALL; write the expressions")
            if any(value for key, value in group.args.items() if key != "expressions"):
                raise Unplannable("grouping sets")
            return tuple(group.expressions)
        having = self.select.args.get("having")
        aggregates = [
            found
            for expression in [*self.select.expressions, *([having] if having else [])]
            for found in expression.find_all(exp.Func)
            if is_aggregate(found) and found.parent_select is self.select and not _is_windowed(found)
        ]
        return () if aggregates or having else None

    def _windows(self) -> tuple[tuple[exp.Expr, ...], ...]:
        found = [window for window in self.select.find_all(exp.Window) if window.parent_select is self.select]
        if any(window.args.get("alias") for window in found):
            raise Unplannable("a WINDOW clause; write the window into OVER (...)")
        return tuple(tuple(window.args.get("partition_by") or ()) for window in found)

    def _source(self) -> From:
        joins = self.select.args.get("joins") or []
        first, *rest = sources(self.select)
        found: From = self._leaf(first)
        for join, source in zip(joins, rest, strict=True):
            found = self._join(found, join, self._leaf(source))
        where = self.select.args.get("where")
        conditions = _conjuncts(where.this) if where else []
        found = _inner([found], [one for one in conditions if not one.find(exp.Query)])
        for condition in conditions:
            found = self._depending(found, condition)
        for part in [*self.select.expressions, self.select.args.get("having"), self.select.args.get("qualify")]:
            if part is not None:
                found = self._depending(found, part)
        for name in ("group", "order"):
            part = self.select.args.get(name)
            if part is not None and part.find(exp.Query):
                raise Unplannable(f"a subquery in {name.upper()} BY")
        return found

    def _leaf(self, source: exp.Expr) -> Leaf:
        if isinstance(source, exp.Table):
            relation = self.relations[source.name.lower()]
            columns = tuple(map(str.lower, relation.columns))
            base = Base(relation.name, columns, relation.key, relation.rows, relation.partition)
            return Leaf(source.alias, base)
        if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Query):
            node = analyse(source.this, self.relations)
            if _outward(source.this, _all_aliases(source.this)):
                raise Unplannable("a subquery in FROM that reads tables beside it")
            return Leaf(source.alias, node)
        raise Unplannable("an unsupported form of FROM")

    def _join(self, left: From, join: exp.Join, right: Leaf) -> From:
        if join.args.get("using") or any(join.args.get(name) for name in ("match_condition", "global", "method")):
            raise Unplannable("an unsupported form of JOIN")
        on = join.args.get("on")
        conditions = [] if on is None else _conjuncts(on)
        if any(condition.find(exp.Query) for condition in conditions):
            raise Unplannable("a subquery in ON")
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if kind in {"SEMI", "ANTI"} or side in {"SEMI", "ANTI"}:
            return Depends(left, right, tuple(conditions))
        meant = _JOINS.get(side or ("" if kind == "OUTER" else kind))
        if meant == "inner":
            return _inner([left, right], conditions)
        if meant == "left":
            return Outer(left, right, tuple(conditions), full=False)
        if meant == "right":
            return Outer(right, left, tuple(conditions), full=False)
        if meant == "full":
            return Outer(left, right, tuple(conditions), full=True)
        raise Unplannable(f"{side} {kind} JOIN".strip())

    def _depending(self, left: From, part: exp.Expr) -> From:
        """Add what the subqueries of an expression read to `left`."""
        for found in _subqueries(part):
            left = self._dependency(left, found)
        return left

    def _dependency(self, left: From, subquery: exp.Query) -> From:
        holder = subquery.find_ancestor(exp.In, exp.Any, exp.All)
        asks = holder if holder is not None and _directly(subquery, holder) else None
        if isinstance(asks, exp.Any | exp.All):
            raise Unplannable("ANY or ALL of a subquery")
        if not _outward(subquery, _all_aliases(subquery)):
            node = analyse(subquery, self.relations)
            alias = f"in_{min(_all_aliases(subquery))}"
            if not isinstance(asks, exp.In):
                return Depends(left, Leaf(alias, node), ())
            # IN over an uncorrelated query: its column is compared with the row's value.
            column = exp.column(names(node)[0], alias, quoted=True)
            return Depends(left, Leaf(alias, node), (_compared(asks, column),))
        if not isinstance(subquery, exp.Select):
            raise Unplannable("a UNION in a subquery for each row")
        tie = [_tie(asks, subquery)] if isinstance(asks, exp.In) else []
        right, tied = _Analysis(subquery, self.relations).correlated(aliases(left))
        return Depends(left, right, (*tied, *tie))

    def correlated(self, outer: frozenset[str]) -> tuple[From, list[exp.Expr]]:
        """Return what a correlated subquery reads, and its conditions on the outer row, whose tables are `outer`."""
        joins = self.select.args.get("joins") or []
        first, *rest = sources(self.select)
        found: From = self._leaf(first)
        for join, source in zip(joins, rest, strict=True):
            if _outward(join.args.get("on"), aliases(found) | {source.alias}):
                raise Unplannable("a subquery whose JOIN reads tables around it")
            found = self._join(found, join, self._leaf(source))
        where = self.select.args.get("where")
        conditions = _conjuncts(where.this) if where else []
        own = aliases(found)
        plain = [one for one in conditions if not one.find(exp.Query)]
        inside = [one for one in plain if tables_of(one) <= own]
        tied = [one for one in plain if not tables_of(one) <= own]
        found = _inner([found], inside)
        others = [one for one in conditions if one.find(exp.Query)]
        for part in [*others, *self.select.expressions, self.select.args.get("having")]:
            for nested in _subqueries(part) if part is not None else []:
                if _outward(nested, _all_aliases(nested) | own):
                    raise Unplannable("a subquery in a subquery that reads tables around both")
                found = self._dependency(found, nested)
        for one in others:
            if not tables_of(one) - _all_aliases(one) <= own:
                raise Unplannable("a subquery in a subquery that reads tables around both")
        if any(not tables_of(one) <= own | outer for one in tied):
            raise Unplannable("a subquery that reads tables further out")
        if not tied:
            raise Unplannable("a subquery that is not tied to the row by a condition in its WHERE")
        return found, tied


def _inner(members: Sequence[From], conditions: Iterable[exp.Expr]) -> From:
    """Flatten inner joins: a member that is one gives its members and conditions."""
    flat: list[From] = []
    held = list(conditions)
    for member in members:
        if isinstance(member, Inner):
            flat += member.members
            held = [*member.conditions, *held]
        else:
            flat.append(member)
    return flat[0] if len(flat) == 1 and not held else Inner(tuple(flat), tuple(held))


def _conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    plain = condition.unnest() if isinstance(condition, exp.Paren) else condition
    if isinstance(plain, exp.And):
        return [*_conjuncts(plain.left), *_conjuncts(plain.right)]
    return [plain]


def _subqueries(part: exp.Expr) -> list[exp.Query]:
    """Return the outermost queries in an expression."""
    found = [node for node in part.find_all(exp.Query) if isinstance(node, exp.Select | exp.SetOperation)]
    return [node for node in found if not any(node is not other and _within(node, other) for other in found)]


def _within(node: exp.Expr, other: exp.Expr) -> bool:
    above = node.parent
    while above is not None:
        if above is other:
            return True
        above = above.parent
    return False


def _directly(subquery: exp.Expr, holder: exp.Expr) -> bool:
    """Whether `holder` applies to this subquery, with nothing but parentheses between."""
    above = subquery.parent
    while isinstance(above, exp.Subquery | exp.Paren):
        above = above.parent
    if above is not holder:
        return False
    return not isinstance(holder, exp.In) or not (subquery is holder.this or _within(subquery, holder.this))


def _tie(asks: exp.In, query: exp.Expr) -> exp.Expr:
    if not isinstance(query, exp.Select) or len(query.expressions) != 1:
        raise Unplannable("IN over several columns")
    value = query.expressions[0].unalias()
    if query.args.get("group") or not is_plain(value):
        raise Unplannable("IN over an aggregate for each row")
    return _compared(asks, value)


def _compared(asks: exp.In, value: exp.Expr) -> exp.Expr:
    """True where a value may decide; also if the comparison is null, which NOT IN and others depend on."""
    if isinstance(asks.this, exp.Tuple):
        raise Unplannable("IN over several columns")
    equal = exp.EQ(this=asks.this.copy(), expression=value.copy())
    return equal if _is_required(asks) else exp.Coalesce(this=equal, expressions=[exp.true()])


def _is_required(condition: exp.Expr) -> bool:
    """Whether a WHERE keeps only rows for which the condition is true."""
    above = condition.parent
    while isinstance(above, exp.Paren | exp.And):
        above = above.parent
    return isinstance(above, exp.Where)


def _all_aliases(query: exp.Expr) -> frozenset[str]:
    """Return the aliases that a query defines, at any depth."""
    return frozenset(source.alias for select in query.find_all(exp.Select) for source in sources(select))


def _outward(part: exp.Expr | None, own: frozenset[str]) -> bool:
    """Whether it reads a table that is not in `own`. Columns without a table, in ORDER BY, are those of the result."""
    return part is not None and not tables_of(part) - {""} <= own


def _is_windowed(aggregate: exp.Expr) -> bool:
    above = aggregate.parent
    while isinstance(above, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        above = above.parent
    return isinstance(above, exp.Window) and aggregate is not above.args.get("order")
