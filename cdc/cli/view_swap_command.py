"""`cdc views compare`, `swap` and `rollback`: choose the active version of a view. Needs no Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, json_option
from cdc.cli.lake_choice import LakeChoice, check_file, choose_lake, lake_option
from cdc.clock import SystemClock
from cdc.errors import EXIT_FAILED, EXIT_OK, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.warehouse.lake.manifest import ViewState
    from sinks.warehouse.read.lake_reader import Lake
    from sinks.warehouse.views.version_comparison import Comparison

_POLL_S: Final = 0.2
_WAIT_S: Final = 60.0

key_option: Final = click.option(
    "--key", "key_text", default="", help="Key columns to match rows by, e.g. a,b  [default: from the view's file]."
)
wait_option: Final = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=_WAIT_S,
    show_default=True,
    help="Seconds to wait until the sink has done it.",
)
yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Switch without asking.")


@click.command("compare")
@click.argument("name")
@key_option
@lake_option
@config_option
@json_option
def compare_command(name: str, key_text: str, lake_text: str | None, config_path: Path | None, as_json: bool) -> int:
    """Compare the active version of a view with the new one.

    Shows rows, columns and differing keys, as of the newest cut. Exit code 1 when they differ.
    """
    from sinks.warehouse.read.lake_reader import Lake

    found = choose_lake(config_path, lake_text)
    lake = Lake(found.location)
    number = _candidate(found, lake, name)
    comparison = _compared(found, lake, name, number, key_text)
    if as_json:
        output.show_json(_document(name, number, comparison))
    else:
        _show(comparison)
    return EXIT_OK if comparison.same else EXIT_FAILED


@click.command("swap")
@click.argument("name")
@key_option
@yes_option
@wait_option
@lake_option
@config_option
@json_option
def swap_command(
    name: str, key_text: str, yes: bool, wait_s: float, lake_text: str | None, config_path: Path | None, as_json: bool
) -> int:  # fmt: skip
    """Make the new version of a view active, from the next cut on.

    First shows what differs, and asks. Readers see either version as a whole; a published topic follows.
    """
    from sinks.warehouse.read.lake_reader import Lake

    found = choose_lake(config_path, lake_text)
    lake = Lake(found.location)
    number = _candidate(found, lake, name)
    comparison = _compared(found, lake, name, number, key_text)
    if not as_json:
        _show(comparison)
    if not output.confirm(f"Swap {name} to version {number}?", yes=yes):
        return EXIT_FAILED
    return _request_swap(lake, name, number, wait_s, as_json=as_json)


@click.command("rollback")
@click.argument("name")
@yes_option
@wait_option
@lake_option
@config_option
@json_option
def rollback_command(
    name: str, yes: bool, wait_s: float, lake_text: str | None, config_path: Path | None, as_json: bool
) -> int:
    """Roll back to the previous version of a view.

    The sink first brings it up to the newest cut.
    """
    from sinks.warehouse.read.lake_reader import Lake
    from sinks.warehouse.views.generations import REPLACED, other_generations

    lake = Lake(choose_lake(config_path, lake_text).location)
    states = lake.manifest().views
    lake.view(name, lake.manifest())
    before = [number for number, state in other_generations(name, states).items() if state.reason == REPLACED]
    if not before:
        raise UsageError(
            f"{name} has no previous version to roll back to",
            hint="a swap keeps the version that it replaces",
            command="cdc views list",
        )
    if not output.confirm(f"Roll {name} back to version {before[-1]}?", yes=yes):
        return EXIT_FAILED
    return _request_swap(lake, name, before[-1], wait_s, as_json=as_json)


def _candidate(chosen: LakeChoice, lake: Lake, name: str) -> int:
    """Return the number of the newest version that is not active and was not replaced. Raises UsageError."""
    from sinks.warehouse.lake.layout import split_beside
    from sinks.warehouse.views.generations import REPLACED, other_generations

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


def _check_fresh(name: str, number: int, state: ViewState) -> None:
    from sinks.warehouse.views.generations import is_resting

    if state.reason and not is_resting(state):
        raise UsageError(
            f"version {number} of {name} is behind: {state.reason}",
            hint="it can become active when it has reached the newest cut",
        )


def _compared(found: LakeChoice, lake: Lake, name: str, number: int, key_text: str) -> Comparison:
    from sinks.warehouse.lake.layout import beside
    from sinks.warehouse.views.version_comparison import compare
    from sinks.warehouse.views.version_diff import Pin

    manifest = lake.manifest()
    old, new = (lake.view(one, manifest) for one in (name, beside(name, number)))
    key = _key(found, name, key_text)
    return compare(found.location, name, Pin(old[0], old[1].version), Pin(new[0], new[1].version), key)


def _key(found: LakeChoice, name: str, key_text: str) -> Sequence[str]:
    from sinks.warehouse.views.definition import read_views

    if key_text:
        return tuple(part.strip() for part in key_text.split(","))
    views = {} if found.views is None else {view.name: view for view in read_views(found.views).views}
    return views[name].header.key if name in views else ()


def _request_swap(lake: Lake, name: str, number: int, wait_s: float, *, as_json: bool) -> int:
    """Ask the sink to switch, and wait for the cut that does it."""
    from sinks.warehouse.views.generations import SwapRequest, TextStore

    TextStore(lake.location).request_swap(SwapRequest(name, number))
    clock, never = SystemClock(), threading.Event()
    end_s = clock.monotonic_s() + wait_s
    while True:
        manifest = lake.manifest()
        state = manifest.views.get(name)
        done = state is not None and state.generation == number
        if done or clock.monotonic_s() > end_s:
            break
        clock.wait(never, _POLL_S)
    if as_json:
        output.show_json({"name": name, "generation": number, "done": done, "cut": manifest.cut})
    elif done:
        output.done(f"version {number} of {name} is active, since cut {manifest.cut} at the latest")
    else:
        output.note(f"requested; the sink has not switched within {wait_s:g} s and will do so with its next cut")
    return EXIT_OK if done else EXIT_FAILED


def _document(name: str, number: int, found: Comparison) -> dict[str, Any]:
    return {
        "name": name,
        "generation": number,
        "same": found.same,
        "old_rows": found.old_rows,
        "new_rows": found.new_rows,
        "removed_columns": list(found.removed_columns),
        "added_columns": list(found.added_columns),
        "changed": found.changed,
        "gone": found.gone,
        "new": found.new,
        "examples": list(found.examples),
    }


def _show(found: Comparison) -> None:
    made = output.table(
        "", "rows", "columns", "changed", "removed", "added", right=("rows", "changed", "removed", "added")
    )
    made.add_row("active", f"{found.old_rows:,}", _columns("-", found.removed_columns), "", "", "")
    made.add_row(
        "new",
        f"{found.new_rows:,}",
        _columns("+", found.added_columns),
        f"{found.changed:,}",
        f"{found.gone:,}",
        f"{found.new:,}",
    )
    output.show_table(made)
    if found.same:
        output.done("both versions agree")
    elif found.examples:
        output.note("differing keys, e.g. " + ", ".join(map(output.plain, found.examples)))


def _columns(sign: str, names: Sequence[str]) -> str:
    return " ".join(f"{sign}{output.plain(name)}" for name in names)


COMMANDS: Final = (compare_command, swap_command, rollback_command)
