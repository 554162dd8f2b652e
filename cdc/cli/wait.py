"""`cdc wait`: read your own writes. Wait until a sink holds everything up to an LSN."""

from __future__ import annotations

import threading
from pathlib import Path

import click

from cdc.cli import output
from cdc.cli.options import config_option, configuration, json_option


@click.command("wait")
@click.option("--sink", required=True, help="The sink that is waited for.")
@click.option("--lsn", "lsn_text", required=True, help="After your COMMIT: select pg_current_wal_insert_lsn().")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds.")
@config_option
@json_option
def command(sink: str, lsn_text: str, timeout_s: float, config_path: Path | None, as_json: bool) -> int:
    """Wait until a sink holds every transaction that committed before an LSN.

    Exit code 0 when it does, 1 when the time is up. GET /sinks/SINK/wait?lsn=LSN of the daemon does the same.
    """
    from cdc.app import sink_look
    from cdc.clock import SystemClock
    from cdc.config.sinks import lake_of
    from cdc.errors import EXIT_OK, SinkBehind
    from cdc.reach import await_reach, is_at, wanted_lsn

    config = configuration(config_path)
    lsn = wanted_lsn(lsn_text)
    look, clock = sink_look(lake_of(config, sink)), SystemClock()
    began_s = clock.monotonic_s()
    reach = await_reach(look, lsn, timeout_s, clock, threading.Event())
    waited_s = clock.monotonic_s() - began_s
    if reach is None or not is_at(reach, lsn):
        at = reach.end_lsn if reach else "its beginning"
        raise SinkBehind(
            f"sink {sink!r} is at {at} and not at {lsn} after {waited_s:.0f} s",
            hint="do capture and the sink run?",
            command="cdc status",
            lsn=lsn,
        )
    if as_json:
        output.show_json({"sink": sink, "lsn": str(reach.end_lsn), "cut": reach.cut, "waited_s": waited_s})
    else:
        output.done(f"{sink} is at {reach.end_lsn} (cut {reach.cut}), after {waited_s:.1f} s")
    return EXIT_OK
