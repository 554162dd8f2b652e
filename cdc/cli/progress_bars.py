"""Progress bars on stderr: of downloads, and of snapshots. Without a terminal they print lines instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from types import TracebackType
from typing import Any, Final, Self

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TransferSpeedColumn,
)

from cdc.cli import output, snapshot_text
from cdc.clock import Clock

_SHOWN_MAX: Final = 12  # bars of snapshots; further tables get none


class _Bars:
    """Bars by name, drawn while the context lasts; nothing without a terminal, or if `quiet`."""

    def __init__(self, *columns: ProgressColumn, live: bool, quiet: bool = False) -> None:
        """`live`: refresh several times a second, and remove the bars at the end."""
        self._console = output.console(stderr=True)
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            *columns,
            console=self._console,
            auto_refresh=live,
            transient=live,
            disable=quiet or not self._console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


class DownloadBars(_Bars):
    """Implements `cdc.artifacts.download_progress.Progress`: a bar for each download, a line for each slow step."""

    def __init__(self) -> None:
        super().__init__(BarColumn(), DownloadColumn(), TransferSpeedColumn(), live=True)
        self._lock = Lock()

    def step(self, text: str) -> None:
        """See `Progress`."""
        self._console.print(text, style="dim")

    def begin(self, what: str, total_bytes: int) -> None:
        """See `Progress`."""
        self.step(f"fetching {what} ({total_bytes / 1e6:.0f} MB)")
        with self._lock:
            self._tasks[what] = self._progress.add_task(what, total=total_bytes)

    def advance(self, what: str, count_bytes: int) -> None:
        """See `Progress`."""
        self._progress.advance(self._tasks[what], count_bytes)

    def end(self, what: str) -> None:
        """See `Progress`."""
        with self._lock:
            self._progress.remove_task(self._tasks.pop(what))


class SnapshotBars(_Bars):
    """A bar for each table; without a terminal a line for each table every `every_s` seconds."""

    def __init__(self, clock: Clock, *, every_s: float, quiet: bool = False) -> None:
        text = (TextColumn("{task.fields[share]:>5}"), TextColumn("{task.fields[what]}", style="dim"))
        super().__init__(BarColumn(bar_width=24), *text, live=False, quiet=quiet)
        self._clock = clock
        self._every_s = every_s
        self._quiet = quiet
        self._line_s: float | None = None
        self._last_why = ""

    def show(self, tables: Sequence[Mapping[str, Any]], why: str) -> None:
        """Draw the tables. `why`: the reason why the daemon does not answer, empty when it does."""
        if self._quiet:
            return
        if why and why != self._last_why:
            self._last_why = why
            output.note(f"{why}; the counts are those in the log")
        if self._console.is_terminal:
            for one in tables:
                self._draw(one)
            self._progress.refresh()
        elif self._line_s is None or self._clock.monotonic_s() - self._line_s >= self._every_s:
            self._line_s = self._clock.monotonic_s()
            for one in tables[:_SHOWN_MAX]:
                output.note(f"{one['table']}: {snapshot_text.done(one)} {snapshot_text.details(one)}")

    def _draw(self, one: Mapping[str, Any]) -> None:
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
            what=snapshot_text.details(one),
        )
