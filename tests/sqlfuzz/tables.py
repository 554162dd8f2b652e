"""The tables of the fuzzer and their hostile values.

`mild` has values that rarely overflow, `wild` extremes, `side` is a partner for joins, `bare` has no row. Values that
the lake's columns cannot hold by their type are left out: NaN in a numeric(p,s), infinity and years BC in a date. Such
a value stops the table, and not a view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

COLUMNS: Final[Mapping[str, str]] = {
    "id": "int4",
    "k": "int4",
    "i2": "int2",
    "i4": "int4",
    "i8": "int8",
    "n": "numeric(12,3)",
    "m": "numeric(30,10)",
    "nu": "numeric",
    "f4": "float4",
    "f8": "float8",
    "t": "text",
    "s": "text",
    "v": "varchar(12)",
    "c": "char(6)",
    "e": "char(3)",
    "b": "boolean",
    "a": "boolean",
    "d": "date",
    "ts": "timestamp",
    "tz": "timestamptz",
    "tm": "time",
    "iv": "interval",
    "j": "jsonb",
    "ai": "int4[]",
    "ta": "text[]",
    "u": "uuid",
    "y": "bytea",
}
SIDE: Final = ("id", "k", "i4", "i8", "n", "t", "c", "b", "d", "f8")
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "mild": tuple(COLUMNS),
    "wild": tuple(COLUMNS),
    "side": SIDE,
    "bare": SIDE,
}
ROWS: Final = {"mild": 23, "wild": 19, "side": 11, "bare": 0}

_TEXTS: Final = (
    "",
    "a",
    "b",
    "B",
    "ab",
    "ab ",
    " ab",
    "Zoë",
    "zoe",
    "straße",
    "STRASSE",
    "日本語",
    "👍a",
    "a_b",
    "a%b",
)
_CHARS: Final = ("", "a", "ab", "AB", "abc", "é", "日本", "b", "a b")
_DAYS: Final = ("2024-02-29", "2023-02-28", "2024-03-31", "2024-12-31", "1970-01-01", "1999-12-27", "2000-01-01")
_MOMENTS: Final = (
    *("2024-02-29 23:59:59.999999", "2024-03-31 01:30:00", "2024-03-31 02:30:00", "2024-10-27 02:30:00"),
    *("2024-10-27 00:30:00", "1970-01-01 00:00:00", "1969-12-31 23:59:59.5", "2021-01-03 12:00:00.000001"),
)
_JSON: Final = (
    '{"a": 1, "b": {"c": [1, 2, null]}, "d": "x"}',
    '{"a": null, "d": ""}',
    '{"a": "1", "b": []}',
    '[1, 2.50, "a", null, true]',
    '"text"',
    "12.50",
    "null",
    "{}",
    "[]",
    '{"a": 1e2, "é": "日本", "b": {"c": {}}}',
)
MILD: Final[Mapping[str, Sequence[str | None]]] = {
    "k": ("1", "2", None, "3", "1"),
    "i2": ("0", "1", "-1", None, "7", "-7", "100"),
    "i4": ("3", "0", "-3", "1", None, "10", "-10", "60", "2", "5", "7"),
    "i8": ("1", "-1", "0", "1000000", None, "-1000000", "12"),
    "n": ("0.000", "1.500", "-1.500", "2.500", "0.005", None, "100.125", "-0.001", "3.000", "10.000"),
    "m": ("0", "1", "0.3333333333", "-2.5", None, "7", "1234.5678", "-0.0000000001"),
    "nu": ("0", "1.10", "NaN", None, "-2.5", "100", "0.000001"),
    "f4": ("0", "1.5", "-0", "NaN", None, "0.1", "-2.5"),
    "f8": ("0", "-0", "NaN", "1.5", None, "-1.5", "0.1", "100", "2.5", "1e-5"),
    "t": (*_TEXTS, None, "12", "-3.5"),
    "s": ("b", "", None, "a", "ab", "zoe", "é"),
    "v": ("", "a", "ab ", None, "ÄÖ", "Ab", "b"),
    "c": (*_CHARS, None),
    "e": ("a", "", "ab", None, "b", "é"),
    "b": ("t", "f", None),
    "a": ("t", "t", "f", "f", None),
    "d": (*_DAYS, None),
    "ts": (*_MOMENTS, None),
    "tz": (*(f"{one}+00" for one in _MOMENTS), None),
    "tm": ("00:00:00", "23:59:59.999999", "12:30:00.5", None, "24:00:00"),
    "iv": ("0", "1 day", "-1 month 2 days", "25:00:00", None, "1 year 2 mons 3 days 04:05:06.789", "30 days", "1 mon"),
    "j": (*_JSON, None),
    "ai": ("{}", "{1,2,3}", "{3,NULL,1}", None, "{5}", "{1,1,2}"),
    "ta": ("{}", "{a,b}", '{"",NULL,"a b"}', None, "{Zoë,zoe}"),
    "u": ("00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None),
    "y": (r"\x", r"\x00", r"\xff00", None, r"\x616263"),
}
WILD: Final[Mapping[str, Sequence[str | None]]] = {
    **MILD,
    "i2": ("32767", "-32768", None, "0", "-1"),
    "i4": ("2147483647", "-2147483648", "-1", None, "0", "1", "46341"),
    "i8": ("9223372036854775807", "-9223372036854775808", None, "-1", "0", "3037000500", "1"),
    "n": ("999999999.999", "-999999999.999", "0.001", None, "0.000", "-0.001"),
    "m": ("99999999999999999999.9999999999", "-99999999999999999999.9999999999", "0.0000000001", None, "0", "1"),
    "nu": ("Infinity", "-Infinity", "NaN", None, "1e40", "0", "-1e-30", "0.10"),
    "f4": ("3.4028235e38", "-3.4028235e38", "1e-45", "Infinity", "-Infinity", "NaN", None, "-0", "16777217"),
    "f8": ("1.7976931348623157e308", "5e-324", "Infinity", "-Infinity", "NaN", "-0", None, "9007199254740993", "0.5"),
    "t": ("'", "\\", "%", "_", "\t", "a\nb", "İ", "ß", "ﬀ", "e\u0301", "\U0010ffff", None, "NaN", "t", "1e400", " 1 "),
    "c": ("'", "\\", "%", "ß", "  a", None, "日本語日本語", ""),
    "d": ("0001-01-01", "9999-12-31", "1582-10-10", "1900-02-28", None, "1582-10-15"),
    "ts": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1582-10-10 12:00:00", None, "1883-11-18 12:00:00"),
    "tz": ("0001-01-02 00:00:00+00", "9999-12-30 23:59:59.999999+00", "1900-01-01 00:00:00+00", None),
    "iv": ("178000000 years", "-1 mon +1 day -00:00:00.000001", None, "PT0.000001S", "1000000:00:00"),
}


def values(table: str) -> list[dict[str, str | None]]:
    """Return the rows of a table as texts of PostgreSQL."""
    source = WILD if table == "wild" else MILD
    shift = {"mild": 0, "wild": 0, "side": 2, "bare": 0}[table]
    rows: list[dict[str, str | None]] = []
    for number in range(ROWS[table]):
        row: dict[str, str | None] = {"id": str(number + 1)}
        for name in TABLES[table][1:]:
            texts = source[name]
            row[name] = texts[(number + shift) % len(texts)]
        rows.append(row)
    return rows
