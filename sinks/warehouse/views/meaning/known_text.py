"""What is known to be equal of functions of text, as data; see `known`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sinks.warehouse.views.meaning.known_entry import Function, each

_TWO: Final = ("text", "text")
_LENGTH_MOST: Final = 100_000
_TOO_LONG: Final = f"a text of more than {_LENGTH_MOST} characters is not computed"
_NO_LENGTH: Final = "cast(raise_error('negative substring length not allowed') as string)"
_PART: Final = "case when {2} is not null then split_part({0}, {1}, greatest({2}, -2147483647)) end"
_COUNT: Final = "cast(least(greatest(cast({1} as bigint) + {2} - greatest({1}, 1), 0), 2147483647) as int)"


def _limited(spark: str) -> str:
    """Return it for lengths that fit into memory; others are an error."""
    failed = f"cast(raise_error('{_TOO_LONG}') as string)"
    return f"case when {{1}} > {_LENGTH_MOST} then {failed} else {spark} end"


FUNCTIONS: Final[Mapping[str, tuple[Function, ...]]] = {
    "length": each(("text",), "char_length({0})", "int4"),
    "char_length": each(("text",), "char_length({0})", "int4"),
    "octet_length": (*each(("bpchar",), "octet_length({0})", "int4"), *each(("text",), "octet_length({0})", "int4")),
    "bit_length": each(("text",), "(8 * octet_length({0}))", "int4"),
    "md5": (*each(("text",), "md5(cast({0} as binary))", "text"), *each(("bytea",), "md5({0})", "text")),
    "to_hex": (
        Function(("int4",), "text", "lower(hex(cast({0} as bigint) & 4294967295))"),
        Function(("int8",), "text", "lower(hex({0}))"),
    ),
    "reverse": each(("text",), "reverse({0})", "text"),
    "btrim": (*each(("text",), "trim({0})", "text"), Function(_TWO, "text", "trim(both {1} from {0})")),
    "ltrim": (*each(("text",), "ltrim({0})", "text"), Function(_TWO, "text", "trim(leading {1} from {0})")),
    "rtrim": (
        *each(("text",), "rtrim({0})", "text"),
        Function(_TWO, "text", "trim(trailing {1} from {0})"),
    ),
    "strpos": (Function(("text", "text"), "int4", "instr({0}, {1})"),),
    "starts_with": (Function(("text", "text"), "bool", "startswith({0}, {1})"),),
    "replace": (Function(("text", "text", "text"), "text", "replace({0}, {1}, {2})"),),
    "translate": (Function(("text", "text", "text"), "text", "translate({0}, {1}, {2})"),),
    "split_part": (Function(("text", "text", "int4"), "text", _PART),),
    "repeat": (Function(("text", "int4"), "text", _limited("repeat({0}, {1})")),),
    "lpad": (
        Function(("text", "int4"), "text", _limited("lpad({0}, {1}, ' ')")),
        Function(("text", "int4", "text"), "text", _limited("lpad({0}, {1}, {2})")),
    ),
    "rpad": (
        Function(("text", "int4"), "text", _limited("rpad({0}, {1}, ' ')")),
        Function(("text", "int4", "text"), "text", _limited("rpad({0}, {1}, {2})")),
    ),
    "left": (
        Function(("text", "int4"), "text", "left({0}, {1})", (1,)),
        Function(
            ("text", "int4"),
            "text",
            "case when {1} >= 0 then left({0}, {1})"
            " when {1} < 0 then substring({0}, 1, greatest(char_length({0}) + {1}, 0)) end",
        ),
    ),
    "right": (
        Function(("text", "int4"), "text", "right({0}, {1})", (1,)),
        Function(
            ("text", "int4"),
            "text",
            "case when {1} >= 0 then right({0}, {1})"
            " when {1} = -2147483648 then {0} when {1} < 0 then substring({0}, 1 - greatest({1}, -2147483646)) end",
        ),
    ),
    "substring": (
        Function(("text", "int4"), "text", "substring({0}, {1})", (1,), 1),
        Function(("text", "int4"), "text", "case when {1} is not null then substring({0}, greatest({1}, 1)) end"),
        Function(("text", "int4", "int4"), "text", "substring({0}, {1}, {2})", (1, 2), 1),
        Function(
            ("text", "int4", "int4"),
            "text",
            "case when {0} is null or {1} is null or {2} is null then cast(null as string)"
            f" when {{2}} < 0 then {_NO_LENGTH}"
            f" else substring({{0}}, greatest({{1}}, 1), {_COUNT}) end",
        ),
    ),
    "overlay": (
        Function(
            ("text", "text", "int4"),
            "text",
            "concat(substring({0}, 1, {2} - 1), {1}, substring({0}, {2} + char_length({1})))",
            (2,),
            1,
        ),
        Function(
            ("text", "text", "int4", "int4"),
            "text",
            "concat(substring({0}, 1, {2} - 1), {1}, substring({0}, {2} + {3}))",
            (2, 3),
            1,
        ),
    ),
    "ascii": each(("text",), "ascii({0})", "int4"),
    "chr": (
        Function(
            ("int4",),
            "text",
            "case when {0} between 1 and 55295 or {0} between 57344 and 1114111"
            " then decode(unhex(concat('0000FEFF', lpad(hex(cast({0} as bigint)), 8, '0'))), 'UTF-32')"
            " when {0} is not null then cast(raise_error('no such character') as string) end",
        ),
    ),
}
"""Function -> its known argument types. Text functions take a char(n) as PostgreSQL does: without its padding."""

ALTERNATIVES: Final[Mapping[str, str]] = {
    "quote_literal": "write concat('''', replace(x, '''', ''''''), '''') for text without backslashes",
    "regexp_match": "write substring(x from 'pattern'), which is its first element",
    "regexp_matches": "write substring(x from 'pattern') for the first match; compute rows in PostgreSQL",
    "regexp_split_to_array": "write split_part(x, ',', n)",
    "regexp_split_to_table": "compute rows in PostgreSQL",
    "regexp_instr": "write strpos(x, substring(x from 'pattern'))",
    "to_char": "write extract(...) and lpad(x::text, n, '0'), or x::text",
    "to_number": "write x::numeric(p,s)",
    "to_date": "write x::date for text in the form YYYY-MM-DD",
    "unaccent": "write translate(x, 'àéü', 'aeu') with the letters that occur",
    "encode": "write encode(x, 'hex')",
    "sha256": "write md5(x)",
    "similarity": "compute it in PostgreSQL",
}
"""Function that is refused -> what to write instead."""

CASTS: Final[Mapping[tuple[str, str], str]] = {("name", "text"): "{0}", ("citext", "text"): "{0}"}
"""Both are in the lake as text."""

COMPARE_HINTS: Final[Mapping[str, str]] = {
    "citext": 'write lower(x::text collate "C") on both sides: citext folds case by the collation',
    "name": "write x::text, which has the collation C",
}
"""Type whose values are not compared -> what to write instead."""
