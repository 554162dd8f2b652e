"""Applies the views of a cut: which generations are computed, how each is committed, and their topics.

`sinks.warehouse.views.generations` decides, `sinks.warehouse.views.keeper` computes, and the cut's commit records the
versions. Only the driver uses this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import structs

from cdc.telemetry import log
from sinks.warehouse.cut_plan import left_behind
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.table_naming import can_mean, lower_forms
from sinks.warehouse.views.at_once import AT_ONCE_MAX
from sinks.warehouse.views.definition import BoundView, ViewFiles, bind_each
from sinks.warehouse.views.generations import Decided, decide, is_resting, swapped, usable, views_to_run
from sinks.warehouse.views.keeper import ViewKeeper
from sinks.warehouse.views.meaning.lake_types import types_of

if TYPE_CHECKING:
    from sinks.warehouse.lake.cut_commit import CutCommit
    from sinks.warehouse.lake.cut_position import CutPosition
    from sinks.warehouse.lake.manifest import Manifest
    from sinks.warehouse.parts import LakeParts


class CutViews:
    """Manages the views of one lake from cut to cut. One instance per driver."""

    def __init__(self, parts: LakeParts, manifest: Manifest | None) -> None:
        self._parts = parts
        states = {} if manifest is None else manifest.views
        self._files = usable(ViewFiles(tuple(parts.views), parts.refused), states, parts.texts)
        self._views = self._files.views
        typed = (found.parts for view in self._views if view.dialect == "postgres" for found in view.references)
        self._typed = lower_forms(typed)
        self._keeper = ViewKeeper(
            parts.spark, parts.location, self._views, parts.clock, at_once=AT_ONCE_MAX, in_frames=parts.in_frames
        )
        self._unpublished: dict[str, str] = {}
        for name, error in parts.refused.items():
            facts = log.error_fields(error) | {"view": name, "active": name in self._files.kept}
            log.get().warning("view_refused", **facts)
        self._keeper.behind.update(self._files.problems(states))

    @property
    def names(self) -> frozenset[str]:
        """The views that the files define, including those whose files cannot be used now."""
        return self._files.names

    @property
    def took(self) -> Mapping[str, tuple[float, float]]:
        """View -> when its computation for the newest cut began and ended, by the monotonic clock."""
        return self._keeper.took

    @property
    def computing(self) -> str:
        """The views that are being computed, joined by commas; empty if none is."""
        return ", ".join(sorted(self._keeper.computing))

    def needs_types(self, table: str) -> bool:
        """Return whether a view in PostgreSQL's SQL may read a lake table."""
        return can_mean(self._typed, table)

    def plans(self, manifest: Manifest | None, decided: Decided, end: CutPosition) -> dict[str, str]:
        """Return the plan of each view in the next cut, which ends at `end`."""
        if manifest is None or not self._views:
            return {}
        states = swapped(manifest.views, decided, self._views)
        views, _ = views_to_run(self._views, decided, self._parts.texts)
        return self._keeper.plans(structs.replace(manifest, views=states), end, views)

    def decided(self, manifest: Manifest | None) -> Decided:
        """Return what the next cut does with generations. The SQL texts it needs are durable in the lake on return."""
        parts = self._parts
        if not self._views:
            return Decided()
        parts.texts.keep(self._views)
        if manifest is None:
            return decide(self._views, {}, parts.texts.requests())
        return decide(self._views, manifest.views, parts.texts.requests(), manifest.unbuilt)

    def is_due(self, manifest: Manifest | None) -> bool:
        """Return whether a cut is needed without new log records: to build, activate or report a generation."""
        if manifest is None:
            return False
        decided, known = self.decided(manifest), manifest.views
        problems = self._files.problems(known)
        recorded = {name: state.reason for name, state in (known | manifest.unbuilt).items()}
        if any(recorded.get(name) != reason for name, reason in problems.items()):
            return True
        if manifest.unbuilt.keys() - problems.keys() - decided.texts.keys():
            return True
        new = (name for name in decided.texts if name not in known or is_resting(known[name]))
        return bool(decided.serve) or any(not self._keeper.behind.get(name) for name in new)

    def apply(self, commit: CutCommit, complete: Mapping[str, str], manifest: Manifest | None) -> None:
        """Compute the views of a cut, over its tables as they are now."""
        self._keeper.took.clear()
        if not self._views and not self._parts.refused:
            return
        decided = Decided(commit.pending.serve, commit.pending.texts)
        states = swapped(commit.views, decided, self._views)
        commit.begin_views(states, decided.texts)
        bound = list(self._bound(commit, decided, manifest))
        self._keeper.keep(commit, manifest, complete=complete, plans=commit.pending.plans, views=bound)
        for view, number in decided.serve.items():
            log.get().info("view_swapped", view=view, generation=number)

    def publish(self, manifest: Manifest) -> None:
        """Bring the topics of views up to the manifest. A topic that cannot follow is logged and delays no other."""
        parts = self._parts
        self._grant(manifest)
        if parts.topics is None:
            return
        behind = parts.topics.publish(manifest, self._views, self._keeper.moved)
        for view, reason in behind.items():
            if self._unpublished.get(view) != reason:
                log.get().warning("view_topic_left_behind", view=view, reason=reason)
        self._unpublished = behind

    def _bound(self, commit: CutCommit, decided: Decided, manifest: Manifest | None) -> Iterator[BoundView]:
        """Yield the views that can run. Every other view is left behind alone, with the views that read it."""
        views, failed = views_to_run(self._views, decided, self._parts.texts)
        left = self._files.problems({} if manifest is None else manifest.views)
        left |= {name: error.reason for name, error in failed.items()}
        for name, reason in left.items():
            self._keeper.left(commit, name, reason)
        for found in bind_each(views, commit.tables, types_of(commit.tables), behind=left):
            if not isinstance(found, BoundView):
                view, error = found
                left[view.name] = error.reason
                self._keeper.left(commit, view.name, error.reason)
                continue
            behind = sorted(left.keys() & set(found.views.values()))
            lacking = (
                f"the view {behind[0]} is left behind"
                if behind
                else left_behind(
                    found.name, commit.pending.texts.get(found.name, ""), commit.pending, manifest, self._parts.settings
                )
            )
            if lacking:
                left[found.name] = lacking
                self._keeper.left(commit, found.name, lacking)
                continue
            yield found

    def _grant(self, manifest: Manifest) -> None:
        """Remove swap requests that are done, or that name a missing generation."""
        if not self._views:
            return
        for view, number in self._parts.texts.requests().items():
            state = manifest.views.get(view)
            beside = manifest.views.get(layout.beside(view, number))
            if state is not None and state.generation != number and beside is not None:
                continue
            if state is None or state.generation != number:
                log.get().warning("view_wish_refused", view=view, generation=number)
            self._parts.texts.remove_request(view)
