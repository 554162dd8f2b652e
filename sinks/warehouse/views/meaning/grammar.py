"""Refuses what the parser reads although PostgreSQL's own grammar does not. Pure.

The parser is lenient: it takes reserved words as names, and lists with missing items. A view with such a text would
mean something, but PostgreSQL would refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sinks.warehouse.views.determinism import Finding, line_of, line_of_token

RESERVED: Final = frozenset(
    """
    all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create
    current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc
    distinct do else end except false fetch for foreign from grant group having in initially intersect into lateral
    leading limit localtime localtimestamp not null offset on only or order placing primary references returning select
    session_user some symmetric system_user table then to trailing true union unique user using variadic when where
    window with
    authorization binary collation concurrently cross current_schema freeze full ilike inner is isnull join left like
    natural notnull outer overlaps right similar tablesample verbose
    """.split()  # noqa: SIM905 - a list of words
)
"""Words that cannot be names of columns and tables: categories R and T of ``pg_get_keywords()``."""
NEED_AS: Final = frozenset(
    """
    array as char character create day except fetch filter for from grant group having hour intersect into isnull limit
    minute month notnull offset on order over overlaps precision returning second to union varying where window with
    within without year
    """.split()  # noqa: SIM905 - a list of words
)
"""Words that are names of columns only behind AS: those without ``barelabel`` in ``pg_get_keywords()``."""
_OPENING: Final = frozenset(
    {
        *(TokenType.SELECT, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.HAVING),
        TokenType.COMMA,
    }
)
_CLOSING: Final = frozenset(
    {
        *(TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.HAVING, TokenType.LIMIT),
        *(TokenType.OFFSET, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.R_PAREN),
        *(TokenType.R_BRACKET, TokenType.WINDOW, TokenType.FETCH, TokenType.COMMA, TokenType.SEMICOLON),
        TokenType.ALIAS,
    }
)
_QUOTE: Final = "put the name into double quotes, or rename it"


def check_grammar(tokens: Sequence[Token], query: exp.Query) -> Finding | None:
    """Return the first part that PostgreSQL would not parse."""
    return next(_findings(tokens, query), None)


def _findings(tokens: Sequence[Token], query: exp.Query) -> Iterator[Finding]:
    for token, behind in pairwise([*tokens, None]):
        if token is None or (token.token_type == TokenType.SEMICOLON and behind is None):
            break
        nothing = token.token_type in _OPENING and (behind is None or behind.token_type in _CLOSING)
        before_comma = behind is not None and behind.token_type == TokenType.COMMA
        if nothing or (before_comma and token.token_type == TokenType.L_PAREN):
            what = f"nothing stands between {token.text!r} and " + ("the end" if behind is None else repr(behind.text))
            yield Finding(f"is not valid SQL: {what}", "complete it", line_of_token(token))
    behind_as = {behind.start for token, behind in pairwise(tokens) if token.token_type == TokenType.ALIAS}
    for node in query.walk():
        for name in _names(node):
            if not name.args.get("quoted") and name.name.lower() in RESERVED:
                what = f"is not valid SQL: {name.name} is a reserved word, not a name"
                yield Finding(what, _QUOTE, line_of(name))
        if isinstance(node, exp.Alias) and isinstance(alias := node.args.get("alias"), exp.Identifier):
            bare = alias.meta.get("start") not in behind_as and not alias.args.get("quoted")
            if bare and alias.name.lower() in NEED_AS:
                yield Finding(f"is not valid SQL: {alias.name} is a reserved word", "write as", line_of(alias))


def _names(node: exp.Expr) -> list[exp.Identifier]:
    """Return names that no reserved word may have: behind a dot or AS, PostgreSQL takes every word."""
    found: list[object] = []
    if isinstance(node, exp.Column | exp.Table):
        found = [node.parts[0]]
    elif isinstance(node, exp.TableAlias):
        found = [node.this, *node.columns]
    return [one for one in found if isinstance(one, exp.Identifier) and "line" in one.meta]
