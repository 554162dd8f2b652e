"""`cdc doctor`: is everything ready, and if not, what mends it."""

from __future__ import annotations

import textwrap
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from cdc.cli import output
from cdc.cli.options import config_option, configuration, json_option

if TYPE_CHECKING:
    from cdc.config.settings import Config
    from cdc.doctor.finding import Finding

_MARKS: Final = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "bold red")}


@click.command("doctor")
@click.option("--sql", "as_sql", is_flag=True, help="Print the script a DBA runs: role, grants, publication, slot.")
@click.option("-q", "--quiet", is_flag=True, help="Only what needs attention.")
@config_option
@json_option
def command(as_sql: bool, quiet: bool, config_path: Path | None, as_json: bool) -> int:
    """Check source, broker and sinks; say what to mend, and how. Changes nothing.

    Exit code 0 when capture can run (warnings included), 3 when something must be done first.
    """
    from cdc.doctor.examine import examine
    from cdc.errors import EXIT_OK, EXIT_OPERATOR

    config = configuration(config_path)
    if as_sql:
        _print_script(config)
        return EXIT_OK
    with output.waiting("looking at source, broker and sinks"):
        findings = examine(config)
    error_count = sum(finding.level == "error" for finding in findings)
    if as_json:
        output.show_json(_document(findings))
    else:
        _show(findings, config, quiet=quiet)
    return EXIT_OPERATOR if error_count else EXIT_OK


def _print_script(config: Config) -> None:
    from cdc.doctor.examine import examine_source
    from cdc.doctor.script import script

    facts, findings = examine_source(config)
    if facts is None:
        output.note(f"the source cannot be looked at ({findings[0].message}); what needs its tables is left out")
    output.show_script(script(config, facts, findings))


def _show(findings: list[Finding], config: Config, *, quiet: bool) -> None:
    out = output.console()
    titles = {
        "source": config.source.dsn.masked(),
        "tables": ", ".join(config.source.tables),
        "broker": config.kafka.bootstrap,
        "registry": config.registry.url,
        "sinks": ", ".join(sorted(config.sinks)),
    }
    for group, members in groupby(findings, key=lambda finding: finding.group.value):
        shown = [finding for finding in members if not quiet or finding.level != "ok"]
        if shown:
            out.print(Text.assemble((group, "bold"), "  ", (output.plain(titles[group]), "dim")))
        for finding in shown:
            _show_finding(finding)
        if shown:
            out.print()
    out.print(_verdict(findings))


def _show_finding(finding: Finding) -> None:
    """The message wraps under itself; statements do not wrap, so that they can be copied."""
    out = output.console()
    mark, style = _MARKS[finding.level]
    width = max(40, out.width - 4) if out.is_terminal else 10_000
    first, *others = textwrap.wrap(output.plain(finding.message), width) or [""]
    out.print(Text.assemble("  ", (mark, style), " ", first))
    for line in others:
        out.print(f"    {line}")
    for label, text in (("sql", finding.sql), ("or" if finding.sql else "try", finding.command)):
        for number, line in enumerate(output.statement(text).splitlines()):
            out.print(Text.assemble((f"    {label if number == 0 else '':>5}  ", "cyan"), line))


def _verdict(findings: list[Finding]) -> Text:
    counts = {level: sum(finding.level == level for finding in findings) for level in ("error", "warning")}
    styles = {"error": "bold red", "warning": "yellow"}
    said = [Text(_count(count, level), style=styles[level]) for level, count in counts.items() if count]
    if not said:
        return Text("ready: `cdc run` can start", style="green")
    text = Text(", ").join(said)
    if not counts["error"]:
        return text.append(": `cdc run` can start")
    groups = {finding.group for finding in findings if finding.level == "error"}
    text.append(": a sink cannot run yet" if groups == {"sinks"} else ": capture cannot start yet")
    if "source" in groups:
        text.append("; `cdc doctor --sql` prints a script for a DBA")
    return text


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _document(findings: list[Finding]) -> dict[str, object]:
    return {
        "ok": all(finding.level != "error" for finding in findings),
        "errors": sum(finding.level == "error" for finding in findings),
        "warnings": sum(finding.level == "warning" for finding in findings),
        "findings": [
            {
                "group": finding.group.value,
                "level": finding.level.value,
                "check": finding.check,
                "message": finding.message,
                "table": finding.table or None,
                "sql": finding.sql or None,
                "command": finding.command or None,
            }
            for finding in findings
        ],
    }
