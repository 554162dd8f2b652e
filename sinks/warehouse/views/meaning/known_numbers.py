"""What is known to be equal for numbers: functions of floats, and casts between numbers and from text. Pure.

Spark's rint(), sqrt() and comparisons are those of IEEE 754, as PostgreSQL's are. Its exp(), ln(), power() and the text
of a float are those of Java, whose last digit may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sinks.warehouse.views.meaning.known_entry import Function, each
from sinks.warehouse.views.meaning.typed import raising, text_literal

_WHOLE: Final = {"int2": ("smallint", 15), "int4": ("int", 31), "int8": ("bigint", 63)}
WHOLE_TO_SINGLE: Final = "cast(cast({0} as decimal(19,0)) as float)"
"""Spark makes one cast of those from an integer to float and then to double, which does not round to a float."""
_SINGLE_INFINITY: Final = "cast('Infinity' as float)"
_DOUBLE_INFINITY: Final = "cast('Infinity' as double)"
_BLANKS: Final = text_literal(" \t\n\x0b\x0c\r")
_NUMBER: Final = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?\s*\z"
_FLOAT_WORD: Final = r"(?i)^\s*(nan|[+-]?inf(inity)?)\s*\z"
_DAY: Final = r"(?!0000)\d{4}-\d\d-\d\d"
_ZONE: Final = r"(Z|[+-](0\d|1[0-4])(:[0-5]\d)?)?"
_ZONED: Final = r"([ T]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?%s)?)?"
_CLOCK: Final = _ZONED % ""
_FLOOR: Final = "if(rint({0}) <= {0}, rint({0}), rint({0}) - 1D)"
_CEIL: Final = "(-if(rint(-{0}) <= -{0}, rint(-{0}), rint(-{0}) - 1D))"
_SIGN: Final = "case when isnan({0}) then 0D when {0} > 0D then 1D when {0} < 0D then -1D when {0} = 0D then 0D end"


def _of_doubles(form: str) -> tuple[Function, ...]:
    """Return entries of a function of float8; PostgreSQL casts integers and float4 to it."""
    others = ("float4", "int2", "int4", "int8")
    return (
        *each(("float8",), form),
        *each(others, form.replace("{0}", "cast({0} as double)"), "float8"),
    )


def matched(pattern: str, value: str, kind: str, what: str) -> str:
    """Return a cast of text that is known for texts of a form; other text raises an error when it is computed."""
    failed = raising(f"{what} of this form is not known to mean the same in Spark", kind)
    return f"case when {{0}} rlike {_pattern(pattern)} then {value} when {{0}} is not null then {failed} end"


def _pattern(regex: str) -> str:
    """Return a regular expression as a literal in a template."""
    return text_literal(regex).replace("{", "{{").replace("}", "}}")


def numeric_of_text(kind: str) -> str:
    """Return the cast of text to a decimal type."""
    return matched(_NUMBER, f"cast(btrim({{0}}, {_BLANKS}) as {kind})", kind, "a number")


def _whole_of_float(kind: str, bits: int) -> str:
    whole = "rint(cast({0} as double))"
    least, beyond = f"-{2**bits}D", f"{2**bits}D"
    failed = raising(f"{kind} out of range", kind)
    return (
        f"case when {whole} >= {least} and {whole} < {beyond} then cast({whole} as {kind})"
        f" when {{0}} is not null then {failed} end"
    )


def _float_of_text(kind: str, infinity: str) -> str:
    value = f"cast(btrim({{0}}, {_BLANKS}) as {kind})"
    nonzero = _pattern("^[^eE]*[1-9]")
    failed = raising("value out of range", kind)
    plain = (
        f"case when abs({value}) = {infinity} or ({value} = 0 and {{0}} rlike {nonzero}) then {failed} else {value} end"
    )
    words = _pattern(_FLOAT_WORD)
    return matched(_NUMBER, plain, kind, "a number").replace(
        " when {0} is not null", f" when {{0}} rlike {words} then {value} when {{0}} is not null"
    )


def _single_of_double() -> str:
    single = "cast({0} as float)"
    lost = f"(abs({single}) = {_SINGLE_INFINITY} and abs({{0}}) <> {_DOUBLE_INFINITY}) or ({single} = 0 and {{0}} <> 0)"
    return f"case when {lost} then {raising('value out of range', 'float')} else {single} end"


def _bool_of_text() -> str:
    yes = _pattern(r"(?i)^\s*(t|tr|tru|true|y|ye|yes|on|1)\s*\z")
    return matched(r"(?i)^\s*(f|fa|fal|fals|false|n|no|of|off|0)\s*\z", "false", "boolean", "a boolean").replace(
        "case when", f"case when {{0}} rlike {yes} then true when", 1
    )


FUNCTIONS: Final[Mapping[str, tuple[Function, ...]]] = {
    "abs": each(("int2", "int4", "int8", "numeric", "float4", "float8"), "abs({0})"),
    "ceil": _of_doubles(_CEIL),
    "floor": _of_doubles(_FLOOR),
    "trunc": _of_doubles(f"if({{0}} >= 0D, {_FLOOR}, {_CEIL})"),
    "round": _of_doubles("rint({0})"),
    "sign": _of_doubles(_SIGN),
    "sqrt": _of_doubles(
        f"case when {{0}} < 0D then {raising('cannot take square root of a negative number', 'double')}"
        " else sqrt({0}) end"
    ),
}

CASTS: Final[Mapping[tuple[str, str], str]] = {
    **{
        (have, kind): _whole_of_float(spark, bits)
        for have in ("float4", "float8")
        for kind, (spark, bits) in _WHOLE.items()
    },
    **{(have, "float4"): WHOLE_TO_SINGLE for have in _WHOLE},
    ("numeric", "float4"): "cast({0} as float)",
    ("float8", "float4"): _single_of_double(),
    ("int4", "bool"): "({0} <> 0)",
    **{
        ("text", kind): matched(r"^\s*[+-]?\d+\s*\z", f"cast(btrim({{0}}, {_BLANKS}) as {spark})", spark, "an integer")
        for kind, (spark, _) in _WHOLE.items()
    },
    ("text", "float8"): _float_of_text("double", _DOUBLE_INFINITY),
    ("text", "float4"): _float_of_text("float", _SINGLE_INFINITY),
    ("text", "bool"): _bool_of_text(),
    ("text", "date"): matched(rf"^{_DAY}\z", "cast({0} as date)", "date", "a date"),
    ("text", "timestamp"): matched(rf"^{_DAY}{_CLOCK}\z", "cast({0} as timestamp_ntz)", "timestamp_ntz", "a timestamp"),
    ("text", "timestamptz"): matched(
        rf"^{_DAY}{_ZONED % _ZONE}\z", "cast({0} as timestamp)", "timestamp", "a timestamp"
    ),
    ("text", "uuid"): matched(
        r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z", "lower({0})", "string", "a uuid"
    ),
}
"""Casts between numbers, and from text in the forms that PostgreSQL's releases and Spark read alike."""

_LAST_DIGIT: Final = "compute it in PostgreSQL, in a generated column: its last digit differs between libraries"
ALTERNATIVES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("power", "pow", "exp", "ln", "log", "log10", "cbrt", "sin", "cos", "tan", "degrees", "radians"), _LAST_DIGIT
    ),
    "sqrt": "write sqrt(x::float8)",
    "width_bucket": "write case when x < 10 then 1 when ... end",
    "age": "write a::date - b::date, or extract(epoch from (a - b))",
    "unnest": "store the elements as rows of a table, or test them: x = any(a)",
    "to_date": "write x::date, for text as 2024-02-29",
    "to_number": "write x::numeric(p,s)",
    "random": "a view must give the same rows when it is computed again",
}
