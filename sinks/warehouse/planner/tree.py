"""The tree of a query: tables, blocks (one SELECT each) and set operations; a block has a tree of joins. Pure values.

Expressions are sqlglot's. Their columns are qualified by the aliases of `parse.normal_form`, which are unique.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatch
from typing import Final, TypeAlias

from sqlglot import exp

from sinks.warehouse.planner.spark_text import is_as_written

_AGGREGATES: Final = frozenset(
    {"count_min_sketch", "every", "histogram_numeric", "mean", "measure", "some", "std", "try_avg", "try_sum"}
    | {"vector_avg", "vector_sum"}
)
"""Spark 4.2's aggregates that sqlglot does not know as such, in addition to those with ``_agg`` in their name."""
_NAMED_AGGREGATE: Final = re.compile(r".*_agg(_.*)?")

Ref: TypeAlias = tuple[str, str]
"""Alias and column."""


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """A table or view that is read; attributes as in `relations.Relation`."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    rows: int = 0
    partition: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One SELECT.

    Attributes:
        select: its syntax.
        source: the rows after FROM, WHERE and subqueries, before grouping.
        outputs: column -> expression over `source`.
        group: expressions it groups by; () if all rows give one; None if it does not group.
        windows: the partition expressions of each window function.
        distinct: whether equal rows become one.
        bounded: whether LIMIT drops rows.
    """

    select: exp.Select
    source: From
    outputs: dict[str, exp.Expr]
    group: tuple[exp.Expr, ...] | None
    windows: tuple[tuple[exp.Expr, ...], ...]
    distinct: bool
    bounded: bool


@dataclass(frozen=True, slots=True, eq=False)
class Sets:
    """UNION, INTERSECT, EXCEPT. Columns match by position; the names are those of the left side."""

    query: exp.SetOperation
    left: Node
    right: Node


Node: TypeAlias = Base | Block | Sets


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A table or subquery in FROM."""

    alias: str
    node: Node


@dataclass(frozen=True, slots=True, eq=False)
class Inner:
    """Inner joins, and the conditions of WHERE: all conditions hold for every row."""

    members: tuple[From, ...]
    conditions: tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Outer:
    """A left join, or with `full` a full join, in which rows of either side may have no partner."""

    left: From
    right: From
    conditions: tuple[exp.Expr, ...]
    full: bool


@dataclass(frozen=True, slots=True, eq=False)
class Depends:
    """Rows of `left` that depend on the rows of `right` for which the conditions hold.

    Semi and anti joins, EXISTS, IN, and scalar subqueries. Without conditions, all rows depend on the same rows of
    `right`: a subquery that is the same for every row.
    """

    left: From
    right: From
    conditions: tuple[exp.Expr, ...]


From: TypeAlias = Leaf | Inner | Outer | Depends


def names(node: Node) -> tuple[str, ...]:
    """Return the result columns, in order."""
    if isinstance(node, Base):
        return node.columns
    return tuple(node.outputs) if isinstance(node, Block) else names(node.left)


@singledispatch
def aliases(source: From) -> frozenset[str]:
    """Return the aliases of the tables whose columns `source` has."""
    raise TypeError(type(source).__name__)


@aliases.register
def _(source: Leaf) -> frozenset[str]:
    return frozenset({source.alias})


@aliases.register
def _(source: Inner) -> frozenset[str]:
    return frozenset().union(*map(aliases, source.members))


@aliases.register
def _(source: Outer) -> frozenset[str]:
    return aliases(source.left) | aliases(source.right)


@aliases.register
def _(source: Depends) -> frozenset[str]:
    return aliases(source.left)


def refs(expressions: Iterable[exp.Expr]) -> frozenset[Ref]:
    """Return the columns that these expressions read."""
    return frozenset(
        (column.table, column.name) for expression in expressions for column in expression.find_all(exp.Column)
    )


def tables_of(expression: exp.Expr) -> frozenset[str]:
    """Return the aliases that an expression reads."""
    return frozenset(alias for alias, _ in refs([expression]))


def leaves(source: From) -> tuple[Leaf, ...]:
    """Return every table in FROM, including those of subqueries in conditions."""
    if isinstance(source, Leaf):
        return (source,)
    if isinstance(source, Inner):
        return tuple(leaf for member in source.members for leaf in leaves(member))
    return (*leaves(source.left), *leaves(source.right))


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a function computes one value from many rows."""
    if not isinstance(node, exp.Anonymous):
        return isinstance(node, exp.AggFunc | exp.Any)
    name = node.name.lower()
    return name in _AGGREGATES or _NAMED_AGGREGATE.fullmatch(name) is not None


def is_plain(expression: exp.Expr) -> bool:
    """Whether a row's own columns determine its value: no aggregate, window or subquery in it."""
    if expression.find(exp.Window, exp.Query):
        return False
    return not any(is_aggregate(found) for found in expression.find_all(exp.Func))


def is_of_group(expression: exp.Expr, group: tuple[exp.Expr, ...]) -> bool:
    """Whether the grouped values determine its value."""
    if any(expression == one for one in group):
        return True
    if isinstance(expression, exp.Column | exp.Query | exp.Window) or is_aggregate(expression):
        return False
    if isinstance(expression, exp.Anonymous) and not is_as_written(expression):
        return False
    return all(is_of_group(child, group) for child in expression.iter_expressions())
