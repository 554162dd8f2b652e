"""Cases of numbers: floats, rounding, bits, and casts from text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sinks.warehouse.views.meaning import known_numbers
from tests.spark.meaning.case import Case, column

INTEGERS: Final = ("int2", "int4", "int8")
NUMERICS: Final = ("numeric(15,2)", "numeric(6,4)")
FLOATS: Final = ("float4", "float8")
_TEXTS_OF: Final = {
    **dict.fromkeys(("int2", "int4", "int8"), ("number_text", "unclear_text")),
    **dict.fromkeys(("float4", "float8"), ("number_text", "float_text")),
    "bool": ("word_text", "unclear_text"),
    "date": ("day_text", "unclear_text"),
    "timestamp": ("moment_text", "unclear_text"),
    "timestamptz": ("zoned_text", "unclear_text"),
    "uuid": ("uuid_text", "unclear_text"),
}


def number_cases() -> Iterator[Case]:
    """Yield every case."""
    yield from _floats()
    yield from _functions()
    yield from _bits()
    for have, kind in known_numbers.CASTS:
        for one in _TEXTS_OF[kind] if have == "text" else NUMERICS if have == "numeric" else (have,):
            yield Case(f"cast {have} {kind}", f"{column(one)}::{kind}", one)
    for kind in ("numeric(10,2)", "numeric(38,0)"):
        yield Case("cast text numeric", f"{column('number_text')}::{kind}", "number_text")
    for text in ("1e5", "1.5e-3", "12345678901234567890", ".5", "5.", "-9223372036854775808", "1E2"):
        yield Case("literal", f"{column('int4')} < {text}", "int4")
    for text in ("1.5", "NaN", "-Infinity", "1e-3", "0"):
        for kind in FLOATS:
            yield Case(f"= literal {kind}", f"{column(kind)} <= '{text}'", kind)
            yield Case(f"+ literal {kind}", f"{column(kind)} + '{text}'", kind)


def _floats() -> Iterator[Case]:
    for left in FLOATS:
        yield Case(f"- {left}", f"-{column(left)}", left)
        for right in (*FLOATS, *INTEGERS, *NUMERICS):
            for operator in "+-*/":
                yield Case(f"{operator} {left} {right}", f"{column(left)} {operator} {column(right, 'r')}", left, right)
        for right in (*INTEGERS, *NUMERICS):
            for operator in ("-", "/", "<", "="):
                yield Case(f"{operator} {right} {left}", f"{column(right)} {operator} {column(left, 'r')}", right, left)
            yield Case(f"coalesce {left} {right}", f"coalesce({column(right)}, {column(left, 'r')})", right, left)
    for left, right in (("int4", "numeric(6,4)"), ("int4", "float8"), ("numeric(15,2)", "float8"), ("int2", "int8")):
        yield Case("nullif mixed", f"nullif({column(left)}, {column(right, 'r')}) / 2", left, right)
    yield Case("* chained", f"({column('float8')} * 2 - 0.1) / {column('float8', 'r')}", "float8", "float8")
    for kind in ("int2", "int4", "int8"):
        yield Case(f"float4 of {kind}", f"{column(kind)}::float4::float8", kind)
        yield Case(f"float4 of {kind}", f"{column(kind)}::float4 - 1", kind)
        yield Case(f"float4 of {kind}", f"coalesce({column(kind)}, 1::float4)::float8", kind)
    yield Case("/ underflow", f"{column('float8')} / '1e300'", "float8")
    yield Case("/ underflow", f"{column('float4')} * '1e-40'", "float4")


def _functions() -> Iterator[Case]:
    for name in ("ceil", "ceiling", "floor", "trunc", "round", "sign", "sqrt", "abs"):
        for kind in (*FLOATS, *INTEGERS):
            yield Case(f"{name} {kind}", f"{name}({column(kind)})", kind)
            if kind in FLOATS:
                for change in ("* 0.25", "- 0.5", "/ 3", "+ 4503599627370497.5"):
                    yield Case(f"{name} {kind}", f"{name}({column(kind)} {change})", kind)
        if name != "sqrt":
            for kind in NUMERICS:
                yield Case(f"{name} {kind}", f"{name}({column(kind)})", kind)
                yield Case(f"{name} {kind}", f"{name}({column(kind)} * 3 - 0.5)", kind)
    for name in ("round", "trunc"):
        for kind in (*NUMERICS, "int4"):
            for digits in (-20, -14, -13, -2, -1, 0, 1, 2, 3, 4, 6):
                yield Case(f"{name} {kind}", f"{name}({column(kind)}, {digits})", kind)
        yield Case(f"{name} quotient", f"{name}({column('numeric(15,2)')} / 7.0, 3)", "numeric(15,2)")
    for kind in INTEGERS:
        yield Case(f"mod {kind}", f"mod({column(kind)}, {column(kind, 'r')})", kind, kind)


def _bits() -> Iterator[Case]:
    for left in INTEGERS:
        yield Case(f"~ {left}", f"~{column(left)}", left)
        for right in INTEGERS:
            for operator in "&|#":
                yield Case(f"{operator} {left} {right}", f"{column(left)} {operator} {column(right, 'r')}", left, right)
    for kind, places in (("int4", (0, 1, 5, 31)), ("int8", (0, 1, 33, 63))):
        for place in places:
            yield Case(f"<< {kind}", f"{column(kind)} << {place}", kind)
            yield Case(f">> {kind}", f"{column(kind)} >> {place}", kind)
    yield Case("& chained", f"({column('int4')} & 6) = 4 or ({column('int4')} & 1 & 3) <> 0", "int4")
