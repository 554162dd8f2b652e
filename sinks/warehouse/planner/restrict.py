"""A query's rows of some keys only: the same query with a condition on its keys, put as far down as it may go. Pure.

What makes it right is one condition, null-safe and over the whole key, in the block's WHERE: before grouping, so it
must be over values that a group or a window's partition shares. The rest saves time: a table that has columns of the
key itself is restricted by them where it is read, and so are, along inner joins, those it is equal to. An optional
side is never restricted by its own columns: its partner's rows would look as if they had none.

What is read of a restricted table has a name of its own (`Narrowed`), so that who runs the query may have it ready.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from typing import Final

import sqlglot
from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.planner.parse import sources
from sinks.warehouse.planner.relations import old
from sinks.warehouse.planner.tree import (
    Base,
    Block,
    Depends,
    From,
    Inner,
    Leaf,
    Node,
    Outer,
    Sets,
    is_of_group,
    is_plain,
    names,
)

_HOPS_MAX: Final = 2  # along equalities: each one reads the tables before it once more


class Side(Enum):
    """Of a cut: the versions that are read."""

    NEW = "new"
    OLD = "old"


@dataclass(frozen=True, slots=True)
class Restriction:
    """Keys that are wanted.

    Attributes:
        relation: what has them, as it can stand in FROM.
        key: column of `relation` -> expression over the block's tables.
        is_typed: whether its columns have the types of the expressions. Others are compared with some cast between,
            and what is equal to one of two equal values need not be equal to the other.
    """

    relation: str
    key: tuple[tuple[str, exp.Expr], ...]
    is_typed: bool = False


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Rows of a table that a query reads in place of all of them.

    Attributes:
        name: of the relation.
        table: relation they are rows of.
        relation: what has their keys, as it can stand in FROM.
        on: column of `table` -> column of `relation` that it is equal to.
        null_safe: whether a null is equal to a null.
    """

    name: str
    table: str
    relation: str
    on: tuple[tuple[str, str], ...]
    null_safe: bool

    def sql(self, row: str = "r", key: str = "k") -> str:
        """The query of them; `row` and `key` are aliases."""
        same = "IS NOT DISTINCT FROM" if self.null_safe else "="
        on = " and ".join(f"{key}.{quoted(its)} {same} {row}.{quoted(mine)}" for mine, its in self.on)
        return f"select * from {quoted(self.table)} {row} where exists (select 1 from {self.relation} {key} where {on})"


@dataclass(frozen=True, slots=True)
class RowsQuery:
    """A query of a view's rows of some keys.

    Attributes:
        text: reads the relations of `narrowed` by their names.
        narrowed: in an order where each stands behind the one that has its keys.
    """

    text: str
    narrowed: tuple[Narrowed, ...]

    def sql(self, held: Collection[str] = ()) -> str:
        """The whole query, where the relations named in `held` are there already."""
        made = [f"{quoted(one.name)} as ({one.sql()})" for one in self.narrowed if one.name not in held]
        return f"with {', '.join(made)} {self.text}" if made else self.text


def rows_of(node: Block | Sets, side: Side, restriction: Restriction | None) -> str:
    """The SQL of a node's rows of one side, of the wanted keys or all."""
    return str(_Restricting(side, count()).query(node, restriction).sql("spark"))


def rows_query(node: Block | Sets, side: Side, restriction: Restriction) -> RowsQuery:
    """The same with names for what is read of restricted tables."""
    narrowed: dict[Narrowed, str] = {}
    text = str(_Restricting(side, count(), narrowed).query(node, restriction).sql("spark"))
    return RowsQuery(text, tuple(replace(one, name=name) for one, name in narrowed.items()))


def restriction_of(node: Block | Sets, relation: str, key: Sequence[str]) -> Restriction:
    """The rows whose columns `key` are those of a row of `relation`, under the same names and in the same types."""
    return _with_columns(node, relation, {name: name for name in key}, is_typed=True)


@dataclass(frozen=True, slots=True)
class _Reach:
    """What is read of a table: as it can stand in FROM, and columns whose values are those of keys."""

    relation: str
    known: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Restricting:
    side: Side
    numbers: count[int]
    narrowed: dict[Narrowed, str] | None = None

    def query(self, node: Block | Sets, restriction: Restriction | None) -> exp.Query:
        if isinstance(node, Sets):
            query = node.query.copy()
            query.set("this", self._part(node.left, restriction, names(node)))
            query.set("expression", self._part(node.right, restriction, names(node)))
            return query
        select = node.select.copy()
        # Before the keys come in: what they are computed from is of both sides.
        for table in select.find_all(exp.Table):
            table.set("this", exp.to_identifier(self._named(table.name), quoted=True))
        if not node.bounded:
            select.set("order", None)
        placed = {leaf.alias: leaf for leaf in in_from(node.source)}
        narrow = self._narrow(node, restriction) if restriction is not None else {}
        for source in sources(select):
            inner = placed[source.alias].node
            if source.alias in narrow:
                source.replace(narrow[source.alias])
            elif not isinstance(inner, Base):
                source.set("this", self.query(inner, None))
        if restriction is None or any(_is_whole(leaf, restriction) for leaf in required(node.source)):
            return select
        return select.where(self._among(restriction), copy=False)

    def _part(self, node: Node, restriction: Restriction | None, columns: Sequence[str]) -> exp.Query:
        """One side of a UNION; the key's columns are those at the same places."""
        if isinstance(node, Base):
            raise TypeError("a side of a UNION is a query")
        if restriction is None:
            return self.query(node, None)
        own = dict(zip(columns, names(node), strict=True))
        key = {name: own[expression.name] for name, expression in restriction.key}
        return self.query(node, _with_columns(node, restriction.relation, key))

    def _narrow(self, block: Block, restriction: Restriction) -> dict[str, exp.Expr]:
        """Alias -> what stands in FROM instead of it."""
        found: dict[str, exp.Expr] = {}
        reach: dict[str, _Reach] = {}
        for leaf in required(block.source):
            own = _own(leaf, restriction)
            if isinstance(leaf.node, Base):
                if own:
                    on = tuple((column, name) for name, column in own.items())
                    rows = self._base_rows(leaf.node, restriction.relation, on, null_safe=True)
                    known = {column: (restriction.relation, name) for column, name in on if restriction.is_typed}
                    reach[leaf.alias] = _Reach(rows, known)
                    found[leaf.alias] = _derived(rows, leaf.alias)
                continue
            own = {name: column for name, column in own.items() if _may_pass(leaf.node, column)}
            if own:
                typed = restriction.is_typed and isinstance(leaf.node, Block)
                inner = self.query(leaf.node, _with_columns(leaf.node, restriction.relation, own, is_typed=typed))
                found[leaf.alias] = exp.Subquery(this=inner, alias=_alias(leaf.alias))
        self._follow(block, reach, found)
        return found

    def _follow(self, block: Block, reach: dict[str, _Reach], found: dict[str, exp.Expr]) -> None:
        """Restrict tables that are equal to one that is restricted; by the keys themselves where these say as much."""
        for _ in range(_HOPS_MAX):
            for here, there, mine, its in _equalities(block.source):
                if here.alias in reach and there.alias not in found and isinstance(there.node, Base):
                    relation, column = reach[here.alias].known.get(mine, (reach[here.alias].relation, mine))
                    rows = self._base_rows(there.node, relation, ((its, column),), null_safe=False)
                    reach[there.alias] = _Reach(rows, {})
                    found[there.alias] = _derived(rows, there.alias)

    def _base_rows(self, base: Base, relation: str, on: tuple[tuple[str, str], ...], *, null_safe: bool) -> str:
        """What is read of a table, as it can stand in FROM."""
        rows = Narrowed("", self._named(base.name), relation, on, null_safe)
        number = next(self.numbers)
        if self.narrowed is None:
            return f"({rows.sql(f'r{number}', f'k{number}')})"
        return quoted(self.narrowed.setdefault(rows, f"__r{number}"))

    def _among(self, restriction: Restriction) -> exp.Expr:
        key = f"k{next(self.numbers)}"
        on = " and ".join(f"{key}.{quoted(name)} <=> {_operand(one)}" for name, one in restriction.key)
        text = f"select 1 where exists (select 1 from {restriction.relation} {key} where {on})"
        condition: exp.Expr = sqlglot.parse_one(text, read="spark").args["where"].this
        return condition

    def _named(self, base: str) -> str:
        return old(base) if self.side is Side.OLD else base


def _with_columns(node: Block | Sets, relation: str, key: Mapping[str, str], *, is_typed: bool = False) -> Restriction:
    """A restriction of a node by its own columns; `key`: column of the relation -> column of the node."""
    if isinstance(node, Block):
        return Restriction(relation, tuple((name, node.outputs[column]) for name, column in key.items()), is_typed)
    return Restriction(relation, tuple((name, exp.column(column, quoted=True)) for name, column in key.items()))


def _own(leaf: Leaf, restriction: Restriction) -> dict[str, str]:
    """Column of the restriction -> column of the table or subquery that it is."""
    return {
        name: expression.name
        for name, expression in restriction.key
        if isinstance(expression, exp.Column) and expression.table == leaf.alias
    }


def _is_whole(leaf: Leaf, restriction: Restriction) -> bool:
    """Whether what is read of a table are rows of the wanted keys already."""
    return isinstance(leaf.node, Base) and len(_own(leaf, restriction)) == len(restriction.key)


def _may_pass(node: Node, column: str) -> bool:
    """Whether dropping rows by a column's value leaves the others as they are."""
    if isinstance(node, Base):
        return True
    if isinstance(node, Sets):
        other = dict(zip(names(node.left), names(node.right), strict=True))
        return _may_pass(node.left, column) and _may_pass(node.right, other[column])
    expression = node.outputs[column]
    if node.bounded or not is_plain(expression) or not (node.group is None or is_of_group(expression, node.group)):
        return False
    return all(any(expression == one for one in window) for window in node.windows)


def _operand(expression: exp.Expr) -> str:
    text = str(expression.sql("spark"))
    return text if isinstance(expression, exp.Column) else f"({text})"


def _derived(relation: str, alias: str) -> exp.Expr:
    """A relation as it can stand in FROM, under an alias."""
    found: exp.Expr = sqlglot.parse_one(f"select * from {relation}", read="spark").args["from_"].this
    found.set("alias", _alias(alias))
    return found


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))


def required(source: From) -> list[Leaf]:
    """Tables in FROM that every row has a part of, so that rows may be chosen by their columns."""
    if isinstance(source, Leaf):
        return [source]
    if isinstance(source, Inner):
        return [leaf for member in source.members for leaf in required(member)]
    if isinstance(source, Outer) and source.full:
        return []
    return required(source.left)


def in_from(source: From) -> list[Leaf]:
    """Tables in FROM and, not to be asked for there, those of subqueries in conditions."""
    if isinstance(source, Leaf):
        return [source]
    if isinstance(source, Inner):
        return [leaf for member in source.members for leaf in in_from(member)]
    return [*in_from(source.left), *in_from(source.right)]


def _equalities(source: From) -> list[tuple[Leaf, Leaf, str, str]]:
    """From a table to one that may be restricted to the rows it is equal to: inner both ways, outer to the option."""
    if isinstance(source, Inner):
        leaves = [member for member in source.members if isinstance(member, Leaf)]
        found = [edge for member in source.members for edge in _equalities(member)]
        for edge in _edges(source.conditions, leaves, leaves):
            found += [edge, (edge[1], edge[0], edge[3], edge[2])]
        return found
    if isinstance(source, Outer):
        if source.full:
            return []
        # The optional side may lose rows that no row of the wanted ones is equal to.
        right = [source.right] if isinstance(source.right, Leaf) else []
        return [*_equalities(source.left), *_edges(source.conditions, required(source.left), right)]
    return _equalities(source.left) if isinstance(source, Depends) else []


def _edges(
    conditions: Sequence[exp.Expr], ones: Sequence[Leaf], others: Sequence[Leaf]
) -> list[tuple[Leaf, Leaf, str, str]]:
    first = {leaf.alias: leaf for leaf in ones}
    second = {leaf.alias: leaf for leaf in others}
    found = []
    for condition in conditions:
        if not isinstance(condition, exp.EQ):
            continue
        left, right = condition.left, condition.right
        for mine, its in ((left, right), (right, left)):
            if not isinstance(mine, exp.Column) or not isinstance(its, exp.Column) or mine.table == its.table:
                continue
            if mine.table in first and its.table in second:
                found.append((first[mine.table], second[its.table], mine.name, its.name))
    return found
