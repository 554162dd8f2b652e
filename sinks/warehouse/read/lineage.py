"""Finds which columns of which inputs each column of a view comes from, by the text of its query. Needs no lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import lineage
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from cdc.errors import UsageError
from sinks.warehouse.planner.time_windows import MASKED_WINDOW
from sinks.warehouse.views.definition import View, read_views
from sinks.warehouse.views.query_text import parsed, table_names

_TIME_WINDOWS: Final = {MASKED_WINDOW: "window", "window": "window", "session_window": "session_window"}
_EXPRESSION_MAX: Final = 300  # characters of an expression that is shown


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """A column of a view: what computes it, and the columns of inputs that it needs."""

    column: str
    expression: str
    origins: tuple[tuple[str, str], ...]


def view_lineage(folder: Path, name: str, tables: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Return the columns of a view with their origins, as JSON. `tables`: ``schema.table`` -> its columns.

    `error` says why the columns cannot be found; the inputs are known in any case. Raises UsageError for an unknown
    view, ViewRefused if the files cannot be read.
    """
    files = read_views(folder)
    views = {view.name: view for view in files.views}
    if name not in views:
        known = ", ".join(sorted(views)[:20])
        raise UsageError(
            f"no file defines the view {name!r}", hint=f"defined: {known}" if known else "no view is defined"
        )
    view = views[name]
    document: dict[str, Any] = {"view": name, "columns": [], "error": None}
    document["inputs"] = sorted({".".join(one.parts) for one in view.references})
    try:
        found = _origins(view, _columns(views, tables))
    except (SqlglotError, ValueError, KeyError) as error:
        return document | {"error": f"its columns cannot be traced: {str(error).splitlines()[0]}"}
    document["columns"] = [
        {
            "column": one.column,
            "expression": one.expression,
            "from": [{"table": table, "column": column} for table, column in one.origins],
        }
        for one in found
    ]
    return document


def _query(view: View) -> exp.Query:
    return parsed(view.file, view.plain, view.dialect)[1]


def _table_name(table: exp.Table) -> str:
    return ".".join(part for part in (table.db, table.name) if part)


def _columns(views: Mapping[str, View], tables: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return input -> its columns; a table in `public` is also known without its schema, and views by their names."""
    known = {name: list(columns) for name, columns in tables.items()}
    known |= {name.partition(".")[2]: columns for name, columns in list(known.items()) if name.startswith("public.")}
    for name, view in views.items():
        query = _query(view)
        if not query.is_star:
            known[name] = query.named_selects
    return known


def _origins(view: View, known: Mapping[str, Iterable[str]]) -> list[ColumnOrigin]:
    query = _query(view)
    schema = MappingSchema(dialect=view.dialect)
    for table in table_names(query):
        columns = dict.fromkeys(known.get(_table_name(table), ()), "text")
        if columns:
            schema.add_table(table.copy(), columns, match_depth=False)
    qualified = qualify(
        _without_windows(query),
        dialect=view.dialect,
        schema=schema,
        validate_qualify_columns=False,
        quote_identifiers=False,
    )
    if not isinstance(qualified, exp.Query):
        raise SqlglotError("it is not a query")
    return [_origin(select, qualified, view.dialect, schema) for select in qualified.selects]


def _without_windows(query: exp.Query) -> exp.Query:
    """Replace the bounds of Spark's windows of time by the time that they are computed from."""
    found = query.copy()
    for select in found.find_all(exp.Select):
        group = select.args.get("group")
        for call in group.find_all(exp.Anonymous) if group is not None else ():
            name = _TIME_WINDOWS.get(call.name.lower())
            if name is None or not call.expressions:
                continue
            for column in list(select.find_all(exp.Column)):
                if column.parent_select is select and (column.table or column.name).lower() == name:
                    column.replace(call.expressions[0].copy())
    return found


def _origin(select: exp.Expr, query: exp.Query, dialect: str, schema: MappingSchema) -> ColumnOrigin:
    name = select.alias_or_name
    tree = lineage(name, query.copy(), schema, dialect=dialect, validate_qualify_columns=False)
    origins: set[tuple[str, str]] = set()
    for node in tree.walk():
        if not node.downstream and isinstance(node.expression, exp.Table):
            origins.add((_table_name(node.expression), node.name.rpartition(".")[2]))
    text = select.unalias().sql(dialect=dialect)
    shown = text if len(text) <= _EXPRESSION_MAX else f"{text[:_EXPRESSION_MAX]} ..."
    return ColumnOrigin(name, shown, tuple(sorted(origins)))
