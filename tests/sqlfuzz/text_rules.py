"""Constructs of text and JSON for the generator, in the form of `rules`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TEXTS: Final = "text varchar char"

LITERALS: Final[Mapping[str, tuple[str, ...]]] = {
    "CHARACTERS": ("'a'", "' a'", "'ëo'", "''", "'%_'"),
    "PLACE": ("-3", "-1", "1", "2", "99"),
    "LIKE_ESCAPED": ("'a\\%%'", "'%\\_%'", "'\\\\%'", "'\\a%'", "'%\\%'"),
    "MATCHED": (
        *("'^a'", "'b$'", "'^.b?$'", "'[^a-c]'", "'(a|b)+$'", "'^(ab|a)( |_)?'", "'a{1,2}'", "'\\.'", "'ë|本'", "'\n'"),
        *("'^-?[0-9]+(\\.[0-9]+)?$'", "'[[:xdigit:]]'", "''"),
    ),
    "MATCHED_C": ("'^\\w+$'", "'[[:alpha:]]'", "'\\d'", "'\\s$'", "'[[:upper:]]b?'"),
    "TAKEN": ("'[a-z]+'", "'^[^ ]'", "'a|b'", "'([0-9]+)\\.?'", "'o(.)'", "'[ab]{2}'", "'(?:ab)+'", "'.$'"),
    "REPLACEMENT": ("'x'", "''", "'$1'", "'<>'"),
    "HELD": (
        *("'{}'", "'[]'", "'{\"a\": 1}'", "'{\"a\": null}'", '\'{"b": {"c": [2]}}\'', "'[2.5]'", "'[\"a\", null]'"),
        *("'\"text\"'", "'12.5'", "'null'", '\'{"d": "x", "a": 1.0}\'', "'[[]]'", "'{\"b\": []}'"),
    ),
}

SCALARS: Final = (
    ("upper_c", "text", 'upper({0} collate "C")', TEXTS),
    ("lower_c", "text", 'lower({0} collate "C")', TEXTS),
    ("initcap_c", "text", 'initcap({0} collate "C")', TEXTS),
    ("concat_ws_many", "text", "concat_ws({0}, {1}, null, {2})", "text", TEXTS, "int4 bool date"),
    ("format_many", "text", "format('%s %% %s', {0}, {1})", TEXTS, "int4 bool timestamp"),
    ("btrim_any", "text", "btrim({0}, {1})", TEXTS, "CHARACTERS"),
    ("ltrim_chars", "text", "ltrim({0}, {1})", TEXTS, "CHARACTERS"),
    ("trim_trailing", "text", "trim(trailing {1} from {0})", TEXTS, "CHARACTERS"),
    ("substring_any", "text", "substring({0}, {1}, {2})", "text", "int2", "int2"),
    ("left_any", "text", "left({0}, {1})", "text", "int4"),
    ("right_any", "text", "right({0}, {1})", "text", "int4"),
    ("split_part_any", "text", "split_part({0}, {1}, {2})", "text", "text", "PLACE"),
    ("split_part_place", "text", "split_part({0}, 'a', {1})", "text", "int4"),
    ("translate_any", "text", "translate({0}, {1}, {2})", "text", "text", "CHARACTERS"),
    ("overlay_for", "text", "overlay({0} placing {1} from {2} for {3})", "text", "text", "COUNT", "COUNT"),
    ("lpad_any", "text", "lpad({0}, {1}, {2})", "text", "SMALL", "text"),
    ("rpad_any", "text", "rpad({0}, {1}, {2})", "text", "SMALL", "CHARACTERS"),
    ("bit_length", "int4", "bit_length({0})", "text"),
    ("like_escaped", "bool", "({0} like {1})", TEXTS, "LIKE_ESCAPED"),
    ("ilike_c", "bool", '({0} collate "C" ilike {1})', "text varchar", "LIKE LIKE_ESCAPED"),
    ("matches", "bool", "({0} ~ {1})", "text varchar", "MATCHED"),
    ("matches_not", "bool", "({0} !~ {1})", "text", "MATCHED"),
    ("matches_c", "bool", '({0} collate "C" ~ {1})', "text", "MATCHED_C"),
    ("matches_any_case", "bool", '({0} collate "C" ~* {1})', "text", "MATCHED MATCHED_C"),
    ("substring_taken", "text", "substring({0} from {1})", TEXTS, "TAKEN"),
    ("regexp_count", "int4", "regexp_count({0}, {1})", "text", "TAKEN"),
    ("regexp_substr", "text", "regexp_substr({0}, {1})", "text", "TAKEN"),
    ("regexp_replace_taken", "text", "regexp_replace({0}, {1}, {2})", TEXTS, "TAKEN", "REPLACEMENT"),
    ("regexp_replace_every", "text", "regexp_replace({0}, {1}, {2}, 'g')", "text", "TAKEN", "REPLACEMENT"),
    ("json_any_key", "bool", "({0} ?| array['a', 'd'])", "jsonb"),
    ("json_all_keys", "bool", "({0} ?& array['a', 'b'])", "jsonb"),
    ("json_holds", "bool", "({0} @> {1})", "jsonb", "HELD"),
    ("json_shown", "text", "({0})::text", "jsonb"),
    ("json_extract", "text", "jsonb_extract_path_text({0}, 'b', {1})", "jsonb", "KEY"),
    ("json_array", "jsonb", "jsonb_build_array({0}, {1}, null)", "text bool date int8", "jsonb"),
    (
        "json_object",
        "jsonb",
        "jsonb_build_object('é', {0}, 'a', {1}, 'b', {2})",
        "text varchar",
        "bool timestamp",
        "jsonb",
    ),
    ("json_of", "jsonb", "to_jsonb({0})", "bool date timestamptz varchar"),
    ("text_int", "=", "({1})::{0}", "@int2 @int4 @int8", "text"),
    ("text_number", "numeric", "({0})::numeric(12,3)", "text"),
    ("text_bool", "bool", "({0} ->> {1})::bool", "jsonb", "KEY"),
)
