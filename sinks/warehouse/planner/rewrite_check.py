"""Checks that a query keeps its meaning when sqlglot parses and writes it, as it does for plans. Pure.

The view's own text is not rewritten. sqlglot writes some functions of Spark as others. Most of them are the same under
another name, but some are not: ``percentile_cont`` becomes an approximation, ``to_char`` a cast, ``log10`` a quotient
of logarithms. So a function that is missing after a round trip is an obstacle, unless it is known to be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sinks.warehouse.planner.relations import Unplannable

_SAME: Final = frozenset(
    {"approx_percentile", "array_agg", "array_size", "ceiling", "char", "char_length", "character_length", "ifnull"}
    | {"lcase", "mod", "named_struct", "nvl", "position", "pow", "reduce", "regexp_like", "sha1"}
    | {"string_agg", "substr", "to_unix_timestamp", "ucase"}
)
"""Functions that return under another name and are the same (checked with Spark 4.2 and sqlglot 30, 2026-11-23)."""
_WORDS: Final = frozenset(
    {"group", "from", "join", "in", "and", "or", "not", "on", "as", "then", "when", "else", "case"}
)
_STRINGS: Final = frozenset({TokenType.STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING})


def check_faithful(sql: str, query: exp.Query) -> None:
    """Raises Unplannable if `query`, the tree of `sql`, would be written with another meaning."""
    tokens = sqlglot.tokenize(sql, read="spark")
    for before, token in pairwise(tokens):
        # sqlglot joins 'it''s' to its; Spark reads it's.
        if before.token_type in _STRINGS and token.token_type in _STRINGS:
            raise Unplannable("two string literals are adjacent, or a quote in a literal is doubled")
    written = sqlglot.tokenize(query.sql("spark"), read="spark")
    gone = _called(tokens) - _called(written) - _SAME
    if gone:
        raise Unplannable(f"{min(gone)}() would change when the query is rewritten")


def _called(tokens: Sequence[Token]) -> set[str]:
    """Return the names before a parenthesis; keywords among them are in both texts."""
    return {
        before.text.lower()
        for before, token in pairwise(tokens)
        if token.token_type == TokenType.L_PAREN and before.text.isidentifier() and before.text.lower() not in _WORDS
    }
