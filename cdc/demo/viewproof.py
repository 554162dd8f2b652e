"""Every view of the demo against the same query in PostgreSQL.

A view in PostgreSQL's own dialect is its query; for the others the query stands beside it, in ``<name>.pgsql``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads

_DIALECT: Final = "-- dialect: postgres"


@dataclass(frozen=True, slots=True)
class ViewFound:
    """A view as the lake has it.

    Attributes:
        rows: how many.
        wanted: how many PostgreSQL's query gives.
        differ: rows that only one of the two has.
    """

    name: str
    rows: int
    wanted: int
    differ: int


def folder() -> Path:
    """The demo's views."""
    return Path(str(resources.files("cdc.demo").joinpath("views")))


def queries(views: Path) -> dict[str, str]:
    """View -> what PostgreSQL is asked; a view that has no text for PostgreSQL is left out."""
    found = {}
    for file in sorted(views.glob("*.sql")):
        text, beside = file.read_text(encoding="utf-8"), file.with_suffix(".pgsql")
        if beside.exists():
            found[file.stem] = beside.read_text(encoding="utf-8")
        elif text.startswith(_DIALECT):
            found[file.stem] = text
    return found


def asked(session: psycopg.Connection[Any], query: str) -> list[dict[str, Any]]:
    """PostgreSQL's rows; numbers in JSON are exact."""
    with session.cursor(row_factory=dict_row) as cursor:
        set_json_loads(lambda text: json.loads(text, parse_float=Decimal), cursor)
        return cursor.execute(query.encode()).fetchall()


def compared(name: str, rows: Iterable[Mapping[str, Any]], wanted: Iterable[Mapping[str, Any]]) -> ViewFound:
    """Both as bags of rows."""
    have, want = bag(rows), bag(wanted)
    differ = (have - want).total() + (want - have).total()
    return ViewFound(name, have.total(), want.total(), differ)


def bag(rows: Iterable[Mapping[str, Any]]) -> Counter[Any]:
    """Rows in one form, whichever engine they come from, and how often each is there."""
    return Counter(canonical(dict(row)) for row in rows)


def canonical(value: Any) -> Any:
    """A value as both engines have it: numbers by their value, times in UTC, documents by their fields."""
    if isinstance(value, Mapping):
        return tuple((name, canonical(item)) for name, item in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(canonical(item) for item in value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else value.normalize()
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo is not None else value
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return value
