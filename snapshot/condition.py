"""Parses the condition that selects rows of a snapshot, and writes it as safe SQL. Pure.

    status = 'open' and (id >= 100 or note is null) and kind not in ('a', 'b') and at between '2026-01-01' and 'today'

The grammar allows only comparisons of one column with literals, combined with AND, OR and NOT: no functions, no
user-defined operators. The given text is never pasted into a statement. PostgreSQL reads each literal with the type of
its column, and refuses one that does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from psycopg import sql

LENGTH_MAX: Final = 64 << 10  # characters; the record of the snapshot contains it
_DEPTH_MAX: Final = 50  # of parentheses and NOT: the parser is recursive
_IDENTIFIER: Final = re.compile(r"[a-z_][a-z0-9_$]*")
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<string>'(?:[^']|'')*')
      | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]))
      | (?P<quoted>"(?:[^"]|"")+")
      | (?P<word>[^\W\d][\w$]*)
      | (?P<sign><>|!=|<=|>=|[=<>(),])
    )""",
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset({"and", "or", "not", "in", "is", "null", "between", "true", "false"})

Operator: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">="]
_OPERATORS: Final = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


class ConditionError(Exception):
    """The condition is invalid. The message has the position, in characters from 1, and quotes nothing of the text."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Compares a column with a literal."""

    column: str
    operator: Operator
    value: str


@dataclass(frozen=True, slots=True)
class InList:
    """Tests whether a column has one of several values."""

    column: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """Tests whether a column is in a range, both ends included."""

    column: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """Tests whether a column is null."""

    column: str


@dataclass(frozen=True, slots=True)
class Not:
    """Negates a condition; unknown stays unknown."""

    inner: Condition


@dataclass(frozen=True, slots=True)
class AllOf:
    """At least two conditions combined with AND."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least two conditions combined with OR."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = Compare | InList | Between | IsNull | Not | AllOf | AnyOf


def parse(text: str) -> Condition:
    """Parse a condition. Raises ConditionError."""
    if len(text) > LENGTH_MAX:
        raise ConditionError(f"it has {len(text)} characters; at most {LENGTH_MAX} are accepted")
    if "\0" in text:
        raise ConditionError("it contains a null character")
    return _Parser(text).whole()


def columns(condition: Condition) -> frozenset[str]:
    """Return the columns in a condition."""
    match condition:
        case Not(inner):
            return columns(inner)
        case AllOf(parts) | AnyOf(parts):
            return frozenset().union(*map(columns, parts))
        case _:
            return frozenset({condition.column})


def as_sql(condition: Condition) -> sql.Composable:
    """Return the condition as SQL, in parentheses."""
    match condition:
        case Compare(column, operator, value):
            return sql.SQL("({} {} {})").format(sql.Identifier(column), sql.SQL(operator), _literal(value))
        case InList(column, values):
            return sql.SQL("({} in ({}))").format(sql.Identifier(column), sql.SQL(", ").join(map(_literal, values)))
        case Between(column, low, high):
            return sql.SQL("({} between {} and {})").format(sql.Identifier(column), _literal(low), _literal(high))
        case IsNull(column):
            return sql.SQL("({} is null)").format(sql.Identifier(column))
        case Not(inner):
            return sql.SQL("(not {})").format(as_sql(inner))
        case AllOf(parts):
            return sql.SQL("({})").format(sql.SQL(" and ").join(map(as_sql, parts)))
        case AnyOf(parts):
            return sql.SQL("({})").format(sql.SQL(" or ").join(map(as_sql, parts)))


def _literal(value: str) -> sql.Composable:
    """Write an untyped literal, which gets the type of the column. Needs standard_conforming_strings = on."""
    return sql.SQL(cast("Literal['']", "'" + value.replace("'", "''") + "'"))


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int

    def is_(self, word: str) -> bool:
        return self.kind in {"keyword", "sign"} and self.text == word


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def whole(self) -> Condition:
        found = self._or()
        if self._next.kind != "end":
            raise self._expected("AND, OR or nothing more")
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _accept(self, word: str) -> bool:
        found = self._next.is_(word)
        self._at += found
        return found

    def _require(self, word: str) -> None:
        if not self._accept(word):
            raise self._expected(word.upper())

    def _expected(self, what: str) -> ConditionError:
        where = "at the end" if self._next.kind == "end" else f"at character {self._next.at + 1}"
        return ConditionError(f"expected {what} {where}")

    def _or(self) -> Condition:
        parts = [self._and()]
        while self._accept("or"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _and(self) -> Condition:
        parts = [self._operand()]
        while self._accept("and"):
            parts.append(self._operand())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _operand(self) -> Condition:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise ConditionError(f"it is nested more than {_DEPTH_MAX} levels deep at character {self._next.at + 1}")
        if self._accept("not"):
            found: Condition = Not(self._operand())
        elif self._accept("("):
            found = self._or()
            self._require(")")
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> Condition:
        if self._next.kind != "column":
            raise self._expected("a column")
        column = self._take().text
        if self._accept("is"):
            negated = self._accept("not")
            self._require("null")
            return Not(IsNull(column)) if negated else IsNull(column)
        negated = self._accept("not")
        found: Condition
        if self._accept("in"):
            found = InList(column, self._values())
        elif self._accept("between"):
            low = self._value()
            self._require("and")
            found = Between(column, low, self._value())
        elif not negated and self._next.kind == "sign" and self._next.text in _OPERATORS:
            operator = cast("Operator", _OPERATORS[self._take().text])
            found = Compare(column, operator, self._value())
        else:
            raise self._expected("IN or BETWEEN" if negated else "a comparison (=, <>, <, <=, >, >=, IN, BETWEEN, IS)")
        return Not(found) if negated else found

    def _values(self) -> tuple[str, ...]:
        self._require("(")
        values = [self._value()]
        while self._accept(","):
            values.append(self._value())
        self._require(")")
        return tuple(values)

    def _value(self) -> str:
        token = self._next
        if token.is_("null"):
            raise ConditionError(f"no value equals NULL (character {token.at + 1}); use IS NULL")
        if token.kind == "value" or token.is_("true") or token.is_("false"):
            return self._take().text
        raise self._expected("a literal (a number, 'text', true or false)")


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            while text[at].isspace():
                at += 1
            raise ConditionError(f"unexpected character {at + 1}: expected a column, a literal or a comparison")
        kind, shown, begins = found.lastgroup or "", found[found.lastgroup or 0], found.start(found.lastgroup or 0)
        at = found.end()
        if kind == "string":
            yield _Token("value", shown[1:-1].replace("''", "'"), begins)
        elif kind == "number":
            yield _Token("value", shown, begins)
        elif kind == "quoted":
            yield _Token("column", shown[1:-1].replace('""', '"'), begins)
        elif kind == "word" and shown.lower() in _KEYWORDS:
            yield _Token("keyword", shown.lower(), begins)
        elif kind == "word":
            # Fold only ASCII letters, as PostgreSQL does in a UTF-8 database.
            yield _Token("column", re.sub("[A-Z]", lambda letter: letter[0].lower(), shown), begins)
        else:
            yield _Token("sign", shown, begins)
    yield _Token("end", "", len(text))
