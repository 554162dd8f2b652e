"""Divides the conditions of DEFINE into what Spark computes for each row, and what depends on the match. Pure.

    define B as B.price > prev(B.price) * 2 and B.at < first(A.at) + interval 1 hour

The first part reads the current row and its neighbours: Spark computes it, as it is written. In the second part Spark
computes the two sides of the comparison for every row, and the matcher compares the values of two rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

from sinks.warehouse.patterns.conditions import Compared, Condition, IsNull, Joined, Not, OfRow, OfRows, Operand
from sinks.warehouse.patterns.expressions import (
    Expression,
    Leaf,
    Named,
    Row,
    Rows,
    leaf_index,
    tokens_of,
    with_leaves,
)
from sinks.warehouse.patterns.refusal import PatternRefused
from sinks.warehouse.patterns.trail import ALL, Aggregate, Navigation

_SIGNS: Final = {
    TokenType.EQ: "=",
    TokenType.NEQ: "<>",
    TokenType.LT: "<",
    TokenType.LTE: "<=",
    TokenType.GT: ">",
    TokenType.GTE: ">=",
    TokenType.NULLSAFE_EQ: "<=>",
}
_HINT: Final = "compare two values: B.x > A.x, B.at < FIRST(A.at) + interval 1 hour, count(A.*) > 2"


@dataclass(slots=True)
class Columns:
    """Expressions that Spark computes for every row, each once."""

    sqls: list[str] = field(default_factory=list)

    def add(self, sql: str) -> int:
        """Return the index of an expression."""
        plain = sql.strip()
        if plain not in self.sqls:
            self.sqls.append(plain)
        return self.sqls.index(plain)


@dataclass(frozen=True, slots=True)
class Defined:
    """The conditions of one variable: a column of booleans, -1 if there is none, and a condition on the match."""

    of_row: int = -1
    of_match: Condition | None = None


def navigation(row: Row, variables: Sequence[str]) -> Navigation:
    """Return which row of the match a leaf means."""
    return Navigation(row.is_first, variables.index(row.variable) if row.variable else ALL, row.offset)


def defined(
    variable: str,
    condition: Expression,
    variables: Sequence[str],
    columns: Columns,
    aggregates: list[Aggregate],
) -> Defined:
    """Return the conditions of a variable; adds to `columns` and `aggregates`. Raises PatternRefused."""
    reader = _Conditions(variable, condition, variables, columns, aggregates)
    tokens = tokens_of(condition.text, condition.place)
    parts = [_unwrapped(part) for part in _split_and(_unwrapped(tokens))]
    of_row = [part for part in parts if reader.is_of_row(part)]
    rest = tuple(reader.condition(part) for part in parts if not reader.is_of_row(part))
    column = columns.add(" and ".join(f"({reader.sql(part)})" for part in of_row)) if of_row else -1
    if not rest:
        return Defined(column)
    return Defined(column, rest[0] if len(rest) == 1 else Joined(is_and=True, parts=rest))


class _Conditions:
    """Reads parts of one condition, as tokens of its text."""

    def __init__(
        self,
        variable: str,
        condition: Expression,
        variables: Sequence[str],
        columns: Columns,
        aggregates: list[Aggregate],
    ) -> None:
        self._variable = variable
        self._text = condition.text
        self._place = condition.place
        self._leaves = condition.leaves
        self._variables = variables
        self._columns = columns
        self._aggregates = aggregates
        for leaf in condition.leaves:
            if isinstance(leaf, Named):
                raise self._refused(f"{leaf.function}() in DEFINE", "use it in MEASURES")
            if leaf.is_final:
                raise self._refused("FINAL in DEFINE: a condition is evaluated before the match ends", "remove FINAL")

    def _refused(self, what: str, hint: str = _HINT) -> PatternRefused:
        return PatternRefused(f"the condition of {self._variable} has {what}", hint, self._place)

    def is_of_row(self, tokens: Sequence[Token]) -> bool:
        """Whether the current row and its neighbours alone determine it."""
        rows = self._rows(tokens)
        return rows is not None and all(row is None for row in rows)

    def sql(self, tokens: Sequence[Token]) -> str:
        """Return a part as SQL over one row."""
        return self._shown(tokens, lambda leaf: leaf.sql if isinstance(leaf, Row) else "")

    def condition(self, tokens: Sequence[Token]) -> Condition:
        """Return the condition that some tokens are. Raises PatternRefused."""
        tokens = _unwrapped(tokens)
        if not tokens:
            raise self._refused("an empty part")
        rows = self._rows(tokens)
        if rows is not None and len(rows) <= 1:
            return self._of_row(tokens, next(iter(rows), None))
        for is_and, parts in ((False, _split(tokens, TokenType.OR)), (True, _split_and(tokens))):
            if len(parts) > 1:
                return Joined(is_and, tuple(self.condition(part) for part in parts))
        if tokens[0].token_type == TokenType.NOT:
            return Not(self.condition(tokens[1:]))
        return self._predicate(tokens)

    def _predicate(self, tokens: Sequence[Token]) -> Condition:
        for index, token in _outside(tokens):
            left, right = tokens[:index], tokens[index + 1 :]
            if token.token_type in _SIGNS:
                return self._compared(_SIGNS[token.token_type], left, right)
            if token.token_type == TokenType.IS:
                return self._is(left, right)
            is_not = bool(left) and left[-1].token_type == TokenType.NOT
            plain = left[:-1] if is_not else left
            if token.token_type == TokenType.BETWEEN:
                both = _split(right, TokenType.AND)
                if len(both) != 2:
                    raise self._refused("an unsupported form of BETWEEN")
                found: Condition = Joined(
                    is_and=True, parts=(self._compared(">=", plain, both[0]), self._compared("<=", plain, both[-1]))
                )
                return Not(found) if is_not else found
            if token.token_type == TokenType.IN:
                each = _split(_unwrapped(right), TokenType.COMMA)
                found = Joined(is_and=False, parts=tuple(self._compared("=", plain, one) for one in each))
                return Not(found) if is_not else found
        raise self._refused("an expression over several rows that is not a comparison")

    def _is(self, left: Sequence[Token], right: Sequence[Token]) -> Condition:
        is_not = bool(right) and right[0].token_type == TokenType.NOT
        rest = right[1:] if is_not else right
        words = [token.text.upper() for token in rest]
        if words == ["NULL"]:
            found: Condition = IsNull(self._operand(left))
        elif words[:2] == ["DISTINCT", "FROM"]:
            found, is_not = self._compared("<=>", left, rest[2:]), not is_not
        else:
            raise self._refused("an unsupported form of IS over several rows")
        return Not(found) if is_not else found

    def _compared(self, sign: str, left: Sequence[Token], right: Sequence[Token]) -> Compared:
        return Compared(sign, self._operand(left), self._operand(right))

    def _operand(self, tokens: Sequence[Token]) -> Operand:
        tokens = _unwrapped(tokens)
        if not tokens:
            raise self._refused("a comparison without a value")
        leaf = self._leaves[leaf_index(tokens[0])] if len(tokens) == 1 and leaf_index(tokens[0]) >= 0 else None
        if isinstance(leaf, Rows):
            return OfRows(add_aggregate(leaf, self._variables, self._columns, self._aggregates))
        rows = self._rows(tokens)
        if rows is None:
            shown = " or ".join(sorted({one.function.lower() for one in self._leaves if isinstance(one, Rows)}))
            raise self._refused(f"an expression over {shown}()", "compare the aggregate itself: sum(A.x) > B.y / 2")
        if len(rows) > 1:
            hint = "move one to the other side: C.at < A.at + interval 1 hour instead of C.at - A.at < ..."
            raise self._refused("an expression over several rows on one side of a comparison", hint)
        return self._of_row(tokens, next(iter(rows), None))

    def _of_row(self, tokens: Sequence[Token], row: Row | None) -> OfRow:
        column = self._columns.add(self.sql(tokens))
        if row is None:
            return OfRow(column)
        is_plain = len(tokens) == 1 and leaf_index(tokens[0]) >= 0
        absent = -1 if is_plain else self._columns.add(self._shown(tokens, _null))
        return OfRow(column, navigation(row, self._variables), absent)

    def _rows(self, tokens: Sequence[Token]) -> set[Row | None] | None:
        """Return the rows that a part reads, None for the current one; None if it reads an aggregate."""
        found: set[Row | None] = set()
        for token in tokens:
            index = leaf_index(token)
            if index < 0:
                continue
            leaf = self._leaves[index]
            if not isinstance(leaf, Row):
                return None
            is_current = not leaf.is_first and not leaf.offset and leaf.variable in {"", self._variable}
            found.add(None if is_current else Row("", *leaf.at))
        return found

    def _shown(self, tokens: Sequence[Token], shown: Callable[[Leaf], str]) -> str:
        text = self._text[tokens[0].start : tokens[-1].end + 1]
        return with_leaves(text, self._leaves, shown)


def add_aggregate(leaf: Rows, variables: Sequence[str], columns: Columns, aggregates: list[Aggregate]) -> int:
    """Return the index of an aggregate among `aggregates`."""
    column = columns.add(leaf.sql) if leaf.sql else -1
    variable = variables.index(leaf.variable) if leaf.variable else ALL
    found = Aggregate(leaf.function.lower(), variable, column)
    if found not in aggregates:
        aggregates.append(found)
    return aggregates.index(found)


def _null(leaf: Leaf) -> str:
    """Return a null of the leaf's type."""
    return f"case when false then {leaf.sql} end" if isinstance(leaf, Row) else "null"


def _outside(tokens: Sequence[Token]) -> list[tuple[int, Token]]:
    """Return the tokens outside of parentheses and CASE, with their places."""
    found, depth = [], 0
    for index, token in enumerate(tokens):
        opens = token.token_type in {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE}
        closes = token.token_type in {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END}
        depth -= closes and depth > 0
        if depth == 0 and not opens and not closes:
            found.append((index, token))
        depth += opens
    return found


def _split(tokens: Sequence[Token], kind: TokenType) -> list[Sequence[Token]]:
    parts, at = [], 0
    for index, token in _outside(tokens):
        if token.token_type == kind:
            parts.append(tokens[at:index])
            at = index + 1
    return [*parts, tokens[at:]]


def _split_and(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """Return the parts between ANDs, without that of BETWEEN; one part if OR is outside of parentheses."""
    parts, at, between = [], 0, 0
    for index, token in _outside(tokens):
        if token.token_type == TokenType.OR:
            return [tokens]
        between += token.token_type == TokenType.BETWEEN
        if token.token_type == TokenType.AND and between:
            between -= 1
        elif token.token_type == TokenType.AND:
            parts.append(tokens[at:index])
            at = index + 1
    return [*parts, tokens[at:]]


def _unwrapped(tokens: Sequence[Token]) -> Sequence[Token]:
    """Remove parentheses around all of it."""
    while len(tokens) > 1 and tokens[0].token_type == TokenType.L_PAREN and tokens[-1].token_type == TokenType.R_PAREN:
        depth = 0
        for token in tokens[:-1]:
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if depth == 0:
                return tokens
        tokens = tokens[1:-1]
    return tokens
