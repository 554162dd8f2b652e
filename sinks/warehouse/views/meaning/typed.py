"""A translated expression: its Spark SQL and its PostgreSQL type. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.views.meaning.pg_types import PgType


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression.

    Attributes:
        sql: Spark SQL; safe next to any operator.
        type: its type in PostgreSQL.
        literal: the value of a literal, as text; None for other expressions and for null.
        source: input and column, if it is a column of an input.
        claims: for a column of a view in Spark's SQL, column -> the Spark type that the translation relies on.
        c: whether it is compared and ordered by code points, whatever the database's collation is.
    """

    sql: str
    type: PgType
    literal: str | None = None
    source: tuple[str, str] | None = None
    c: bool = False
    claims: dict[str, str] | None = None

    def of(self, sql: str, kind: PgType) -> Typed:
        """Return another expression over this one, with its collation."""
        return replace(self, sql=sql, type=kind, literal=None, source=None, claims=None)


NULL: Final = "null"


def text_literal(value: str) -> str:
    """Return a text literal of Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"


def column(*parts: str) -> str:
    """Return a column's name for Spark SQL."""
    return ".".join(map(quoted, parts))


def raising(message: str, kind: str) -> str:
    """Return an expression that fails when it is computed."""
    return f"cast(raise_error({text_literal(message)}) as {kind})"


def named(sql: str, name: str, template: str) -> str:
    """Return an expression over a value that is computed once; the template uses its name."""
    return f"element_at(transform(array({sql}), {name} -> {template}), 1)"


def once(form: str, arguments: Sequence[Typed]) -> str:
    """Return SQL of a template in which each argument is computed once, however often it occurs."""
    if all(form.count(f"{{{place}}}") < 2 or _is_simple(one) for place, one in enumerate(arguments)):
        return form.format(*(one.sql for one in arguments))
    row = ", ".join(f"'f{place}', {one.sql}" for place, one in enumerate(arguments))
    value = form.format(*(f"y__.f{place}" for place in range(len(arguments))))
    return named(f"named_struct({row})", "y__", value)


def _is_simple(one: Typed) -> bool:
    return one.source is not None or one.literal is not None
