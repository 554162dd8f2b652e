"""Replaces a view's SQL without a gap: a new generation is built beside the active one, and then takes its place.

A generation is a table of its own, ``views/<view>/g<N>``, made by one text. The manifest has the active generation
under the view's name, and any other as ``<view>~<N>``, which readers may read as well. The steps:

1. The file has another text than the active generation. That generation continues with its own text, which is kept in
   the lake. The file's text is computed beside it, as of the same cuts: the candidate.
2. Once the candidate is as of the newest cut, it becomes active at the next one: automatically, or on request
   (`cdc views swap`) with `-- swap: manual` in the file. Views that read it are recomputed in that cut.
3. The previous generation is kept for one rollback. A rollback is a swap, too: that generation first catches up.

Decisions are made before a cut begins and are stored in its `pending`, together with the hashes of the texts. So an
attempt after a crash does the same, even if requests or files have changed meanwhile and a table holds the cut already.
The texts themselves are stored before that. Pure except for `TextStore`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from cdc.errors import LakeDamaged, ViewRefused
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.manifest import disk_of
from sinks.warehouse.views.definition import View, ViewFiles, is_view_name, ordered, parse_view, reads

if TYPE_CHECKING:
    from sinks.warehouse.lake.local_disk import Disk
    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import Unbuilt, ViewState

REPLACED: Final = "another generation took its place; cdc views rollback brings it back"
ROLLED_BACK: Final = "it was rolled back; cdc views swap brings it back"
INPUT_SWAPPED: Final = "a view it reads was swapped"
SWAP_VERSION: Final = 1
_RESTING: Final = frozenset({REPLACED, ROLLED_BACK})


class SwapRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to activate this generation. `version` is left out for 1."""

    view: str
    serve: int
    version: int = 1


@dataclass(frozen=True, slots=True)
class Decided:
    """What a cut does with generations, as in `Pending`.

    Attributes:
        serve: view -> the generation that becomes active in this cut, for swapped views only.
        texts: name of what is computed, ``<view>`` or ``<view>~<N>`` -> hash of its text.
    """

    serve: Mapping[str, int] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


class TextStore:
    """Texts of views and swap requests, in the lake's folder of cuts."""

    def __init__(self, location: Location, disk: Disk | None = None) -> None:
        self._disk = disk or disk_of(location)
        self._kept: set[tuple[str, str]] = set()

    def keep(self, views: Sequence[View]) -> None:
        """Store the texts durably."""
        for view in views:
            if (view.text_sha, view.sql) in self._kept:
                continue
            name, data = layout.sql_file(view.text_sha), view.sql.encode()
            if self._disk.read(name) != data:
                self._disk.replace(name, data)
            self._kept.add((view.text_sha, view.sql))

    def text(self, sha: str) -> str | None:
        """Return a text by its hash."""
        data = self._disk.read(layout.sql_file(sha))
        return None if data is None else data.decode()

    def request_swap(self, request: SwapRequest) -> None:
        """Store a request; it replaces an earlier one about the same view."""
        self._disk.replace(layout.swap_request_file(request.view), msgspec.json.encode(request))

    def requests(self) -> dict[str, int]:
        """Return view -> requested generation. Unreadable requests are ignored.

        Raises LakeDamaged for a request of a newer release.
        """
        found: dict[str, int] = {}
        for name in self._disk.names():
            if not layout.is_swap_request(name):
                continue
            try:
                request = msgspec.json.decode(self._disk.read(name) or b"", type=SwapRequest)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if request.version != SWAP_VERSION:
                raise LakeDamaged.of_newer_release(name, request.version, SWAP_VERSION, file=name)
            found[request.view] = request.serve
        return found

    def remove_request(self, view: str) -> None:
        """Remove a request."""
        self._disk.remove(layout.swap_request_file(view))


def decide(
    files: Sequence[View],
    previous: Mapping[str, ViewState],
    requests: Mapping[str, int],
    unbuilt: Mapping[str, Unbuilt] | None = None,
) -> Decided:
    """Decide what the next cut does.

    Args:
        files: the views as defined by their files.
        previous: states of the newest cut, including generations that are not active.
        requests: view -> requested generation.
        unbuilt: of the newest cut. A generation that could not be built keeps its number while its text stays.
    """
    serve: dict[str, int] = {}
    texts: dict[str, str] = {}
    beside = _all_others(previous)
    for view in files:
        state = previous.get(view.name)
        if state is None or not state.text:
            texts[view.name] = view.text_sha
            continue
        target, candidate = _target(view, state, beside.get(view.name, {}), requests.get(view.name), unbuilt or {})
        if target is not None and candidate is not None and candidate.reason == "":
            serve[view.name] = target
            texts[view.name] = candidate.text
            continue
        texts[view.name] = state.text
        if target is not None:
            texts[layout.beside(view.name, target)] = view.text_sha if candidate is None else candidate.text
        elif candidate is not None:
            texts[layout.beside(view.name, candidate.generation)] = candidate.text
    return Decided(serve, texts)


def _target(
    view: View,
    state: ViewState,
    others: Mapping[int, ViewState],
    request: int | None,
    unbuilt: Mapping[str, Unbuilt],
) -> tuple[int | None, ViewState | None]:
    """Return the generation to activate and its state, if it has one; None and a candidate if that one only waits."""
    if request is not None and request != state.generation and request in others:
        return request, others[request]
    if state.text == view.text_sha:
        return None, None
    same = [other for other in others.values() if other.text == view.text_sha]
    if not same:
        number = next_number(state, others)
        tried = unbuilt.get(layout.beside(view.name, number - 1))
        return number - (tried is not None and tried.text == view.text_sha), None
    candidate = same[-1]
    if candidate.reason == ROLLED_BACK:
        return None, None
    if view.header.swap == "manual" and candidate.reason == "":
        return None, candidate
    return candidate.generation, candidate


def next_number(state: ViewState, others: Iterable[int]) -> int:
    """Return the number of a new generation of a view; `others` are those of its generations that are not active."""
    return max([state.generation, state.newest, *others]) + 1


@dataclass(frozen=True, slots=True)
class UsableViews:
    """The views of a lake, also those whose files cannot be used now: they continue with the text that the lake has.

    Attributes:
        views: in no order.
        kept: those with the lake's text.
        refused: view -> why its file cannot be used.
    """

    views: tuple[View, ...]
    kept: frozenset[str]
    refused: Mapping[str, ViewRefused]

    @property
    def names(self) -> frozenset[str]:
        """The views that the files define."""
        return frozenset(view.name for view in self.views) | self.refused.keys()

    def problems(self, states: Mapping[str, ViewState]) -> dict[str, str]:
        """Return the reasons for files that cannot be used: by view, or by the generation that cannot be built."""
        found = {}
        for name, error in self.refused.items():
            state = states.get(name)
            if state is not None and name in self.kept:
                number = next_number(state, _others(name, states))
                found[layout.beside(name, number)] = error.reason
            else:
                # A name with the mark of a generation would mean one.
                found[name if is_view_name(name) else name.replace(layout.BESIDE, "-")] = error.reason
        return found


def usable(files: ViewFiles, states: Mapping[str, ViewState], texts: TextStore) -> UsableViews:
    """Return the views of the files, and the active generations of views whose files cannot be used."""
    kept: list[View] = []
    for name, error in files.refused.items():
        state = states.get(name)
        text = texts.text(state.text) if state is not None and state.text else None
        if text is not None:
            with suppress(ViewRefused):  # an earlier release accepted it
                kept.append(parse_view(Path(str(error.facts["file"])), text, is_stored=True))
    return UsableViews((*files.views, *kept), frozenset(view.name for view in kept), files.refused)


def swapped(previous: Mapping[str, ViewState], decided: Decided, files: Sequence[View]) -> dict[str, ViewState]:
    """Return the states that a cut begins with, as if the swaps of `decided` had already happened."""
    found = dict(previous)
    for name, number in decided.serve.items():
        old, new = found[name], found.pop(layout.beside(name, number))
        back = number < old.generation
        for other in _others(name, found).values():
            # One generation is kept for a rollback; older ones are dropped.
            found.pop(layout.beside(name, other.generation))
        found[name] = new
        found[layout.beside(name, old.generation)] = structs.replace(old, reason=ROLLED_BACK if back else REPLACED)
    for name, state in previous.items():
        if layout.is_beside(name) and name in found and name not in decided.texts and not is_resting(state):
            found.pop(name)  # the file was edited again, so the text in between is obsolete
    for view in files:
        own = found.get(view.name)
        if own is not None and not own.reason and reads(view).keys() & {name.lower() for name in decided.serve}:
            found[view.name] = structs.replace(own, reason=INPUT_SWAPPED)
    return found


def views_to_run(
    files: Sequence[View], decided: Decided, texts: TextStore
) -> tuple[tuple[View, ...], dict[str, ViewRefused]]:
    """Return the views that a cut computes, each after the views it reads, and those that it cannot compute.

    The file's own view is used if its text is the one to compute. An earlier text may no longer be accepted, or may be
    in a cycle with the new text of another view. Raises LakeDamaged if another generation's text is gone.
    """
    by_name = {view.name: view for view in files}
    found: list[View] = []
    failed: dict[str, ViewRefused] = {}
    for name, sha in decided.texts.items():
        file = by_name.get(layout.split_beside(name)[0])
        if file is None:
            continue
        try:
            view = file if file.text_sha == sha else _kept(file, sha, texts)
            found.append(replace(view, name=name))
        except ViewRefused as error:
            failed[name] = error
    in_order, cycles = ordered(found)
    return in_order, failed | cycles


def is_resting(state: ViewState) -> bool:
    """Whether it is kept only for a rollback, and not up to date."""
    return state.reason in _RESTING


def other_generations(name: str, views: Mapping[str, ViewState]) -> dict[int, ViewState]:
    """Return the generations of a view that are not active: number -> state."""
    return _others(name, views)


def _kept(file: View, sha: str, texts: TextStore) -> View:
    text = texts.text(sha)
    if text is None:
        raise LakeDamaged(
            f"the SQL text of a generation of view {file.name} is missing in the lake",
            hint=f"restore {layout.CUTS_FOLDER}/{layout.sql_file(sha)} from a copy",
            view=file.name,
        )
    return parse_view(file.file, text, is_stored=True)


def _others(name: str, views: Mapping[str, ViewState]) -> dict[int, ViewState]:
    return _all_others(views).get(name, {})


def _all_others(views: Mapping[str, ViewState]) -> dict[str, dict[int, ViewState]]:
    """Return view -> the number and state of its generations that are not active, ascending."""
    found: dict[str, dict[int, ViewState]] = {}
    named = ((*layout.split_beside(name), state) for name, state in views.items() if layout.is_beside(name))
    for view, number, state in sorted(named, key=lambda one: one[:2]):
        found.setdefault(view, {})[number] = state
    return found
