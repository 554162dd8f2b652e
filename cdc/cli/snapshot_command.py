"""`cdc snapshot`: starts, pauses, resumes and stops snapshots of tables, and shows their progress."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import UNSET, Raw

from cdc.cli import output, snapshot_text, wait_notice
from cdc.cli.action_terminal import act
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.clock import SystemClock
from cdc.config.settings import Config
from cdc.errors import EXIT_FAILED, EXIT_OK, CutNotReached, TopicMismatch, UsageError
from cdc.model import units
from cdc.model.signal_record import NO_MATCH

if TYPE_CHECKING:
    from cdc.control.requests import SnapshotRequest
    from cdc.inspect.snapshot_state import SnapshotView
    from cdc.model.signal_record import SignalAnswer

_ANSWER_S: Final = 15.0  # how long a running capture may take to act on a signal
_LOOK_S: Final = 0.5
_LINE_S: Final = 10.0  # between lines of progress without a terminal
_DONE: Final = {
    "snapshot.start": "started",
    "snapshot.pause": "paused",
    "snapshot.resume": "resumed",
    "snapshot.stop": "stopped",
}

_no_wait: Final = click.option(
    "--no-wait", is_flag=True, help="Return immediately after submitting; do not wait for an answer."
)


@click.group("snapshot")
def group() -> None:
    """Copy the existing rows of tables into the log, while changes flow.

    New tables are copied automatically ([snapshot] mode = "initial").
    """


@group.command("start")
@click.argument("tables", nargs=-1, required=True)
@click.option(
    "--where", metavar="EXPR", help="Only rows that match, e.g. \"id >= 100 and status = 'open'\"  [default: all]."
)
@click.option(
    "--keys",
    "keys_path",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Only rows with these keys: a file with one JSON object per line; - for standard input.",
)
@click.option("--no-wait", is_flag=True, help="Return immediately after submitting; do not wait until it is complete.")
@config_option
@json_option
def start_command(
    tables: tuple[str, ...], where: str | None, keys_path: Path | None, no_wait: bool, config_path: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Copy the rows of TABLES into the log again.

    TABLES: schema.table, or shell patterns. Ctrl-C stops the waiting, not the snapshot. Exit code 1 when capture
    refuses a table or does not answer.
    """
    from cdc.control.requests import SnapshotStart

    config = configuration(config_path)
    keys = _keys(keys_path, where)
    request = SnapshotStart(
        tables=tables,
        where=UNSET if where is None else where,
        keys=tuple(map(Raw, keys)) or UNSET,
    )
    return _send(config, request, no_wait=no_wait, as_json=as_json)


@group.command("pause")
@click.argument("tables", nargs=-1)
@_no_wait
@config_option
@json_option
def pause_command(tables: tuple[str, ...], no_wait: bool, config_path: Path | None, as_json: bool) -> int:
    """Pause the snapshot of TABLES (default: all).

    Changes still flow, and the rows copied so far stay.
    """
    from cdc.control.requests import SnapshotPause

    request = SnapshotPause(tables=tables or UNSET)
    return _send(configuration(config_path), request, no_wait=no_wait, as_json=as_json)


@group.command("resume")
@click.argument("tables", nargs=-1)
@_no_wait
@config_option
@json_option
def resume_command(tables: tuple[str, ...], no_wait: bool, config_path: Path | None, as_json: bool) -> int:
    """Resume the paused snapshot of TABLES (default: all)."""
    from cdc.control.requests import SnapshotResume

    request = SnapshotResume(tables=tables or UNSET)
    return _send(configuration(config_path), request, no_wait=no_wait, as_json=as_json)


@group.command("stop")
@click.argument("tables", nargs=-1)
@_no_wait
@config_option
@json_option
def stop_command(tables: tuple[str, ...], no_wait: bool, config_path: Path | None, as_json: bool) -> int:
    """Stop the snapshot of TABLES (default: all).

    A table that was complete before stays complete. Any other table stays incomplete until `cdc snapshot start` copies
    it from the beginning.
    """
    from cdc.control.requests import SnapshotStop

    request = SnapshotStop(tables=tables or UNSET)
    return _send(configuration(config_path), request, no_wait=no_wait, as_json=as_json)


@group.command("status")
@click.argument("tables", nargs=-1)
@click.option("-w", "--watch", is_flag=True, help="Update until everything is copied, or Ctrl-C.")
@config_option
@json_option
def status_command(tables: tuple[str, ...], watch: bool, config_path: Path | None, as_json: bool) -> int:
    """Show the progress of TABLES (default: all incomplete ones).

    Also shows what each snapshot waits for. Without the daemon it shows what the log has. Exit code 2 when no snapshot
    matches TABLES.
    """
    from cdc.inspect.snapshot_state import SnapshotView

    config = configuration(config_path)
    with SnapshotView(config) as view:
        with output.waiting(wait_notice.kafka(config)):
            found, why = _read_state(config, view)
        chosen = _chosen(found, tables)
        if tables and not chosen:
            raise UsageError(f"no snapshot of a table matches {', '.join(tables)}", command="cdc snapshot list")
        if as_json:
            answers = view.signals.answers if view.signals else ()
            output.show_json({"snapshots": chosen, "daemon": why or None, "signals": list(map(_answer, answers))})
            return 0
        chosen = chosen if tables else [one for one in chosen if one["state"] != "complete"]
        if watch and any(_open(one) for one in chosen):
            return _follow(config, view, {one["table"]: one["number"] for one in chosen}, as_json=False)
    if why:
        output.note(f"{why}; this is the state in the log")
    if chosen:
        output.show_table(snapshot_text.table(chosen))
        for line in snapshot_text.reasons(chosen):
            output.note(line)
    else:
        output.done("every snapshot is complete" if found else "no table has a snapshot yet")
    return 0


@group.command("list")
@config_option
@json_option
def list_command(config_path: Path | None, as_json: bool) -> None:
    """List all tables with a snapshot."""
    from cdc.inspect.snapshot_state import SnapshotView

    config = configuration(config_path)
    with SnapshotView(config) as view, output.waiting(wait_notice.kafka(config)):
        found, _ = _read_state(config, view)
    if as_json:
        output.show_json({"snapshots": found})
    elif found:
        output.show_table(snapshot_text.table(found))
    else:
        output.note("no table has a snapshot yet")


def _read_state(config: Config, view: SnapshotView) -> tuple[list[dict[str, Any]], str]:
    """Return every table, and why the daemon did not answer. Raises TopicMismatch when capture never ran."""
    from cdc.inspect.snapshot_state import never_ran, tables

    try:
        view.look()
    except TopicMismatch as error:
        raise never_ran(config, error) from error
    return tables(config, view)


def _send(config: Config, request: SnapshotRequest, *, no_wait: bool, as_json: bool) -> int:
    """Send a signal, print the answer, and after a start wait until the tables are copied."""
    from cdc.control.requests import SnapshotStart
    from cdc.inspect.snapshot_state import SnapshotView, await_answer

    follow = isinstance(request, SnapshotStart)
    outcome = act(config, request, reading=lambda: output.waiting(wait_notice.kafka(config)))
    offset = int(outcome.facts["offset"])
    if no_wait:
        if as_json:
            output.show_json({"offset": offset, "answer": None})
        else:
            output.done(f"submitted signal {offset}; `cdc snapshot status` shows the progress")
        return EXIT_OK
    with SnapshotView(config) as view:
        with output.waiting(f"waiting for capture to answer, for at most {_ANSWER_S:.0f} s"):
            answer = await_answer(view, offset, _ANSWER_S, SystemClock())
        if answer is None:
            raise CutNotReached(
                f"capture did not answer the signal within {_ANSWER_S:.0f} s",
                hint="the signal is kept: capture acts on it when it runs",
                command="cdc status",
                offset=offset,
            )
        code = EXIT_FAILED if answer.refused else EXIT_OK
        if as_json and not follow:
            output.show_json({"offset": offset, "answer": _answer(answer)})
            return code
        if not as_json:
            _print_answer(outcome.action, answer, view.records)
        if follow and answer.done:
            numbers = {name: view.records[name].number for name in answer.done if name in view.records}
            code = max(code, _follow(config, view, numbers, as_json=as_json))
        if as_json:
            found, _ = _read_state(config, view)
            chosen = [one for one in found if one["table"] in answer.done]
            output.show_json({"offset": offset, "answer": _answer(answer), "snapshots": chosen})
        return code


def _print_answer(action: str, answer: SignalAnswer, known: Iterable[str]) -> None:
    for name in answer.done:
        (output.note if action == "snapshot.start" else output.done)(f"{name}: {_DONE[action]}")
    for name, why in answer.refused.items():
        named = [table for table in known if table.partition(".")[2] == name]
        near = (named or get_close_matches(name, list(known), n=1)) if why == NO_MATCH else []
        meant = f"; did you mean {near[0]}?" if near else ""
        output.refused(f"{name}: {why}{meant}" if name else why)


def _follow(config: Config, view: SnapshotView, numbers: Mapping[str, int], *, as_json: bool) -> int:
    """Show progress until all these snapshots have ended. Returns 1 when one was stopped or paused."""
    from cdc.cli.progress_bars import SnapshotBars

    clock, never = SystemClock(), threading.Event()
    try:
        with SnapshotBars(clock, every_s=_LINE_S, quiet=as_json) as bars:
            while True:
                found, why = _read_state(config, view)
                mine = [one for one in found if numbers.get(one["table"]) == one["number"]]
                bars.show(mine, why)
                gone = numbers.keys() - {one["table"] for one in mine}
                ended = {one["table"]: one["state"] for one in mine if not _open(one)} | dict.fromkeys(gone, "replaced")
                if len(ended) == len(numbers):
                    break
                clock.wait(never, _LOOK_S)
    except KeyboardInterrupt:
        output.note("the snapshot continues; `cdc snapshot status` shows its progress")
        return EXIT_FAILED
    if not as_json:
        _print_ended(mine, view, ended)
    return EXIT_OK if all(state == "complete" for state in ended.values()) else EXIT_FAILED


def _print_ended(mine: Sequence[Mapping[str, Any]], view: SnapshotView, ended: Mapping[str, str]) -> None:
    for one in mine:
        if one["state"] == "complete":
            output.done(f"{one['table']}: {one['rows']:,} rows, {units.size(one['bytes'])}")
        else:
            output.refused(f"{one['table']}: {one['state']}")
    for name in sorted(ended.keys() - {one["table"] for one in mine}):
        output.refused(f"{name}: replaced by another snapshot ({view.records[name].number})")


def _open(one: Mapping[str, Any]) -> bool:
    return one["state"] in {"waiting", "reading", "sweeping"}


def _chosen(found: Iterable[dict[str, Any]], patterns: Sequence[str]) -> list[dict[str, Any]]:
    from fnmatch import fnmatchcase

    return [one for one in found if not patterns or any(fnmatchcase(one["table"], name) for name in patterns)]


def _answer(answer: SignalAnswer) -> dict[str, Any]:
    return {
        "offset": answer.offset,
        "id": answer.id,
        "action": answer.action,
        "done": list(answer.done),
        "refused": answer.refused,
    }


def _keys(path: Path | None, where: str | None) -> tuple[bytes, ...]:
    from snapshot.signal_parsing import KEYS_BYTES_MAX, KEYS_MAX, SignalError, key_of

    if path is None:
        return ()
    if where is not None:
        raise UsageError("--where and --keys cannot be combined", hint="give one of them")
    read: Callable[[], bytes] = sys.stdin.buffer.read if str(path) == "-" else path.read_bytes
    try:
        lines = read().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="give a readable file: --keys FILE") from error
    keys: dict[bytes, None] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                keys[key_of(line)] = None
            except SignalError as error:
                raise UsageError(
                    f"line {number} of {path}: {error}", hint='expected one JSON object per line, e.g. {"id":7}'
                ) from None
    if not keys or len(keys) > KEYS_MAX or sum(map(len, keys)) > KEYS_BYTES_MAX:
        raise UsageError(
            f"{path} has {len(keys)} keys; expected 1 to {KEYS_MAX} keys of at most {units.size(KEYS_BYTES_MAX)}",
            hint="use --where, or several files, for more rows",
        )
    return tuple(keys)
