"""Builds fragments of SQL for the plans; a piece is a SELECT with columns named by alias and column. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.planner.tree import Ref

ONE: Final = "1 as `_`"
"""The select list of a SELECT without columns."""


def flat(ref: Ref) -> str:
    """Return the name of a column in a piece."""
    return f"{ref[0]}.{ref[1]}"


def ordered(refs: Iterable[Ref]) -> list[Ref]:
    """Return columns in their order in every piece, so that the parts of a UNION agree."""
    return sorted(refs)


def over_pieces(expression: exp.Expr, gone: frozenset[str] = frozenset()) -> str:
    """Return an expression as SQL over pieces; columns of the aliases in `gone` are null."""

    def placed(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if node.table in gone:
            return exp.null()
        return exp.column(flat((node.table, node.name)), quoted=True)

    return str(expression.copy().transform(placed).sql("spark"))


def columns(refs: Iterable[Ref], gone: frozenset[str] = frozenset(), *, equal: Mapping[Ref, Ref] | None = None) -> str:
    """Return the select list of a piece over other pieces; `equal`: column -> another one with its values."""

    def chosen(ref: Ref) -> str:
        if ref[0] in gone:
            return f"null as {quoted(flat(ref))}"
        if equal and ref in equal:
            return f"{quoted(flat(equal[ref]))} as {quoted(flat(ref))}"
        return quoted(flat(ref))

    return ", ".join(map(chosen, ordered(refs))) or ONE


def renamed(alias: str, refs: Iterable[Ref]) -> str:
    """Return the select list of a piece over a relation with these columns."""
    return ", ".join(f"{quoted(name)} as {quoted(flat((alias, name)))}" for _, name in ordered(refs)) or ONE


def outputs(expressions: Mapping[str, exp.Expr], names: Sequence[str]) -> str:
    """Return the select list that makes a query's columns from a piece."""
    return ", ".join(f"{over_pieces(expressions[name])} as {quoted(name)}" for name in names) or ONE


def union(branches: Sequence[str]) -> str:
    """Combine all rows of all branches, at least one."""
    return branches[0] if len(branches) == 1 else " union all ".join(f"(select * from ({one}))" for one in branches)
