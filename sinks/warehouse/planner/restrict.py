"""Restricts a query to the rows of some keys: the same query with a condition, pushed down as far as possible. Pure.

Correctness needs only one condition, null-safe and over the whole key, in the block's WHERE. It applies before
grouping, so it must use values that a group or a window's partition shares. The rest saves time. A table that has key
columns is restricted by them where it is read, and so are tables that are equal to it along inner joins. An optional
side is never restricted by its own columns: rows of its partner would look as if they had no partner. A table in a
subquery is restricted by the tables around it that it equals.

Each restricted table has a name of its own (`Narrowed`), so that the caller may load it in advance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from typing import Final

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.planner.parse import sources
from sinks.warehouse.planner.relations import old
from sinks.warehouse.planner.spark_text import tree_of
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

_HOPS_MAX: Final = 2  # along equalities; each one reads the tables before it again


class Side(Enum):
    """The versions of a cut that are read."""

    NEW = "new"
    OLD = "old"


@dataclass(frozen=True, slots=True)
class Restriction:
    """The wanted keys.

    Attributes:
        relation: the relation with the keys, in a form for FROM.
        key: column of `relation` -> expression over the block's tables.
        is_typed: whether its columns have the types of the expressions. Otherwise comparisons include a cast, and what
            equals one of two equal values need not equal the other.
        bounds: conditions that all wanted rows meet, for reading fewer.
    """

    relation: str
    key: tuple[tuple[str, exp.Expr], ...]
    is_typed: bool = False
    bounds: tuple[exp.Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Rows of a table that a query reads instead of all of them.

    Attributes:
        name: of the relation.
        table: relation whose rows they are.
        relation: the relation with their keys, in a form for FROM.
        on: column of `table` -> column of `relation` that it equals.
        null_safe: whether a null equals a null.
    """

    name: str
    table: str
    relation: str
    on: tuple[tuple[str, str], ...]
    null_safe: bool

    def sql(self, row: str = "r", key: str = "k") -> str:
        """Return their query; `row` and `key` are aliases."""
        same = "IS NOT DISTINCT FROM" if self.null_safe else "="
        on = " and ".join(f"{key}.{quoted(its)} {same} {row}.{quoted(mine)}" for mine, its in self.on)
        return f"select * from {quoted(self.table)} {row} where exists (select 1 from {self.relation} {key} where {on})"


@dataclass(frozen=True, slots=True)
class RowsQuery:
    """A query of a view's rows of some keys.

    Attributes:
        text: reads the relations of `narrowed` by their names.
        narrowed: each follows the one that has its keys.
    """

    text: str
    narrowed: tuple[Narrowed, ...]

    def sql(self, held: Collection[str] = ()) -> str:
        """Return the whole query; relations named in `held` exist already."""
        made = [f"{quoted(one.name)} as ({one.sql()})" for one in self.narrowed if one.name not in held]
        return f"with {', '.join(made)} {self.text}" if made else self.text


def rows_of(node: Block | Sets, side: Side, restriction: Restriction | None) -> str:
    """Return the SQL of a node's rows of one side, of the wanted keys or all."""
    return str(_Restricting(side, count()).query(node, restriction).sql("spark"))


def rows_query(node: Block | Sets, side: Side, restriction: Restriction) -> RowsQuery:
    """Return the same with names for the restricted tables."""
    narrowed: dict[Narrowed, str] = {}
    text = str(_Restricting(side, count(), narrowed).query(node, restriction).sql("spark"))
    return RowsQuery(text, tuple(replace(one, name=name) for one, name in narrowed.items()))


def restriction_of(node: Block | Sets, relation: str, key: Sequence[str]) -> Restriction:
    """Select rows whose columns `key` equal those of a row of `relation`, with the same names and types."""
    return _with_columns(node, relation, {name: name for name in key}, is_typed=True)


@dataclass(frozen=True, slots=True)
class _Reach:
    """What is read of a table, in a form for FROM, and its columns whose values are those of keys."""

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
        # Before the keys are added: those are computed from both sides.
        for table in select.find_all(exp.Table):
            table.set("this", exp.to_identifier(self._named(table.name), quoted=True))
        if not node.bounded:
            select.set("order", None)
        placed = {leaf.alias: leaf for leaf in in_from(node.source)}
        narrow = self._narrow(node, restriction) if restriction is not None else {}
        in_select = sources(select)
        for source in in_select:
            inner = placed[source.alias].node
            if source.alias in narrow:
                source.replace(narrow[source.alias])
            elif not isinstance(inner, Base):
                source.set("this", self.query(inner, None))
        outer = {source.alias for source in in_select}
        for table in list(select.find_all(exp.Table)):
            if table.alias in narrow.keys() - outer:
                table.replace(narrow[table.alias])  # in a subquery
        if restriction is None or any(_is_whole(leaf, restriction) for leaf in required(node.source)):
            return select
        return select.where(*(one.copy() for one in restriction.bounds), self._among(restriction), copy=False)

    def _part(self, node: Node, restriction: Restriction | None, columns: Sequence[str]) -> exp.Query:
        """Return one side of a UNION; the key's columns are those at the same positions."""
        if isinstance(node, Base):
            raise TypeError("a side of a UNION is a query")
        if restriction is None:
            return self.query(node, None)
        own = dict(zip(columns, names(node), strict=True))
        key = {name: own[expression.name] for name, expression in restriction.key}
        return self.query(node, _with_columns(node, restriction.relation, key))

    def _narrow(self, block: Block, restriction: Restriction) -> dict[str, exp.Expr]:
        """Return alias -> its replacement in FROM."""
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
        """Restrict tables that equal a restricted one; by the keys themselves where that is equivalent."""
        for _ in range(_HOPS_MAX):
            for here, there, mine, its in _equalities(block.source):
                if here.alias in reach and there.alias not in found and isinstance(there.node, Base):
                    relation, column = reach[here.alias].known.get(mine, (reach[here.alias].relation, mine))
                    rows = self._base_rows(there.node, relation, ((its, column),), null_safe=False)
                    reach[there.alias] = _Reach(rows, {})
                    found[there.alias] = _derived(rows, there.alias)

    def _base_rows(self, base: Base, relation: str, on: tuple[tuple[str, str], ...], *, null_safe: bool) -> str:
        """Return what is read of a table, in a form for FROM."""
        rows = Narrowed("", self._named(base.name), relation, on, null_safe)
        number = next(self.numbers)
        if self.narrowed is None:
            return f"({rows.sql(f'r{number}', f'k{number}')})"
        return quoted(self.narrowed.setdefault(rows, f"__r{number}"))

    def _among(self, restriction: Restriction) -> exp.Expr:
        key = f"k{next(self.numbers)}"
        on = " and ".join(f"{key}.{quoted(name)} <=> {_operand(one)}" for name, one in restriction.key)
        text = f"select 1 where exists (select 1 from {restriction.relation} {key} where {on})"
        condition: exp.Expr = tree_of(text).args["where"].this
        return condition

    def _named(self, base: str) -> str:
        return old(base) if self.side is Side.OLD else base


def _with_columns(node: Block | Sets, relation: str, key: Mapping[str, str], *, is_typed: bool = False) -> Restriction:
    """Restrict a node by its own columns; `key`: column of the relation -> column of the node."""
    if isinstance(node, Block):
        return Restriction(relation, tuple((name, node.outputs[column]) for name, column in key.items()), is_typed)
    return Restriction(relation, tuple((name, exp.column(column, quoted=True)) for name, column in key.items()))


def _own(leaf: Leaf, restriction: Restriction) -> dict[str, str]:
    """Return column of the restriction -> the equal column of the table or subquery."""
    return {
        name: expression.name
        for name, expression in restriction.key
        if isinstance(expression, exp.Column) and expression.table == leaf.alias
    }


def _is_whole(leaf: Leaf, restriction: Restriction) -> bool:
    """Whether what is read of a table is already limited to the wanted keys."""
    return isinstance(leaf.node, Base) and len(_own(leaf, restriction)) == len(restriction.key)


def _may_pass(node: Node, column: str) -> bool:
    """Whether dropping rows by a column's value leaves the other rows unchanged."""
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
    """Return a relation for FROM, under an alias."""
    found: exp.Expr = tree_of(f"select * from {relation}").args["from_"].this
    found.set("alias", _alias(alias))
    return found


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))


def required(source: From) -> list[Leaf]:
    """Return the tables in FROM that contribute to every row, so that rows may be selected by their columns."""
    if isinstance(source, Leaf):
        return [source]
    if isinstance(source, Inner):
        return [leaf for member in source.members for leaf in required(member)]
    if isinstance(source, Outer) and source.full:
        return []
    return required(source.left)


def in_from(source: From) -> list[Leaf]:
    """Return the tables in FROM and those of subqueries in conditions, which are not read in FROM."""
    if isinstance(source, Leaf):
        return [source]
    if isinstance(source, Inner):
        return [leaf for member in source.members for leaf in in_from(member)]
    return [*in_from(source.left), *in_from(source.right)]


def _equalities(source: From) -> list[tuple[Leaf, Leaf, str, str]]:
    """Return edges from a table to one that may be restricted by it: inner both ways, outer to the optional side."""
    if isinstance(source, Inner):
        leaves = [member for member in source.members if isinstance(member, Leaf)]
        found = [edge for member in source.members for edge in _equalities(member)]
        for edge in _edges(source.conditions, leaves, leaves):
            found += [edge, (edge[1], edge[0], edge[3], edge[2])]
        return found
    if isinstance(source, Outer):
        if source.full:
            return []
        # The optional side may lose rows that equal no wanted row.
        right = [source.right] if isinstance(source.right, Leaf) else []
        return [*_equalities(source.left), *_edges(source.conditions, required(source.left), right)]
    return _of_subquery(source) if isinstance(source, Depends) else []


def _of_subquery(source: Depends) -> list[tuple[Leaf, Leaf, str, str]]:
    """Return edges into a subquery or the right side of a semi join: rows that no outer row equals do not matter."""
    outer, right, found = required(source.left), source.right, _equalities(source.left)
    if not isinstance(right, Leaf) or isinstance(right.node, Base):
        inner = [leaf for leaf in required(right) if isinstance(leaf.node, Base)]
        return [*found, *_edges(source.conditions, outer, inner), *_equalities(right)]
    if not isinstance(right.node, Block):
        return found
    # IN over a query: its column may be that of a table.
    placed = {leaf.alias: leaf for leaf in required(right.node.source) if isinstance(leaf.node, Base)}
    for here, _, mine, its in _edges(source.conditions, outer, [right]):
        value = right.node.outputs[its]
        if isinstance(value, exp.Column) and value.table in placed and _may_pass(right.node, its):
            found.append((here, placed[value.table], mine, value.name))
    return [*found, *_equalities(right.node.source)]


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
