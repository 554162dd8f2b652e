"""Which column of a history says when a row became true in the world, besides when the log said so. Pure.

The setting names a column by table; a history has it as long as the form of its rows does. The manifest tells readers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from cdc.errors import SinkUnfit
from cdc.patterns import matches
from sinks.warehouse.log.lake_columns import LakeTable

EFFECTIVE_COLUMNS: Final = ("_effective_from", "_effective_to")
"""What a reader adds to the rows of such a history (`sinks.warehouse.read.bitemporal`)."""
_KINDS: Final = ("timestamp", "timestamp_ntz", "date")


def event_time_of(table: LakeTable, wanted: Mapping[str, str]) -> str:
    """The event-time column of this form; empty: none is named, or this form does not have it as a time."""
    column = table.column(wanted.get(table.table, ""))
    return column.name if column is not None and column.type in _KINDS else ""


def check_event_times(
    wanted: Mapping[str, str], forms: Mapping[str, Collection[LakeTable]], history: Sequence[str]
) -> None:
    """Refuse a setting that cannot be meant.

    A column that only some forms of a table have is fine: it may have been added or renamed since.

    Args:
        wanted: table -> column, as the sink has it.
        forms: table -> every form it had; a table that is not in it is not known yet.
        history: the patterns of tables of which a history is kept.

    Raises:
        SinkUnfit: names table and column.
    """
    for table, column in wanted.items():
        known = forms.get(table)
        if not known:
            continue
        if not matches(table, history) or not any(form.key for form in known):
            raise SinkUnfit(
                f"event_time names {table}, of which no history is kept",
                hint="add it to `history`, which takes tables with a key, or take it out of `event_time`",
                table=table,
            )
        types = [found.type for form in known if (found := form.column(column)) is not None]
        if not types:
            raise SinkUnfit(f"event_time of {table} names a column it does not have: {column}", table=table)
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
                f"{table} has a column {min(taken)!r}, a name that its event time gives to a column of its own",
                hint="rename the column, or take the table out of `event_time`",
                table=table,
                column=min(taken),
            )
