"""Which rows a snapshot reads: comparisons of columns with literals, parsed and never pasted. Pure.

    status = 'open' and (id >= 100 or note is null) and kind not in ('a', 'b') and at between '2026-01-01' and 'today'

The words are SQL's. A literal has the type of the column it stands beside: PostgreSQL reads it as a value of that type,
and refuses what is none. Nothing else can be said: no function, no operator of somebody's, no second column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from psycopg import sql

LENGTH_MAX: Final = 64 << 10  # characters; it is kept in the record of its snapshot
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
    """It is not one. The message says where, counted in characters from 1, and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A column and a literal."""

    column: str
    operator: Operator
    value: str


@dataclass(frozen=True, slots=True)
class Among:
    """A column has one of some values."""

    column: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """A column is in a range, both ends included."""

    column: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column is null."""

    column: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; of unknown it is unknown."""

    inner: Condition


@dataclass(frozen=True, slots=True)
class Every:
    """All of at least two."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """One of at least two."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = Compare | Among | Between | IsNull | Not | Every | Any


def parse(text: str) -> Condition:
    """The condition that `text` says. Raises ConditionError."""
    if len(text) > LENGTH_MAX:
        raise ConditionError(f"it has {len(text)} characters, at most {LENGTH_MAX} are taken")
    if "\0" in text:
        raise ConditionError("it has a null character")
    return _Parser(text).whole()


def columns(condition: Condition) -> frozenset[str]:
    """The columns it speaks of."""
    match condition:
        case Not(inner):
            return columns(inner)
        case Every(parts) | Any(parts):
            return frozenset().union(*map(columns, parts))
        case _:
            return frozenset({condition.column})


def as_sql(condition: Condition) -> sql.Composable:
    """The condition as PostgreSQL reads it, in parentheses."""
    match condition:
        case Compare(column, operator, value):
            return sql.SQL("({} {} {})").format(sql.Identifier(column), sql.SQL(operator), _literal(value))
        case Among(column, values):
            return sql.SQL("({} in ({}))").format(sql.Identifier(column), sql.SQL(", ").join(map(_literal, values)))
        case Between(column, low, high):
            return sql.SQL("({} between {} and {})").format(sql.Identifier(column), _literal(low), _literal(high))
        case IsNull(column):
            return sql.SQL("({} is null)").format(sql.Identifier(column))
        case Not(inner):
            return sql.SQL("(not {})").format(as_sql(inner))
        case Every(parts):
            return sql.SQL("({})").format(sql.SQL(" and ").join(map(as_sql, parts)))
        case Any(parts):
            return sql.SQL("({})").format(sql.SQL(" or ").join(map(as_sql, parts)))


def _literal(value: str) -> sql.Composable:
    """A literal without a type: it gets that of the column. Needs standard_conforming_strings = on."""
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
        found = self._any()
        if self._next.kind != "end":
            raise self._expected("AND, OR or the end")
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _took(self, word: str) -> bool:
        found = self._next.is_(word)
        self._at += found
        return found

    def _demand(self, word: str) -> None:
        if not self._took(word):
            raise self._expected(word.upper())

    def _expected(self, what: str) -> ConditionError:
        where = "at its end" if self._next.kind == "end" else f"at character {self._next.at + 1}"
        return ConditionError(f"{what} is missing {where}")

    def _any(self) -> Condition:
        parts = [self._every()]
        while self._took("or"):
            parts.append(self._every())
        return parts[0] if len(parts) == 1 else Any(tuple(parts))

    def _every(self) -> Condition:
        parts = [self._one()]
        while self._took("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise ConditionError(f"it is nested more than {_DEPTH_MAX} deep at character {self._next.at + 1}")
        if self._took("not"):
            found: Condition = Not(self._one())
        elif self._took("("):
            found = self._any()
            self._demand(")")
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> Condition:
        if self._next.kind != "column":
            raise self._expected("a column")
        column = self._take().text
        if self._took("is"):
            negated = self._took("not")
            self._demand("null")
            return Not(IsNull(column)) if negated else IsNull(column)
        negated = self._took("not")
        found: Condition
        if self._took("in"):
            found = Among(column, self._values())
        elif self._took("between"):
            low = self._value()
            self._demand("and")
            found = Between(column, low, self._value())
        elif not negated and self._next.kind == "sign" and self._next.text in _OPERATORS:
            operator = cast("Operator", _OPERATORS[self._take().text])
            found = Compare(column, operator, self._value())
        else:
            raise self._expected("IN or BETWEEN" if negated else "a comparison (=, <>, <, <=, >, >=, IN, BETWEEN, IS)")
        return Not(found) if negated else found

    def _values(self) -> tuple[str, ...]:
        self._demand("(")
        values = [self._value()]
        while self._took(","):
            values.append(self._value())
        self._demand(")")
        return tuple(values)

    def _value(self) -> str:
        token = self._next
        if token.is_("null"):
            raise ConditionError(f"nothing equals NULL (character {token.at + 1}); say IS NULL")
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
            raise ConditionError(f"character {at + 1} begins neither a name, a literal nor a comparison")
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
            # As PostgreSQL does in a UTF-8 database: only ASCII letters are folded.
            yield _Token("column", re.sub("[A-Z]", lambda letter: letter[0].lower(), shown), begins)
        else:
            yield _Token("sign", shown, begins)
    yield _Token("end", "", len(text))
