"""Refuses SQL of a user that does more than read tables of the lake. Pure.

Two checks guarantee this. This one checks sqlglot's tree: it refuses a file with the line, and without Spark.
`sinks.warehouse.spark.sql_guard` checks what Spark itself makes of the text. Functions in FROM are allowed by name,
because some read files, and each release of Spark adds new ones. `sinks.warehouse.views.determinism` refuses other
functions by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from sinks.warehouse.views.determinism import Finding, line_of

_ROWS_OF_ARGUMENTS: Final = frozenset(
    {
        *("range", "stack", "json_tuple", "unnest", "generate_series", "exploding_generate_series"),
        *("explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer"),
        *("variant_explode", "variant_explode_outer"),
    }
)
"""Functions that may stand in FROM: they make rows from their arguments, and read nothing."""
_WITHOUT_OPTIONS: Final = {"from_xml": 2, "schema_of_xml": 1}
"""Functions with an option that names a file -> number of their arguments before the options."""
_HINT: Final = "a query may only read tables and views of the lake, by their names"
_CHANGES: Final = (exp.Command, exp.DDL, exp.DML, exp.Set, exp.Copy, exp.Drop, exp.Alter)


def check_reads(query: exp.Expr) -> Finding | None:
    """Return the first part of a query that could do more than read tables of the lake."""
    return next(_findings(query), None)


def _findings(query: exp.Expr) -> Iterator[Finding]:
    for node in query.walk():
        # For sqlglot, an INSERT within a WITH is a query.
        if isinstance(node, _CHANGES) and not isinstance(node, exp.Query):
            yield Finding("changes something", _HINT, line_of(node))
        elif isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier | exp.Dot):
            names = _names(node.this)
            if not names & _ROWS_OF_ARGUMENTS:
                shown = f"{min(names).removeprefix('exploding_')}()" if names else "an expression"
                yield Finding(f"reads from {shown}, which is not a table of the lake", _HINT, line_of(node))
        elif isinstance(node, exp.Func):
            most = min((_WITHOUT_OPTIONS[name] for name in _names(node) & _WITHOUT_OPTIONS.keys()), default=None)
            if most is not None and len(list(node.iter_expressions())) > most:
                name = min(_names(node))
                yield Finding(f"{name}() has options, which can name a file", "remove the options", line_of(node))


def _names(node: object) -> frozenset[str]:
    """Return the names of a function, in lower case; empty for other nodes."""
    if isinstance(node, exp.Anonymous):
        return frozenset({node.name.lower()})
    return frozenset(name.lower() for name in node.sql_names()) if isinstance(node, exp.Func) else frozenset()
