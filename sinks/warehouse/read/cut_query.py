"""Runs one SQL query over the tables of a cut, all as of its LSN, without Spark.

The SQL is parsed as PostgreSQL's and run by the engine in the deltalake package (DataFusion), which supports most of
it. Names have the same meaning as in a view: a mirror by table or schema and table, ``history.``, ``archive.``, or a
view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from cdc.errors import LakeDamaged, UsageError
from cdc.lsn import Lsn
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.table_naming import known_names_hint, matching_tables, sql_name
from sinks.warehouse.views.definition import temporary
from sinks.warehouse.views.query_text import table_names
from sinks.warehouse.views.safety import check_reads

if TYPE_CHECKING:
    import pyarrow as pa

    from sinks.warehouse.lake.manifest import Manifest
    from sinks.warehouse.read.lake_reader import Lake

# The engine's messages of these kinds contain names of columns and functions, never a value.
_OF_THE_TEXT: Final = ("Schema error", "Error during planning", "SQL error", "This feature is not implemented")
_MESSAGE_MAX: Final = 300


def query(lake: Lake, manifest: Manifest, sql: str, *, limit: int | None = None) -> pa.Table:
    """Return the rows of a query over a cut. Raises UsageError for invalid queries, LakeDamaged.

    Args:
        lake: the lake of the cut.
        manifest: of the cut.
        sql: one SELECT.
        limit: the maximum number of rows.
    """
    import pyarrow as pa
    from deltalake import QueryBuilder
    from deltalake.exceptions import DeltaError

    from sinks.warehouse.lake.store_errors import is_storage_error, store_unreachable

    found = _parsed(sql)
    builder = QueryBuilder()
    for name, (table, version) in _bound(found, manifest).items():
        builder = builder.register(name, pinned(lake.location, table, version))
    if limit is not None and isinstance(found, exp.Select) and not found.args.get("limit"):
        found = found.limit(limit)
    try:
        rows = pa.table(builder.execute(found.sql("postgres", comments=False)))
        return rows if limit is None else rows.slice(0, limit)
    except (DeltaError, pa.ArrowException, OSError) as error:
        if is_storage_error(error):
            raise store_unreachable(str(lake.location), error) from error
        text = str(error)
        if "Object at location" in text or "(os error" in text:
            raise LakeDamaged(
                "files of the lake are lost", hint="restore the lake from a copy, or rebuild the sink"
            ) from error
        detail = next((text[text.index(kind) :] for kind in _OF_THE_TEXT if kind in text), "a value does not fit")
        raise UsageError(
            f"cannot run the query: {detail.splitlines()[0][:_MESSAGE_MAX]}",
            hint="read_sql of sinks.warehouse runs Spark's SQL over the same cut",
        ) from error


def _parsed(sql: str) -> exp.Query:
    try:
        found = [one for one in sqlglot.parse(sql, read="postgres") if one is not None]
    except SqlglotError as error:
        raise UsageError(
            f"the query is not valid SQL: {str(error).splitlines()[0]}", hint="it is read as PostgreSQL's SQL"
        ) from error
    if len(found) != 1 or not isinstance(found[0], exp.Query) or isinstance(found[0], exp.Table):
        raise UsageError("the query is not a SELECT", hint='as in: cdc views query "select count(*) from orders"')
    finding = check_reads(found[0])
    if finding is not None:
        raise UsageError(f"the query {finding.message}", hint=finding.hint)
    return found[0]


def _bound(found: exp.Query, manifest: Manifest) -> dict[str, tuple[str, int]]:
    """Replace table names by names of our own; return name -> lake table and version."""
    tables = {name: state.version for name, state in manifest.tables.items()}
    views = {
        f"views/{name}": (layout.view(name, state.generation), state.version) for name, state in manifest.views.items()
    }
    bound: dict[str, tuple[str, int]] = {}
    for table in table_names(found):
        parts = tuple(part.name for part in table.parts)
        meant = matching_tables(parts, tables)
        own = [view for view in views if len(parts) == 1 and view.lower() == f"views/{parts[0].lower()}"]
        meant += own
        name = ".".join(parts)
        if len(meant) > 1:
            raise UsageError(
                f"{name} is ambiguous: {', '.join(map(sql_name, meant))}", hint="name kind and schema, too"
            )
        if not meant:
            shown = [*map(sql_name, tables), *manifest.views]
            raise UsageError(
                f"table {name} does not exist in the lake at {Lsn(manifest.end_lsn)}",
                hint=known_names_hint(name, shown),
            )
        temp = temporary(meant[0])
        bound[temp] = views[meant[0]] if own else (meant[0], tables[meant[0]])
        alias = table.alias or parts[-1]
        table.replace(exp.alias_(exp.to_table(temp), alias, table=True))
    return bound
