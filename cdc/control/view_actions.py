"""Requests the swap or rollback of a view of a lake; its sink carries it out with a cut. Needs no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.config.sink_kinds import lake_of
from cdc.control.chosen_lake import LakeChoice, check_file
from cdc.control.requests import ViewRequest, ViewSwap
from cdc.control.terminal import Done, Terminal
from cdc.errors import UsageError
from sinks.warehouse.lake.layout import split_beside
from sinks.warehouse.read.lake_reader import Lake
from sinks.warehouse.views.generations import REPLACED, SwapRequest, TextStore, is_resting, other_generations

if TYPE_CHECKING:
    from cdc.config.settings import Config
    from sinks.warehouse.lake.manifest import ViewState


def switch(config: Config, request: ViewRequest, terminal: Terminal) -> Done:
    """Ask the sink to make another version of the view active. Raises UsageError, see `switch_in`."""
    return switch_in(LakeChoice.of(lake_of(config, request.lake)), request, terminal)


def switch_in(chosen: LakeChoice, request: ViewRequest, terminal: Terminal) -> Done:
    """Like `switch`, for a lake that need not be in the configuration.

    The terminal is asked about the number of the version, which the facts have as `version`. Raises UsageError when
    there is no version to change to.
    """
    lake = Lake(chosen.location)
    swap = isinstance(request, ViewSwap)
    number = candidate(chosen, lake, request.view) if swap else _previous(lake, request.view)
    terminal.ask(number)
    TextStore(lake.location).request_swap(SwapRequest(request.view, number))
    return Done("requested", {"version": number})


def candidate(chosen: LakeChoice, lake: Lake, name: str) -> int:
    """Return the number of the newest version that is not active and was not replaced. Raises UsageError."""
    manifest = lake.manifest()
    if name not in manifest.views and name not in manifest.unbuilt:
        check_file(chosen, name)
    lake.view(name, manifest)
    found = {
        number: state for number, state in other_generations(name, manifest.views).items() if state.reason != REPLACED
    }
    failed = {one: view.reason for one, view in manifest.unbuilt.items() if split_beside(one)[0] == name}
    if not found and failed:
        version, reason = failed.popitem()
        raise UsageError(f"the new version {version} has no rows: {reason}", hint="correct it, and restart the sink")
    if not found:
        raise UsageError(
            f"{name} has no new version to swap to",
            hint="change its SQL, put the line -- swap: manual above it, and restart the sink",
            command=f"cdc views sql {name}",
        )
    number, state = max(found.items())
    _check_fresh(name, number, state)
    return number


def _previous(lake: Lake, name: str) -> int:
    manifest = lake.manifest()
    lake.view(name, manifest)
    before = [number for number, state in other_generations(name, manifest.views).items() if state.reason == REPLACED]
    if not before:
        raise UsageError(
            f"{name} has no previous version to roll back to",
            hint="a swap keeps the version that it replaces",
            command="cdc views list",
        )
    return before[-1]


def _check_fresh(name: str, number: int, state: ViewState) -> None:
    if state.reason and not is_resting(state):
        raise UsageError(
            f"version {number} of {name} is behind: {state.reason}",
            hint="it can become active when it has reached the newest cut",
        )
