"""`cdc top`: shows the flow from the source to the sinks in the terminal, live."""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.cli.top_text import Trend, drawn
from cdc.clock import Clock, SystemClock
from cdc.errors import EXIT_FAILED, EXIT_OK, EXIT_OPERATOR, TailraceError

if TYPE_CHECKING:
    from cdc.cli.status_reader import StatusReader
    from cdc.config.settings import Config
    from cdc.inspect.pipeline_state import PipelineObserver


@click.command("top")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(min=0.5, max=60),
    default=1.0,
    show_default=True,
    help="Seconds between two pictures.",
)
@config_option
@json_option
def command(every_s: float, config_path: Path | None, as_json: bool) -> int:
    """Show the flow from the source to the sinks until Ctrl-C: states, rates and lags.

    Asks the daemon (http.listen), as the page at its address does. While it does not answer, the picture is drawn from
    what PostgreSQL and Kafka say. Without a terminal, or with --json, it is printed once. Exit code 3 when something
    needs an operator, 1 when something waits or is down.
    """
    config, clock = configuration(config_path), SystemClock()
    with _Pictures(config, clock) as pictures:
        if as_json or not sys.stdout.isatty():
            found = pictures.take()
            if as_json:
                output.show_json(found)
            else:
                output.console().print(drawn(found, Trend(), width=output.console().width))
            return exit_code(found)
        return _live(pictures, clock, every_s)


def exit_code(found: dict[str, Any]) -> int:
    """Return 3 for a picture with something that needs an operator, 1 with something that waits, else 0."""
    needs_operator = found.get("needs_operator", found["level"] == "bad")
    return EXIT_OPERATOR if needs_operator else EXIT_FAILED if found["level"] in {"warn", "bad"} else EXIT_OK


def _live(pictures: _Pictures, clock: Clock, every_s: float) -> int:
    from rich.live import Live

    console, trend, never = output.console(), Trend(), threading.Event()
    with output.waiting("reading the state"):
        found = pictures.take()
    try:
        with Live(console=console, auto_refresh=False, screen=True) as live:
            while True:
                trend.add(found)
                live.update(drawn(found, trend, width=console.width, height=console.height), refresh=True)
                clock.wait(never, every_s)
                found = pictures.take()
    except KeyboardInterrupt:
        console.print(drawn(found, trend, width=console.width))
        return exit_code(found)


class _Pictures:
    """Takes pictures from the daemon, or from the servers while it does not answer."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._observer: PipelineObserver | None = None
        self._reader: StatusReader | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._observer is not None:
            self._observer.close()

    def take(self) -> dict[str, Any]:
        """Return a picture; one without the daemon has the reason in `without_daemon`."""
        from cdc.inspect.pipeline_state import ask_daemon

        try:
            return ask_daemon(self._config.http, self._config.name, "/api/picture")
        except TailraceError as error:
            return self._from_servers(error.message)

    def _from_servers(self, why: str) -> dict[str, Any]:
        from cdc.cli.status_reader import StatusReader
        from cdc.cli.status_text import DOWN, UNKNOWN
        from cdc.inspect.pipeline_state import PipelineObserver
        from cdc.overview.picture import Seen, picture
        from cdc.overview.places import Places
        from cdc.overview.sink_facts import reported, unread

        self._observer = self._observer or PipelineObserver(self._config, self._clock)
        self._reader = self._reader or StatusReader(self._config, self._observer, self._clock)
        found = self._reader.take()
        unreached = found["unreachable"]
        status = found | {"source_check_age_seconds": None if "source" in unreached else 0.0, "reason": ""}
        if found["state"] in {DOWN, UNKNOWN}:
            status["error"] = {"error": "CaptureDown", "message": why, "hint": "start capture", "command": "cdc run"}
        sinks = found["sinks"]
        facts = (
            [unread(name, "Kafka cannot be read") for name in sorted(self._config.sinks)]
            if sinks is None
            else [reported(one) for one in sinks]
        )
        at = datetime.fromtimestamp(self._clock.wall_s(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        drawing = picture(Seen(at, Places.of(self._config), status, facts))
        for node in drawing["nodes"]:
            side = {"source": "source", "log": "kafka"}.get(node["id"])
            if side in unreached:
                node |= {"state": "UNREACHABLE", "level": "bad", "says": unreached[side]}
        return drawing | {"without_daemon": why, "needs_operator": found["needs_operator"]}
