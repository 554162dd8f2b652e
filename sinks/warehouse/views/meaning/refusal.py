"""The exception for a construct of PostgreSQL that is not known to have the same meaning in Spark. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sinks.warehouse.views.determinism import Finding, Line, line_of, line_of_token

OTHERWISE: Final = "docs/reference/view-sql.md lists what is known to be equal; compute the rest in PostgreSQL"
_AMOUNT: Final = re.compile(r"\s*-?\d+(?:\.\d+)?\s*[a-zA-Z]+\s*")
_SHOWN_MAX: Final = 60  # characters of a part of a query in a message


class NotProven(Exception):
    """A part of a query is refused. `finding` says why, where, and what to write instead."""

    def __init__(self, node: exp.Expr | None, what: str, hint: str = OTHERWISE) -> None:
        super().__init__(what)
        self.finding = Finding(what, hint, 0 if node is None else nearest_line(node))


def check_spelling(tokens: Sequence[Token]) -> Finding | None:
    """Return a function that the parser does not distinguish from another one with another result."""
    for at, (token, behind) in enumerate(pairwise(tokens)):
        if token.token_type == TokenType.INTERVAL and behind.token_type == TokenType.STRING and _is_cut(behind.text):
            hint = "write numbers and units: interval '1 month 3 days 12 hours'"
            return Finding(f"uses interval '{behind.text[:_SHOWN_MAX]}'", hint, line_of_token(behind))
        if token.token_type in {TokenType.ARROW, TokenType.DARROW} and behind.text[:1].isspace():
            what = "takes a value of a jsonb by a key that starts with a blank"
            return Finding(what, "write jsonb_extract_path(x, ' key')", line_of_token(token))
        if behind.token_type != TokenType.L_PAREN:
            continue
        if token.text.lower() == "date_part":
            return Finding(
                "uses date_part(), which is a float8", "write extract(... from x), a numeric", line_of_token(token)
            )
        if token.text.lower() == "to_char" and any("%" in one.text for one in _arguments(tokens[at + 1 :])):
            return Finding("uses % within to_char()", "write it outside: to_char(...) || '%'", line_of_token(token))
    return None


def _is_cut(text: str) -> bool:
    """Whether the parser keeps only a part of an interval: of ``1 day ago`` and ``1 day 02:00`` it reads 1 day."""
    return len(_AMOUNT.findall(text)) == 1 and _AMOUNT.fullmatch(text) is None


def _arguments(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens from an opening parenthesis to the one that closes it."""
    depth = 0
    for token in tokens:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0:
            return
        yield token


def as_written(node: exp.Expr) -> str:
    """Return a part of a query in PostgreSQL's SQL, in short."""
    if isinstance(node, exp.Anonymous):
        return f"{node.name.lower()}()"
    text = node.sql("postgres", comments=False)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…"


def nearest_line(node: exp.Expr) -> Line:
    """Return where a part of the tree begins, or what is around it if the parser did not keep its own place."""
    found: exp.Expr | None = node
    while found is not None:
        line = line_of(found)
        if line:
            return line
        found = found.parent
    return Line(0)
