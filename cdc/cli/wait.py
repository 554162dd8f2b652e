"""`cdc wait`: read your own writes. Wait until a sink holds everything up to an LSN."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import click

from cdc.cli import output
from cdc.cli.options import config_option, configuration, json_option

_POLL_S: Final = 0.05


@click.command("wait")
@click.option("--sink", required=True, help="The sink that is waited for.")
@click.option("--lsn", "lsn_text", required=True, help="After your COMMIT: select pg_current_wal_insert_lsn().")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds.")
@config_option
@json_option
def command(sink: str, lsn_text: str, timeout_s: float, config_path: Path | None, as_json: bool) -> int:
    """Wait until a sink holds every transaction that committed before an LSN.

    Exit code 0 when it does, 1 when the time is up.
    """
    from cdc.app import sink_settings
    from cdc.clock import SystemClock
    from cdc.errors import EXIT_OK, SinkBehind, UsageError
    from cdc.lsn import Lsn
    from sinks.warehouse.manifest import ManifestStore

    config = configuration(config_path)
    try:
        lsn = Lsn.parse(lsn_text).before_header()
    except ValueError as error:
        raise UsageError(f"{lsn_text!r} is no LSN", hint="as 0/1B014F8") from error
    store = ManifestStore(Path(sink_settings(config, sink).path))
    clock, never = SystemClock(), threading.Event()
    began_s = clock.monotonic_s()
    while True:
        current = store.current()
        waited_s = clock.monotonic_s() - began_s
        if current is not None and current.end_lsn >= lsn:
            break
        if waited_s >= timeout_s:
            at = Lsn(current.end_lsn) if current else None
            raise SinkBehind(
                f"sink {sink!r} is at {at or 'its beginning'} and not at {lsn} after {waited_s:.0f} s",
                hint="do capture and the sink run?",
                command="cdc status",
                lsn=lsn,
            )
        clock.wait(never, _POLL_S)
    if as_json:
        output.show_json({"sink": sink, "lsn": str(Lsn(current.end_lsn)), "cut": current.cut, "waited_s": waited_s})
    else:
        output.done(f"{sink} is at {Lsn(current.end_lsn)} (cut {current.cut}), after {waited_s:.1f} s")
    return EXIT_OK
