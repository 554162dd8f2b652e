"""Decides whether a view can be kept by keys at all. Pure.

The sink decides when it computes a view, and records the decision in the manifest. `cdc views plan` and `explain` show
what is recorded. A plan that was decided for may still not apply to a single cut, e.g. if too many keys are affected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sinks.warehouse.planner.plan import ViewPlan

_KEY_TYPES: Final = frozenset(
    {"tinyint", "smallint", "int", "bigint", "boolean", "date", "timestamp", "timestamp_ntz", "string", "binary"}
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about a view.

    Attributes:
        plan: how to keep it.
        refused: why it is recomputed after any change; "" if it can be kept by keys.
        unique: columns that no two of its rows share, for views that read it; empty if none are known.
    """

    plan: ViewPlan
    refused: str
    unique: tuple[str, ...] = ()


def decide(plan: ViewPlan, columns: Mapping[str, str], *, reads_same: bool) -> Decision:
    """Return the decision.

    Args:
        plan: of the view.
        columns: the view's columns, in any case -> Spark's type.
        reads_same: whether Spark reads the planner's form of the query like the view's own text.
    """
    if not reads_same:
        return Decision(plan, plan.reason or "the planner reads its SQL differently from Spark")
    return Decision(plan, plan.reason or _not_comparable(plan, columns), plan.unique)


def _not_comparable(plan: ViewPlan, columns: Mapping[str, str]) -> str:
    kinds = {name.lower(): kind for name, kind in columns.items()}
    for name in plan.key:
        kind = kinds[name]
        if kind not in _KEY_TYPES and not kind.startswith("decimal"):
            return f"its key {name} has the type {kind}, whose values are not exactly comparable"
    return ""
