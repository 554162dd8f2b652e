"""`cdc state`: moves a pipeline to another Kafka cluster, whose topics were copied."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdc.cli import output, wait_notice
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.clock import SystemClock
from cdc.errors import UsageError
from cdc.lsn import Lsn
from cdc.model import state_file, units

if TYPE_CHECKING:
    from cdc.startup.state_import import StateImport

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group("state")
def group() -> None:
    """Move a pipeline to another Kafka cluster.

    The topics must be copied by another program; see the guide "Replace Kafka".
    """


@group.command("export")
@click.argument("file", type=_FILE)
@config_option
@json_option
def export_command(file: Path, config_path: Path | None, as_json: bool) -> None:
    """Write position, identity and digests of the topics to FILE.

    Stop capture first. The command reads all topics of the pipeline. FILE must not exist; it has no row values and no
    secrets.
    """
    from cdc.startup.state_export import export_state

    config = configuration(config_path)
    if file.exists():
        raise UsageError(f"{file} exists already", hint="choose another name")
    with output.waiting(wait_notice.source(config)):
        state = export_state(config, SystemClock(), _reads)
    lines = list(state_file.encode(state))
    unfinished = file.with_name(f"{file.name}.unfinished")
    with unfinished.open("wb") as out:
        out.writelines(lines)
        out.flush()
        os.fsync(out.fileno())
    unfinished.replace(file)
    topics = len({digest.topic for digest in state.digests})
    if as_json:
        output.show_json({"file": str(file), "records": len(state.records), "topics": topics})
    else:
        output.done(
            f"wrote {file}: {units.count(len(state.records), 'record')}, digests of {units.count(topics, 'topic')}"
        )


@group.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--dry-run", is_flag=True, help="Check everything, print the plan, change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
@json_option
def import_command(file: Path, dry_run: bool, yes: bool, config_path: Path | None, as_json: bool) -> None:
    """Let capture continue on the configured cluster, from FILE.

    The command reads all copied topics and compares them with the digests in FILE. It refuses unless every topic is a
    complete copy, and the slot still has everything after the position. Then it writes the position in one transaction.
    """
    from cdc.startup.state_import import StateImport

    config = configuration(config_path)
    state = state_file.decode(file.read_bytes())
    with closing(StateImport(config, SystemClock(), state, _reads)) as moved:
        for line in _plan(moved, state.exported_at):
            output.note(line)
        if dry_run:
            if as_json:
                output.show_json(_document(moved, imported=False))
            else:
                output.done("everything fits; nothing was changed")
            return
        again = f"cdc state import {file} --yes"
        if not output.confirm(f"Continue {config.name} on this cluster?", yes=yes):
            raise UsageError("nothing was changed", hint="answer y, or pass --yes", command=again)
        done = moved.run()
        if as_json:
            output.show_json(_document(moved, imported=True))
        else:
            output.done(f"the log continues at {done.at} in epoch {done.epoch}; start it with `cdc run`")


def _reads(topic: str) -> None:
    output.note(f"reading {output.plain(topic)}")


def _plan(moved: StateImport, exported_at: str) -> list[str]:
    records = sum(moved.topics.values())
    return [
        f"state exported at {exported_at}; {len(moved.topics)} topics with {records:,} records are complete copies",
        f"capture will continue at {moved.position.end_lsn}; the slot has everything after it",
        f"the log will continue in epoch {moved.epoch}, with a new cut index",
        "search and cache sinks must be rebuilt, a lake needs another folder",
    ]


def _document(moved: StateImport, *, imported: bool) -> dict[str, object]:
    return {
        "imported": imported,
        "epoch": moved.epoch,
        "position": str(Lsn(moved.position.end_lsn)),
        "topics": dict(moved.topics),
    }
