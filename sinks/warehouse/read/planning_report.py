"""Reports how the views of a lake can be kept and were kept, for `cdc views plan` and `explain`. Needs no Spark."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import UsageError
from sinks.warehouse.delta.pinned_version import pinned, schema_json
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.manifest import Manifest, PlanRecord
from sinks.warehouse.lake.table_naming import sql_name
from sinks.warehouse.planner.plan import ViewPlan, plan_view
from sinks.warehouse.planner.relations import Relation
from sinks.warehouse.views.definition import BoundView, View, bind_each
from sinks.warehouse.views.meaning.lake_types import types_of
from sinks.warehouse.views.row_patterns import relation_of

if TYPE_CHECKING:
    from sinks.warehouse.read.lake_reader import Lake

_UNDECIDED: Final = "the sink decides when it computes the view with this SQL, unless its file requests recompute"


@dataclass(frozen=True, slots=True)
class PlannedView:
    """A view and its plan over the current lake.

    Attributes:
        inputs: name in the plan -> name for people.
        refused: why it cannot be kept by keys, "" if it can; None if the sink has not decided it.
    """

    view: BoundView
    plan: ViewPlan
    inputs: dict[str, str]
    refused: str | None

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        plan = self.plan
        shown = self.inputs
        return {
            "name": self.view.name,
            "file": str(self.view.view.file),
            "wish": self.view.view.plan,
            "reads": [shown.get(name, name) for name in plan.graph()],
            "key": list(plan.key),
            "unique": list(plan.unique),
            "plans": plans_document(self.refused),
            "recomputed_when": {shown.get(name, name): why for name, why in plan.obstacles.items()},
        }


def planned(
    lake: Lake, manifest: Manifest, views: Sequence[View], name: str, behind: Collection[str] = ()
) -> PlannedView:
    """Return the plan of one of these views over a cut's tables. Raises UsageError if the view does not exist.

    `behind` has further views that are left behind, because their files cannot be used.
    """
    if not any(view.name == name for view in views):
        known = ", ".join(sorted(view.name for view in views)) or "none"
        raise UsageError(f"view {name} does not exist in the folder of views", hint=f"known views: {known}")
    plans: dict[str, ViewPlan] = {}
    for view in bind_each(views, manifest.tables, types_of(manifest.tables), behind):
        if not isinstance(view, BoundView):
            if view[0].name == name:
                raise view[1]
            continue
        if not set(view.views.values()) <= plans.keys():
            continue  # it reads a refused view; the named one then fails below
        relations = {one: _table(lake, manifest, one, table) for one, table in view.tables.items()}
        for one, other in view.views.items():
            relations[one] = _view(lake, manifest, one, other, plans[other])
        for one, pattern in view.patterns.items():
            relations[one] = relation_of(pattern, relations[pattern.source])
        plans[view.name] = plan_view(view.name, view.sql, relations)
        if view.name == name:
            shown = {one: sql_name(table) for one, table in view.tables.items()} | dict(view.views)
            shown |= {one: f"{shown[found.source]} match_recognize" for one, found in view.patterns.items()}
            return PlannedView(view, plans[name], shown, _refused(view, plans[name], manifest))
    raise UsageError(f"view {name} reads a view that is refused", hint="cdc doctor names it")


def plans_document(refused: str | None) -> dict[str, Any]:
    """Return which plans are possible. `refused` is as in `PlannedView`."""
    possible = None if refused is None else not refused
    return {
        "recompute": {"possible": True, "reason": None},
        "affected": {"possible": possible, "reason": _UNDECIDED if refused is None else refused or None},
    }


def plan_record(lake: Lake, manifest: Manifest, name: str) -> PlanRecord | None:
    """Return how a view was kept in its cut; None if an older release wrote it. Raises UsageError."""
    return lake.view(name, manifest)[1].plan


def _refused(view: BoundView, plan: ViewPlan, manifest: Manifest) -> str | None:
    """Return what the sink decided about this SQL; else only what needs no Spark to be decided."""
    state = manifest.views.get(view.name)
    if state is not None and state.plan is not None and state.sql_sha == view.sha and state.plan.refused is not None:
        return state.plan.refused
    return plan.reason or None


def _table(lake: Lake, manifest: Manifest, name: str, table: str) -> Relation:
    state = manifest.tables[table]
    columns = _columns(lake, table, state.version)
    key = state.key if table.startswith("mirror/") else None
    return Relation(name, columns, tuple(map(str.lower, key or ())))


def _view(lake: Lake, manifest: Manifest, name: str, view: str, plan: ViewPlan) -> Relation:
    state = manifest.views.get(view)
    if state is None:
        return Relation(name, dict.fromkeys(plan.columns, ""), plan.unique)
    return Relation(name, _columns(lake, layout.view(view, state.generation), state.version), plan.unique)


def _columns(lake: Lake, table: str, version: int) -> dict[str, str]:
    """Return column, in lower case -> Spark's type; "" for a nested type, which is not needed."""
    fields = schema_json(pinned(lake.location, table, version))["fields"]
    return {field["name"].lower(): _kind(field["type"]) for field in fields}


def _kind(kind: object) -> str:
    spark = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
    return spark.get(kind, kind) if isinstance(kind, str) else ""
