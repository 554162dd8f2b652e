"""Mutants of the planner, each without one clause of its rule. The named shapes must detect each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import pytest

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.planner import affected_keys, analyse, restrict, top_rows, view_keys
from sinks.warehouse.planner.plan import ViewPlan
from sinks.warehouse.planner.sql_pieces import columns
from sinks.warehouse.planner.tree import Base, Depends, Node

Mutant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def neighbours_without_old_images(patch: pytest.MonkeyPatch) -> None:
    """Candidate rows are those of the new side alone: a partner that left in the same cut is not seen."""
    candidates = affected_keys.AffectedKeys.candidates

    def new_only(self: affected_keys.AffectedKeys, node: Node, wanted: Sequence[str]) -> str:
        if isinstance(node, Base):
            return f"select {', '.join(map(quoted, wanted)) or '1 as `_`'} from {quoted(node.name)}"
        return candidates(self, node, wanted)

    patch.setattr(affected_keys.AffectedKeys, "candidates", new_only)


def equal_instead_of_null_safe(patch: pytest.MonkeyPatch) -> None:
    """A null key is equal to nothing."""
    rows_sql = ViewPlan.rows_sql
    patch.setattr(ViewPlan, "rows_sql", lambda *given: rows_sql(*given).replace("IS NOT DISTINCT FROM", "="))


def optional_side_restricted(patch: pytest.MonkeyPatch) -> None:
    """Rows of an optional side are chosen by their own columns: their partners look as if they had none."""
    patch.setattr(restrict, "required", restrict.in_from)


def unpinned_old_values(patch: pytest.MonkeyPatch) -> None:
    """A value of many rows is taken as it is now only: rows that had the old one are not found."""
    patch.setattr(restrict, "old", lambda name: name)


def no_row_without_partner(patch: pytest.MonkeyPatch) -> None:
    """A partner that comes or goes changes the pair, and not the row it left alone."""
    nothing = "select {} from ({}) where false"
    patch.setattr(affected_keys, "_without", lambda branch, wanted, gone: nothing.format(columns(wanted, gone), branch))


def window_kept_by_any_column(patch: pytest.MonkeyPatch) -> None:
    """Rows of a window are replaced one by one, whatever their ranks became."""
    patch.setattr(affected_keys, "of_partitions", lambda *_: True)
    patch.setattr(view_keys, "of_partitions", lambda *_: True)


def inner_table_for_semi_join(patch: pytest.MonkeyPatch) -> None:
    """What a row depends on is not looked at."""

    def own_only(self: affected_keys.AffectedKeys, source: object, wanted: affected_keys.Refs) -> list[str]:
        if isinstance(source, Depends):
            return self.affected_in_source(source.left, wanted)
        return original(self, source, wanted)  # type: ignore[arg-type]

    original = affected_keys.AffectedKeys._affected_in_source
    patch.setattr(affected_keys.AffectedKeys, "_affected_in_source", own_only)


def any_rows_are_the_first(patch: pytest.MonkeyPatch) -> None:
    """The rows at hand are taken, although others may come before them."""
    patch.setattr(top_rows, "LAST", 3)


def constants_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A value that is the same for every row is taken to stay the same."""
    patch.setattr(ViewPlan, "constants_sql", lambda *_: [])


def null_is_no_equal(patch: pytest.MonkeyPatch) -> None:
    """NOT IN is looked at as IN is: rows that a null decides are not found."""
    patch.setattr(analyse, "_is_required", lambda _: True)


MUTANTS: Final[dict[str, tuple[Mutant, tuple[str, ...]]]] = {
    mutant.__name__: (mutant, shapes)
    for mutant, shapes in (
        (neighbours_without_old_images, ("grouped", "friends", "mutual", "left_keyless", "distinct")),
        (equal_instead_of_null_safe, ("grouped_left", "nulls_key", "grouped")),
        (optional_side_restricted, ("grouped_left", "left_keyless")),
        (unpinned_old_values, ("subquery_of_sums", "sums_of_sums")),
        (no_row_without_partner, ("full", "grouped_left", "left_keyless", "grouped_full")),
        (window_kept_by_any_column, ("window", "top_k", "top_k_joined")),
        (any_rows_are_the_first, ("first", "first_groups")),
        (constants_are_not_compared, ("above_average", "above_of_others", "constant_exists")),
        (null_is_no_equal, ("not_in", "not_in_known", "not_in_for_row")),
        (inner_table_for_semi_join, ("semi_join", "exists", "not_exists", "not_in", "value_for_row")),
    )
}
"""Mutant -> it, and shapes of `viewshapes` of which at least one must go wrong."""
