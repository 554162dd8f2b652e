"""Expressions that cover the table of known constructs: generated from the table, and written by hand for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sinks.warehouse.views.meaning import known, known_numbers, known_text, known_time, known_values
from tests.spark.meaning import json_cases, regex_cases, text_cases
from tests.spark.meaning.array_cases import array_cases
from tests.spark.meaning.case import Case, column
from tests.spark.meaning.number_cases import number_cases
from tests.spark.meaning.text_cases import TEXTS as _TEXTS
from tests.spark.meaning.time_cases import time_cases
from tests.spark.meaning.value_cases import value_cases

_NUMBERS: Final = ("int2", "int4", "int8", "numeric(15,2)", "numeric(6,4)")


def cases() -> Iterator[Case]:
    """Yield the cases of values that are neither text nor JSON."""
    yield from _operators()
    yield from _functions()
    yield from _casts()
    yield from _by_hand()
    yield from number_cases()
    yield from time_cases()
    yield from value_cases()
    yield from array_cases()


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
                a, b = column(left), column(right, "r")
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
        yield Case(f"- {left}", f"-{column(left)}", left)
        for right in _NUMBERS:
            for operator in "+-*/%":
                yield Case(f"{operator} {left} {right}", f"{column(left)} {operator} {column(right, 'r')}", left, right)
    yield Case("div", f"div({column('int4')}, {column('int8', 'r')})", "int4", "int8")
    for left in _TEXTS:
        for right in (*_TEXTS, "int4", "bool", "date"):
            yield Case(f"|| {left} {right}", f"{column(left)} || {column(right, 'r')}", left, right)
    for word in ("and", "or"):
        yield Case(word, f"{column('bool')} {word} {column('bool', 'r')}", "bool", "bool")
    for test in ("is true", "is false", "is not true", "is null", "is not null"):
        yield Case(test, f"{column('bool')} {test}", "bool")
    yield Case("not", f"not {column('bool')}", "bool")


def _functions() -> Iterator[Case]:
    names = {"numeric": ("numeric(15,2)", "numeric(6,4)"), "text": _TEXTS}
    for name, entries in known.FUNCTIONS.items():
        if name in {*known_numbers.FUNCTIONS, *known_time.FUNCTIONS, *known_text.FUNCTIONS}:
            continue
        for entry in entries:
            for first in names.get(entry.arguments[0], (entry.arguments[0],)):
                for literals in (("1", "2"), ("2", "0"), ("3", "1"), ("0", "0"), ("50", "50")):
                    if (entry.literal and min(map(int, literals)) < entry.low) or not (
                        entry.literal or literals[0] == "1"
                    ):
                        continue
                    more = [
                        literals[place - 1] if place in entry.literal else column("text", "r")
                        for place in range(1, len(entry.arguments))
                    ]
                    second = "text" if any(part.startswith("r.") for part in more) else ""
                    yield Case(
                        f"{name}{entry.arguments}", f"{name}({', '.join([column(first), *more])})", first, second
                    )
    for kind in ("numeric(15,2)", "numeric(6,4)"):
        for digits in range(6):
            yield Case(f"round {kind}", f"round({column(kind)}, {digits})", kind)
        yield Case(f"round {kind}", f"round({column(kind)})", kind)


def _casts() -> Iterator[Case]:
    others = {*known_numbers.CASTS, *known_values.CASTS, *known_time.CASTS}
    for have, kind in known.CASTS.keys() - others:
        for one in {"numeric": ("numeric(15,2)", "numeric(6,4)"), "enum": ("mood",)}.get(have, (have,)):
            yield Case(f"cast {have} {kind}", f"{column(one)}::{kind}", one)
    for have in _NUMBERS:
        for kind in ("numeric(10,0)", "numeric(20,4)", "numeric(3,2)", "text"):
            yield Case(f"cast {have} numeric", f"{column(have)}::{kind}", have)
    for have in _TEXTS:
        for kind in ("text", "varchar(2)", "varchar"):
            yield Case(f"cast {have} {kind}", f"{column(have)}::{kind}", have)


def _by_hand() -> Iterator[Case]:
    number, whole = column("numeric(15,2)"), column("int8", "r")
    yield Case("+ chained", f"{number} * {whole} + 1.5", "numeric(15,2)", "int8")
    yield Case("* chained", f"{number} * (1 - {column('numeric(6,4)', 'r')})", "numeric(15,2)", "numeric(6,4)")
    yield Case("/ literal", f"{number} / 7.0", "numeric(15,2)")
    yield Case("/ small", f"0.0001 / {column('numeric(6,4)')}", "numeric(6,4)")
    yield Case(
        "/ round",
        f"round(100.00 * {column('numeric(6,4)')} / ({column('numeric(6,4)', 'r')}), 3)",
        "numeric(6,4)",
        "numeric(6,4)",
    )
    yield Case("= literal", f"{column('char(5)')} = 'a'", "char(5)")
    yield Case("= literal", f"{column('char(5)')} in ('a  ', 'abcde')", "char(5)")
    yield Case("= literal", f"{column('date')} = '2024-02-29'", "date")
    yield Case("= literal", f"{column('timestamptz')} > '2024-03-31 02:00:00+01'", "timestamptz")
    yield Case("= literal", f"{column('uuid')} = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "uuid")
    for test in ("= 'a'", "<> 'a'", "in ('a', '')", "is distinct from 'a'"):
        yield Case("enum", f"{column('mood')} {test}", "mood")
    yield Case("enum", f"{column('mood')} = {column('mood', 'r')}", "mood", "mood")
    for kind in ("timestamp", "timestamptz"):
        for shift in ("- interval '1 month'", "+ interval '1 day'"):
            yield Case("text of years", f"({column(kind)} {shift})::text", kind)
    yield Case("case value", f"case {column('int4')} when 7 then 'x' when 0 then 'y' end", "int4")
    yield Case("case error", f"case when {column('int4')} <> 0 then 100 / {column('int4')} end", "int4")


AREAS: Final[dict[str, Callable[[], Iterator[Case]]]] = {
    "values": cases,
    "text": text_cases.cases,
    "regular expressions": regex_cases.cases,
    "json": json_cases.cases,
}
"""Area -> its cases."""
