"""Progress of `cdc local up` on stderr: a bar for each download, a line for each slow step."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Bars:
    """Implements `cdc.local.local_server.Progress`. Without a terminal it prints the steps and draws no bars."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._tasks: dict[str, TaskID] = {}
        self._lock = Lock()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def step(self, text: str) -> None:
        """See `Progress`."""
        self._progress.console.print(text, style="dim")

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
