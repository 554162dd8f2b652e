"""Reads an expression of MEASURES or DEFINE as a text of Spark SQL with leaves: what depends on the match. Pure.

    A.price * 2 > FIRST(price) + PREV(B.tax)        {A.price} * 2 > {FIRST(price)} + {PREV(B.tax)}

The text between the leaves is passed to Spark as it is written. A leaf is a row of the match with an expression that
Spark computes for every row, or an aggregate of such values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from sinks.warehouse.patterns.pattern_syntax import variable_name
from sinks.warehouse.patterns.refusal import PatternRefused
from sinks.warehouse.planner.spark_text import tree_of
from sinks.warehouse.planner.tree import is_aggregate

LEAF: Final = "__leaf_"
WINDOW: Final = "__rows"
"""The window over the rows of a partition in their order, in the SQL of leaves."""
AGGREGATES: Final = frozenset({"COUNT", "SUM", "MIN", "MAX", "AVG"})
_CALLS: Final = AGGREGATES | {"FIRST", "LAST", "PREV", "NEXT", "CLASSIFIER", "MATCH_NUMBER"}
_OFFSET_MAX: Final = 100_000
_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})


@dataclass(frozen=True, slots=True)
class Row:
    """An expression over one row of the match.

    Attributes:
        sql: the expression over the columns of that row.
        variable: of the rows that count; "" for all.
        is_first: whether it is counted from the first row, not from the last.
        offset: how many rows further inside.
        is_final: whether FINAL is written before it.
    """

    sql: str
    variable: str = ""
    is_first: bool = False
    offset: int = 0
    is_final: bool = False

    @property
    def at(self) -> tuple[str, bool, int, bool]:
        """Which row it is."""
        return self.variable, self.is_first, self.offset, self.is_final


@dataclass(frozen=True, slots=True)
class Rows:
    """An aggregate over the rows of a variable, "" for all; `sql` is "" for count(*)."""

    function: str
    sql: str
    variable: str = ""
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """CLASSIFIER() or MATCH_NUMBER()."""

    function: str


Leaf: TypeAlias = Row | Rows | Named


@dataclass(frozen=True, slots=True)
class Expression:
    """A text with the names `LEAF` and a number in place of leaves.

    Attributes:
        text: in Spark's SQL.
        leaves: by number.
        place: where the expression begins in the view's text.
    """

    text: str
    leaves: tuple[Leaf, ...]
    place: int

    def sql(self, shown: Callable[[Leaf], str]) -> str:
        """Return the text with each leaf as `shown` gives it."""
        return with_leaves(self.text, self.leaves, shown)


def with_leaves(text: str, leaves: Sequence[Leaf], shown: Callable[[Leaf], str]) -> str:
    """Return a text with each leaf as `shown` gives it."""
    pieces, at = [], 0
    for token in tokens_of(text, 0):
        index = leaf_index(token)
        if index >= 0:
            pieces += [text[at : token.start], shown(leaves[index])]
            at = token.end + 1
    return "".join([*pieces, text[at:]])


def leaf_index(token: Token) -> int:
    """Return the number of the leaf that a token stands for; -1 for any other token."""
    is_leaf = token.token_type == TokenType.VAR and token.text.startswith(LEAF)
    return int(token.text.removeprefix(LEAF)) if is_leaf else -1


def tokens_of(text: str, place: int) -> list[Token]:
    """Return the tokens of a part of a view's text. Raises PatternRefused."""
    try:
        return list(sqlglot.tokenize(text, read="spark"))
    except SqlglotError as error:
        raise PatternRefused("an expression cannot be read", "close its quotes", place) from error


def read_expression(text: str, place: int, variables: Collection[str]) -> Expression:
    """Return an expression of MEASURES or DEFINE. Raises PatternRefused.

    Args:
        text: as written.
        place: where it begins in the view's text.
        variables: names of the pattern's variables.
    """
    return _Reader(variables, place).read(text, place, within="")


class _Reader:
    def __init__(self, variables: Collection[str], place: int) -> None:
        self._variables = variables
        self._place = place

    def read(self, text: str, place: int, *, within: str) -> Expression:
        """Return a text with leaves. `within` is the function around it; "" if there is none."""
        tokens = tokens_of(text, place)
        if not tokens:
            raise PatternRefused("an expression is missing", "write one", place)
        if LEAF in text.lower():
            raise PatternRefused(f"a name begins with {LEAF}, which is reserved", "use another name", place)
        leaves: list[Leaf] = []
        pieces: list[str] = []
        at = index = 0
        while index < len(tokens):
            found = _call_at(tokens, index)
            if found is None:
                index += 1
                continue
            name, is_final, opened, closed = found
            if closed < 0:
                raise PatternRefused(f"{name}( is not closed", "add )", place + tokens[index].start)
            inner = text[tokens[opened].end + 1 : tokens[closed].start]
            start = place + tokens[index].start
            if within:
                raise PatternRefused(f"{name} within {within} is not supported", "call one function at a time", start)
            leaves.append(self._call(name, inner, place + tokens[opened].end + 1, is_final=is_final))
            pieces += [text[at : tokens[index].start], f"{LEAF}{len(leaves) - 1}"]
            at = tokens[closed].end + 1
            index = closed + 1
        return self._columns("".join([*pieces, text[at:]]), leaves, place)

    def _columns(self, text: str, leaves: list[Leaf], place: int) -> Expression:
        """Replace the columns of a text by leaves."""
        spans: list[tuple[int, int, Row]] = []
        for column in _tree(text, place).find_all(exp.Column):
            parts = column.parts
            if parts[0].name.startswith(LEAF):
                continue
            if any("start" not in part.meta for part in parts):
                raise PatternRefused("a column of an expression cannot be located", "write it differently", place)
            start, end = int(parts[0].meta["start"]), int(parts[-1].meta["end"]) + 1
            variable = variable_name(parts[0].name)
            if len(parts) > 1 and variable in self._variables:
                spans.append((start, end, Row(text[int(parts[1].meta["start"]) : end], variable)))
            else:
                spans.append((start, end, Row(text[start:end])))
        pieces, at = [], 0
        for start, end, row in sorted(spans, key=lambda span: span[0]):
            leaves.append(row)
            pieces += [text[at:start], f"{LEAF}{len(leaves) - 1}"]
            at = end
        return Expression("".join([*pieces, text[at:]]), tuple(leaves), place)

    def _call(self, name: str, inner: str, place: int, *, is_final: bool) -> Leaf:
        if name in {"CLASSIFIER", "MATCH_NUMBER"}:
            if inner.strip() or is_final:
                raise PatternRefused(f"{name}() has an argument, or FINAL", f"write {name}()", place)
            return Named(name)
        if name in AGGREGATES:
            return self._aggregate(name, inner, place, is_final=is_final)
        argument, offset = _arguments(name, inner, place)
        if name in {"FIRST", "LAST"}:
            sql, row = self._one_row(argument, place, name)
            return Row(sql, row.variable, name == "FIRST", offset or 0, is_final)
        if is_final:
            raise PatternRefused(f"has FINAL before {name}", f"write {name}(FINAL LAST(...)) without it", place)
        return self._neighbour(name, argument, 1 if offset is None else offset, place)

    def _aggregate(self, name: str, inner: str, place: int, *, is_final: bool) -> Rows:
        words = tokens_of(inner, place)
        if words and words[0].text.upper() in {"DISTINCT", "ALL"} and words[0].token_type != TokenType.IDENTIFIER:
            raise PatternRefused(f"{name}({words[0].text} ...) is not supported", "remove the word", place)
        if name == "COUNT" and len(words) == 1 and words[0].token_type == TokenType.STAR:
            return Rows(name, "", "", is_final)
        if name == "COUNT" and [one.token_type for one in words[1:]] == [TokenType.DOT, TokenType.STAR]:
            variable = variable_name(words[0].text)
            if variable not in self._variables:
                raise PatternRefused(f"{variable} is not a variable of PATTERN", "use one of its variables", place)
            return Rows(name, "", variable, is_final)
        sql, row = self._one_row(inner, place, name)
        return Rows(name, sql, row.variable, is_final)

    def _one_row(self, text: str, place: int, name: str) -> tuple[str, Row]:
        """Return an expression over the columns of one variable."""
        found = self.read(text, place, within=name)
        rows = [leaf for leaf in found.leaves if isinstance(leaf, Row)]
        if len({row.variable for row in rows}) != 1:
            what = "columns of several variables" if rows else "no column"
            raise PatternRefused(f"{name} has {what}", f"write {name}(A.x) with columns of one variable", place)
        return found.sql(lambda leaf: leaf.sql if isinstance(leaf, Row) else ""), rows[0]

    def _neighbour(self, name: str, text: str, offset: int, place: int) -> Row:
        """Return PREV or NEXT: the neighbour, in the partition, of one row of the match."""
        found = self.read(text, place, within="")
        rows = [leaf for leaf in found.leaves if isinstance(leaf, Row)]
        if len(rows) != len(found.leaves) or any(WINDOW in row.sql for row in rows):
            raise PatternRefused(
                f"calls {name} of a function over rows", f"write {name}(A.x) or {name}(LAST(A.x))", place
            )
        if len({row.at for row in rows}) != 1:
            what = "columns of several rows" if rows else "no column"
            raise PatternRefused(f"{name} has {what}", f"write {name}(A.x) with columns of one row", place)
        inner = found.sql(lambda leaf: leaf.sql if isinstance(leaf, Row) else "")
        one = rows[0]
        function = "lag" if name == "PREV" else "lead"
        sql = f"{function}({inner}, {offset}) over {WINDOW}"
        return Row(sql, one.variable, one.is_first, one.offset, one.is_final)


def _call_at(tokens: Sequence[Token], index: int) -> tuple[str, bool, int, int] | None:
    """Return name, FINAL, and the places of the parentheses of a call that begins at a token; -1 if it does not end."""
    word = tokens[index].text.upper()
    if tokens[index].token_type in {TokenType.STRING, TokenType.IDENTIFIER}:
        return None
    if index and tokens[index - 1].token_type == TokenType.DOT:
        return None
    ahead = 1 if word in {"FINAL", "RUNNING"} and index + 2 < len(tokens) else 0
    name = tokens[index + ahead].text.upper()
    opened = index + ahead + 1
    if name not in _CALLS or opened >= len(tokens) or tokens[opened].token_type != TokenType.L_PAREN:
        return None
    depth = 0
    for place in range(opened, len(tokens)):
        depth += (tokens[place].token_type == TokenType.L_PAREN) - (tokens[place].token_type == TokenType.R_PAREN)
        if depth == 0:
            return name, word == "FINAL", opened, place
    return name, word == "FINAL", opened, -1


def _arguments(name: str, text: str, place: int) -> tuple[str, int | None]:
    """Return the first argument and the offset behind it."""
    parts = split(text, tokens_of(text, place), TokenType.COMMA)
    if len(parts) > 2:
        raise PatternRefused(f"{name} has {len(parts)} arguments", f"write {name}(A.x) or {name}(A.x, 2)", place)
    if len(parts) == 1:
        return text, None
    offset = parts[1][1].strip()
    if not offset.isdigit() or int(offset[:9]) > _OFFSET_MAX:
        hint = f"write a number up to {_OFFSET_MAX:,}"
        raise PatternRefused(f"the offset of {name} is not a constant number", hint, place + parts[1][0])
    return parts[0][1], int(offset)


def split(text: str, tokens: Sequence[Token], kind: TokenType) -> list[tuple[int, str]]:
    """Return the parts of a text between tokens of a kind outside of parentheses, with their places in it."""
    found, depth, at = [], 0, 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 0 and token.token_type == kind:
            found.append((at, text[at : token.start]))
            at = token.end + 1
    return [*found, (at, text[at:])]


def _tree(text: str, place: int) -> exp.Expr:
    """Return the tree of an expression, after checking it for what is not supported. Raises PatternRefused."""
    try:
        found = tree_of(text)
    except SqlglotError as error:
        raise PatternRefused("an expression is not valid SQL", "it is read as Spark SQL", place) from error
    if found.find(exp.Query, exp.Subquery):
        raise PatternRefused(
            "has a subquery within MATCH_RECOGNIZE", "join the result of MATCH_RECOGNIZE instead", place
        )
    if found.find(exp.Window):
        raise PatternRefused(
            "has a window function within MATCH_RECOGNIZE", "compute it in a view that this reads", place
        )
    if found.find(exp.Star):
        raise PatternRefused("has * within MATCH_RECOGNIZE", "name the columns", place)
    other = next((one for one in found.find_all(exp.Func) if is_aggregate(one)), None)
    if other is not None:
        name = (other.name if isinstance(other, exp.Anonymous | exp.AnonymousAggFunc) else other.sql_name()).lower()
        raise PatternRefused(f"calls {name}() within MATCH_RECOGNIZE", "use count, sum, min, max or avg", place)
    return found
