"""`cdc status`: shows state, lag, slot and sinks, from the daemon and from both servers."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import click
from rich.console import Group, RenderableType

from cdc.cli import output, sink_lines, status_text, wait_notice
from cdc.cli.command_options import config_option, configurations, json_option
from cdc.cli.status_reader import StatusReader
from cdc.clock import Clock, SystemClock
from cdc.command_text import document_of
from cdc.config.settings import Config

_WATCH_S: Final = 1.0
_AT_ONCE: Final = 8  # each reads PostgreSQL, Kafka and the daemon in threads of its own


@click.command("status")
@click.option("-w", "--watch", is_flag=True, help="Update every second until Ctrl-C.")
@config_option
@json_option
def command(watch: bool, config_path: Path | None, as_json: bool) -> int:
    """Show the state of capture, its slot and its sinks; without --pipeline, of every pipeline of the file.

    Asks the daemon (http.listen), PostgreSQL and Kafka, and shows what the reachable ones answer. "next start" is how
    `cdc run` would end now, by the same rules as the start itself. Exit code 3 when the state or the next start needs
    an operator; 1 when nothing answers or a sink has no live worker. With several pipelines it is the highest of them.
    """
    configs = configurations(config_path)
    with _Pipelines(configs, SystemClock()) as pipelines:
        if watch:
            return _watch(pipelines, as_json=as_json)
        waits = [f"{wait_notice.source(one)} and {wait_notice.kafka(one)}" for one in configs.values()]
        with output.waiting(waits[0] if len(waits) == 1 else f"reading the pipelines {', '.join(configs)}"):
            found = pipelines.take(patient=True)
    if as_json:
        output.show_json(found.document)
    else:
        output.show_table(found.lines)
    return found.exit_code


@dataclass(frozen=True, slots=True)
class _Found:
    """One document for each pipeline by its name; the name of the only one is empty."""

    documents: dict[str, dict[str, Any]]

    @property
    def document(self) -> dict[str, Any]:
        return self.documents.get("", {"pipelines": self.documents})

    @property
    def lines(self) -> RenderableType:
        shown = [sink_lines.with_sinks(status_text.lines(one), one) for one in self.documents.values()]
        between: list[RenderableType] = []
        for one in shown:
            between += [one, ""]
        return Group(*between[:-1])

    @property
    def exit_code(self) -> int:
        """The worst: 3 before 1 before 0."""
        return max(sink_lines.exit_code(status_text.exit_code(one), one) for one in self.documents.values())


class _Pipelines:
    """Reads the state of all chosen pipelines at the same time."""

    def __init__(self, configs: Mapping[str, Config], clock: Clock) -> None:
        from cdc.inspect.pipeline_state import PipelineObserver

        self.clock = clock
        self._observers = {name: PipelineObserver(config, clock) for name, config in configs.items()}
        self._readers = {name: StatusReader(config, self._observers[name], clock) for name, config in configs.items()}
        self._threads = ThreadPoolExecutor(min(len(configs), _AT_ONCE), thread_name_prefix="pipelines")

    def take(self, *, patient: bool = False) -> _Found:
        taken = {name: self._threads.submit(one.take, patient=patient) for name, one in self._readers.items()}
        return _Found({name: document_of(name, future.result()) for name, future in taken.items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()
        for observer in self._observers.values():
            observer.close()


def _watch(pipelines: _Pipelines, *, as_json: bool) -> int:
    """Read until Ctrl-C: update in place on a terminal; with --json print one compact document per line."""
    with output.waiting("reading the state"):
        found = pipelines.take()
    never = threading.Event()
    try:
        if as_json or not sys.stdout.isatty():
            while True:
                if as_json:
                    click.echo(json.dumps(found.document, ensure_ascii=False))
                else:
                    output.show_table(found.lines)
                pipelines.clock.wait(never, _WATCH_S)
                found = pipelines.take()
        from rich.live import Live

        with Live(found.lines, console=output.console(), auto_refresh=False) as live:
            live.refresh()
            while True:
                pipelines.clock.wait(never, _WATCH_S)
                found = pipelines.take()
                live.update(found.lines, refresh=True)
    except KeyboardInterrupt:
        return found.exit_code
