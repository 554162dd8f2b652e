"""Maintains sums and counts by the product rule: a cut's effect on each group, from the images alone. Pure, SQL to SQL.

For a join of tables 1..n the difference is the sum over i of new(1..i-1) x images(i) x old(i+1..n). The old sides must
be those of the previous cut: with new ones instead, pairs that changed on both sides would count twice. The *state* of
a group is its number of rows (`__n`) and, for each sum, the sum and the number of values that are not null. A sum of no
values is null, and a group without rows is gone. Only values that add up exactly are supported: integers and decimals.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.planner.relations import WEIGHT, Unplannable, images, old
from sinks.warehouse.planner.tree import Base, Block, Inner, Leaf, Node, is_aggregate, is_plain, refs

ROWS: Final = "__n"
_INTEGERS: Final = frozenset({"tinyint", "smallint", "int", "bigint", "byte", "short", "integer", "long"})
_AVERAGED: Final = _INTEGERS - {"bigint", "long"}  # sums of these are exact in a double, which Spark's avg() uses
_EXACT: Final = (exp.Column, exp.Literal, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Paren, exp.Identifier)


@dataclass(frozen=True, slots=True, eq=False)
class DeltaPlan:
    """How the state of a grouped view changes with a cut.

    Attributes:
        key: columns of the view that it groups by; all grouped values are included.
        state: the other columns of its state, `ROWS` first.
        state_sql: the state of all rows, for the first build.
    """

    key: tuple[str, ...]
    state: tuple[str, ...]
    state_sql: str
    _block: Block
    _tables: tuple[Leaf, ...]
    _sums: tuple[str, ...]
    _results: Mapping[str, str]

    def delta_sql(self, changed: Collection[str]) -> str:
        """Return the effect of these relations' changes on the state of groups; groups without effect are left out."""
        parts = []
        for index, leaf in enumerate(self._tables):
            if _base(leaf).name not in changed:
                continue
            relations = {
                other.alias: _version(_base(other).name, place - index) for place, other in enumerate(self._tables)
            }
            parts.append(_state_sql(self._block, self._tables, relations, self._sums, f"{leaf.alias}.{WEIGHT}"))
        if not parts:
            raise Unplannable("nothing that it reads changed")
        keys = ", ".join(map(quoted, self.key))
        summed = ", ".join(f"sum({quoted(name)}) as {quoted(name)}" for name in self.state)
        nothing = " or ".join(f"{quoted(name)} <> 0" for name in self.state)
        united = " union all ".join(f"(select * from ({part}))" for part in parts)
        return f"select * from (select {keys}, {summed} from ({united}) group by {keys}) where {nothing}"

    def merged_sql(self, state: str, delta: str) -> str:
        """Return the new state of the groups in `delta` that still have rows; both are names of relations."""
        keys = ", ".join(f"d.{quoted(name)} as {quoted(name)}" for name in self.key)
        on = " and ".join(f"s.{quoted(name)} <=> d.{quoted(name)}" for name in self.key)
        sums = ", ".join(f"coalesce(s.{quoted(one)}, 0) + d.{quoted(one)} as {quoted(one)}" for one in self.state)
        joined = f"from {quoted(delta)} d left join {quoted(state)} s on {on}"
        return f"select * from (select {keys}, {sums} {joined}) where {quoted(ROWS)} <> 0"

    def result_sql(self, state: str) -> str:
        """Return the view's columns for the groups in `state`, a relation's name or a query in parentheses."""
        chosen = ", ".join(f"{text} as {quoted(name)}" for name, text in self._results.items())
        return f"select {chosen} from {state} s"


def delta_plan(node: Node, types: Mapping[str, Mapping[str, str]]) -> DeltaPlan:
    """Return the plan of a query. Raises Unplannable.

    Args:
        node: its tree.
        types: relation -> column -> Spark's type; a missing column is not summed.
    """
    if not isinstance(node, Block) or node.group is None:
        raise Unplannable("it does not group")
    if not node.group:
        raise Unplannable("it has one row even if there is nothing to count")
    if node.windows or node.distinct or node.bounded or node.select.args.get("having"):
        raise Unplannable("DISTINCT, HAVING, LIMIT or a window is applied after the sums")
    members = node.source.members if isinstance(node.source, Inner) else (node.source,)
    tables = tuple(member for member in members if isinstance(member, Leaf) and isinstance(member.node, Base))
    if len(tables) != len(members):
        raise Unplannable("it joins in other ways than inner joins of tables")
    place = {one: name for name, one in node.outputs.items() if one in node.group}
    if any(one not in place for one in node.group):
        raise Unplannable("it groups by a value that is not one of its columns")
    kinds = {leaf.alias: types.get(_base(leaf).name, {}) for leaf in tables}
    state, sums, results = [ROWS], [f"sum({{w}}) as {quoted(ROWS)}"], {}
    for name, expression in node.outputs.items():
        if expression in node.group:
            results[name] = f"s.{quoted(place[expression])}"
            continue
        columns, made, results[name] = _aggregate(name, expression, kinds)
        state += columns
        sums += made
    key = tuple(dict.fromkeys(place.values()))
    plain = {leaf.alias: _base(leaf).name for leaf in tables}
    whole = _state_sql(node, tables, plain, tuple(sums), "1")
    return DeltaPlan(key, tuple(state), whole, node, tables, tuple(sums), results)


def _aggregate(
    name: str, expression: exp.Expr, kinds: Mapping[str, Mapping[str, str]]
) -> tuple[list[str], list[str], str]:
    """Return the state's columns, their sums (with ``{w}`` for the weight), and the view's column made of them."""
    if not isinstance(expression, exp.Count | exp.Sum | exp.Avg) or expression.find(exp.Distinct):
        what = next((one.sql_name().lower() for one in expression.find_all(exp.Func) if is_aggregate(one)), "it")
        raise Unplannable(f"{what}() cannot be maintained by adding and subtracting")
    value = expression.this
    if isinstance(expression, exp.Count):
        if isinstance(value, exp.Star | exp.Literal):
            return [], [], f"s.{quoted(ROWS)}"
        if expression.expressions or not is_plain(value):
            raise Unplannable("count() of several values")
        made = f"sum(case when {value.sql('spark')} is null then 0 else {{w}} end) as {quoted(name)}"
        return [name], [made], f"s.{quoted(name)}"
    _check_exact(value, kinds, averaged=isinstance(expression, exp.Avg))
    count, text = f"{name}__c", value.sql("spark")
    made = f"sum({{w}} * coalesce({text}, 0)) as {quoted(name)}"
    counted = f"sum(case when {text} is null then 0 else {{w}} end) as {quoted(count)}"
    total = f"s.{quoted(name)}"
    if isinstance(expression, exp.Avg):
        total = f"cast({total} as double) / s.{quoted(count)}"
    return [name, count], [made, counted], f"case when s.{quoted(count)} = 0 then null else {total} end"


def _check_exact(value: exp.Expr, kinds: Mapping[str, Mapping[str, str]], *, averaged: bool) -> None:
    """Raises Unplannable if sums of these values could depend on the order of addition."""
    for node in value.walk():
        if not isinstance(node, _EXACT):
            raise Unplannable("it sums an expression with more than +, - and *")
    for alias, column in refs([value]):
        kind = kinds.get(alias, {}).get(column, "").lower()
        if averaged and kind not in _AVERAGED:
            raise Unplannable("avg() of types other than int is rounded in between")
        if kind not in _INTEGERS and not kind.startswith("decimal"):
            raise Unplannable("it sums a column that is not an integer or decimal")
    if not refs([value]):
        raise Unplannable("it sums a constant")


def _state_sql(
    block: Block, tables: tuple[Leaf, ...], relations: Mapping[str, str], sums: tuple[str, ...], weight: str
) -> str:
    """Return the state of the join of these relations, one per alias."""
    group = block.group or ()
    # A value in two columns is in the state once, under the last name.
    names = {one: name for name, one in block.outputs.items() if one in group}
    keys = [f"{one.sql('spark')} as {quoted(name)}" for one, name in names.items()]
    chosen = ", ".join([*keys, *(made.replace("{w}", weight) for made in sums)])
    source = " cross join ".join(f"{quoted(relations[leaf.alias])} {quoted(leaf.alias)}" for leaf in tables)
    conditions = block.source.conditions if isinstance(block.source, Inner) else ()
    where = " and ".join(f"({one.sql('spark')})" for one in conditions)
    by = ", ".join(one.sql("spark") for one in group)
    return f"select {chosen} from {source}" + (f" where {where}" if where else "") + f" group by {by}"


def _version(name: str, place: int) -> str:
    """Return the new side before the changed table, the images for it, the old side after it."""
    return name if place < 0 else images(name) if place == 0 else old(name)


def _base(leaf: Leaf) -> Base:
    if not isinstance(leaf.node, Base):
        raise TypeError("a delta reads tables only")
    return leaf.node
