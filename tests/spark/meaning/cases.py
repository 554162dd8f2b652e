"""Expressions that cover the table of known constructs: generated from the table, and written by hand for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sinks.warehouse.views.meaning import known
from tests.spark.meaning.hostile import COLUMNS

_NUMBERS: Final = ("int2", "int4", "int8", "numeric(15,2)", "numeric(6,4)")
_TEXTS: Final = ("text", "char(5)", "varchar(6)")
_PATTERNS: Final = ("", "%", "a%", "%b", "_", "a_", "%a%", "ä%", "_____", "a    ", "\U0001f600%")


@dataclass(frozen=True)
class Case:
    """An expression over one row of values, `l`, and another, `r`.

    Attributes:
        entry: what it covers.
        sql: PostgreSQL's SQL.
        left: type of the left value.
        right: type of the right value; empty if it uses only one.
    """

    entry: str
    sql: str
    left: str
    right: str = ""


def _column(kind: str, side: str = "l") -> str:
    return f"{side}.{COLUMNS[kind]}"


def cases() -> Iterator[Case]:
    """Yield every case."""
    yield from _operators()
    yield from _functions()
    yield from _casts()
    yield from _moments()
    yield from _by_hand()


def _operators() -> Iterator[Case]:
    groups = (
        _NUMBERS,
        ("float8", "float4"),
        ("date", "timestamp", "timestamptz"),
        _TEXTS,
        ("bool",),
        ("uuid",),
        ("bytea",),
    )
    for kinds in groups:
        for left in kinds:
            for right in kinds:
                a, b = _column(left), _column(right, "r")
                for operator in ("=", "<>", "is distinct from", "is not distinct from"):
                    yield Case(f"{operator} {left} {right}", f"{a} {operator} {b}", left, right)
                c = ' collate "C"' if kinds == _TEXTS else ""
                for operator in ("<", "<=", ">", ">="):
                    yield Case(f"{operator} {left} {right}", f"{a}{c} {operator} {b}", left, right)
                yield Case(f"in {left} {right}", f"{a} in ({b}, {a})", left, right)
                yield Case(f"not in {left} {right}", f"{a} not in ({b})", left, right)
                yield Case(f"between {left} {right}", f"{a}{c} between {b} and {a}", left, right)
                if kinds != _TEXTS or left == right:
                    yield Case(f"coalesce {left} {right}", f"coalesce({a}, {b})", left, right)
                    yield Case(f"case {left} {right}", f"case when {a} is null then {b} else {a} end", left, right)
                if left == right:
                    yield Case(f"nullif {left}", f"nullif({a}, {b})", left, right)
                if kinds not in (_TEXTS, ("bool",), ("uuid",), ("bytea",)):
                    yield Case(f"greatest {left} {right}", f"greatest({a}, {b})", left, right)
                    yield Case(f"least {left} {right}", f"least({a}, {b})", left, right)
    for left in _NUMBERS:
        yield Case(f"- {left}", f"-{_column(left)}", left)
        for right in _NUMBERS:
            for operator in "+-*/%":
                yield Case(
                    f"{operator} {left} {right}", f"{_column(left)} {operator} {_column(right, 'r')}", left, right
                )
    yield Case("div", f"div({_column('int4')}, {_column('int8', 'r')})", "int4", "int8")
    for left in _TEXTS:
        for right in (*_TEXTS, "int4", "bool", "date"):
            yield Case(f"|| {left} {right}", f"{_column(left)} || {_column(right, 'r')}", left, right)
        for pattern in _PATTERNS:
            yield Case(f"like {left}", f"{_column(left)} like '{pattern}'", left)
            yield Case(f"not like {left}", f"{_column(left)} not like '{pattern}'", left)
            yield Case(f"ilike {left}", f"{_column(left)} collate \"C\" ilike '{pattern}'", left)
    for word in ("and", "or"):
        yield Case(word, f"{_column('bool')} {word} {_column('bool', 'r')}", "bool", "bool")
    for test in ("is true", "is false", "is not true", "is null", "is not null"):
        yield Case(test, f"{_column('bool')} {test}", "bool")
    yield Case("not", f"not {_column('bool')}", "bool")


def _functions() -> Iterator[Case]:
    names = {"numeric": ("numeric(15,2)", "numeric(6,4)"), "text": _TEXTS}
    for name, entries in known.FUNCTIONS.items():
        for entry in entries:
            for first in names.get(entry.arguments[0], (entry.arguments[0],)):
                for literals in (("1", "2"), ("2", "0"), ("3", "1"), ("0", "0"), ("50", "50")):
                    if (entry.literal and min(map(int, literals)) < entry.low) or not (
                        entry.literal or literals[0] == "1"
                    ):
                        continue
                    more = [
                        literals[place - 1] if place in entry.literal else _column("text", "r")
                        for place in range(1, len(entry.arguments))
                    ]
                    second = "text" if any(part.startswith("r.") for part in more) else ""
                    yield Case(
                        f"{name}{entry.arguments}", f"{name}({', '.join([_column(first), *more])})", first, second
                    )
    for kind in _TEXTS:
        for name in ("upper", "lower"):
            yield Case(f"{name} {kind}", f'{name}({_column(kind)} collate "C")', kind)
        yield Case(f"trim {kind}", f"trim({_column(kind)})", kind)
    for kind in ("numeric(15,2)", "numeric(6,4)"):
        for digits in range(6):
            yield Case(f"round {kind}", f"round({_column(kind)}, {digits})", kind)
        yield Case(f"round {kind}", f"round({_column(kind)})", kind)


def _casts() -> Iterator[Case]:
    for have, kind in known.CASTS:
        for one in {"numeric": ("numeric(15,2)", "numeric(6,4)"), "enum": ("mood",)}.get(have, (have,)):
            yield Case(f"cast {have} {kind}", f"{_column(one)}::{kind}", one)
    for have in _NUMBERS:
        for kind in ("numeric(10,0)", "numeric(20,4)", "numeric(3,2)", "text"):
            yield Case(f"cast {have} numeric", f"{_column(have)}::{kind}", have)
    for have in _TEXTS:
        for kind in ("text", "varchar(2)", "varchar"):
            yield Case(f"cast {have} {kind}", f"{_column(have)}::{kind}", have)


def _moments() -> Iterator[Case]:
    kinds = ("date", "timestamp", "timestamptz")
    for kind in kinds:
        value = _column(kind)
        for field in known.FIELDS:
            if kind != "date" or field not in known.CLOCK_FIELDS:
                yield Case(f"extract {field} {kind}", f"extract({field} from {value})", kind)
        for unit in known.TRUNCATED_TO:
            yield Case(f"date_trunc {unit} {kind}", f"date_trunc('{unit}', {value})", kind)
        for interval in (
            "1 month'",
            "13 months'",
            "1' year",
            "2 weeks'",
            "31' day",
            "5' hour",
            "90 minutes'",
            "7' second",
        ):
            for operator in "+-":
                yield Case(f"{operator} interval {kind}", f"{value} {operator} interval '{interval}", kind)
    yield Case("at time zone timestamptz", f"{_column('timestamptz')} at time zone 'utc'", "timestamptz")
    yield Case("at time zone timestamp", f"{_column('timestamp')} at time zone 'UTC'", "timestamp")
    yield Case("date - date", f"{_column('date')} - {_column('date', 'r')}", "date", "date")
    for operator in "+-":
        yield Case(f"date {operator} int4", f"{_column('date')} {operator} {_column('int4', 'r')}", "date", "int4")


def _by_hand() -> Iterator[Case]:
    number, whole = _column("numeric(15,2)"), _column("int8", "r")
    yield Case("+ chained", f"{number} * {whole} + 1.5", "numeric(15,2)", "int8")
    yield Case("* chained", f"{number} * (1 - {_column('numeric(6,4)', 'r')})", "numeric(15,2)", "numeric(6,4)")
    yield Case("/ literal", f"{number} / 7.0", "numeric(15,2)")
    yield Case("/ small", f"0.0001 / {_column('numeric(6,4)')}", "numeric(6,4)")
    yield Case(
        "/ round",
        f"round(100.00 * {_column('numeric(6,4)')} / ({_column('numeric(6,4)', 'r')}), 3)",
        "numeric(6,4)",
        "numeric(6,4)",
    )
    yield Case("= literal", f"{_column('char(5)')} = 'a'", "char(5)")
    yield Case("= literal", f"{_column('char(5)')} in ('a  ', 'abcde')", "char(5)")
    yield Case("= literal", f"{_column('date')} = '2024-02-29'", "date")
    yield Case("= literal", f"{_column('timestamptz')} > '2024-03-31 02:00:00+01'", "timestamptz")
    yield Case("= literal", f"{_column('uuid')} = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "uuid")
    for test in ("= 'a'", "<> 'a'", "in ('a', '')", "is distinct from 'a'"):
        yield Case("enum", f"{_column('mood')} {test}", "mood")
    yield Case("enum", f"{_column('mood')} = {_column('mood', 'r')}", "mood", "mood")
    yield Case("case value", f"case {_column('int4')} when 7 then 'x' when 0 then 'y' end", "int4")
    yield Case("case error", f"case when {_column('int4')} <> 0 then 100 / {_column('int4')} end", "int4")
