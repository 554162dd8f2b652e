"""Parses every query into one form: no WITH, ``*`` or USING, columns qualified, each table with its own alias.

A view itself runs by the text of its file. This form is only for the incremental plans. Before it is used, Spark must
confirm that it has the same meaning (`sinks.warehouse.views.same_query`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify

from sinks.warehouse.planner.relations import Relation, Unplannable
from sinks.warehouse.planner.rewrite_check import check_faithful
from sinks.warehouse.planner.spark_text import tree_of

_BY_WINDOW: Final = re.compile(r"\bgroup\s+by\s+window\b", re.IGNORECASE)
"""sqlglot 30 reads it as the WINDOW clause."""
_GENERATORS: Final = frozenset(
    {"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple"}
    | {"collations", "sql_keywords", "variant_explode", "variant_explode_outer"}
)


def normal_form(sql: str, relations: Mapping[str, Relation]) -> exp.Query:
    """Return the query of `sql` (Spark's dialect) in that form. Raises Unplannable.

    `sql` has no time windows (`time_windows.without_time_windows`).
    """
    if _BY_WINDOW.search(sql):
        raise Unplannable("it groups by a column named window")
    found = parsed(sql)
    _check_forms(found)
    check_faithful(sql, found)
    query = _without_with(found)
    _check_tables(query, relations)
    schema: dict[str, object] = {
        relation.name: {column: kind or "string" for column, kind in relation.columns.items()}
        for relation in relations.values()
    }
    try:
        qualified = qualify(query, dialect="spark", schema=schema)
    except (SqlglotError, ValueError, KeyError, AttributeError) as error:
        raise Unplannable("its columns cannot be resolved") from error
    _unique_aliases(qualified)
    return qualified


def parsed(sql: str) -> exp.Query:
    """Return the tree of a query in Spark's dialect. Raises Unplannable."""
    try:
        found = tree_of(sql)
    except SqlglotError as error:
        raise Unplannable("only Spark can parse its SQL") from error
    if not isinstance(found, exp.Query):
        raise Unplannable("it is not a single SELECT")
    return found


def _check_forms(query: exp.Query) -> None:
    """Refuse forms that the plans do not support."""
    refused: tuple[tuple[type[exp.Expr], str], ...] = (
        (exp.Lateral, "LATERAL VIEW or LATERAL makes rows of a row's values"),
        (exp.Pivot, "PIVOT"),
        (exp.Values, "VALUES in FROM"),
        (exp.Cube, "grouping sets"),
        (exp.Rollup, "grouping sets"),
        (exp.GroupingSets, "grouping sets"),
        (exp.Explode, "explode() makes rows of a row's values"),
        (exp.Posexplode, "explode() makes rows of a row's values"),
        (exp.Unnest, "a function in FROM"),
        (exp.Inline, "inline() makes rows of a row's values"),
        (exp.MatchRecognize, "MATCH_RECOGNIZE"),
    )
    for function in query.find_all(exp.Anonymous):
        if function.name.lower() in _GENERATORS:
            raise Unplannable(f"{function.name.lower()}() makes rows of a row's values")
    for kind, why in refused:
        if query.find(kind):
            raise Unplannable(why)
    for select in query.find_all(exp.Select):
        if select.args.get("operation_modifiers") or select.args.get("match"):
            raise Unplannable("an unsupported form of SELECT")
    for join in query.find_all(exp.Join):
        if (join.args.get("method") or "").upper() == "NATURAL":
            raise Unplannable("NATURAL JOIN depends on the columns of its tables")


def _without_with(query: exp.Query) -> exp.Query:
    """Replace each name of a WITH by its query, innermost first."""
    query = query.copy()
    owners = [node for node in query.walk() if isinstance(node, exp.Query) and node.args.get("with_")]
    for owner in reversed(owners):
        ctes = owner.args["with_"]
        if ctes.args.get("recursive"):
            raise Unplannable("WITH RECURSIVE")
        owner.set("with_", None)
        bodies: dict[str, exp.CTE] = {}
        for definition in ctes.expressions:
            _inlined(definition.this, bodies)
            bodies[definition.alias.lower()] = definition
        _inlined(owner, bodies)
    return query


def _inlined(query: exp.Expr, bodies: Mapping[str, exp.CTE]) -> None:
    for table in list(query.find_all(exp.Table)):
        body = bodies.get(table.name.lower())
        if body is None or table.args.get("db"):
            continue
        if set(table.args) - {"this", "alias"} and any(
            value for key, value in table.args.items() if key not in {"this", "alias"}
        ):
            raise Unplannable("an unsupported form of FROM")
        alias = table.alias or table.name
        columns = [column.copy() for column in body.args["alias"].args.get("columns") or []]
        own = table.args.get("alias")
        if own is not None and own.args.get("columns"):
            columns = [column.copy() for column in own.args["columns"]]
        name = exp.TableAlias(this=exp.to_identifier(alias), columns=columns)
        table.replace(exp.Subquery(this=body.this.copy(), alias=name))


def _check_tables(query: exp.Query, relations: Mapping[str, Relation]) -> None:
    for table in query.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or table.args.get("db"):
            raise Unplannable("a function in FROM")
        if table.args.get("joins") or table.args.get("laterals") or table.args.get("pivots"):
            raise Unplannable("a nested join in FROM")
        if table.name.lower() not in relations:
            raise Unplannable(f"{table.name} is not a table of the lake")


def _unique_aliases(query: exp.Query) -> None:
    """Rename inner queries first, so that their own aliases do not collide when an outer query is renamed."""
    numbers = count()
    for select in reversed([node for node in query.walk() if isinstance(node, exp.Select)]):
        for source in sources(select):
            before, after = source.alias_or_name, f"a{next(numbers)}"
            if not before:
                raise Unplannable("a part of FROM has no name")
            own = source.args.get("alias")
            if own is not None and own.args.get("columns"):
                raise Unplannable("column names after a table's alias")
            source.set("alias", exp.TableAlias(this=exp.to_identifier(after, quoted=True)))
            for column in select.find_all(exp.Column):
                if column.table == before:
                    column.set("table", exp.to_identifier(after, quoted=True))


def sources(select: exp.Select) -> list[exp.Expr]:
    """Return the items of FROM and the joins, in order."""
    first = select.args.get("from_")
    if first is None:
        raise Unplannable("a SELECT without FROM")
    return [first.this, *(join.this for join in select.args.get("joins") or [])]
