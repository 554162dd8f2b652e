"""`cdc snapshot`: read tables again, see how far that is, hold it up and end it."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cdc.cli import output, wait_notice
from cdc.cli.command_options import config_option, configuration, json_option

if TYPE_CHECKING:
    from cdc.config.settings import Config
    from cdc.inspect.snapshot_state import SnapshotView
    from cdc.model.signal_record import SignalAnswer
    from snapshot.signal_parsing import Action, Signal

_ANSWER_S: Final = 15.0  # how long a running capture may take to act on a signal
_LOOK_S: Final = 0.5
_LINE_S: Final = 10.0  # between lines of progress where nobody's terminal shows bars

_no_wait: Final = click.option("--no-wait", is_flag=True, help="Leave once it is asked for; do not wait for an answer.")


@click.group("snapshot")
def group() -> None:
    """Rows of tables as they are now, put into the log while changes flow.

    Tables that were never read are read by themselves ([snapshot] mode = "initial").
    """


@group.command("start")
@click.argument("tables", nargs=-1, required=True)
@click.option("--where", metavar="EXPR", help="Only rows for which this is so, as \"id >= 100 and status = 'open'\".")
@click.option(
    "--keys",
    "keys_path",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Only rows of these keys: one JSON object a line, as in the log; - is the standard input.",
)
@click.option("--no-wait", is_flag=True, help="Leave once it is asked for; do not wait until it is complete.")
@config_option
@json_option
def start_command(
    tables: tuple[str, ...], where: str | None, keys_path: Path | None, no_wait: bool, config_path: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Read TABLES again: names as schema.table, or shell patterns of them.

    Ctrl-C ends the waiting, not the snapshot. Exit code 1 when a table was refused, or nobody answered.
    """
    from snapshot.signal_parsing import Signal

    config = configuration(config_path)
    keys = _keys(keys_path, where)
    _check_where(where)
    signal = Signal(uuid.uuid4().hex, "start", tables, where=where or "", keys=keys)
    return _ask(config, signal, no_wait=no_wait, as_json=as_json, follow=True)


@group.command("pause")
@click.argument("tables", nargs=-1)
@_no_wait
@config_option
@json_option
def pause_command(tables: tuple[str, ...], no_wait: bool, config_path: Path | None, as_json: bool) -> int:
    """Read no more of TABLES for now (all, without any). Changes flow on; what is read stays."""
    return _steer("pause", tables, config_path, no_wait=no_wait, as_json=as_json)


@group.command("resume")
@click.argument("tables", nargs=-1)
@_no_wait
@config_option
@json_option
def resume_command(tables: tuple[str, ...], no_wait: bool, config_path: Path | None, as_json: bool) -> int:
    """Go on with what is paused: TABLES, or all."""
    return _steer("resume", tables, config_path, no_wait=no_wait, as_json=as_json)


@group.command("stop")
@click.argument("tables", nargs=-1)
@_no_wait
@config_option
@json_option
def stop_command(tables: tuple[str, ...], no_wait: bool, config_path: Path | None, as_json: bool) -> int:
    """Give up reading TABLES, or all.

    A table that was complete before is so again. One that never was stays incomplete until `cdc snapshot start` reads
    it from its beginning.
    """
    return _steer("stop", tables, config_path, no_wait=no_wait, as_json=as_json)


@group.command("status")
@click.argument("tables", nargs=-1)
@click.option("-w", "--watch", is_flag=True, help="Show it until everything is read, or Ctrl-C.")
@config_option
@json_option
def status_command(tables: tuple[str, ...], watch: bool, config_path: Path | None, as_json: bool) -> int:
    """Show what is being read, how far it is and what it waits for: TABLES, or all that are not complete.

    Without the daemon it shows what the log says. Exit code 1 when a named table was never read.
    """
    from cdc.cli import snapshot_text
    from cdc.errors import UsageError
    from cdc.inspect.snapshot_state import SnapshotView

    config = configuration(config_path)
    with SnapshotView(config) as view:
        with output.waiting(wait_notice.kafka(config)):
            found, why = _look(config, view)
        chosen = _chosen(found, tables)
        if tables and not chosen:
            raise UsageError("no table that is called so was ever read", command="cdc snapshot list")
        if as_json:
            answers = view.signals.answers if view.signals else ()
            output.show_json({"snapshots": chosen, "daemon": why or None, "signals": list(map(_answer, answers))})
            return 0
        chosen = chosen if tables else [one for one in chosen if one["state"] != "complete"]
        if watch and any(_open(one) for one in chosen):
            return _follow(config, view, {one["table"]: one["number"] for one in chosen}, as_json=False)
    if why:
        output.note(f"{why}; this is what the log says")
    if chosen:
        output.show_table(snapshot_text.table(chosen))
        for line in snapshot_text.reasons(chosen):
            output.note(line)
    else:
        output.done("every snapshot is complete" if found else "no table was read yet")
    return 0


@group.command("list")
@config_option
@json_option
def list_command(config_path: Path | None, as_json: bool) -> None:
    """Show every table that was read or is being read."""
    from cdc.cli import snapshot_text
    from cdc.inspect.snapshot_state import SnapshotView

    config = configuration(config_path)
    with SnapshotView(config) as view, output.waiting(wait_notice.kafka(config)):
        found, _ = _look(config, view)
    if as_json:
        output.show_json({"snapshots": found})
    elif found:
        output.show_table(snapshot_text.table(found))
    else:
        output.note("no table was read yet")


def _look(config: Config, view: SnapshotView) -> tuple[list[dict[str, Any]], str]:
    """Every table, and why the daemon said nothing. Raises TopicMismatch when capture never ran."""
    from cdc.errors import TopicMismatch
    from cdc.inspect.snapshot_state import never_ran, tables

    try:
        view.look()
    except TopicMismatch as error:
        raise never_ran(config, error) from error
    return tables(config, view)


def _steer(action: Action, tables: tuple[str, ...], config_path: Path | None, *, no_wait: bool, as_json: bool) -> int:
    from snapshot.signal_parsing import Signal

    signal = Signal(uuid.uuid4().hex, action, tables)
    return _ask(configuration(config_path), signal, no_wait=no_wait, as_json=as_json)


def _ask(config: Config, signal: Signal, *, no_wait: bool, as_json: bool, follow: bool = False) -> int:
    """Write a signal, say what became of it, and with `follow` wait until the tables are read."""
    from cdc.clock import SystemClock
    from cdc.errors import EXIT_FAILED, EXIT_OK, CutNotReached, UsageError
    from cdc.inspect.snapshot_state import SnapshotView, ask, await_answer

    if not config.signals.enabled:
        raise UsageError(
            "capture does not read signals: [signals] enabled is false",
            hint="set it to true, restart capture, and run the command again",
        )
    with output.waiting(wait_notice.kafka(config)):
        offset = ask(config, signal)
    if no_wait:
        if as_json:
            output.show_json({"offset": offset, "answer": None})
        else:
            output.done(f"asked for; `cdc snapshot status` says how far it is (signal {offset})")
        return EXIT_OK
    with SnapshotView(config) as view:
        with output.waiting(f"waiting for capture to answer, for at most {_ANSWER_S:.0f} s"):
            answer = await_answer(view, offset, _ANSWER_S, SystemClock())
        if answer is None:
            raise CutNotReached(
                f"nobody has acted on the signal within {_ANSWER_S:.0f} s",
                hint="it stays: capture acts on it as soon as it runs",
                command="cdc status",
                offset=offset,
            )
        code = EXIT_FAILED if answer.refused else EXIT_OK
        if as_json and not follow:
            output.show_json({"offset": offset, "answer": _answer(answer)})
            return code
        if not as_json:
            _say(signal, answer)
        if follow and answer.done:
            numbers = {name: view.records[name].number for name in answer.done if name in view.records}
            code = max(code, _follow(config, view, numbers, as_json=as_json))
        if as_json:
            found, _ = _look(config, view)
            chosen = [one for one in found if one["table"] in answer.done]
            output.show_json({"offset": offset, "answer": _answer(answer), "snapshots": chosen})
        return code


def _say(signal: Signal, answer: SignalAnswer) -> None:
    done = {"start": "begun", "pause": "paused", "resume": "goes on", "stop": "stopped"}[signal.action]
    for name in answer.done:
        (output.note if signal.action == "start" else output.done)(f"{name}: {done}")
    for name, why in answer.refused.items():
        output.refused(f"{name}: {why}" if name else why)


def _follow(config: Config, view: SnapshotView, numbers: Mapping[str, int], *, as_json: bool) -> int:
    """Show how far tables are until none of these snapshots goes on. 1 when one of them was stopped or is paused."""
    from cdc.cli.snapshot_bars import Bars
    from cdc.clock import SystemClock
    from cdc.errors import EXIT_FAILED, EXIT_OK

    clock, never = SystemClock(), threading.Event()
    try:
        with Bars(clock, every_s=_LINE_S, quiet=as_json) as bars:
            while True:
                found, why = _look(config, view)
                mine = [one for one in found if numbers.get(one["table"]) == one["number"]]
                bars.show(mine, why)
                gone = numbers.keys() - {one["table"] for one in mine}
                ended = {one["table"]: one["state"] for one in mine if not _open(one)} | dict.fromkeys(gone, "replaced")
                if len(ended) == len(numbers):
                    break
                clock.wait(never, _LOOK_S)
    except KeyboardInterrupt:
        output.note("the snapshot goes on without you; `cdc snapshot status` says how far it is")
        return EXIT_FAILED
    if not as_json:
        _say_ended(mine, view, ended)
    return EXIT_OK if all(state == "complete" for state in ended.values()) else EXIT_FAILED


def _say_ended(mine: Sequence[Mapping[str, Any]], view: SnapshotView, ended: Mapping[str, str]) -> None:
    for one in mine:
        if one["state"] == "complete":
            output.done(f"{one['table']}: {one['rows']:,} rows, {output.size(one['bytes'])}")
        else:
            output.refused(f"{one['table']}: {one['state']}")
    for name in sorted(ended.keys() - {one["table"] for one in mine}):
        output.refused(f"{name}: somebody began another snapshot of it ({view.records[name].number})")


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


def _check_where(where: str | None) -> None:
    """Say at once what capture would refuse anyway."""
    from cdc.errors import UsageError
    from snapshot.condition import ConditionError, parse

    if where is None:
        return
    try:
        parse(where)
    except ConditionError as error:
        raise UsageError(
            f"--where cannot be read: {error}",
            hint="comparisons of columns with literals (=, <>, <, <=, >, >=, IN, BETWEEN, IS NULL), AND, OR, NOT",
            command="cdc snapshot start public.orders --where \"id >= 100 and status = 'open'\"",
        ) from None


def _keys(path: Path | None, where: str | None) -> tuple[bytes, ...]:
    from cdc.errors import UsageError
    from snapshot.signal_parsing import KEYS_BYTES_MAX, KEYS_MAX, SignalError, key_of

    if path is None:
        return ()
    if where is not None:
        raise UsageError("--where and --keys both say which rows", hint="give one of them")
    read: Callable[[], bytes] = sys.stdin.buffer.read if str(path) == "-" else path.read_bytes
    try:
        lines = read().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="--keys FILE") from error
    keys: dict[bytes, None] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                keys[key_of(line)] = None
            except SignalError as error:
                raise UsageError(f"line {number} of {path}: {error}", hint='one object a line, as {"id":7}') from None
    if not keys or len(keys) > KEYS_MAX or sum(map(len, keys)) > KEYS_BYTES_MAX:
        raise UsageError(
            f"{path} has {len(keys)} keys; 1 to {KEYS_MAX}, of {output.size(KEYS_BYTES_MAX)} at most, are taken",
            hint="more rows are read by --where, or by more than one file",
        )
    return tuple(keys)
