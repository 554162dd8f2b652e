"""Counts the views of a lake, and those that are behind, from its manifest alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.inspect.lake_state import behind_of, current_cut

if TYPE_CHECKING:
    from cdc.config.settings import Warehouse


def view_facts(settings: Warehouse) -> tuple[int, dict[str, str]]:
    """Return the number of views of a lake, and view -> why it is behind. Raises LakeDamaged, LakeUnready."""
    current = current_cut(settings)
    if current is None:
        return 0, {}
    return len(current.views) + len(current.unbuilt), behind_of(current)
