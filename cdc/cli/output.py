"""Prints for all commands: results on stdout, the rest on stderr, tables for people, one JSON document for programs.

Names come from databases and may hold anything: nothing here is parsed as markup, and control characters are escaped.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from cdc.errors import TailraceError

WHERE: Final = ("slot", "publication", "table", "topic", "lsn", "pid")
"""Facts of an error that locate it, in the order in which they are printed, unless the message has them."""

_LATE_S: Final = 3.0  # then the log of a script shows what the command waits for
_LASTING: Final = frozenset({"GAP", "DIVERGED", "FENCED"})  # states shown in errors of every command
# Control characters, and marks of text direction, which can make one name look like another.
_HIDDEN: Final = (*range(32), *range(127, 160), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_VISIBLE: Final = {code: repr(chr(code))[1:-1] for code in _HIDDEN}
_VISIBLE_SQL: Final = {code: text for code, text in _VISIBLE.items() if chr(code) not in "\t\n"}


def plain(text: str) -> str:
    """Return `text` on one line, control characters escaped."""
    return text.translate(_VISIBLE)


def statement(text: str) -> str:
    """Like `plain`, for SQL and commands, which may have several lines."""
    return text.translate(_VISIBLE_SQL)


def console(*, stderr: bool = False) -> Console:
    """Return a console on the current stdout or stderr; plain text if that is not a terminal."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def show_json(value: object) -> None:
    """Print one document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def show_script(text: str) -> None:
    """Print SQL: as by `statement` on a terminal, byte for byte elsewhere."""
    # Not click.echo: it strips escape sequences, which a name may hold.
    sys.stdout.write(statement(text) if sys.stdout.isatty() else text)


def note(text: str) -> None:
    """Print a line for people on stderr."""
    console(stderr=True).print(Text(plain(text), style="dim"))


def done(text: str) -> None:
    """Print a line on stdout that reports a success."""
    console().print(Text.assemble(("✓ ", "green"), plain(text)))


def refused(text: str) -> None:
    """Print a line on stderr that reports a failure."""
    console(stderr=True).print(Text.assemble(("✗ ", "red"), plain(text)))


def show_error(error: TailraceError, *, as_json: bool = False) -> None:
    """Print on stderr what failed, where, a hint, and a command to try."""
    if as_json:
        click.echo(json.dumps({"error": as_document(error)}, indent=2, ensure_ascii=False), err=True)
        return
    out = console(stderr=True)
    state = f" {error.state}" if error.state in _LASTING else ""
    out.print(Text.assemble((f"error{state}", "bold red"), ": ", plain(error.message)))
    where = [
        f"{name} {value}" for name in WHERE if (value := error.facts.get(name)) and str(value) not in error.message
    ]
    for label, text in (("where", ", ".join(map(plain, where))), ("hint", plain(error.hint))):
        if text:
            out.print(Text.assemble((f"{label:>5}", "cyan"), ": ", text))
    if error.command:
        out.print(Text.assemble(("  try", "cyan"), ": ", (statement(error.command), "bold")))


def as_document(error: TailraceError) -> dict[str, object]:
    """Return an error for programs; facts are text unless they are numbers."""
    facts = {name: _json_value(value) for name, value in error.facts.items() if value is not None}
    return {
        "class": type(error).__name__,
        "message": error.message,
        "state": error.state,
        "hint": error.hint,
        "command": error.command,
        "exit_code": error.exit_code,
        "facts": facts,
    }


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table in the style of all commands; `right` names the columns of numbers."""
    made = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def show_table(made: RenderableType) -> None:
    """Print a table on stdout; not limited in width unless stdout is a terminal."""
    out = Console(highlight=False, markup=False, emoji=False)
    if not out.is_terminal:
        out = Console(highlight=False, markup=False, emoji=False, width=400)
    out.print(made)


def confirm(question: str, *, yes: bool) -> bool:
    """Ask on the terminal; `yes` answers for a script. Without either the answer is no."""
    if yes:
        return True
    if not sys.stdin.isatty():
        return False
    return click.confirm(plain(question), default=False, err=True)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on stderr what the command waits for: a spinner on a terminal, else one line after a few seconds."""
    out = console(stderr=True)
    if not out.is_terminal:
        late = threading.Timer(_LATE_S, note, (f"{what} ...",))
        late.daemon = True
        late.start()
        try:
            yield
        finally:
            late.cancel()
        return
    with out.status(Text(f"{plain(what)} ...", style="dim")):
        yield


def _json_value(value: object) -> object:
    if type(value) in {bool, int, float, str}:
        return value
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_json_value(item) for item in value]
    return str(value)
