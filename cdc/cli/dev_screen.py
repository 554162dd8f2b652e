"""Prints what `cdc dev` runs: the addresses once, then one line per part, live on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from cdc.cli import output

if TYPE_CHECKING:
    from cdc.dev.dev_session import DevSession
    from cdc.dev.part_lines import PartLine

_PLAIN_EVERY_S: Final = 60.0
_STYLES: Final = {"ok": "green", "busy": "yellow", "bad": "bold red"}
_LABEL: Final = 12


class DevScreen:
    """Prints to stdout. On a terminal the lines of the parts are refreshed in place, elsewhere once a minute."""

    def __init__(self, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._console = output.console()
        self._clock_s = clock_s
        self._live: Live | None = None
        self._closing = ExitStack()
        self._plain_s: float | None = None
        self._plain_states: tuple[str, ...] = ()

    def doing(self, text: str) -> None:
        """Print a step of start or end."""
        self._print(Text(f"{output.plain(text)} ...", style="dim"))

    def happened(self, text: str) -> None:
        """Print an event with its time, and its details below, above the lines of the parts."""
        first, *others = text.splitlines()
        self._print(Text.assemble((time.strftime("%H:%M:%S  "), "dim"), (output.plain(first), "yellow")))
        for line in others:
            self._print(Text(f"{'':10}{output.plain(line)}", style="dim"))

    def said(self, text: str) -> None:
        """Print a line."""
        self._print(Text(output.plain(text)))

    def addresses(self, session: DevSession, cdc: str, *, keeps: bool) -> None:
        """Print where everything is, and commands to try in a second terminal."""
        stack, config, parts = session.owned.stack, session.owned.config, session.parts
        source = stack.postgres.printable_dsn if session.own is None else session.own.source.dsn
        self._print(Text())
        self._address("page", session.address)
        if self._console.is_terminal:
            self._address("token", f"{session.token}   (the page asks for it before it changes anything)")
        else:
            self._address("token", f"http.token in {config}")
        self._address("PostgreSQL", source)
        self._address("Kafka", stack.kafka.bootstrap)
        if "opensearch" in parts.servers:
            self._address("OpenSearch", stack.opensearch.url)
        if "valkey" in parts.servers:
            self._address("Valkey", stack.valkey.url)
        if "lake" in parts.sinks:
            self._address("lake", str(session.owned.lake))
        self._address("logs", f"{session.owned.folder}/capture.log, {stack.home}/*/server.log")
        self._print(Text("\nIn a second terminal:", style="dim"))
        sink = parts.sinks[0] if parts.sinks else ""
        tail = "orders" if session.own is None else "'*'"
        for command in ("status", f"tail {tail}", *([f"sink pause {sink}"] if sink else ["doctor"])):
            self._print(Text(f"  {cdc} -c {config} {command}", style="bold"))
        fate = "keeps the data" if keeps else "deletes the data (--keep keeps it)"
        self._print(Text(f"\nCtrl-C ends everything and {fate}.\n", style="dim"))

    def show(self, lines: Sequence[PartLine]) -> None:
        """Show the current lines."""
        if self._console.is_terminal:
            if self._live is None:
                self._live = self._closing.enter_context(
                    Live(console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop")
                )
            self._live.update(_drawn(lines), refresh=True)
            return
        now_s, states = self._clock_s(), tuple(line.state for line in lines)
        if self._plain_s is None or now_s - self._plain_s >= _PLAIN_EVERY_S or states != self._plain_states:
            self._plain_s, self._plain_states = now_s, states
            self._print(Text(f"{time.strftime('%H:%M:%S')}  {'; '.join(line.plain for line in lines)}"))

    def close(self) -> None:
        """Remove the live lines."""
        self._live = None
        self._closing.close()

    def _address(self, label: str, text: str) -> None:
        self._print(Text.assemble((f"  {label:<{_LABEL}}", "cyan"), output.plain(text)))

    def _print(self, text: Text) -> None:
        # Not wrapped, so that an address or a command can be copied, or found in a log, as one line.
        self._console.print(text, soft_wrap=True)


def _drawn(lines: Sequence[PartLine]) -> RenderableType:
    """Return one line per part. In a narrow terminal the end of a line, its note, gives way."""
    rows = [(line.part, line.state, line.rate, line.lag) for line in lines]
    part, state, rate, lag = (max(map(len, cells)) for cells in zip(*rows, strict=True))
    return Group(
        *(
            Text.assemble(
                f"  {line.part:<{part}}  ",
                (f"{line.state:<{state}}", _STYLES[line.level]),
                f"  {line.rate:>{rate}}  {line.lag:>{lag}}  ",
                (output.plain(line.note), "dim"),
                no_wrap=True,
                overflow="ellipsis",
            )
            for line in lines
        )
    )
