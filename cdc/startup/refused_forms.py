"""Remembers in which form a table was refused by the planner, so that the same form is not tried for ever. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cdc.model.left_out import LeftOut
from cdc.replication.table_shape import SourceTable


class RefusedForms:
    """The refused forms of the tables that could be captured as far as catalog and publication show."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[SourceTable, bool]] = {}

    def sort(
        self,
        tables: Sequence[SourceTable],
        refused: Mapping[str, LeftOut],
        topic_exists: Callable[[SourceTable], bool],
    ) -> tuple[list[LeftOut], list[SourceTable]]:
        """Return the tables that stay left out, and those to try again because table or topic may have changed.

        Args:
            tables: fit by catalog and publication.
            refused: what the planner refuses now, by table.
            topic_exists: whether a table's topic exists; asked if that was the reason.
        """
        there = {table.table for table in tables}
        # A table that is not refused now may be about to join, and be refused again.
        self._seen = {name: form for name, form in self._seen.items() if name in there}
        stay, again = [], []
        for table in tables:
            found = refused.get(table.table)
            if found is None:
                continue
            form = table, found.reason == "no_topic" and topic_exists(table)
            if self._seen.get(table.table) == form:
                stay.append(found)
            else:
                self._seen[table.table] = form
                again.append(table)
        return stay, again
