"""The views of a cut: which generations are computed, what becomes of each, and their topics. The driver's hand for it.

`sinks.warehouse.generations` decides, `sinks.warehouse.viewrun` computes, the cut's commit has the versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cdc.errors import ViewRefused
from cdc.telemetry import log
from sinks.warehouse import layout
from sinks.warehouse.generations import Decided, decide, is_resting, runs, swapped
from sinks.warehouse.viewrows import check_key
from sinks.warehouse.viewrun import Computed, CutTables, Kept, run_views
from sinks.warehouse.views import BoundView, View, bind_each

if TYPE_CHECKING:
    from sinks.warehouse.commit import CutCommit
    from sinks.warehouse.driver import LakeParts
    from sinks.warehouse.manifest import Manifest, ViewState


class CutViews:
    """See the top of the file. One per driver; `behind` has why views are not as of the newest cut."""

    def __init__(self, parts: LakeParts) -> None:
        self.behind: dict[str, str] = {}
        self._parts = parts
        self._unpublished: dict[str, str] = {}

    def decided(self, manifest: Manifest | None) -> Decided:
        """What the next cut does with generations; the texts it needs are in the lake when this returns."""
        parts = self._parts
        if not parts.views:
            return Decided()
        parts.texts.keep(parts.views)
        return decide(parts.views, {} if manifest is None else manifest.views, parts.texts.wishes())

    def is_due(self, manifest: Manifest | None) -> bool:
        """Whether a cut is worth while though the log says nothing new: a generation is to be built, or to serve."""
        if manifest is None:
            return False
        decided, known = self.decided(manifest), manifest.views
        new = (name for name in decided.texts if name not in known or is_resting(known[name]))
        return bool(decided.serve) or any(not self.behind.get(name) for name in new)

    def apply(self, commit: CutCommit, complete: Mapping[str, str], manifest: Manifest | None) -> None:
        """Compute the views of a cut, over its tables as they are now."""
        parts = self._parts
        if not parts.views:
            return
        decided = Decided(commit.pending.serve, commit.pending.texts)
        before = {} if manifest is None else manifest.tables
        states = swapped(commit.views, decided, parts.views)
        commit.begin_views(states, decided.texts)
        versions = {table: state.version for table, state in commit.tables.items()}
        cut = CutTables(
            versions=versions,
            complete=complete,
            previous=states,
            changed={t for t, version in versions.items() if t not in before or before[t].version != version},
        )
        views = runs(parts.views, decided, parts.texts)
        for step in run_views(parts.spark, list(self._bound(commit, views, versions)), parts.location, cut):
            if isinstance(step, Kept):
                self._keep(commit, step.view.name, step.reason)
            else:
                self._take(commit, step, states.get(step.view.name))
        for view, number in decided.serve.items():
            log.get().info("view_swapped", view=view, generation=number)

    def publish(self, manifest: Manifest) -> None:
        """Bring the topics of views to the manifest; one that cannot follow holds nobody up, but is spoken of."""
        parts = self._parts
        self._grant(manifest)
        if parts.topics is None:
            return
        behind = parts.topics.publish(manifest, parts.views)
        for view, reason in behind.items():
            if self._unpublished.get(view) != reason:
                log.get().warning("view_topic_left_behind", view=view, reason=reason)
        self._unpublished = behind

    def _bound(self, commit: CutCommit, views: Sequence[View], tables: Mapping[str, int]) -> Iterator[BoundView]:
        """What can be run. A text that is not the file's any more may name what is gone: it is left behind then."""
        own = {view.name for view in self._parts.views}
        files = {view.text_sha for view in self._parts.views}
        left: set[str] = set()
        for found in bind_each(views, list(tables)):
            if not isinstance(found, BoundView):
                view, error = found
                if view.name in own and view.text_sha in files:
                    raise error
                left.add(view.name)
                self._keep(commit, view.name, error.message)
                continue
            behind = sorted(left & set(found.views.values()))
            if behind:
                left.add(found.name)
                self._keep(commit, found.name, f"the view {behind[0]} is left behind")
                continue
            yield found

    def _take(self, commit: CutCommit, step: Computed, state: ViewState | None) -> None:
        """Commit a result, unless its values do not fit or its key is none."""
        name, key = step.view.name, step.view.view.header.key
        try:
            rows = step.rows()
            if key:
                check_key(name, rows, key)
        except ViewRefused as error:
            step.left_behind()
            self._keep(commit, name, error.message)
            return
        number = layout.split_beside(name)[1] or (1 if state is None else state.generation)
        step.committed(commit.view(name, rows, sql_sha=step.view.sha, generation=number))

    def _keep(self, commit: CutCommit, name: str, reason: str) -> None:
        """Leave a view as it is. One that cannot be computed holds nobody up, but is spoken of."""
        commit.keep_view(name, reason)
        if reason and self.behind.get(name) != reason:
            log.get().warning("view_left_behind", view=name, reason=reason)
        self.behind[name] = reason

    def _grant(self, manifest: Manifest) -> None:
        """Forget wishes that came true, and those about what there is not."""
        if not self._parts.views:
            return
        for view, number in self._parts.texts.wishes().items():
            state = manifest.views.get(view)
            beside = manifest.views.get(layout.beside(view, number))
            if state is not None and state.generation != number and beside is not None:
                continue
            if state is None or state.generation != number:
                log.get().warning("view_wish_refused", view=view, generation=number)
            self._parts.texts.granted(view)
