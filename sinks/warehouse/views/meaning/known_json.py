"""What is known to be equal of jsonb, as data; see `known`. `documents` translates its operators. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CASTS: Final[Mapping[tuple[str, str], str]] = {("jsonb", "text"): "{0}", ("json", "text"): "{0}"}
"""Both are in the lake as PostgreSQL prints them."""

OPERATORS: Final[Mapping[str, str]] = {
    "x -> 'key'": "`jsonb`; also a place, from 0, or from -1 at the end",
    "x ->> 'key'": "`text`; also a place",
    "x #> '{a,b,0}'": "`jsonb`",
    "x #>> '{a,b,0}'": "`text`",
    "x ? 'key'": "`boolean`; also `?|` and `?&` with `array['a', 'b']`",
    'x @> \'{"key": "value"}\'': "`boolean`; the right side is a literal",
    "jsonb_typeof(x)": "`text`",
    "jsonb_array_length(x)": "`int4`",
    "jsonb_extract_path(x, 'a', 'b')": "`jsonb`; also `jsonb_extract_path_text`, a `text`",
    "jsonb_build_object('key', y)": "`jsonb`; of text, numbers, booleans, dates, timestamps, uuid and jsonb",
    "jsonb_build_array(y, z)": "`jsonb`",
    "to_jsonb(y)": "`jsonb`",
    "jsonb_agg(y order by z)": "`jsonb`; an aggregate",
}
"""Operator or function -> its result. Keys and paths are literals."""

ALTERNATIVES: Final[Mapping[str, str]] = {
    "json_build_object": "write jsonb_build_object(...)",
    "json_build_array": "write jsonb_build_array(...)",
    "to_json": "write to_jsonb(...)",
    "json_typeof": "make the column jsonb in PostgreSQL, and write jsonb_typeof(...)",
    "json_array_length": "make the column jsonb in PostgreSQL, and write jsonb_array_length(...)",
    "jsonb_array_elements": "compute rows in PostgreSQL, or take places: x -> 0",
    "jsonb_array_elements_text": "compute rows in PostgreSQL, or take places: x ->> 0",
    "jsonb_each": "take keys: x -> 'key'",
    "jsonb_each_text": "take keys: x ->> 'key'",
    "jsonb_object_keys": "ask for keys: x ? 'key'",
    "jsonb_set": "build the object: jsonb_build_object('key', y)",
    "jsonb_strip_nulls": "build the object: jsonb_build_object('key', y)",
    "jsonb_pretty": "select the jsonb itself",
    "jsonb_path_query": "write x #> '{a,b}'",
    "jsonb_path_exists": "write x #> '{a,b}' is not null, or x @> '{...}'",
    "jsonb_object_agg": "compute it in PostgreSQL",
    "row_to_json": "write jsonb_build_object('a', a, 'b', b)",
}
"""Function that is refused -> what to write instead."""

COMPARE_HINTS: Final[Mapping[str, str]] = {
    "jsonb": "compare text, x ->> 'key' = 'value', or write x @> '{\"key\": \"value\"}'",
    "json": "make the column jsonb in PostgreSQL, and compare x ->> 'key'",
}
"""Type whose values are not compared -> what to write instead."""
