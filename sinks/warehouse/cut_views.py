"""Applies the views of a cut: which generations are computed, how each is committed, and their topics.

`sinks.warehouse.views.generations` decides, `sinks.warehouse.views.keeper` computes, and the cut's commit records the
versions. Only the driver uses this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from cdc.telemetry import log
from sinks.warehouse.cut_plan import left_behind
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.table_naming import matching_tables
from sinks.warehouse.views.definition import BoundView, View, bind_each
from sinks.warehouse.views.generations import Decided, decide, is_resting, swapped, views_to_run
from sinks.warehouse.views.keeper import ViewKeeper
from sinks.warehouse.views.meaning.lake_types import types_of

if TYPE_CHECKING:
    from sinks.warehouse.lake.cut_commit import CutCommit
    from sinks.warehouse.lake.cut_position import CutPosition
    from sinks.warehouse.lake.manifest import Manifest, TableState
    from sinks.warehouse.parts import LakeParts


class CutViews:
    """Manages the views of one lake from cut to cut. One instance per driver."""

    def __init__(self, parts: LakeParts) -> None:
        self._parts = parts
        self._keeper = ViewKeeper(parts.spark, parts.location, parts.views, parts.clock)
        self._unpublished: dict[str, str] = {}

    @property
    def behind(self) -> Mapping[str, str]:
        """View -> why it is as of an older cut; empty if it is current."""
        return self._keeper.behind

    @property
    def computing(self) -> str:
        """The view that is being computed; empty if none is."""
        return self._keeper.computing

    def needs_types(self, table: str) -> bool:
        """Return whether a view in PostgreSQL's SQL may read a lake table."""
        read = (found.parts for view in self._parts.views if view.dialect == "postgres" for found in view.references)
        return any(matching_tables(parts, [table]) for parts in read)

    def plans(self, manifest: Manifest | None, decided: Decided, end: CutPosition) -> dict[str, str]:
        """Return the plan of each view in the next cut, which ends at `end`."""
        if manifest is None or not self._parts.views:
            return {}
        states = swapped(manifest.views, decided, self._parts.views)
        views = views_to_run(self._parts.views, decided, self._parts.texts)
        return self._keeper.plans(structs.replace(manifest, views=states), end, views)

    def decided(self, manifest: Manifest | None) -> Decided:
        """Return what the next cut does with generations. The SQL texts it needs are durable in the lake on return."""
        parts = self._parts
        if not parts.views:
            return Decided()
        parts.texts.keep(parts.views)
        return decide(parts.views, {} if manifest is None else manifest.views, parts.texts.requests())

    def is_due(self, manifest: Manifest | None) -> bool:
        """Return whether a cut is needed without new log records, to build or activate a generation."""
        if manifest is None:
            return False
        decided, known = self.decided(manifest), manifest.views
        new = (name for name in decided.texts if name not in known or is_resting(known[name]))
        return bool(decided.serve) or any(not self._keeper.behind.get(name) for name in new)

    def apply(self, commit: CutCommit, complete: Mapping[str, str], manifest: Manifest | None) -> None:
        """Compute the views of a cut, over its tables as they are now."""
        parts = self._parts
        if not parts.views:
            return
        decided = Decided(commit.pending.serve, commit.pending.texts)
        states = swapped(commit.views, decided, parts.views)
        commit.begin_views(states, decided.texts)
        views = views_to_run(parts.views, decided, parts.texts)
        bound = list(self._bound(commit, views, commit.tables, manifest))
        self._keeper.keep(commit, manifest, complete=complete, plans=commit.pending.plans, views=bound)
        for view, number in decided.serve.items():
            log.get().info("view_swapped", view=view, generation=number)

    def publish(self, manifest: Manifest) -> None:
        """Bring the topics of views up to the manifest. A topic that cannot follow is logged and delays no other."""
        parts = self._parts
        self._grant(manifest)
        if parts.topics is None:
            return
        behind = parts.topics.publish(manifest, parts.views, self._keeper.moved)
        for view, reason in behind.items():
            if self._unpublished.get(view) != reason:
                log.get().warning("view_topic_left_behind", view=view, reason=reason)
        self._unpublished = behind

    def _bound(
        self, commit: CutCommit, views: Sequence[View], tables: Mapping[str, TableState], manifest: Manifest | None
    ) -> Iterator[BoundView]:
        """Yield the views that can run. An older SQL text that names a missing table leaves its view behind."""
        own = {view.name for view in self._parts.views}
        files = {view.text_sha for view in self._parts.views}
        left: set[str] = set()
        for found in bind_each(views, tables, types_of(tables)):
            if not isinstance(found, BoundView):
                view, error = found
                if view.name in own and view.text_sha in files and "construct" not in error.facts:
                    raise error
                left.add(view.name)
                self._keeper.left(commit, view.name, error.message)
                continue
            lacking = left_behind(
                found.name, commit.pending.texts.get(found.name, ""), commit.pending, manifest, self._parts.settings
            )
            if lacking:
                left.add(found.name)
                self._keeper.left(commit, found.name, lacking)
                continue
            behind = sorted(left & set(found.views.values()))
            if behind:
                left.add(found.name)
                self._keeper.left(commit, found.name, f"the view {behind[0]} is left behind")
                continue
            yield found

    def _grant(self, manifest: Manifest) -> None:
        """Remove swap requests that are done, or that name a missing generation."""
        if not self._parts.views:
            return
        for view, number in self._parts.texts.requests().items():
            state = manifest.views.get(view)
            beside = manifest.views.get(layout.beside(view, number))
            if state is not None and state.generation != number and beside is not None:
                continue
            if state is None or state.generation != number:
                log.get().warning("view_wish_refused", view=view, generation=number)
            self._parts.texts.remove_request(view)
