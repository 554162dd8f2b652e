"""PostgreSQL's types of columns and expressions, and the Spark types that hold their values. Pure.

A type without an entry in `known` may be selected, counted and tested for null, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DIGITS_MAX: Final = 38  # of Spark's decimals
_MODIFIER: Final = re.compile(r"([a-z_ 0-9\[\]]+?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_HEADER: Final = 4  # VARHDRSZ, in modifiers of numeric, varchar and bpchar


@dataclass(frozen=True, slots=True)
class PgType:
    """A type.

    Attributes:
        name: PostgreSQL's internal name (int4, bpchar); ``unknown`` for text literals and null; ``lake`` for a column
            of a view in Spark's SQL, whose type follows from its use.
        precision: of the decimal that holds a numeric.
        scale: of that decimal, and PostgreSQL's scale of each value unless `mixed`.
        mixed: whether values of a numeric may have a smaller scale in PostgreSQL.
        quotient: whether the scale of a numeric depends on the value, as division chooses it.
        length: of a char(n).
        element: type of an array's elements.
    """

    name: str
    precision: int = 0
    scale: int = 0
    mixed: bool = False
    quotient: bool = False
    length: int = 0
    element: PgType | None = None

    def __str__(self) -> str:
        if self.element is not None:
            return f"{self.element}[]"
        shown = {"bpchar": "char", "lake": "a column of a view in Spark SQL", "unknown": "an untyped literal"}
        return shown.get(self.name, self.name)

    @property
    def spark(self) -> str:
        """The Spark type that holds it."""
        if self.element is not None:
            return f"array<{self.element.spark}>"
        if self.name == "numeric":
            return f"decimal({self.precision},{self.scale})"
        return _SPARK.get(self.name, "string")


_SPARK: Final = {
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "bool": "boolean",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "bytea": "binary",
    "unknown": "void",
}
INT2: Final = PgType("int2")
INT4: Final = PgType("int4")
INT8: Final = PgType("int8")
FLOAT4: Final = PgType("float4")
FLOAT8: Final = PgType("float8")
BOOL: Final = PgType("bool")
TEXT: Final = PgType("text")
DATE: Final = PgType("date")
TIMESTAMP: Final = PgType("timestamp")
TIMESTAMPTZ: Final = PgType("timestamptz")
BYTEA: Final = PgType("bytea")
UUID: Final = PgType("uuid")
JSONB: Final = PgType("jsonb")
UNKNOWN: Final = PgType("unknown")
LAKE: Final = PgType("lake")

INTEGERS: Final = {"int2": 5, "int4": 10, "int8": 19}
"""Integer types -> their most digits."""
FLOATS: Final = frozenset({"float4", "float8"})
TEXTS: Final = frozenset({"text", "varchar", "bpchar"})
TIMES: Final = frozenset({"date", "timestamp", "timestamptz"})
ORDERED: Final = frozenset({*INTEGERS, *FLOATS, *TEXTS, *TIMES, "numeric", "bool", "bytea", "uuid"}) | {
    *("time", "macaddr", "macaddr8", "bit", "varbit")
}
"""Types whose values Spark compares and orders as PostgreSQL does. The last ones are text in the lake, in one form."""
COMPARED: Final = ORDERED | {
    *("enum", "inet", "cidr", "timetz", "money", "oid", "xid8", "pg_lsn"),
    *("int4range", "int8range", "daterange", "tsrange", "tstzrange"),
    *("int4multirange", "int8multirange", "datemultirange", "tsmultirange", "tstzmultirange"),
}
"""Types whose values are equal in Spark exactly where they are equal in PostgreSQL. A numrange has several texts."""

Columns = Mapping[str, PgType]
"""Columns of a table in its order."""


def numeric(precision: int, scale: int, *, mixed: bool = False, quotient: bool = False) -> PgType:
    """Return a numeric held by a decimal."""
    return PgType("numeric", min(precision, DIGITS_MAX), scale, mixed, quotient)


def array(element: PgType) -> PgType:
    """Return the type of arrays of these elements."""
    return PgType("array", element=element)


def column_type(name: str, modifier: int, lake: str) -> PgType:
    """Return the type of a captured column.

    Args:
        name: PostgreSQL's name of the type.
        modifier: PostgreSQL's type modifier.
        lake: Spark's type of the column in the lake.
    """
    if name == "bpchar":
        if modifier <= _HEADER:
            return PgType("char without a length")  # equal values may have different padding
        found = PgType("bpchar", length=modifier - _HEADER)
    elif name == "numeric":
        digits = _DECIMAL.fullmatch(lake)
        if digits is None:
            return PgType("numeric without limits") if lake == "string" else PgType(f"numeric as {lake}")
        return numeric(int(digits[1]), int(digits[2]), mixed=modifier < _HEADER)
    else:
        found = PgType(name)
    return found if found.spark == lake else PgType(f"{name} as {lake}")


def written(kind: PgType, lake: str) -> str:
    """Return the text of a column's type that a manifest stores; `read` reads it."""
    more = f"({kind.length})" if kind.length else ""
    if kind.name == "numeric":
        more = f"({kind.precision},{kind.scale})" + ("~" if kind.mixed else "")
    return f"{kind.name}{more}|{lake}"


def read(text: str) -> tuple[PgType, str]:
    """Return a column's type, and its Spark type in the lake."""
    name, _, lake = text.rpartition("|")
    mixed = name.endswith("~")
    match = _MODIFIER.fullmatch(name.rstrip("~"))
    if match is None:
        return PgType(name), lake
    first, second = int(match[2] or 0), int(match[3] or 0)
    if match[1] == "numeric":
        return numeric(first, second, mixed=mixed), lake
    return PgType(match[1], length=first), lake
