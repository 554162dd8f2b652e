"""`cdc why`: names the cause of a lag, a stop or a growing slot, with its evidence and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, json_option

_STYLES: Final = {"stopped": "bold red", "slow": "bold yellow", "risk": "yellow"}


@click.command("why")
@click.argument("part", required=False, default="")
@config_option
@json_option
def command(part: str, config_path: Path | None, as_json: bool) -> int:
    """Name the cause of a lag, a stop or a growing slot, with evidence.

    PART is `capture`, `snapshot` or the name of a sink (default: all). Reads capture, PostgreSQL, Kafka and the
    stores of sinks for at most ten seconds, and works while any of them is down. The first cause is the root; those
    below it may follow from it. Exit code 0 when nothing is wrong, 3 when an operator must act, else 1.
    """
    from cdc.why.diagnosis import check_part, diagnosis, exit_code

    config = configuration(config_path)
    check_part(config, part)
    with output.waiting("reading capture, PostgreSQL, Kafka and the stores, for at most 10 s"):
        found = diagnosis(config, part=part)
    if as_json:
        output.show_json(found)
    else:
        _show(found)
    return exit_code(found)


def _show(found: dict[str, Any]) -> None:
    out = output.console()
    causes = found["causes"]
    if found["healthy"]:
        out.print(Text(output.plain(found["says"]), style="green"))
    elif causes:
        _first(causes[0])
    others = causes if found["healthy"] else causes[1:]
    if others:
        out.print()
    for one in others:
        _other(one)
    out.print()
    for line in found["checked"]:
        out.print(Text.assemble(("read      ", "dim"), output.plain(line)))
    for one in found["unread"]:
        out.print(Text.assemble(("not read  ", "yellow"), output.plain(f"{one['what']}: {one['why']}")))


def _first(cause: dict[str, Any]) -> None:
    out = output.console()
    out.print(Text.assemble((f"{cause['code']}", _STYLES[cause["level"]]), f": {output.plain(cause['says'])}"))
    for fact in cause["evidence"]:
        out.print(f"    {output.plain(fact)}")
    for label, text in (("hint", output.plain(cause["hint"])), ("try", output.statement(cause["command"]))):
        if text:
            out.print(Text.assemble((f"{label:>4}", "cyan"), ": ", (text, "bold" if label == "try" else "")))
    out.print(Text.assemble(("page", "cyan"), f": {cause['page']}"))


def _other(cause: dict[str, Any]) -> None:
    """Print a further cause on one line, and what helps on a second."""
    out = output.console()
    text = f": {output.plain(cause['says'])}"
    out.print(
        Text.assemble("also ", (cause["code"], _STYLES[cause["level"]]), f" ({output.plain(cause['part'])})", text)
    )
    if cause["command"]:
        out.print(Text.assemble("     ", ("try", "cyan"), ": ", (output.statement(cause["command"]), "bold")))
