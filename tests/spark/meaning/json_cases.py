"""Expressions that cover jsonb: steps, questions, containment, and values that become JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.spark.meaning.case import Case, column

_KEYS: Final = (
    "'a'",
    "'b'",
    "'é'",
    "'n'",
    "''",
    "'0'",
    "'-1'",
    "'k\"'",
    "'zz'",
    "'e\\'",
    "0",
    "1",
    "-1",
    "3",
    "-9",
    "7",
)
_PATHS: Final = (
    "{}",
    "{a}",
    "{b,c}",
    "{b,c,0}",
    "{b,c,-1,d}",
    "{6,1,0}",
    "{a,b,c,d,0,0}",
    "{0}",
    "{-1,a}",
    "{é}",
    "{+1}",
    "{01}",
    "{b,c,0,c}",
)
_HELD: Final = (
    *(
        "{}",
        "[]",
        '{"a": 1}',
        '{"a": 1.0}',
        '{"a": 1.10}',
        '{"a": "true"}',
        '{"a": true}',
        '{"n": null}',
        '{"t": true}',
    ),
    *('{"b": {"c": [1]}}', '{"b": {"c": [2.5, null]}}', '{"b": {"c": [{"d": "x"}]}}', '{"b": {"c": []}}', '["a"]'),
    *(
        '"a"',
        "1",
        "null",
        "true",
        "[1, 1]",
        '[["a"]]',
        '[["a", [2]]]',
        '[{"a": 1}]',
        "[1.00, null]",
        "1200",
        "1.5",
        "0",
    ),
    *('{"a": {}}', '{"a": []}', '{"b": 0.00000000000000000001}', '{"a": {"b": {"c": {"d": [[[1]]]}}}}', "[[]]", '""'),
    *(r'["\\u0041\u007f"]', r'{"c": "\\"}', '{"a": 1, "b": 2}', "[[1]]", "[[2]]"),
)
_ASKED: Final = ("a", "é", "zz", "", "1", 'k"', "s", "null")
_VALUES: Final = ("text", "char(5)", "varchar(6)", "int2", "int4", "int8", "numeric(15,2)", "bool", "date", "timestamp")


def cases() -> Iterator[Case]:
    """Yield every case."""
    j = column("jsonb")
    for key in _KEYS:
        yield Case("->", f"({j} -> {key})::text", "jsonb")
        yield Case("->>", f"{j} ->> {key}", "jsonb")
        yield Case("->", f"{j} -> {key} is null", "jsonb")
        for other in ("'c'", "0", "'a'", "-1"):
            yield Case("-> ->", f"({j} -> {key} -> {other})::text", "jsonb")
            yield Case("-> ->>", f"({j} -> {key}) ->> {other}", "jsonb")
    for path in _PATHS:
        yield Case("#>", f"({j} #> '{path}')::text", "jsonb")
        yield Case("#>>", f"{j} #>> '{path}'", "jsonb")
        yield Case("#> #>>", f"{j} #> '{path}' #>> '{{c,0}}'", "jsonb")
    yield Case("jsonb_extract_path", f"jsonb_extract_path({j}, 'b', 'c')::text", "jsonb")
    for place in (" 1", "+0", "--1", "1 ", "0000000000001", "99999999999999999999", "\u0661", "-2", ""):
        yield Case("jsonb_extract_path_text", f"jsonb_extract_path_text({j}, 'b', 'c', '{place}')", "jsonb")
    yield Case("jsonb_extract_path_text", f"jsonb_extract_path_text({j}, 'b', 'c', '1')", "jsonb")
    for word in _ASKED:
        yield Case("?", f"{j} ? '{word}'", "jsonb")
        yield Case("?|", f"{j} ?| array['{word}', 'b']", "jsonb")
        yield Case("?&", f"{j} ?& array['{word}', 'b']", "jsonb")
    for held in _HELD:
        yield Case("@>", f"{j} @> '{held}'", "jsonb")
        yield Case("@>", f"{j} -> 'b' @> '{held}'", "jsonb")
        yield Case("literal", f"coalesce({j}, '{held}')::text", "jsonb")
        yield Case("literal", f"coalesce({j} -> 'zz', '{held}'::jsonb)::text", "jsonb")
    for value in (j, f"{j} -> 'a'", f"{j} -> 'b' -> 'c'", f"{j} -> 0", f"{j} -> 6"):
        yield Case("jsonb_typeof", f"jsonb_typeof({value})", "jsonb")
        yield Case("jsonb_array_length", f"jsonb_array_length({value})", "jsonb")
    yield Case("cast jsonb text", f"{j}::text", "jsonb")
    yield Case("cast json text", f"{column('json')}::text", "json")
    yield from _cast()
    yield from _built()


def _cast() -> Iterator[Case]:
    j = column("jsonb")
    for key in ("a", "b", "x"):
        for kind in (
            "int2",
            "int4",
            "int8",
            "numeric(10,2)",
            "numeric(38,20)",
            "bool",
            "date",
            "timestamp",
            "timestamptz",
        ):
            yield Case(f"cast text {kind}", f"({j} ->> '{key}')::{kind}", "jsonb")
    words = ("t", " TRUE ", "f", "off", "of", "o", "on", "1", "0", "2", "nO", "yes", "", "tr\t")
    for word in words:
        yield Case("cast text bool", f"concat('{word}', {column('text')})::bool", "text")
    numbers = (
        "1",
        "+1",
        "-1",
        " 2 ",
        "\n3\t",
        "007",
        "1.",
        ".5",
        "1.005",
        "-0.005",
        "9999999999",
        "32768",
        "1 1",
        "",
        ".",
        "-",
        "0.123456789012345678901234567895",
    )
    moments = ("2024-02-29", "2023-02-29", "0001-01-01", "9999-12-31", "2024-13-01")
    clocks = ("2024-02-29 23:59:59.999999", "2024-01-01T01:02", "2024-01-01 01:02:03.5", "2023-02-29 00:00:00")
    zones = (
        "2024-01-01 01:02:03Z",
        "2024-01-01 01:02:03+02:00",
        "2024-01-01 01:02:03.25-05:30",
        "2024-01-01 00:00:00+14:00",
    )
    first = f"left({column('bool')}::text, 0)"
    for texts, kinds in (
        (numbers, ("int2", "int4", "int8", "numeric(10,2)", "numeric(5,0)", "numeric(38,29)")),
        (moments, ("date", "timestamp", "timestamptz")),
        (clocks, ("timestamp", "timestamptz")),
        (zones, ("timestamptz",)),
    ):
        for text in texts:
            for kind in kinds:
                yield Case(f"cast text {kind}", f"concat({first}, '{text}')::{kind}", "bool")
    for text in ("A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99"):
        yield Case("cast text uuid", f"concat({first}, '{text}')::uuid", "bool")


def _built() -> Iterator[Case]:
    for kind in (*_VALUES, "timestamptz", "uuid", "mood"):
        a = column(kind)
        yield Case(f"to_jsonb {kind}", f"to_jsonb({a})::text", kind)
        yield Case(
            f"jsonb_build_object {kind}", f"jsonb_build_object('b', {a}, 'aa', 'x\"', 'a', null, 'é', {a})::text", kind
        )
        yield Case(f"jsonb_build_array {kind}", f"jsonb_build_array({a}, 1, 'y', true, {a})::text", kind)
    j = column("jsonb")
    yield Case("jsonb_build_object jsonb", f"jsonb_build_object('k', {j} -> 'b', 'k', {j})::text", "jsonb")
    yield Case("jsonb_build_object", "jsonb_build_object()::text", "int4")
    yield Case("jsonb_build_object text", f"jsonb_build_object('k', {j} ->> 'b')::text", "jsonb")
