"""`cdc doctor`: checks the prerequisites of capture and sinks, and prints how to repair them."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, configurations, json_option
from cdc.cli.finding_text import show_finding
from cdc.command_text import choose_pipeline
from cdc.config.settings import Config
from cdc.errors import EXIT_OK, EXIT_OPERATOR

if TYPE_CHECKING:
    from cdc.doctor.finding import Finding
    from cdc.startup.judgement import Verdict


@click.command("doctor")
@click.option("--sql", "as_sql", is_flag=True, help="Print a SQL script for a DBA: role, grants, publication, slot.")
@click.option("-q", "--quiet", is_flag=True, help="Show only warnings and errors.")
@config_option
@json_option
def command(as_sql: bool, quiet: bool, config_path: Path | None, as_json: bool) -> int:
    """Check source, broker and sinks; print how to repair them. Without --pipeline, of every pipeline of the file.

    Changes nothing. Also reports whether `cdc run` would start, by the same rules as the start itself. Exit code 0
    when capture can run (warnings included), 3 when an operator must act first.
    """
    from cdc.doctor.examine import examine

    if as_sql:
        _print_script(configuration(config_path))
        return EXIT_OK
    configs = configurations(config_path)
    documents, codes = {}, []
    for name, config in configs.items():
        if name:
            choose_pipeline(name)
        with output.waiting(f"checking source, broker and sinks{f' of the pipeline {name}' if name else ''}"):
            findings, verdict = examine(config)
        documents[name] = _document(findings, verdict)
        failed = verdict.stops or any(finding.level == "error" for finding in findings)
        codes.append(EXIT_OPERATOR if failed else EXIT_OK)
        if not as_json:
            if name:
                output.console().print(Text(f"pipeline {output.plain(name)}", style="bold underline"))
            _show(findings, verdict, config, quiet=quiet)
    if as_json:
        output.show_json(documents.get("", {"pipelines": documents}))
    return max(codes)


def _print_script(config: Config) -> None:
    from cdc.doctor.examine import examine_source
    from cdc.doctor.gather import APPLICATION_NAME
    from cdc.doctor.script import script
    from cdc.publish.topic_setup import REPAIR
    from cdc.startup.start_facts import forecast_start

    facts, findings = examine_source(config)
    repair = ""
    if facts is not None:
        error = forecast_start(config, application_name=APPLICATION_NAME).verdict.error
        repair = REPAIR if error is not None and error.command == REPAIR else ""
    else:
        output.note(f"cannot read the source ({findings[0].message}); the script lacks the parts that need its tables")
    output.show_script(script(config, facts, findings, repair=repair))


def _show(findings: list[Finding], verdict: Verdict, config: Config, *, quiet: bool) -> None:
    out = output.console()
    titles = {
        "start": config.name,
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
            show_finding(finding)
        if shown:
            out.print()
    out.print(_verdict(findings, verdict))


def _verdict(findings: list[Finding], verdict: Verdict) -> Text:
    counts = {level: sum(finding.level == level for finding in findings) for level in ("error", "warning")}
    styles = {"error": "bold red", "warning": "yellow"}
    counted = [Text(_count(count, level), style=styles[level]) for level, count in counts.items() if count]
    groups = {finding.group for finding in findings if finding.level == "error"}
    if not counted and verdict.runs:
        return Text("ready: `cdc run` can start", style="green")
    text = Text(", ").join(counted).append(": " if counted else "")
    if verdict.state is not None:
        waits = "wait until the process that reads the slot ends" if verdict.rule == "slot" else "wait"
        text.append(f"`cdc run` would {waits if verdict.waits else f'stop in state {verdict.state.value}'}")
    elif groups == {"sinks"}:
        text.append("`cdc run` can start; a sink cannot run yet")
    else:
        text.append("`cdc run` can start" + ("; correct the errors first" if groups else ""))
    if "source" in groups:
        text.append("; `cdc doctor --sql` prints a script for a DBA")
    return text


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _document(findings: list[Finding], verdict: Verdict) -> dict[str, object]:
    error = verdict.error
    return {
        "ok": not verdict.stops and all(finding.level != "error" for finding in findings),
        "start": {
            "runs": verdict.runs,
            "state": verdict.state.value if verdict.state is not None else None,
            "message": error.message if error is not None else None,
            "hint": error.hint if error is not None else None,
            "command": error.command if error is not None else None,
        },
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
