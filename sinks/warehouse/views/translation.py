"""Translates a view in PostgreSQL's SQL to Spark's, once for each text. Pure."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

from cdc.telemetry import log
from sinks.warehouse.views.determinism import Finding
from sinks.warehouse.views.meaning.lake_types import Source
from sinks.warehouse.views.meaning.pg_types import PgType
from sinks.warehouse.views.meaning.queries import Translated, translated
from sinks.warehouse.views.meaning.refusal import NotProven, check_spelling
from sinks.warehouse.views.query_text import parsed

_TRANSLATIONS_MAX: Final = 2_000  # more than a lake has views and generations
_Typed: TypeAlias = tuple[tuple[str, PgType], ...]
_Given: TypeAlias = tuple[str, _Typed | None, _Typed, str]


@lru_cache(maxsize=_TRANSLATIONS_MAX)
def in_spark(file: Path, sql: str, declared: tuple[bool, bool], given: tuple[_Given, ...]) -> Translated | Finding:
    """Translate a query, or return why it is refused. Remembered, because each cut binds every view.

    `declared` says whether the view's header declares collation C and equal time zones.
    """
    tokens, query = parsed(file, sql, "postgres")
    finding = check_spelling(tokens)
    if finding is not None:
        return finding
    sources = {
        name: Source(None if columns is None else dict(columns), dict(hidden), shown)
        for name, columns, hidden, shown in given
    }
    try:
        return translated(query, sources, c=declared[0], zones=declared[1])
    except NotProven as found:
        return found.finding
    except Exception as error:  # noqa: BLE001 - see `parse_view`
        return unreadable(error)


def unreadable(error: Exception) -> Finding:
    """Return the finding for a text on which the parser failed."""
    if isinstance(error, RecursionError):
        return Finding("is nested too deeply", "divide it into several views")
    return Finding(f"cannot be read: {log.origin(error)}", "write the query differently")
