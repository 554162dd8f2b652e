"""Refuses names that PostgreSQL reads as keywords. Pure."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from sinks.warehouse.views.meaning.grammar import RESERVED
from sinks.warehouse.views.meaning.refusal import NotProven

_HINT: Final = 'rename it, or write it in double quotes: "order"'


def check_names(query: exp.Expr) -> None:
    """Refuse keywords as names of columns and tables; behind a point, and behind AS in SELECT, they are names."""
    for node in query.walk():
        names: list[exp.Expr | None] = []
        if isinstance(node, exp.Column):
            table = node.args.get("table")
            names = [node.this if table is None else table]
        elif isinstance(node, exp.TableAlias):
            names = [node.this, *node.columns]
        elif isinstance(node, exp.Alias):
            names = [node.args["alias"]] if node.alias.endswith("__") else []
        elif isinstance(node, exp.Join):
            names = list(node.args.get("using") or ())
        elif isinstance(node, exp.Table):
            names = [node.this]
        elif isinstance(node, exp.Window):
            names = [node.args.get("alias")]
        for name in names:
            if isinstance(name, exp.Identifier) and name.name.endswith("__"):
                raise NotProven(node, f"uses the name {name.name}, which the translation may use", "rename it")
            if not isinstance(name, exp.Identifier) or name.args.get("quoted"):
                continue
            if name.name.lower() in RESERVED:
                raise NotProven(node, f"uses the keyword {name.name.lower()} as a name", _HINT)
