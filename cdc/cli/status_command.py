"""`cdc status`: shows state, lag, slot and sinks, from the daemon and from both servers."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cdc.cli import output, sink_lines, status_text, wait_notice
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.clock import Clock, SystemClock
from cdc.config.settings import Config

if TYPE_CHECKING:
    from cdc.inspect.pipeline_state import PipelineObserver, PipelineView

_WATCH_S: Final = 1.0
_SECOND_READ_S: Final = 1.0
_SINKS_S: Final = 5.0


@click.command("status")
@click.option("-w", "--watch", is_flag=True, help="Update every second until Ctrl-C.")
@config_option
@json_option
def command(watch: bool, config_path: Path | None, as_json: bool) -> int:
    """Show the state of capture, its slot and its sinks.

    Asks the daemon (http.listen), PostgreSQL and Kafka, and shows what the reachable ones answer. "next start" is how
    `cdc run` would end now, by the same rules as the start itself. Exit code 3 when the state or the next start needs
    an operator; 1 when nothing answers or a sink has no live worker.
    """
    from cdc.inspect.pipeline_state import PipelineObserver

    config = configuration(config_path)
    clock = SystemClock()
    observer = PipelineObserver(config, clock)
    reader = _StatusReader(config, observer, clock)
    try:
        if watch:
            return _watch(reader, clock, as_json=as_json)
        with output.waiting(f"{wait_notice.source(config)} and {wait_notice.kafka(config)}"):
            found = reader.take(patient=True)
    finally:
        observer.close()
    if as_json:
        output.show_json(found)
    else:
        output.show_table(sink_lines.with_sinks(status_text.lines(found), found))
    return sink_lines.exit_code(status_text.exit_code(found), found)


class _StatusReader:
    """Reads the state repeatedly; the rate at which WAL is written is computed between two reads."""

    def __init__(self, config: Config, observer: PipelineObserver, clock: Clock) -> None:
        self._config = config
        self._observer = observer
        self._clock = clock
        self._before: PipelineView | None = None
        self._sinks: list[dict[str, Any]] | None = None
        self._sinks_s = 0.0

    def take(self, *, patient: bool = False) -> dict[str, Any]:
        """Return the document of one read.

        `patient`: read twice when the time until the slot is lost can only be computed from two reads.
        """
        view = self._observer.read()
        if patient and view.daemon is None and view.source is not None and view.source.slot.safe_wal_size is not None:
            self._before = view
            self._clock.wait(threading.Event(), _SECOND_READ_S)
            view = self._observer.read()
        moment = status_text.Moment(self._clock.wall_s(), _wal_rate(self._before, view))
        self._before = view
        found = status_text.document(self._config, view, moment)
        return {**found, "sinks": self._sinks_of(view)}

    def _sinks_of(self, view: PipelineView) -> list[dict[str, Any]] | None:
        """Like `sink_lines.sinks_of`, but skips Kafka while it does not answer, and asks it only every few seconds."""
        now_s = self._clock.monotonic_s()
        if view.daemon is None or "sinks" not in view.daemon:
            if "kafka" in view.missing:
                return None if self._config.sinks else []
            if self._sinks is not None and now_s - self._sinks_s < _SINKS_S:
                return self._sinks
        self._sinks, self._sinks_s = sink_lines.sinks_of(self._config, view.daemon), now_s
        return self._sinks


def _wal_rate(before: PipelineView | None, now: PipelineView) -> float | None:
    if before is None or before.source is None or now.source is None or now.source.at_s <= before.source.at_s:
        return None
    return max(0, now.source.current_lsn - before.source.current_lsn) / (now.source.at_s - before.source.at_s)


def _watch(reader: _StatusReader, clock: Clock, *, as_json: bool) -> int:
    """Read until Ctrl-C: update in place on a terminal; with --json print one compact document per line."""
    with output.waiting("reading the state"):
        found = reader.take()
    never = threading.Event()
    try:
        if as_json or not sys.stdout.isatty():
            while True:
                if as_json:
                    click.echo(json.dumps(found, ensure_ascii=False))
                else:
                    output.show_table(sink_lines.with_sinks(status_text.lines(found), found))
                clock.wait(never, _WATCH_S)
                found = reader.take()
        from rich.live import Live

        with Live(
            sink_lines.with_sinks(status_text.lines(found), found), console=output.console(), auto_refresh=False
        ) as live:
            live.refresh()
            while True:
                clock.wait(never, _WATCH_S)
                found = reader.take()
                live.update(sink_lines.with_sinks(status_text.lines(found), found), refresh=True)
    except KeyboardInterrupt:
        return sink_lines.exit_code(status_text.exit_code(found), found)
