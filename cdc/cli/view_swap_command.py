"""`cdc views compare`, `swap` and `rollback`: choose the active version of a view. Needs no Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cdc.cli import output
from cdc.cli.action_terminal import act
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.cli.lake_choice import choose_lake, lake_option, name_of_lake
from cdc.clock import SystemClock
from cdc.control.chosen_lake import LakeChoice
from cdc.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cdc.control.requests import ViewRequest
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
    from cdc.control.view_actions import candidate
    from sinks.warehouse.read.lake_reader import Lake

    found = choose_lake(config_path, lake_text)
    lake = Lake(found.location)
    number = candidate(found, lake, name)
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
    from cdc.control.requests import ViewSwap
    from sinks.warehouse.read.lake_reader import Lake

    found = choose_lake(config_path, lake_text)

    def agreed(number: int) -> bool:
        comparison = _compared(found, Lake(found.location), name, number, key_text)
        if not as_json:
            _show(comparison)
        return output.confirm(f"Swap {name} to version {number}?", yes=yes)

    sink = name_of_lake(config_path, lake_text)
    number = _requested(found, ViewSwap(lake=sink, view=name), config_path, agreed)
    return EXIT_FAILED if number is None else _await_swap(found, name, number, wait_s, as_json=as_json)


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
    from cdc.control.requests import ViewRollback

    found = choose_lake(config_path, lake_text)

    def agreed(number: int) -> bool:
        return output.confirm(f"Roll {name} back to version {number}?", yes=yes)

    sink = name_of_lake(config_path, lake_text)
    number = _requested(found, ViewRollback(lake=sink, view=name), config_path, agreed)
    return EXIT_FAILED if number is None else _await_swap(found, name, number, wait_s, as_json=as_json)


def _requested(
    found: LakeChoice, request: ViewRequest, config_path: Path | None, agreed: Callable[[int], bool]
) -> int | None:
    """Ask the sink to switch; return the number of the version, None if the operator answers no."""
    from cdc.control.terminal import Declined, Terminal
    from cdc.control.view_actions import switch_in

    try:
        if request.lake:
            return int(act(configuration(config_path), request, agreed=agreed).facts["version"])
        done = switch_in(found, request, Terminal(agreed=agreed))
    except Declined:
        return None
    output.note("warning: this action is not recorded: the configuration has no sink for this lake")
    return int(done.facts["version"])


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


def _await_swap(found: LakeChoice, name: str, number: int, wait_s: float, *, as_json: bool) -> int:
    """Wait for the cut that switches."""
    from sinks.warehouse.read.lake_reader import Lake

    lake = Lake(found.location)
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
