"""Constructs of numbers, times and arrays that the fuzzer generates, in the form of `tests.sqlfuzz.rules`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_INTEGERS: Final = "int2 int4 int8"

LITERALS: Final[Mapping[str, tuple[str, ...]]] = {
    "CLOCKFIELD": ("second", "milliseconds", "microseconds", "isoyear", "decade", "century", "millennium", "epoch"),
    "PARTFIELD": ("epoch", "day", "hour", "minute", "second"),
    "TIMEFIELD": ("hour", "minute", "second"),
    "PATTERN": ("'YYYYMMDD'", "'YYYY-MM-DD\"T\"HH24:MI:SS.US'", "'IYYY-IW Q DDD'", "'HH12:MI AM, Mon'", "'SS.MS'"),
    "SPAN": (
        *("interval '1 month 3 days 04:05:06.789'", "interval '1 year -2 months'", "interval '36:00:00'"),
        *("interval '-1 day'", "interval '1.5 hours'", "interval '2 weeks 1 second'"),
    ),
    "SHIFT": ("0", "1", "5", "31"),
    "PLACES": ("-20", "-2", "0", "1", "3", "12"),
}
SCALARS: Final = (
    # name, result, template, arguments
    ("float_divide", "float8", "({0} / {1})", "float4 int2 numeric", "float8"),
    ("float_with_int", "float8", "({0} - {1})", "float4", _INTEGERS),
    ("float4_both", "float4", "({0} * {1})", "float4", "float4"),
    ("float4_case", "float4", "coalesce({0}, {1})", "float4", "int4 numeric"),
    ("whole_of", "float8", "ceil({0})", "float4 int4"),
    ("floor_of", "float8", "floor({0})", "float4 int8"),
    ("sign_of", "float8", "sign({0})", "float4 float8 int4"),
    ("root_of", "float8", "sqrt({0})", "float4 int4"),
    ("round_places", "numeric", "round({0}, {1})", "numeric int4", "PLACES"),
    ("trunc_places", "numeric", "trunc({0}, {1})", "numeric int4", "PLACES"),
    ("ceil_quotient", "numeric", "ceil({0} / 7.0)", "numeric"),
    ("bit_mixed", "int8", "({0} & {1})", "int2 int4", "int8"),
    ("bit_shift", "=", "({0} << {1})", "int4 int8", "SHIFT"),
    ("bit_shift_back", "=", "({0} >> {1})", "int4 int8", "SHIFT"),
    ("nullif_mixed", "numeric", "nullif({0}, {1})", _INTEGERS, "numeric"),
    ("text_to", "=", "cast({1} as {0})", "@int2 @int4 @int8 @float4 @float8 @bool @date @timestamp @uuid", "text"),
    ("plus_span", "=", "({0} + {1})", "timestamp timestamptz", "SPAN"),
    ("minus_span", "timestamp", "({0} - {1})", "date timestamp", "SPAN"),
    ("plus_days", "=", "({0} + {1} * interval '1 day')", "timestamp timestamptz", "int2 int4"),
    ("less_than_span", "bool", "({0} - {1} < {2})", "timestamp timestamptz", "=", "SPAN"),
    ("part_of_span", "numeric", "extract({2} from ({0} - {1}))", "timestamp timestamptz", "=", "PARTFIELD"),
    ("clock_field", "numeric", "extract({1} from {0})", "timestamp timestamptz", "CLOCKFIELD"),
    ("time_field", "numeric", "extract({1} from {0})", "time", "TIMEFIELD"),
    ("time_of", "time", "({0})::time", "timestamp timestamptz"),
    ("written_as", "text", "to_char({0}, {1})", "date timestamp timestamptz", "PATTERN"),
    ("day_of", "date", "make_date(2024, {0}, {1})", "int4", "int4"),
    ("moment_of", "timestamptz", "to_timestamp({0})", _INTEGERS),
    ("contained_by", "bool", "({0} <@ {1})", "int4[] text[]", "="),
    ("overlaps_text", "bool", "({0} && {1})", "text[]", "text[]"),
    ("unlike_any", "bool", "({1} <> any({0}))", "int4[]", "int4"),
    ("less_than_all", "bool", "({1} < all({0}))", "int4[]", _INTEGERS),
    ("text_any", "bool", "({1} = any({0}))", "text[]", "text char"),
    ("item_of", "int4", "(({0})[:])[{1}]", "int4[]", "COUNT"),
    ("same_items", "bool", "(({0})[:] = ({1})[:])", "int4[] text[]", "="),
    ("item_of_made", "int4", "(array[{0}, {1}, 7])[{2}]", "int4", "int4", "COUNT"),
    ("slice_of_made", "int4[]", "(array[{0}, {1}, 7])[{2}:2]", "int4", "int4", "COUNT"),
    ("equal_to_any_of_made", "bool", "({0} = any(array[{1}, {2}]))", "int4 text", "=", "="),
    ("unequal_to_all_of_made", "bool", "({0} <> all(array[{1}, {2}]))", "int4 text", "=", "="),
    ("any_of_made", "bool", "({0} > any(array[{1}, 7]))", "int4", "int4"),
)
AGGREGATES: Final = (
    ("bits_of", "=", "bit_or({0})", _INTEGERS),
    ("bits_and", "=", "bit_and({0})", _INTEGERS),
    ("bits_xor", "=", "bit_xor({0})", _INTEGERS),
    ("var_samp", "numeric", "var_samp({0})", "int2 int4 numeric"),
    ("picked", "=", "percentile_disc(0.4) within group (order by {0})", "int8 numeric date timestamp bool uuid time"),
    ("picked_last", "=", "percentile_disc(0.9) within group (order by {0} desc)", "int4 date"),
    ("most_often", "=", "mode() within group (order by {0})", "int4 numeric date bool uuid"),
    ("distinct_rows", "int8", "count(distinct ({0}, {1}))", "int4 date text", "bool"),
)
