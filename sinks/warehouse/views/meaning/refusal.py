"""The exception for a construct of PostgreSQL that is not known to have the same meaning in Spark. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sinks.warehouse.views.determinism import Finding, line_of

_HINT: Final = "docs/reference/view-sql.md lists what is known to be equal; compute the rest in PostgreSQL"
_SHOWN_MAX: Final = 60  # characters of a part of a query in a message


class NotProven(Exception):
    """A part of a query is refused. `finding` says why, where, and what to write instead."""

    def __init__(self, node: exp.Expr | None, what: str, hint: str = _HINT) -> None:
        super().__init__(what)
        self.finding = Finding(what, hint, 0 if node is None else nearest_line(node))


def check_spelling(tokens: Sequence[Token]) -> Finding | None:
    """Return a function that the parser does not distinguish from another one with another result."""
    for token, behind in pairwise(tokens):
        if token.text.lower() == "date_part" and behind.token_type == TokenType.L_PAREN:
            return Finding("uses date_part(), which is a float8", "write extract(... from x), a numeric", token.line)
    return None


def as_written(node: exp.Expr) -> str:
    """Return a part of a query in PostgreSQL's SQL, in short."""
    if isinstance(node, exp.Anonymous):
        return f"{node.name.lower()}()"
    text = node.sql("postgres", comments=False)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…"


def nearest_line(node: exp.Expr) -> int:
    """Return the line of a part of the tree, or of what is around it if the parser did not keep its own."""
    found: exp.Expr | None = node
    while found is not None:
        line = line_of(found)
        if line:
            return line
        found = found.parent
    return 0
