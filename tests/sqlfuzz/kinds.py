"""The types that the fuzzer generates, and simple values of each."""

from __future__ import annotations

from collections.abc import Mapping
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
