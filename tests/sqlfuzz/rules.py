"""The constructs that the fuzzer generates, as data: a name, a result type, a template and the types of its arguments.

A type in lower case is an expression of that type. A name in capitals is one of `LITERALS`. Several types in one
string, separated by blanks, make one rule of each. ``=`` is the type that was chosen for the first argument, ``@int4``
the name of a type. ``{@}`` is a key that orders the rows totally. Sums and averages of floats are left out: PostgreSQL
adds in the order in which it happens to read the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

INTEGERS: Final = "int2 int4 int8"
NUMBERS: Final = f"{INTEGERS} numeric float4 float8"
TEXTS: Final = "text varchar char"
TIMES: Final = "date timestamp timestamptz"
ORDERED: Final = f"{NUMBERS} {TEXTS} {TIMES} bool uuid bytea time"
ALL: Final = f"{ORDERED} interval jsonb int4[] text[]"

SIMPLE: Final[Mapping[str, tuple[str, ...]]] = {
    "int2": ("1::int2", "0::int2"),
    "int4": ("1", "0", "-7", "3", "10"),
    "int8": ("1::int8", "10000000000"),
    "numeric": ("1.0", "0.5", "-2.50", "100", "0.00001"),
    "float4": ("1.5::float4", "'NaN'::float4"),
    "float8": ("1.5::float8", "0::float8", "'-Infinity'::float8", "'-0'::float8"),
    "text": ("'a'::text", "''::text", "'Zoë'", "'ab '", "'a_b'"),
    "varchar": ("'a'::varchar(12)", "'ab '::varchar"),
    "char": ("'a'::char(6)", "'ab'"),
    "bool": ("true", "false"),
    "date": ("date '2024-02-29'", "date '1999-12-31'"),
    "timestamp": ("timestamp '2024-03-31 02:30:00'", "timestamp '1969-12-31 23:59:59.999999'"),
    "timestamptz": ("timestamptz '2024-10-27 00:30:00+00'", "timestamptz '2024-02-29 12:00:00-05'"),
    "time": ("time '12:30'",),
    "interval": ("interval '1 day'", "interval '1 month'", "interval '-36 hours'", "interval '1.5 seconds'"),
    "jsonb": ("'{\"a\": [1, 2.0]}'::jsonb", "'[1]'::jsonb"),
    "int4[]": ("array[1, 2, null]", "'{}'::int4[]", "array[3]"),
    "text[]": ("array['a', 'b']", "'{}'::text[]"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid",),
    "bytea": (r"'\x00ff'::bytea",),
}
LITERALS: Final[Mapping[str, tuple[str, ...]]] = {
    "LIKE": ("'a%'", "'%b'", "'_'", "'%'", "''", "'a\\_b'", "'a\\%b'", "'%ë'", "'__'"),
    "REGEX": ("'^a'", "'b$'", "'[a-c]+'", "'a|b'", "'.'", "'\\d+'", "'(a)(b)?'", "'[[:alpha:]]+'", "'a*'"),
    "ZONE": ("'UTC'", "'Europe/Berlin'", "'America/New_York'", "'Asia/Kolkata'", "'utc'"),
    "UNIT": ("'year'", "'quarter'", "'month'", "'week'", "'day'", "'hour'", "'minute'", "'second'", "'decade'"),
    "FIELD": ("year", "month", "day", "hour", "minute", "second", "dow", "isodow", "doy", "week", "quarter", "epoch"),
    "DAYFIELD": ("year", "month", "day", "dow", "isodow", "doy", "week", "isoyear", "quarter", "century", "epoch"),
    "FORMAT": ("'YYYY-MM-DD'", "'HH24:MI:SS'", "'YYYY'", "'Mon DD'", "'Day'", "'IW'", "'HH12:MI AM'"),
    "SMALL": ("0", "1", "2", "3", "-1", "-2", "10"),
    "COUNT": ("1", "2", "3"),
    "KEY": ("'a'", "'b'", "'d'", "'é'", "'zz'"),
    "PATH": ("'{a}'", "'{b,c}'", "'{b,c,0}'", "'{1}'"),
    "FROM": ("'a'", "'ab'", "''", "'ë'"),
    "DATETEXT": ("'2024-02-29'", "'2023-02-29'", "'2024-1-5'", "'Jan 5 2024'", "'infinity'"),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One construct with fixed types. `name` is that of the construct and its types; `family` without the types."""

    name: str
    family: str
    result: str
    template: str
    arguments: tuple[str, ...]


_SCALAR: Final = (
    # name, result, template, arguments
    ("add", "=", "({0} + {1})", f"{INTEGERS} numeric float8", "="),
    ("sub", "=", "({0} - {1})", f"{INTEGERS} numeric float8", "="),
    ("mul", "=", "({0} * {1})", f"{INTEGERS} numeric float8", "="),
    ("div", "=", "({0} / {1})", f"{INTEGERS} numeric float8", "="),
    ("mod", "=", "({0} % {1})", f"{INTEGERS} numeric", "="),
    ("mixed_add", "int8", "({0} + {1})", "int2 int4", "int8"),
    ("mixed_mul", "int4", "({0} * {1})", "int2", "int4"),
    ("mixed_div", "numeric", "({0} / {1})", INTEGERS, "numeric"),
    ("mixed_float", "float8", "({0} * {1})", "numeric int4 float4", "float8"),
    ("neg", "=", "(- {0})", NUMBERS),
    ("abs", "=", "abs({0})", NUMBERS),
    ("sign", "numeric", "sign({0})", "numeric"),
    ("round", "=", "round({0})", "numeric float8"),
    ("round_to", "numeric", "round({0}, {1})", "numeric", "SMALL"),
    ("trunc", "=", "trunc({0})", "numeric float8"),
    ("trunc_to", "numeric", "trunc({0}, {1})", "numeric", "SMALL"),
    ("ceil", "=", "ceil({0})", "numeric float8"),
    ("floor", "=", "floor({0})", "numeric float8"),
    ("sqrt", "float8", "sqrt({0})", "float8"),
    ("power", "float8", "power({0}, {1})", "float8", "float8"),
    ("exp", "float8", "exp({0})", "float8"),
    ("ln", "float8", "ln({0})", "float8"),
    ("modulo", "=", "mod({0}, {1})", INTEGERS, "="),
    ("integer_div", "numeric", "div({0}, {1})", "numeric", "numeric"),
    ("bit_and", "=", "({0} & {1})", INTEGERS, "="),
    ("bit_or", "=", "({0} | {1})", INTEGERS, "="),
    ("bit_xor", "=", "({0} # {1})", INTEGERS, "="),
    ("bit_not", "=", "(~ {0})", INTEGERS),
    ("shift_left", "=", "({0} << {1})", "int4 int8", "SMALL"),
    ("shift_right", "=", "({0} >> {1})", "int4 int8", "SMALL"),
    ("width_bucket", "int4", "width_bucket({0}, 0.0, 10.0, 5)", "numeric"),
    ("greatest", "=", "greatest({0}, {1})", ORDERED, "="),
    ("least", "=", "least({0}, {1})", ORDERED, "="),
    ("coalesce", "=", "coalesce({0}, {1})", ALL, "="),
    ("nullif", "=", "nullif({0}, {1})", ORDERED, "="),
    ("case", "=", "case when {1} then {0} else {2} end", ALL, "bool", "="),
    ("case_no_else", "=", "case when {1} then {0} end", ALL, "bool"),
    ("case_value", "int4", "case {0} when {1} then 1 when {2} then 2 else 3 end", ORDERED, "=", "="),
    ("eq", "bool", "({0} = {1})", f"{ALL}", "="),
    ("ne", "bool", "({0} <> {1})", f"{ORDERED} jsonb", "="),
    ("lt", "bool", "({0} < {1})", f"{ORDERED} int4[]", "="),
    ("ge", "bool", "({0} >= {1})", ORDERED, "="),
    ("eq_mixed", "bool", "({0} = {1})", "int4 int8 numeric float4", "float8"),
    ("lt_mixed", "bool", "({0} < {1})", "int2 int8", "numeric"),
    ("eq_texts", "bool", "({0} = {1})", TEXTS, TEXTS),
    ("lt_days", "bool", "({0} < {1})", "date", "timestamp"),
    ("lt_zone", "bool", "({0} < {1})", "timestamp date", "timestamptz"),
    ("between", "bool", "({0} between {1} and {2})", ORDERED, "=", "="),
    ("between_symmetric", "bool", "({0} between symmetric {1} and {2})", "int4 text", "=", "="),
    ("distinct_from", "bool", "({0} is distinct from {1})", ORDERED, "="),
    ("not_distinct_from", "bool", "({0} is not distinct from {1})", ORDERED, "="),
    ("in", "bool", "({0} in ({1}, {2}))", ORDERED, "=", "="),
    ("not_in", "bool", "({0} not in ({1}, {2}, null))", "int4 text char numeric", "=", "="),
    ("is_null", "bool", "({0} is null)", ALL),
    ("is_not_null", "bool", "({0} is not null)", ALL),
    ("and", "bool", "({0} and {1})", "bool", "bool"),
    ("or", "bool", "({0} or {1})", "bool", "bool"),
    ("not", "bool", "(not {0})", "bool"),
    ("is_true", "bool", "({0} is true)", "bool"),
    ("is_not_false", "bool", "({0} is not false)", "bool"),
    ("is_unknown", "bool", "({0} is unknown)", "bool"),
    ("row_eq", "bool", "(({0}, {1}) = ({2}, {3}))", "int4", "text", "int4", "text"),
    ("row_lt", "bool", "(({0}, {1}) < ({2}, {3}))", "int4", "int8", "int4", "int8"),
    ("cast_int", "=", "cast({1} as {0})", "@int2 @int4 @int8", f"{NUMBERS}"),
    ("cast_int_text", "=", "({1})::{0}", "@int4 @int8", "text"),
    ("cast_bool_int", "int4", "({0})::int4", "bool"),
    ("cast_int_bool", "bool", "({0})::bool", "int4"),
    ("cast_numeric", "numeric", "({0})::numeric", NUMBERS),
    ("cast_numeric_scale", "numeric", "({0})::numeric(10,2)", f"{NUMBERS} text"),
    ("cast_float", "=", "({1})::{0}", "@float4 @float8", f"{NUMBERS} text"),
    ("cast_text", "text", "({0})::text", ALL),
    ("cast_varchar", "varchar", "({0})::varchar(3)", "text char int4"),
    ("cast_char", "char", "({0})::char(4)", "text varchar int4"),
    ("cast_date", "date", "({0})::date", "timestamp timestamptz"),
    ("cast_timestamp", "timestamp", "({0})::timestamp", "date timestamptz"),
    ("cast_timestamptz", "timestamptz", "({0})::timestamptz", "date timestamp"),
    ("cast_time", "time", "({0})::time", "timestamp"),
    ("cast_date_text", "date", "({0})::date", "DATETEXT"),
    ("cast_text_bool", "bool", "({0})::bool", "text"),
    ("concat", "text", "({0} || {1})", "text varchar char", "text varchar char"),
    ("concat_any", "text", "({0} || {1})", "text", "int4 numeric date bool"),
    ("concat_call", "text", "concat({0}, {1})", ALL, "text"),
    ("concat_ws", "text", "concat_ws(',', {0}, {1})", "text char int4", "text"),
    ("length", "int4", "length({0})", f"{TEXTS} bytea"),
    ("char_length", "int4", "char_length({0})", TEXTS),
    ("octet_length", "int4", "octet_length({0})", f"{TEXTS} bytea"),
    ("upper", "text", "upper({0})", TEXTS),
    ("lower", "text", "lower({0})", TEXTS),
    ("initcap", "text", "initcap({0})", "text"),
    ("trim", "text", "trim({0})", TEXTS),
    ("ltrim", "text", "ltrim({0})", "text"),
    ("rtrim", "text", "rtrim({0})", "text"),
    ("btrim_chars", "text", "btrim({0}, {1})", "text", "FROM"),
    ("trim_leading", "text", "trim(leading {1} from {0})", "text", "FROM"),
    ("substring", "text", "substring({0} from {1} for {2})", TEXTS, "SMALL", "COUNT"),
    ("substring_from", "text", "substring({0} from {1})", "text", "SMALL"),
    ("substr", "text", "substr({0}, {1}, {2})", "text", "SMALL", "SMALL"),
    ("substring_regex", "text", "substring({0} from {1})", "text", "REGEX"),
    ("left", "text", "left({0}, {1})", "text char", "SMALL"),
    ("right", "text", "right({0}, {1})", "text", "SMALL"),
    ("position", "int4", "position({1} in {0})", "text", "FROM"),
    ("strpos", "int4", "strpos({0}, {1})", "text", "text"),
    ("replace", "text", "replace({0}, {1}, 'x')", "text", "FROM"),
    ("translate", "text", "translate({0}, 'abé', 'xy')", "text"),
    ("repeat", "text", "repeat({0}, {1})", "text", "SMALL"),
    ("reverse", "text", "reverse({0})", "text"),
    ("lpad", "text", "lpad({0}, {1}, 'xy')", "text", "SMALL"),
    ("rpad", "text", "rpad({0}, {1})", "text", "SMALL"),
    ("split_part", "text", "split_part({0}, {1}, {2})", "text", "FROM", "COUNT"),
    ("ascii", "int4", "ascii({0})", "text"),
    ("chr", "text", "chr({0})", "int4"),
    ("md5", "text", "md5({0})", "text bytea"),
    ("starts_with", "bool", "starts_with({0}, {1})", "text", "text"),
    ("overlay", "text", "overlay({0} placing 'xx' from {1})", "text", "COUNT"),
    ("to_hex", "text", "to_hex({0})", "int4 int8"),
    ("encode", "text", "encode({0}, 'hex')", "bytea"),
    ("encode64", "text", "encode({0}, 'base64')", "bytea"),
    ("quote_literal", "text", "quote_literal({0})", "text"),
    ("format", "text", "format('%s-%s', {0}, {1})", "text", "int4"),
    ("like", "bool", "({0} like {1})", TEXTS, "LIKE"),
    ("not_like", "bool", "({0} not like {1})", "text", "LIKE"),
    ("ilike", "bool", "({0} ilike {1})", "text", "LIKE"),
    ("like_escape", "bool", "({0} like 'a!%%' escape '!')", "text"),
    ("like_expression", "bool", "({0} like {1})", "text", "text"),
    ("similar", "bool", "({0} similar to 'a(b|_)%')", "text"),
    ("regex", "bool", "({0} ~ {1})", "text", "REGEX"),
    ("regex_any_case", "bool", "({0} ~* {1})", "text", "REGEX"),
    ("regex_not", "bool", "({0} !~ {1})", "text", "REGEX"),
    ("regexp_replace", "text", "regexp_replace({0}, {1}, 'x')", "text", "REGEX"),
    ("regexp_replace_all", "text", "regexp_replace({0}, {1}, 'x', 'g')", "text", "REGEX"),
    ("collate_lt", "bool", '({0} < {1} collate "C")', "text", "text"),
    ("date_add", "date", "({0} + {1})", "date", "int4"),
    ("date_sub", "date", "({0} - {1})", "date", "int4"),
    ("date_diff", "int4", "({0} - {1})", "date", "date"),
    ("date_plus_interval", "timestamp", "({0} + {1})", "date", "interval"),
    ("plus_interval", "=", "({0} + {1})", "timestamp timestamptz", "interval"),
    ("minus_interval", "=", "({0} - {1})", "timestamp timestamptz", "interval"),
    ("moment_diff", "interval", "({0} - {1})", "timestamp timestamptz", "="),
    ("interval_mul", "interval", "({0} * {1})", "interval", "int4 float8"),
    ("interval_add", "interval", "({0} + {1})", "interval", "interval"),
    ("age", "interval", "age({0}, {1})", "timestamp", "timestamp"),
    ("date_trunc", "timestamp", "date_trunc({1}, {0})", "timestamp", "UNIT"),
    ("date_trunc_zone", "timestamptz", "date_trunc({1}, {0})", "timestamptz", "UNIT"),
    ("date_trunc_in", "timestamptz", "date_trunc({1}, {0}, {2})", "timestamptz", "UNIT", "ZONE"),
    ("extract", "numeric", "extract({1} from {0})", "timestamp timestamptz", "FIELD"),
    ("extract_day", "numeric", "extract({1} from {0})", "date", "DAYFIELD"),
    ("date_part", "float8", "date_part('year', {0})", "date timestamp"),
    ("at_zone", "timestamp", "({0} at time zone {1})", "timestamptz", "ZONE"),
    ("of_zone", "timestamptz", "({0} at time zone {1})", "timestamp", "ZONE"),
    ("to_char", "text", "to_char({0}, {1})", "timestamp date", "FORMAT"),
    ("to_char_number", "text", "to_char({0}, 'FM999990.00')", "numeric"),
    ("to_date", "date", "to_date({0}, 'YYYY-MM-DD')", "text"),
    ("make_date", "date", "make_date({0}, {1}, {2})", "int4", "int4", "int4"),
    ("to_timestamp", "timestamptz", "to_timestamp({0})", "float8 int4"),
    ("isfinite", "bool", "isfinite({0})", "date timestamp"),
    ("json_get", "jsonb", "({0} -> {1})", "jsonb", "KEY"),
    ("json_text", "text", "({0} ->> {1})", "jsonb", "KEY"),
    ("json_item", "jsonb", "({0} -> {1})", "jsonb", "SMALL"),
    ("json_item_text", "text", "({0} ->> {1})", "jsonb", "SMALL"),
    ("json_path", "jsonb", "({0} #> {1})", "jsonb", "PATH"),
    ("json_path_text", "text", "({0} #>> {1})", "jsonb", "PATH"),
    ("json_has", "bool", "({0} ? {1})", "jsonb", "KEY"),
    ("json_contains", "bool", "({0} @> {1})", "jsonb", "jsonb"),
    ("json_concat", "jsonb", "({0} || {1})", "jsonb", "jsonb"),
    ("json_minus", "jsonb", "({0} - {1})", "jsonb", "KEY"),
    ("json_typeof", "text", "jsonb_typeof({0})", "jsonb"),
    ("json_length", "int4", "jsonb_array_length({0})", "jsonb"),
    ("json_number", "numeric", "({0} ->> {1})::numeric", "jsonb", "KEY"),
    ("to_jsonb", "jsonb", "to_jsonb({0})", "int4 text numeric"),
    ("json_build", "jsonb", "jsonb_build_object('a', {0}, 'b', {1})", "int4 numeric", "text"),
    ("array_make", "int4[]", "array[{0}, {1}]", "int4", "int4"),
    ("array_make_text", "text[]", "array[{0}, {1}]", "text", "text"),
    ("array_item", "int4", "({0})[{1}]", "int4[]", "SMALL"),
    ("array_slice", "int4[]", "({0})[{1}:{2}]", "int4[]", "COUNT", "COUNT"),
    ("array_length", "int4", "array_length({0}, 1)", "int4[] text[]"),
    ("cardinality", "int4", "cardinality({0})", "int4[] text[]"),
    ("array_any", "bool", "({1} = any({0}))", "int4[]", "int4"),
    ("array_all", "bool", "({1} > all({0}))", "int4[]", "int4"),
    ("array_contains", "bool", "({0} @> {1})", "int4[]", "int4[]"),
    ("array_overlaps", "bool", "({0} && {1})", "int4[]", "int4[]"),
    ("array_concat", "int4[]", "({0} || {1})", "int4[]", "int4[]"),
    ("array_append", "int4[]", "array_append({0}, {1})", "int4[]", "int4"),
    ("array_remove", "int4[]", "array_remove({0}, {1})", "int4[]", "int4"),
    ("array_position", "int4", "array_position({0}, {1})", "int4[]", "int4"),
    ("array_to_string", "text", "array_to_string({0}, ',')", "int4[] text[]"),
    ("string_to_array", "text[]", "string_to_array({0}, {1})", "text", "FROM"),
)
_AGGREGATES: Final = (
    ("count", "int8", "count({0})", ALL),
    ("count_star", "int8", "count(*)"),
    ("count_distinct", "int8", "count(distinct {0})", ORDERED),
    ("sum_small", "int8", "sum({0})", "int2 int4"),
    ("sum_large", "numeric", "sum({0})", "int8 numeric"),
    ("sum_distinct", "int8", "sum(distinct {0})", "int4"),
    ("avg", "numeric", "avg({0})", f"{INTEGERS} numeric"),
    ("min", "=", "min({0})", f"{NUMBERS} text varchar char {TIMES} time"),
    ("max", "=", "max({0})", f"{NUMBERS} text varchar char {TIMES} time"),
    ("bool_and", "bool", "bool_and({0})", "bool"),
    ("bool_or", "bool", "bool_or({0})", "bool"),
    ("every", "bool", "every({0})", "bool"),
    ("string_agg", "text", "string_agg({0}, ',' order by {@})", "text"),
    ("array_agg", "int4[]", "array_agg({0} order by {@})", "int4"),
    ("array_agg_text", "text[]", "array_agg({0} order by {@})", "text"),
    ("percentile_disc", "int4", "percentile_disc(0.5) within group (order by {0})", "int4"),
    ("percentile_cont", "float8", "percentile_cont(0.25) within group (order by {0})", "float8"),
    ("mode", "int4", "mode() within group (order by {0})", "int4"),
    ("bit_and_agg", "int4", "bit_and({0})", "int4"),
    ("stddev", "numeric", "stddev({0})", "int4"),
    ("var_pop", "numeric", "var_pop({0})", "int4"),
)
_WINDOWS: Final = (
    ("row_number", "int8", "row_number() over (partition by {0} order by {@})", ORDERED),
    ("rank", "int8", "rank() over (order by {0})", ORDERED),
    ("dense_rank", "int8", "dense_rank() over (order by {0} desc)", ORDERED),
    ("percent_rank", "float8", "percent_rank() over (order by {0})", "int4"),
    ("cume_dist", "float8", "cume_dist() over (order by {0})", "int4"),
    ("ntile", "int4", "ntile(3) over (order by {@})"),
    ("lag", "=", "lag({0}) over (order by {@})", "int4 text date"),
    ("lead", "=", "lead({0}, 2, {1}) over (order by {@})", "int4 text", "="),
    ("first_value", "=", "first_value({0}) over (order by {@})", "int4 text char"),
    ("last_value", "=", "last_value({0}) over (order by {@})", "int4 text"),
    ("nth_value", "int4", "nth_value({0}, 2) over (order by {@})", "int4"),
    ("sum_over", "int8", "sum({0}) over (partition by {1} order by {@})", "int4", "bool"),
    ("avg_over", "numeric", "avg({0}) over (partition by {1})", "int4", "bool"),
    ("max_over", "=", "max({0}) over (order by {@} rows between 1 preceding and 1 following)", "int4 text date"),
    ("count_range", "int8", "count(*) over (order by {0} range between 1 preceding and 1 following)", "int4"),
    ("count_peers", "int8", "count({1}) over (order by {0})", "int4 text char bool", "int4"),
    ("count_groups", "int8", "count(*) over (order by {0} groups between 1 preceding and current row)", "int4"),
    (
        *("count_exclude", "int8"),
        "count(*) over (order by {@} rows between unbounded preceding and current row exclude current row)",
    ),
)


def _rules(table: tuple[tuple[str, ...], ...]) -> Iterator[Rule]:
    for family, result, template, *arguments in table:
        for types in product(*(one.split() for one in arguments)):
            first = types[0].removeprefix("@") if types else ""
            exact = tuple(first if one == "=" else one for one in types)
            kind = first if result == "=" else result
            if any(one.startswith("@") for one in exact):  # the name of a type, not an expression
                text = template.replace("{0}", first).replace("{1}", "{0}")
                yield Rule(_named(family, exact), family, kind, text, exact[1:])
            else:
                yield Rule(_named(family, exact), family, kind, template, exact)


def _named(family: str, types: tuple[str, ...]) -> str:
    shown = [one.removeprefix("@") for one in types if not one.isupper()]
    return f"{family}({','.join(shown)})"


SCALARS: Final = tuple(_rules(_SCALAR))
AGGREGATES: Final = tuple(_rules(_AGGREGATES))
WINDOWS: Final = tuple(_rules(_WINDOWS))
