"""The form of a case: an expression over values of hostile columns."""

from __future__ import annotations

from dataclasses import dataclass

from tests.spark.meaning.hostile import COLUMNS


@dataclass(frozen=True)
class Case:
    """An expression over one row of values, `l`, and another, `r`.

    Attributes:
        entry: what it covers.
        sql: PostgreSQL's SQL.
        left: type of the left value.
        right: type of the right value; empty if it uses only one.
    """

    entry: str
    sql: str
    left: str
    right: str = ""


def column(kind: str, side: str = "l") -> str:
    """Return the column of a type."""
    return f"{side}.{COLUMNS[kind]}"
