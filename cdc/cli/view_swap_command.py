"""`cdc views compare`, `swap` and `rollback`: which generation of a view serves. Needs no Spark; the sink does it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, json_option
from cdc.cli.lake_choice import LakeChoice, lake_option, place
from cdc.clock import SystemClock
from cdc.errors import EXIT_FAILED, EXIT_OK, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.warehouse.lake.manifest import ViewState
    from sinks.warehouse.read.lake_reader import Lake
    from sinks.warehouse.views.version_comparison import Comparison

_LOOK_S: Final = 0.2
_WAIT_S: Final = 60.0

key_option: Final = click.option(
    "--key", "key_text", default="", help="Columns that tell rows apart, as a,b  [default: what the view's file says]."
)
wait_option: Final = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=_WAIT_S,
    show_default=True,
    help="Seconds to wait until it is done.",
)
yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.command("compare")
@click.argument("name")
@key_option
@lake_option
@config_option
@json_option
def compare_command(name: str, key_text: str, lake_path: str | None, config_path: Path | None, as_json: bool) -> int:
    """Compare a view with the generation that was built beside it: rows, columns, differing keys.

    Both are as of the newest cut. Exit code 1 when they differ.
    """
    from sinks.warehouse.read.lake_reader import Lake

    found = place(config_path, lake_path)
    lake = Lake(found.location)
    number = _candidate(lake, name)
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
    name: str, key_text: str, yes: bool, wait_s: float, lake_path: str | None, config_path: Path | None, as_json: bool
) -> int:  # fmt: skip
    """Have the generation that was built beside a view serve, from the next cut on.

    Says what will differ, and asks. Readers see the old one or the new one, whole; a published topic follows.
    """
    from sinks.warehouse.read.lake_reader import Lake

    found = place(config_path, lake_path)
    lake = Lake(found.location)
    number = _candidate(lake, name)
    comparison = _compared(found, lake, name, number, key_text)
    if not as_json:
        _show(comparison)
    if not output.confirm(f"have generation {number} of {name} serve?", yes=yes):
        return EXIT_FAILED
    return _wished(lake, name, number, wait_s, as_json=as_json)


@click.command("rollback")
@click.argument("name")
@yes_option
@wait_option
@lake_option
@config_option
@json_option
def rollback_command(
    name: str, yes: bool, wait_s: float, lake_path: str | None, config_path: Path | None, as_json: bool
) -> int:
    """Have the generation that served before serve again, brought up to the newest cut first."""
    from sinks.warehouse.read.lake_reader import Lake
    from sinks.warehouse.views.generations import REPLACED, other_generations

    lake = Lake(place(config_path, lake_path).location)
    states = lake.manifest().views
    lake.view(name, lake.manifest())
    before = [number for number, state in other_generations(name, states).items() if state.reason == REPLACED]
    if not before:
        raise UsageError(
            f"there is no generation of {name} to roll back to",
            hint="the last one that served is kept when another takes its place",
            command="cdc views list",
        )
    if not output.confirm(f"have generation {before[-1]} of {name} serve again?", yes=yes):
        return EXIT_FAILED
    return _wished(lake, name, before[-1], wait_s, as_json=as_json)


def _candidate(lake: Lake, name: str) -> int:
    """The generation beside the one that serves that is to be looked at. Raises UsageError."""
    from sinks.warehouse.views.generations import REPLACED, other_generations

    manifest = lake.manifest()
    lake.view(name, manifest)
    found = {
        number: state for number, state in other_generations(name, manifest.views).items() if state.reason != REPLACED
    }
    if not found:
        raise UsageError(
            f"nothing was built beside {name}",
            hint="change its SQL, with a line -- swap: manual above it, and start the sink anew",
            command=f"cdc views sql {name}",
        )
    number, state = max(found.items())
    _check_fresh(name, number, state)
    return number


def _check_fresh(name: str, number: int, state: ViewState) -> None:
    from sinks.warehouse.views.generations import is_resting

    if state.reason and not is_resting(state):
        raise UsageError(
            f"generation {number} of {name} is left behind: {state.reason}",
            hint="it can serve when it is as of the newest cut",
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
    from sinks.warehouse.views.definition import load_views

    if key_text:
        return tuple(part.strip() for part in key_text.split(","))
    views = {} if found.views is None else {view.name: view for view in load_views(found.views)}
    return views[name].header.key if name in views else ()


def _wished(lake: Lake, name: str, number: int, wait_s: float, *, as_json: bool) -> int:
    """Ask the sink, and wait for the cut that does it."""
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
        clock.wait(never, _LOOK_S)
    if as_json:
        output.show_json({"name": name, "generation": number, "done": done, "cut": manifest.cut})
    elif done:
        output.done(f"generation {number} of {name} serves, since cut {manifest.cut} at the latest")
    else:
        output.note(f"asked for; the sink has not done it in {wait_s:g} s, and does it with its next cut")
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
    made = output.table("", "rows", "columns", "changed", "gone", "new", right=("rows", "changed", "gone", "new"))
    made.add_row("serves", f"{found.old_rows:,}", _columns("-", found.removed_columns), "", "", "")
    made.add_row(
        "beside",
        f"{found.new_rows:,}",
        _columns("+", found.added_columns),
        f"{found.changed:,}",
        f"{found.gone:,}",
        f"{found.new:,}",
    )
    output.show_table(made)
    if found.same:
        output.done("they agree")
    elif found.examples:
        output.note("as these keys: " + ", ".join(map(output.plain, found.examples)))


def _columns(sign: str, names: Sequence[str]) -> str:
    return " ".join(f"{sign}{output.plain(name)}" for name in names)


COMMANDS: Final = (compare_command, swap_command, rollback_command)
