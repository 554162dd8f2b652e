"""Values that engines treat differently, by PostgreSQL's type; each is one that the lake can hold."""

from __future__ import annotations

from typing import Final

VALUES: Final[dict[str, tuple[str | None, ...]]] = {
    "int2": (None, "0", "1", "-1", "7", "-7", "32767", "-32768"),
    "int4": (None, "0", "1", "-1", "7", "-7", "100", "2147483647", "-2147483648"),
    "int8": (None, "0", "1", "-1", "3", "-10", "9223372036854775807", "-9223372036854775808", "9007199254740993"),
    "numeric(15,2)": (
        None,
        "0.00",
        "1.00",
        "-1.00",
        "0.01",
        "-0.05",
        "2.50",
        "-2.50",
        "9999999999999.99",
        "33.33",
        "7.00",
    ),
    "numeric(6,4)": (None, "0.0000", "0.0001", "-0.0001", "99.9999", "3.0000", "0.5000"),
    "float8": (None, "0", "-0", "1.5", "-1.5", "NaN", "Infinity", "-Infinity", "1e308", "5e-324", "0.1"),
    "float4": (None, "0", "-0", "1.5", "NaN", "Infinity", "-Infinity", "0.1"),
    "bool": (None, "true", "false"),
    "text": (
        None,
        *(
            "",
            " ",
            "a",
            "A",
            "b",
            "ab",
            "a ",
            " a",
            "abc",
            "a\\b",
            "a%b",
            "a_b",
            "'",
            '"',
            "äöü",
            "ß",
            "Éa",
            "日本語",
            "\U0001f600x",
        ),
        *("e\u0301", "\u00e9", "I", "\u0131", "\u0130", "\t", "a\nb", "00", "~", "Z", "_"),
    ),
    "char(5)": (None, "     ", "a    ", "A    ", "ab   ", "abcde", " a   ", "ä    ", "a\t   "),
    "date": (
        None,
        "1970-01-01",
        "2024-02-29",
        "2023-02-28",
        "1900-01-31",
        "0001-01-01",
        "9999-12-31",
        "2024-12-30",
        "2020-01-01",
    ),
    "timestamp": (
        None,
        *("1970-01-01 00:00:00", "2024-02-29 23:59:59.999999", "2024-03-31 02:30:00", "1582-10-10 12:00:00"),
        *("9999-12-31 23:59:59.999999", "0001-01-01 00:00:00", "2024-10-27 01:30:00.5", "2024-01-31 10:00:00"),
    ),
    "timestamptz": (
        None,
        *(
            "1970-01-01 00:00:00+00",
            "2024-02-29 23:59:59.999999+00",
            "2024-03-31 01:00:00+00",
            "1883-11-18 12:00:00+00",
        ),
        *("9999-12-31 23:59:59.999999+00", "2024-10-27 01:30:00.5+00", "2024-01-31 10:00:00+00"),
    ),
    "uuid": (
        None,
        "00000000-0000-0000-0000-000000000000",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ),
    "mood": (None, "", "b", "a"),
    "bytea": (None, "\\x", "\\x00", "\\xff", "\\x61", "\\x6100"),
}
COLUMNS: Final = {name: "c_" + name.translate(str.maketrans("(),", "___")).strip("_") for name in VALUES}
"""Type -> the name of its column."""
LAKE: Final = {
    "int2": ("int2", -1, "smallint"),
    "int4": ("int4", -1, "int"),
    "int8": ("int8", -1, "bigint"),
    "numeric(15,2)": ("numeric", (15 << 16 | 2) + 4, "decimal(15,2)"),
    "numeric(6,4)": ("numeric", (6 << 16 | 4) + 4, "decimal(6,4)"),
    "float8": ("float8", -1, "double"),
    "float4": ("float4", -1, "float"),
    "bool": ("bool", -1, "boolean"),
    "text": ("text", -1, "string"),
    "char(5)": ("bpchar", 9, "string"),
    "date": ("date", -1, "date"),
    "timestamp": ("timestamp", -1, "timestamp_ntz"),
    "timestamptz": ("timestamptz", -1, "timestamp"),
    "uuid": ("uuid", -1, "string"),
    "mood": ("enum", -1, "string"),
    "bytea": ("bytea", -1, "binary"),
}
"""Type -> its name and modifier in PostgreSQL, and the lake's type."""
