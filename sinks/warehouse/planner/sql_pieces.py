"""Bits of SQL for the plans: a piece is a SELECT whose columns are named by alias and column. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.planner.tree import Ref

ONE: Final = "1 as `_`"
"""What a SELECT without columns selects."""


def flat(ref: Ref) -> str:
    """How a piece calls a column."""
    return f"{ref[0]}.{ref[1]}"


def ordered(refs: Iterable[Ref]) -> list[Ref]:
    """The order of columns in every piece: parts of a UNION agree."""
    return sorted(refs)


def over_pieces(expression: exp.Expr, gone: frozenset[str] = frozenset()) -> str:
    """An expression as SQL over pieces; columns of the aliases in `gone` are null."""

    def placed(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if node.table in gone:
            return exp.null()
        return exp.column(flat((node.table, node.name)), quoted=True)

    return str(expression.copy().transform(placed).sql("spark"))


def columns(refs: Iterable[Ref], gone: frozenset[str] = frozenset(), *, equal: Mapping[Ref, Ref] | None = None) -> str:
    """The select list of a piece over other pieces; `equal`: column -> another one that has its values."""

    def chosen(ref: Ref) -> str:
        if ref[0] in gone:
            return f"null as {quoted(flat(ref))}"
        if equal and ref in equal:
            return f"{quoted(flat(equal[ref]))} as {quoted(flat(ref))}"
        return quoted(flat(ref))

    return ", ".join(map(chosen, ordered(refs))) or ONE


def renamed(alias: str, refs: Iterable[Ref]) -> str:
    """The select list of a piece over a relation with these columns."""
    return ", ".join(f"{quoted(name)} as {quoted(flat((alias, name)))}" for _, name in ordered(refs)) or ONE


def outputs(expressions: Mapping[str, exp.Expr], names: Sequence[str]) -> str:
    """The select list that makes a query's columns of a piece."""
    return ", ".join(f"{over_pieces(expressions[name])} as {quoted(name)}" for name in names) or ONE


def union(branches: Sequence[str]) -> str:
    """All rows of all branches; there is at least one."""
    return branches[0] if len(branches) == 1 else " union all ".join(f"(select * from ({one}))" for one in branches)
