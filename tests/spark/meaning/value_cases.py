"""Cases of types that the lake keeps as text: as values, compared, and ordered where the text has their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sinks.warehouse.views.meaning import known_values
from tests.spark.meaning.case import Case, column
from tests.spark.meaning.hostile import COLUMNS

ORDERED: Final = ("time", "macaddr", "macaddr8", "bit(3)", "varbit")
EQUAL: Final = (
    *("timetz", "inet", "cidr", "money", "mood", "oid", "xid8", "pg_lsn"),
    *("int4range", "int8range", "daterange", "tsrange", "tstzrange"),
    *("int4multirange", "int8multirange", "datemultirange", "tsmultirange", "tstzmultirange"),
    *ORDERED,
)
_LITERALS: Final = (
    ("time", "12:30"),
    ("time", "12:30:00.500"),
    ("inet", "192.168.0.1"),
    ("inet", "192.168.0.1/24"),
    ("macaddr", "08:00:2B:01:02:03"),
    ("bit(3)", "101"),
    ("varbit", "00"),
)


def value_cases() -> Iterator[Case]:
    """Yield every case."""
    for kind in ("interval", *EQUAL):
        value = column(kind)
        yield Case(kind, value, kind)
        yield Case(f"is null {kind}", f"{value} is null", kind)
        yield Case(f"coalesce {kind}", f"coalesce({value}, {column(kind, 'r')})", kind, kind)
    for kind in EQUAL:
        value, other = column(kind), column(kind, "r")
        for operator in ("=", "<>", "is distinct from"):
            yield Case(f"{operator} {kind}", f"{value} {operator} {other}", kind, kind)
        yield Case(f"in {kind}", f"{value} in ({other}, {value})", kind, kind)
        if kind != "cidr":  # it becomes an inet
            yield Case(f"nullif {kind}", f"nullif({value}, {other})", kind, kind)
    for kind in (*ORDERED, "bool", "uuid", "bytea"):
        value, other = column(kind), column(kind, "r")
        for operator in ("<", "<=", ">", ">="):
            yield Case(f"{operator} {kind}", f"{value} {operator} {other}", kind, kind)
        yield Case(f"between {kind}", f"{value} between {other} and {value}", kind, kind)
        yield Case(f"greatest {kind}", f"greatest({value}, {other})", kind, kind)
        yield Case(f"least {kind}", f"least({value}, {other})", kind, kind)
    for kind, text in _LITERALS:
        operators = ("=", "<>") if kind == "inet" else ("=", "<", ">=")
        for operator in operators:
            yield Case(f"{operator} literal {kind}", f"{column(kind)} {operator} '{text}'", kind)
    yield Case("typed literal", f"{column('time')} > time '12:30'", "time")
    yield Case("typed literal", f"{column('inet')} = inet '192.168.0.1'", "inet")
    yield Case("typed literal", f"{column('varbit')} = '101'::varbit", "varbit")
    yield Case("typed literal", f"{column('macaddr')} = '08:00:2b:01:02:03'::macaddr", "macaddr")
    for have, kind in known_values.CASTS:
        one = {"bit": "bit(3)"}.get(have, have)
        if one in COLUMNS:
            yield Case(f"cast {have} {kind}", f"{column(one)}::{kind}", one)
