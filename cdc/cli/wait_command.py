"""`cdc wait`: waits until a sink holds everything up to an LSN, so that a program reads its own writes."""

from __future__ import annotations

from pathlib import Path

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.errors import EXIT_OK


@click.command("wait")
@click.option("--sink", required=True, help="Sink to wait for.")
@click.option(
    "--lsn", "lsn_text", required=True, help="LSN to wait for; after COMMIT: select pg_current_wal_insert_lsn()."
)
@click.option("--key", "key_text", help="Fail if a dead letter blocks this key, e.g. '{\"id\":7}'  [default: any key].")
@click.option("--table", help="Table of the key, e.g. public.orders  [default: any].")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds to wait."
)
@config_option
@json_option
def command(
    sink: str, lsn_text: str, key_text: str | None, table: str | None, timeout_s: float, config_path: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Wait until a sink holds all transactions committed before an LSN.

    Exit code 0 when it holds them and readers see them, 1 when the time is up, 3 when a dead letter blocks the key.
    The same is available as GET /sinks/SINK/wait?lsn=LSN of the daemon, and as `cdc.client` for Python.
    """
    from cdc.client import Waiter

    waiting = output.waiting(f"waiting for {sink} to reach {lsn_text}, for at most {timeout_s:g} s")
    with Waiter(configuration(config_path)) as waiter, waiting:
        found = waiter.wait(sink, lsn_text, key=key_text, table=table, timeout_s=timeout_s)
    if as_json:
        blocked = [{"table": of, "key": key} for of, key in found.blocked]
        document = {"sink": sink, "lsn": found.lsn, "cut": found.cut, "waited_s": found.waited_s, "blocked": blocked}
        output.show_json(document)
    else:
        for of, key in found.blocked:
            output.note(f"{of}: a dead letter blocks {key}; {sink} has an older row")
        output.done(f"{sink} has reached {found.lsn} (cut {found.cut}) after {found.waited_s:.1f} s")
    return EXIT_OK
