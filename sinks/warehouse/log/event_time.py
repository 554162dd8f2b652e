"""Finds the column of a history that says when a row became valid in the business. Pure.

A setting names the column of each table. A history has it as long as the form of its rows has it. The manifest records
it for readers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from cdc.errors import SinkUnfit
from cdc.patterns import matches
from sinks.warehouse.log.lake_columns import LakeTable

EFFECTIVE_COLUMNS: Final = ("_effective_from", "_effective_to")
"""Columns that a reader adds to the rows of such a history (`sinks.warehouse.read.bitemporal`)."""
_KINDS: Final = ("timestamp", "timestamp_ntz", "date")


def event_time_of(table: LakeTable, wanted: Mapping[str, str]) -> str:
    """Return the event-time column of this form; empty if none is named or this form does not have it as a time."""
    column = table.column(wanted.get(table.table, ""))
    return column.name if column is not None and column.type in _KINDS else ""


def check_event_times(
    wanted: Mapping[str, str], forms: Mapping[str, Collection[LakeTable]], history: Sequence[str]
) -> None:
    """Refuse an invalid setting.

    A column that only some forms of a table have is valid: it may have been added or renamed.

    Args:
        wanted: table -> column, from the settings of the sink.
        forms: table -> every form it had; a missing table is not known yet.
        history: patterns of the tables that have a history.

    Raises:
        SinkUnfit: with table and column.
    """
    for table, column in wanted.items():
        known = forms.get(table)
        if not known:
            continue
        if not matches(table, history) or not any(form.key for form in known):
            raise SinkUnfit(
                f"event_time names {table}, which has no history",
                hint="add it to `history`, which takes tables with a key, or remove it from `event_time`",
                table=table,
            )
        types = [found.type for form in known if (found := form.column(column)) is not None]
        if not types:
            raise SinkUnfit(f"event_time of {table} names an unknown column: {column}", table=table)
        if not set(types).intersection(_KINDS):
            raise SinkUnfit(
                f"event_time of {table} names column {column!r}, which is {types[-1]} in the lake",
                hint=f"it must be one of {', '.join(_KINDS)}",
                table=table,
                column=column,
            )
        taken = {name.name for form in known for name in form.columns if name.name.lower() in EFFECTIVE_COLUMNS}
        if taken:
            raise SinkUnfit(
                f"{table} has a column {min(taken)!r}, a name that the lake adds to a history with an event time",
                hint="rename the column, or remove the table from `event_time`",
                table=table,
                column=min(taken),
            )
