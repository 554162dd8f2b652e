"""The `cdc` command: loads the requested command, runs it, and turns errors into text and an exit code.

Only the requested command is imported, so that ``cdc --help`` is fast; the descriptions for ``--help`` are in
`COMMANDS`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from cdc import __version__
from cdc.cli import output
from cdc.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, InvariantError, TailraceError, UsageError
from cdc.run.extras import missing_extra

COMMANDS: Final[dict[str, str]] = {
    "init": "Write a commented cdc.toml for a database.",
    "doctor": "Check source, broker and sinks; print how to repair them.",
    "config": "Check, show and compare configurations.",
    "reload": "Let running capture read its configuration again.",
    "run": "Capture changes into Kafka until stopped.",
    "status": "Show the state of capture, its slot and its sinks.",
    "top": "Show the flow from the source to the sinks, live.",
    "why": "Name the cause of a lag, a stop or a growing slot, with evidence.",
    "probe": "Check that capture or a sink of this machine is alive, or ready.",
    "tail": "Print events as they are published.",
    "ddl": "List and accept DDL that changed rows without row events.",
    "slot": "List, create, drop and recreate replication slots.",
    "state": "Move a pipeline to another Kafka cluster.",
    "snapshot": "Copy the existing rows of tables into the log.",
    "sink": "Run sinks, show their state, pause and rebuild them.",
    "views": "Query, check, swap and roll back the views of a lake.",
    "verify": "Compare a sink with its topics, and the topics with the source.",
    "audit": "Compare the topics with the counts and hashes in the cut index.",
    "wait": "Wait until a sink holds everything up to an LSN.",
    "history": "Show every version of one row, from a lake.",
    "actions": "Show what operators did to capture, snapshots and sinks.",
    "notify": "Send a test message to the receivers of [notify].",
    "dlq": "List, retry, skip and export the dead letters of a sink.",
    "migrate": "Create and upgrade the outbox tables.",
    "contracts": "Check, record and document event contracts.",
    "inbox": "List, retry and skip the dead letters of event consumers.",
    "dev": "Run servers, capture, all sinks and the page until Ctrl-C.",
    "local": "Run PostgreSQL, Kafka and more on this machine, without Docker.",
}
"""Name -> description in --help. A module ``cdc.cli.<name>_command`` has a click command named `command` or `group`."""


class _Commands(click.Group):
    """The commands, each imported when it is first needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"cdc.cli.{cmd_name}_command")
        found = getattr(module, "command", None) or getattr(module, "group", None)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the closest command for an unknown one. Click knows no command before it is imported."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.exceptions.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with `cdc init`, then `cdc doctor`. Exit codes: 0 ok, 1 failed, 2 usage, 3 needs an operator.",
)
@click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("cdc.toml"),
    show_default=True,
    help="Configuration file.",
)
@click.version_option(__version__, "-V", "--version", prog_name="cdc")
@click.pass_context
def cli(ctx: click.Context, config_path: Path) -> None:
    """Capture PostgreSQL changes into Kafka, in order and exactly once."""
    ctx.obj = config_path


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (`sys.argv` by default), print errors, and return the exit code.

    Raises: InvariantError, after printing it, so that the traceback is shown too.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        result = cli.main(given, prog_name="cdc", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()  # the help as it is, on stderr: `show_error` would escape its line ends
        return EXIT_USAGE
    except click.ClickException as error:
        output.show_error(_usage(error), as_json="--json" in given)
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        output.note("interrupted")
        return EXIT_FAILED
    except TailraceError as error:
        output.show_error(error, as_json="--json" in given)
        if isinstance(error, InvariantError):
            raise
        return error.exit_code
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        output.show_error(missing, as_json="--json" in given)
        return missing.exit_code
    except BrokenPipeError:
        # The reader closed the pipe, as in `cdc tail | head`; write nothing more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    return result if isinstance(result, int) else EXIT_OK


def _usage(error: click.ClickException) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "cdc"
    return UsageError(error.format_message(), command=f"{path} --help")
