"""Live progress of snapshots on stderr: a bar for each table on a terminal, else a line every few seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from cdc.cli import output, snapshot_text
from cdc.cli.status_text import duration
from cdc.clock import Clock

_SHOWN_MAX: Final = 12  # bars; of more tables the first that are not complete are shown


class Bars:
    """Draws what `show` is given; nothing if `quiet`."""

    def __init__(self, clock: Clock, *, every_s: float, quiet: bool = False) -> None:
        """`every_s` is between two lines where no terminal is."""
        self._console = output.console(stderr=True)
        self._clock = clock
        self._every_s = every_s
        self._quiet = quiet
        self._line_s: float | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last_why = ""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[share]:>5}"),
            TextColumn("{task.fields[what]}", style="dim"),
            console=self._console,
            auto_refresh=False,
            disable=quiet or not self._console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, tables: Sequence[Mapping[str, Any]], why: str) -> None:
        """Draw the tables. `why`: the reason why the daemon does not answer, empty when it does."""
        if self._quiet:
            return
        if why and why != self._last_why:
            self._last_why = why
            output.note(f"{why}; the counts are those in the log")
        if self._console.is_terminal:
            for one in tables:
                self._bar(one)
            self._progress.refresh()
        elif self._line_s is None or self._clock.monotonic_s() - self._line_s >= self._every_s:
            self._line_s = self._clock.monotonic_s()
            for one in tables[:_SHOWN_MAX]:
                output.note(f"{one['table']}: {snapshot_text.done(one)} {_what(one)}")

    def _bar(self, one: Mapping[str, Any]) -> None:
        name = one["table"]
        if name not in self._tasks:
            if len(self._tasks) >= _SHOWN_MAX:
                return
            self._tasks[name] = self._progress.add_task(output.plain(name), total=None, share="", what="")
        complete = one["state"] == "complete"
        total = 1 if complete else one["blocks"] or None
        self._progress.update(
            self._tasks[name],
            total=total,
            completed=1 if complete else one["blocks_done"] or 0,
            share=snapshot_text.done(one) if total else "",
            what=_what(one),
        )


def _what(one: Mapping[str, Any]) -> str:
    parts = [f"{one['rows']:,} rows", output.size(one["bytes"])]
    if one["rows_per_second"]:
        parts.append(f"{one['rows_per_second']:,.0f} rows/s")
    if one["eta_seconds"] is not None:
        parts.append(f"{duration(one['eta_seconds'])} left")
    if one["keys_left"]:
        parts.append(f"{one['keys_left']:,} keys left")
    if one["chunks_waiting"]:
        parts.append(f"{one['chunks_waiting']} chunks waiting")
    if one["state"] not in {"reading", "complete"}:
        parts.append(one["state"])
    if one["waits_for"]:
        parts.append(f"for {snapshot_text.reason(one)}")
    return ", ".join(parts)
