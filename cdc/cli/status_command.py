"""`cdc status`: the state, the lag and the slot, from the daemon and from both servers."""

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

if TYPE_CHECKING:
    from cdc.config.settings import Config
    from cdc.inspect.pipeline_state import PipelineObserver, PipelineView

_WATCH_S: Final = 1.0
_SECOND_LOOK_S: Final = 1.0
_SINKS_S: Final = 5.0


@click.command("status")
@click.option("-w", "--watch", is_flag=True, help="Look again every second until Ctrl-C.")
@config_option
@json_option
def command(watch: bool, config_path: Path | None, as_json: bool) -> int:
    """Show state, position, lag, flow, the slot and the sinks.

    Asks the daemon (http.listen), PostgreSQL and Kafka, and shows what those that answer say. "next start" is what
    `cdc run` would end in now, judged as its start judges. Exit code 3 when the state, or the next start, needs an
    operator; 1 when nothing answers or a sink is not alive.
    """
    from cdc.inspect.pipeline_state import PipelineObserver

    config = configuration(config_path)
    clock = SystemClock()
    observer = PipelineObserver(config, clock)
    looks = _Looks(config, observer, clock)
    try:
        if watch:
            return _watch(looks, clock, as_json=as_json)
        with output.waiting(f"{wait_notice.source(config)} and {wait_notice.kafka(config)}"):
            found = looks.take(patient=True)
    finally:
        observer.close()
    if as_json:
        output.show_json(found)
    else:
        output.show_table(sink_lines.with_sinks(status_text.lines(found), found))
    return sink_lines.exit_code(status_text.exit_code(found), found)


class _Looks:
    """Looks, one after the other: the rate at which WAL is written shows between two of them."""

    def __init__(self, config: Config, observer: PipelineObserver, clock: Clock) -> None:
        self._config = config
        self._observer = observer
        self._clock = clock
        self._before: PipelineView | None = None
        self._sinks: list[dict[str, Any]] | None = None
        self._sinks_s = 0.0

    def take(self, *, patient: bool = False) -> dict[str, Any]:
        """The document of one look; `patient` looks twice when only that shows how long the slot will last."""
        view = self._observer.look()
        if patient and view.daemon is None and view.source is not None and view.source.slot.safe_wal_size is not None:
            self._before = view
            self._clock.wait(threading.Event(), _SECOND_LOOK_S)
            view = self._observer.look()
        moment = status_text.Moment(self._clock.wall_s(), _wal_rate(self._before, view))
        self._before = view
        found = status_text.document(self._config, view, moment)
        return {**found, "sinks": self._sinks_of(view)}

    def _sinks_of(self, view: PipelineView) -> list[dict[str, Any]] | None:
        """As `sinklines.sinks_of`; Kafka is not asked while it does not answer, and not every second."""
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


def _watch(looks: _Looks, clock: Clock, *, as_json: bool) -> int:
    """Look until Ctrl-C: in place on a terminal, one compact document a line with --json."""
    with output.waiting("looking"):
        found = looks.take()
    never = threading.Event()
    try:
        if as_json or not sys.stdout.isatty():
            while True:
                if as_json:
                    click.echo(json.dumps(found, ensure_ascii=False))
                else:
                    output.show_table(sink_lines.with_sinks(status_text.lines(found), found))
                clock.wait(never, _WATCH_S)
                found = looks.take()
        from rich.live import Live

        with Live(
            sink_lines.with_sinks(status_text.lines(found), found), console=output.console(), auto_refresh=False
        ) as live:
            live.refresh()
            while True:
                clock.wait(never, _WATCH_S)
                found = looks.take()
                live.update(sink_lines.with_sinks(status_text.lines(found), found), refresh=True)
    except KeyboardInterrupt:
        return sink_lines.exit_code(status_text.exit_code(found), found)
