"""SQL expressions with which the server itself computes the value forms of `[encode]`. Pure.

SQL functions take an element, not an array of any dimension. For an array, the query therefore returns two things: the
forms of its elements in order, and the array as to_jsonb shows it, for the dimensions. `reshaped` combines both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from psycopg import sql

from cdc.config.settings import Encode

# `extract(epoch …)` of a timestamp has only 16 digits near the limit of 64 bits, so date and time are used separately.
_MICROS: Final = (
    "((x::pg_catalog.date - date '1970-01-01') * 86400000000::pg_catalog.numeric"
    " + pg_catalog.extract('epoch', x::pg_catalog.time) * 1000000)"
)
_FORMS: Final = {
    ("time", "micros", "date"): "x - date '1970-01-01'",
    ("time", "micros", "time without time zone"): "pg_catalog.extract('epoch', x) * 1000000",
    ("time", "micros", "timestamp without time zone"): _MICROS,
    ("bytea", "base64", "bytea"): "pg_catalog.replace(pg_catalog.encode(x, 'base64'), e'\\n', '')",
    ("bytea", "base64url", "bytea"): (
        "pg_catalog.translate(pg_catalog.encode(x, 'base64'), e'+/\\n', '-_')"  # translate drops the newline
    ),
    ("interval", "parts", "interval"): (
        "pg_catalog.jsonb_build_object('months', pg_catalog.extract('year', x) * 12 + pg_catalog.extract('month', x),"
        " 'days', pg_catalog.extract('day', x), 'micros', pg_catalog.extract('hour', x) * 3600000000"
        " + pg_catalog.extract('minute', x) * 60000000 + pg_catalog.extract('microseconds', x))"
    ),
}
# Conditions under which a value has no such form and keeps that of to_jsonb.
_WITHOUT: Final = {
    "date": "not pg_catalog.isfinite(x)",
    "timestamp without time zone": f"not pg_catalog.isfinite(x) or {_MICROS} >= 9223372036854775808",
    "interval": "not pg_catalog.isfinite(x)",
}
_ONE: Final = sql.SQL("(select {form} from (select {name} as x) v) as {name}")
_ARRAY: Final = sql.SQL(
    "case when {name} is not null then pg_catalog.jsonb_build_array(pg_catalog.to_jsonb({name}),"
    " (select pg_catalog.jsonb_agg({form} order by o)"
    " from pg_catalog.unnest({name}) with ordinality v (x, o))) end as {name}"
)
_HSTORE: Final = "x"  # to_jsonb uses the cast of hstore to json


@dataclass(frozen=True, slots=True)
class Form:
    """`expression` computes the form of `x`; `without` is true for values that have none."""

    expression: str
    without: str = "false"

    def shown(self, name: str, *, is_array: bool) -> sql.Composed:
        """Return the SQL of a column; an array becomes the pair that `reshaped` expects."""
        form = sql.SQL(
            f"case when x is null then null when {self.without} then pg_catalog.to_jsonb(x)"
            f" else pg_catalog.to_jsonb({self.expression}) end"
        )
        return (_ARRAY if is_array else _ONE).format(form=form, name=sql.Identifier(name))


def chosen_form(encode: Encode, kind: str, extension: str) -> Form | None:
    """Return the form of a type; None if it has the default form.

    Args:
        encode: the section `[encode]`.
        kind: the base type below domains and arrays, as format_type prints it.
        extension: the extension of the type, or an empty text.
    """
    if extension == "hstore" and encode.hstore == "json":
        return Form(_HSTORE)
    for option in ("time", "bytea", "interval"):
        expression = _FORMS.get((option, getattr(encode, option), kind))
        if expression is not None:
            return Form(expression, _WITHOUT.get(kind, "false"))
    return None


def reshaped(pair: Any) -> Any:
    """Return an array with the dimensions of the first and the elements of the second of the pair."""
    if pair is None:
        return None
    shape, elements = pair
    return _filled(shape, iter(elements or ()))


def _filled(shape: list[Any], elements: Iterator[Any]) -> list[Any]:
    """Fill in the elements; an element is never a list, so every list is a dimension."""
    return [_filled(inner, elements) if isinstance(inner, list) else next(elements) for inner in shape]
