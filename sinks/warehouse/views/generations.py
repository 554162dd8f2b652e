"""Changed SQL of a view without a gap: another generation is built beside the one that serves, and takes its place.

A generation is a table of its own, ``views/<view>/g<N>``, made by one text. The one that serves stands in the manifest
under the view's name, any other one as ``<view>~<N>``, which readers may look at as well. In this order:

1. The file has another text than the generation that serves. That one goes on with its own text, which is kept in the
   lake, and the file's is computed beside it, as of the same cuts: the candidate.
2. When the candidate is as of the newest cut, it is swapped in at the next: by itself, or with `-- swap: manual` in the
   file when somebody wishes so (`cdc views swap`). Views that read it are computed anew with that cut.
3. The generation before stays as it was, for one rollback. That is a swap too: brought up to the newest cut first.

What a cut does is decided before it begins and is in its `pending`, so that an attempt after a crash does the same
whatever was wished or edited meanwhile. Texts are kept by their sums before that. Pure but for `TextStore`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from cdc.errors import LakeDamaged
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.manifest import disk_of
from sinks.warehouse.views.definition import View, in_order, parse_view

if TYPE_CHECKING:
    from sinks.warehouse.lake.local_disk import Disk
    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import ViewState

REPLACED: Final = "another generation took its place; cdc views rollback brings it back"
ROLLED_BACK: Final = "it was rolled back; cdc views swap brings it back"
INPUT_SWAPPED: Final = "a view it reads was swapped"
_RESTING: Final = frozenset({REPLACED, ROLLED_BACK})


class SwapRequest(msgspec.Struct, frozen=True):
    """What somebody asks for: that this generation serves."""

    view: str
    serve: int


@dataclass(frozen=True, slots=True)
class Decided:
    """What a cut does with generations; as `Pending` has it.

    Attributes:
        serve: view -> the generation that serves from this cut on, of those that are swapped.
        texts: name of what is computed, ``<view>`` or ``<view>~<N>`` -> sum of its text.
    """

    serve: Mapping[str, int] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


class TextStore:
    """Texts of views and wishes about them, in the lake's folder of cuts."""

    def __init__(self, location: Location, disk: Disk | None = None) -> None:
        self._disk = disk or disk_of(location)
        self._kept: set[tuple[str, str]] = set()

    def keep(self, views: Sequence[View]) -> None:
        """Make the texts durable."""
        for view in views:
            if (view.text_sha, view.sql) in self._kept:
                continue
            name, data = layout.sql_file(view.text_sha), view.sql.encode()
            if self._disk.read(name) != data:
                self._disk.replace(name, data)
            self._kept.add((view.text_sha, view.sql))

    def text(self, sha: str) -> str | None:
        """A text by its sum."""
        data = self._disk.read(layout.sql_file(sha))
        return None if data is None else data.decode()

    def wish(self, wish: SwapRequest) -> None:
        """Ask for something; a later wish about the same view replaces it."""
        self._disk.replace(layout.swap_request_file(wish.view), msgspec.json.encode(wish))

    def wishes(self) -> dict[str, int]:
        """View -> generation that is to serve. What is not readable is no wish."""
        found: dict[str, int] = {}
        for name in self._disk.names():
            if not layout.is_swap_request(name):
                continue
            try:
                wish = msgspec.json.decode(self._disk.read(name) or b"", type=SwapRequest)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            found[wish.view] = wish.serve
        return found

    def granted(self, view: str) -> None:
        """Forget a wish."""
        self._disk.remove(layout.swap_request_file(view))


def decide(files: Sequence[View], previous: Mapping[str, ViewState], wishes: Mapping[str, int]) -> Decided:
    """What the next cut does.

    Args:
        files: the views as their files have them.
        previous: of the newest cut, generations that do not serve among them.
        wishes: view -> generation that is to serve.
    """
    serve: dict[str, int] = {}
    texts: dict[str, str] = {}
    for view in files:
        state = previous.get(view.name)
        if state is None or not state.text:
            texts[view.name] = view.text_sha
            continue
        target, candidate = _target(view, state, previous, wishes.get(view.name))
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
    view: View, state: ViewState, previous: Mapping[str, ViewState], wish: int | None
) -> tuple[int | None, ViewState | None]:
    """The generation that is to serve, and its state as far as there is one; None and a candidate that only waits."""
    others = _others(view.name, previous)
    if wish is not None and wish != state.generation and wish in others:
        return wish, others[wish]
    if state.text == view.text_sha:
        return None, None
    same = [other for other in others.values() if other.text == view.text_sha]
    if not same:
        return max([state.generation, state.newest, *others]) + 1, None
    candidate = same[-1]
    if candidate.reason == ROLLED_BACK:
        return None, None
    if view.header.swap == "manual" and candidate.reason == "":
        return None, candidate
    return candidate.generation, candidate


def swapped(previous: Mapping[str, ViewState], decided: Decided, files: Sequence[View]) -> dict[str, ViewState]:
    """The states that a cut begins with, as if the generations that are to serve had been there before."""
    found = dict(previous)
    for name, number in decided.serve.items():
        old, new = found[name], found.pop(layout.beside(name, number))
        back = number < old.generation
        for other in _others(name, found).values():
            # One to roll back to is kept; older ones are forgotten.
            found.pop(layout.beside(name, other.generation))
        found[name] = new
        found[layout.beside(name, old.generation)] = structs.replace(old, reason=ROLLED_BACK if back else REPLACED)
    for name, state in previous.items():
        if layout.is_beside(name) and name in found and name not in decided.texts and not is_resting(state):
            found.pop(name)  # the file was edited again, and nobody will want what was between
    for view in files:
        read = {part.parts[0].lower() for part in view.references if len(part.parts) == 1}
        own = found.get(view.name)
        if own is not None and not own.reason and read & {name.lower() for name in decided.serve}:
            found[view.name] = structs.replace(own, reason=INPUT_SWAPPED)
    return found


def runs(files: Sequence[View], decided: Decided, texts: TextStore) -> tuple[View, ...]:
    """What a cut computes, behind what it reads; the file's own view where its text is the one that serves.

    Raises LakeDamaged when a text is gone that a generation was made by.
    """
    by_name = {view.name: view for view in files}
    found = []
    for name, sha in decided.texts.items():
        file = by_name.get(layout.split_beside(name)[0])
        if file is not None:
            view = file if file.text_sha == sha else _kept(file, sha, texts)
            found.append(replace(view, name=name))
    return in_order(found)


def is_resting(state: ViewState) -> bool:
    """Whether it is kept for a rollback, and not up to date."""
    return state.reason in _RESTING


def candidates(name: str, views: Mapping[str, ViewState]) -> dict[int, ViewState]:
    """Generations of a view beside the one that serves: number -> state."""
    return _others(name, views)


def _kept(file: View, sha: str, texts: TextStore) -> View:
    text = texts.text(sha)
    if text is None:
        raise LakeDamaged(
            f"the text that a generation of view {file.name} was made by is gone from the lake",
            hint=f"bring {layout.CUTS_FOLDER}/{layout.sql_file(sha)} back from a copy",
            view=file.name,
        )
    return parse_view(file.file, text)


def _others(name: str, views: Mapping[str, ViewState]) -> dict[int, ViewState]:
    found: dict[int, ViewState] = {}
    for other, state in views.items():
        view, number = layout.split_beside(other)
        if number and view == name:
            found[number] = state
    return dict(sorted(found.items()))
