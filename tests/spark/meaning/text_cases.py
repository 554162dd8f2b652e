"""Expressions that cover text: each function of `known_text`, letter case, concatenation and patterns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sinks.warehouse.views.meaning import known_text
from tests.spark.meaning.case import Case, column

TEXTS: Final = ("text", "char(5)", "varchar(6)")
_CHARACTERS: Final = ("' '", "'a'", "' a'", "'bä'", "''", "'\U0001f600x'", "'%_'")
_COUNTS: Final = ("-2147483647", "-3", "-1", "0", "1", "2", "5", "50")
_PARTS: Final = ("-3", "-2", "-1", "1", "2", "3", "99", "0")
_LIKE: Final = (
    *("", "%", "a%", "%b", "_", "a_", "%a%", "ä%", "_____", "a    ", "\U0001f600%", "__", "%\n%", "a_b", "Éa"),
    *(r"a\%b", r"a\_b", r"a\\b", r"%\\%", r"\a", r"\%", r"\_", r"\\", r"\ä", r"a\b"),
)
_ESCAPED: Final = (("a!%b", "!"), ("!a!_b", "!"), ("!!", "!"), ("a\\b", "!"), ("%\\%", ""), ("\\_", ""), ("a%%b", "%"))

_CALLS: Final[dict[tuple[str, tuple[str, ...]], tuple[str, ...]]] = {
    ("length", ("text",)): ("length({a})",),
    ("char_length", ("text",)): ("char_length({a})", "character_length({a})"),
    ("octet_length", ("bpchar",)): ("octet_length({a})",),
    ("octet_length", ("text",)): ("octet_length({a})",),
    ("bit_length", ("text",)): ("bit_length({a})",),
    ("md5", ("text",)): ("md5({a})",),
    ("md5", ("bytea",)): ("md5({y})", "encode({y}, 'hex')"),
    ("to_hex", ("int4",)): ("to_hex({n})",),
    ("to_hex", ("int8",)): ("to_hex({n8})",),
    ("reverse", ("text",)): ("reverse({a})",),
    ("btrim", ("text",)): ("btrim({a})", "trim({a})", "trim(both from {a})"),
    ("btrim", ("text", "text")): ("btrim({a}, {w})", "trim({w} from {a})", "btrim({a}, {b})"),
    ("ltrim", ("text",)): ("ltrim({a})", "trim(leading from {a})"),
    ("ltrim", ("text", "text")): ("ltrim({a}, {w})", "trim(leading {w} from {a})"),
    ("rtrim", ("text",)): ("rtrim({a})", "trim(trailing from {a})"),
    ("rtrim", ("text", "text")): ("rtrim({a}, {w})", "trim(trailing {w} from {a})"),
    ("strpos", ("text", "text")): ("strpos({a}, {b})", "position({w} in {a})", "strpos({a}, {w})"),
    ("starts_with", ("text", "text")): ("starts_with({a}, {b})", "starts_with({a}, {w})", "{a} ^@ {w}"),
    ("replace", ("text", "text", "text")): (
        "replace({a}, {b}, 'x')",
        "replace({a}, {w}, {b})",
        "replace({a}, 'a', {w})",
    ),
    ("translate", ("text", "text", "text")): (
        *("translate({a}, 'abä', 'xy')", "translate({a}, {w}, 'ß')", "translate({a}, 'aab', 'xyz')"),
        *("translate({a}, {b}, 'x')", "translate({a}, 'a', {b})"),
    ),
    ("split_part", ("text", "text", "int4")): (
        *("split_part({a}, {w}, {p})", "split_part({a}, {b}, 1)", "split_part({a}, {b}, -1)"),
        *("split_part('a,b,,c', ',', {i})", "split_part({a}, 'a', {i})", "split_part('', {b}, {p})"),
    ),
    ("repeat", ("text", "int4")): ("repeat({a}, {k})", "repeat({a}, {s})"),
    ("lpad", ("text", "int4")): ("lpad({a}, {k})", "lpad({a}, {s})"),
    ("lpad", ("text", "int4", "text")): ("lpad({a}, {k}, {w})", "lpad({a}, 7, {b})", "lpad({a}, {s}, 'xy')"),
    ("rpad", ("text", "int4")): ("rpad({a}, {k})", "rpad({a}, {s})"),
    ("rpad", ("text", "int4", "text")): ("rpad({a}, {k}, {w})", "rpad({a}, 7, {b})", "rpad({a}, {s}, 'xy')"),
    ("left", ("text", "int4")): ("left({a}, {k})", "left({a}, {i})", "left({a}, {s})"),
    ("right", ("text", "int4")): ("right({a}, {k})", "right({a}, {i})", "right({a}, {s})"),
    ("substring", ("text", "int4")): ("substring({a}, {k})", "substr({a}, {i})", "substring({a} from {s})"),
    ("substring", ("text", "int4", "int4")): (
        *("substring({a}, {k}, 3)", "substring({a}, 2, {k})", "substring({a} from {i} for {i})"),
        *("substr({a}, {k}, 2147483647)", "substring({a}, {i}, 4)", "substring({a}, -1, {s})"),
    ),
    ("overlay", ("text", "text", "int4")): ("overlay({a} placing {b} from 1)", "overlay({a} placing {w} from 3)"),
    ("overlay", ("text", "text", "int4", "int4")): (
        "overlay({a} placing {b} from 1 for 1)",
        "overlay({a} placing {w} from 2 for 3)",
        "overlay({a} placing {w} from 9 for 1)",
    ),
    ("ascii", ("text",)): ("ascii({a})",),
    ("chr", ("int4",)): (
        "chr({n})",
        "chr(65)",
        "chr(233)",
        "chr(65279)",
        "chr(128512)",
        "chr(55295)",
        "chr(55296)",
        "chr(57344)",
        "chr(0)",
    ),
}
"""Function and types -> calls. ``{a}`` is text, ``{b}`` another text, ``{i}`` and ``{s}`` integers of the other row."""


QUERIES: Final = (
    "select c_jsonb ->> 'a' as k, count(*) as n from c_jsonb group by c_jsonb ->> 'a'",
    "select c_jsonb ->> 'a' as k, count(*) as n from c_jsonb group by 1 having count(*) > 1",
    "select distinct c_jsonb ->> 'a' as k from c_jsonb",
    "select max((c_jsonb ->> 'x')::int) as k from c_jsonb where c_jsonb ? 'x'",
    "select count(distinct c_jsonb ->> 'a') as x from c_jsonb",
    "select n, row_number() over (partition by c_jsonb ->> 'a' order by n) as r from c_jsonb",
    "select l.n, r.n as m from c_jsonb l join c_text r on l.c_jsonb ->> 'd' = r.c_text",
    "select n from c_jsonb where c_jsonb @> '{\"a\": 1}' and c_jsonb ->> 'a' ~ '^[0-9.]+$'",
    "select n, case when jsonb_typeof(c_jsonb) = 'array' then jsonb_array_length(c_jsonb) end as x from c_jsonb",
    "select n from c_jsonb where case when c_jsonb ->> 'b' ~ '^[0-9]+$' then (c_jsonb ->> 'b')::int end > 5",
    "select substring(c_text from '[a-z]+') as k, count(*) as n from c_text group by substring(c_text from '[a-z]+')",
    "select n % 2 as g, jsonb_agg(c_jsonb order by n desc)::text as x from c_jsonb group by n % 2",
    "select jsonb_agg(c_text order by n)::text as x from c_text",
    "select jsonb_agg(c_int4 order by c_int4 nulls first)::text as x from c_int4 where n < 0",
    "select (jsonb_agg(jsonb_build_object('n', n) order by n) filter (where c_bool))::text as x from c_bool",
    'select initcap(c_text collate "C") as k, count(*) as n from c_text group by 1',
    "select string_agg(upper(c_text collate \"C\"), ',' order by n) as x from c_text",
)
"""Queries that group, join and order by text that is computed."""


def cases() -> Iterator[Case]:
    """Yield every case."""
    for name, entries in known_text.FUNCTIONS.items():
        for arguments in dict.fromkeys(entry.arguments for entry in entries):
            for template in _CALLS[name, arguments]:
                yield from _called(f"{name}{arguments}", template, arguments[0])
    yield from _letter_case()
    yield from _cast()
    yield from _concatenated()
    yield from _patterns()


def _cast() -> Iterator[Case]:
    for kind in ("name", "citext"):
        a = column(kind)
        yield Case(f"cast {kind} text", f"{a}::text", kind)
        yield Case(f"cast {kind} text", f"{a}::text || 'x' = 'ax'", kind)
        yield Case(f"cast {kind} text", f'lower({a}::text collate "C")', kind)
    yield Case("cast name text", f"upper({column('name')}::text) < 'Z'", "name")


def _called(entry: str, template: str, first: str) -> Iterator[Case]:
    """Fill in every combination of values that a template names."""
    lefts = {
        "text": TEXTS,
        "bpchar": ("char(5)",),
        "bytea": ("bytea",),
        "int4": ("int4",) if "to_hex" in template else ("int4", "int2"),
        "int8": ("int8",),
    }
    rights = {"{b}": "text", "{i}": "int4", "{s}": "int2"}
    right = next((kind for mark, kind in rights.items() if mark in template), "")
    for left in lefts[first]:
        a = column(left)
        values = {"a": a, "y": a, "n": a, "n8": a}
        values |= {mark.strip("{}"): column(kind, "r") for mark, kind in rights.items()}
        if "{s}" in template:
            values["s"] = f"({column('int2', 'r')} % 50)::int2"
        for word in _CHARACTERS if "{w}" in template else ("",):
            for count in _COUNTS if "{k}" in template else ("",):
                for part in _PARTS if "{p}" in template else ("",):
                    yield Case(entry, template.format(**values, w=word, k=count, p=part), left, right)


def _letter_case() -> Iterator[Case]:
    for kind in TEXTS:
        for name in ("upper", "lower", "initcap"):
            yield Case(f"{name} {kind}", f'{name}({column(kind)} collate "C")', kind)
    yield Case("initcap", "initcap('a1b c-D ÄÖ_éx' collate \"C\")", "text")


def _concatenated() -> Iterator[Case]:
    kinds = (
        *TEXTS,
        "int2",
        "int4",
        "int8",
        "numeric(15,2)",
        "bool",
        "date",
        "timestamp",
        "timestamptz",
        "uuid",
        "mood",
    )
    for kind in kinds:
        for other in TEXTS:
            a, b = column(kind), column(other, "r")
            yield Case(f"concat {kind} {other}", f"concat({a}, '-', {b})", kind, other)
            yield Case(f"concat_ws {kind} {other}", f"concat_ws(',', {a}, null, {b}, {a})", kind, other)
            yield Case(f"format {kind} {other}", f"format('%s: 100%% of %s', {a}, {b})", kind, other)
    yield Case("concat_ws", f"concat_ws({column('text')}, 'a', {column('text', 'r')})", "text", "text")
    yield Case("concat", "concat(null, null)", "text")
    yield Case("concat", f"concat({column('text')})", "text")
    yield Case("format", "format('it''s %%')", "text")


def _patterns() -> Iterator[Case]:
    for kind in TEXTS:
        a = column(kind)
        for pattern in _LIKE:
            yield Case(f"like {kind}", f"{a} like '{pattern}'", kind)
            yield Case(f"not like {kind}", f"{a} not like '{pattern}'", kind)
            yield Case(f"ilike {kind}", f"{a} collate \"C\" ilike '{pattern}'", kind)
        for pattern, escape in _ESCAPED:
            yield Case(f"escape {kind}", f"{a} like '{pattern}' escape '{escape}'", kind)
            yield Case(f"escape {kind}", f"{a} not like '{pattern}' escape '{escape}'", kind)
            yield Case(f"escape {kind}", f"{a} collate \"C\" not ilike '{pattern}' escape '{escape}'", kind)
    for other in TEXTS:
        b = column(other, "r")
        # A backslash in a pattern that is no literal is an error of the view.
        yield Case("like text", f"{column('text')} like replace({b}, '\\', '%')", "text", other)
        yield Case("ilike text", f"{column('text')} collate \"C\" ilike replace({b}, '\\', '_') || '%'", "text", other)
