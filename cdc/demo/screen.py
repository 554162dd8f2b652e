"""How the demo shows itself: a story of steps, with a live picture under it on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.spinner import Spinner
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from cdc.demo.picture import Scene, picture, plain_picture

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

WIDTH_MAX: Final = 100
_PLAIN_WIDTH: Final = 100
_PLAIN_EVERY_S: Final = 5.0
_NAME_WIDTH: Final = 9
_FILE_INDENT: Final = 6
_FPS: Final = 4


class Screen:
    """Prints to stdout. One thread, but for the downloads."""

    def __init__(self, console: Console | None = None) -> None:
        plain = Console(highlight=False, markup=False, emoji=False)
        if not plain.is_terminal:
            plain = Console(highlight=False, markup=False, emoji=False, width=_PLAIN_WIDTH)
        self.console = console or plain
        self.live = self.console.is_terminal
        if self.live and self.console.width > WIDTH_MAX:
            self.console.width = WIDTH_MAX

    def heading(self, text: str, below: str) -> None:
        """The title of it all."""
        self.console.print(Text.assemble("\n", ("  " + text, "bold"), "\n", ("  " + below, "dim"), "\n"))

    def step(self, name: str, text: str, seconds: float | None = None, *, good: bool = True) -> None:
        """A step is done."""
        took = "" if seconds is None else f"  {seconds:.1f} s"
        grid = Table.grid()
        grid.add_column(width=4)
        grid.add_column(width=_NAME_WIDTH + 1)
        grid.add_column()
        mark = Text("  ✓", style="bold green") if good else Text("  ✗", style="bold red")
        grid.add_row(mark, Text(name, style="bold"), Text.assemble(text, (took, "dim")))
        self.console.print(grid)

    def note(self, text: str | Text) -> None:
        """Something about the step before."""
        self.console.print(Padding(text, (0, 0, 0, _NAME_WIDTH + 5), expand=False), style="dim")

    def file(self, text: str, language: str = "toml") -> None:
        """Show a file."""
        plain = Text(text.rstrip())
        shown = Syntax(plain.plain, language, theme="ansi_dark", background_color="default") if self.live else plain
        self.console.print(Padding(shown, (1, 0, 1, _FILE_INDENT), expand=False))

    def show(self, what: RenderableType) -> None:
        """Print anything, indented, with a line before it."""
        self.console.print(Padding(what, (1, 0, 0, 2), expand=False))

    @contextlib.contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Say what takes a moment, while it does."""
        if not self.live:
            yield
            return
        with Live(_busy(text), console=self.console, transient=True):
            yield

    @contextlib.contextmanager
    def watching(self, scene: Callable[[], Scene]) -> Iterator[None]:
        """Show `scene` again and again while the block runs; nothing of it stays on a terminal."""
        if self.live:
            with Live(
                get_renderable=lambda: picture(scene(), self.console.height),
                console=self.console,
                refresh_per_second=_FPS,
                transient=True,
            ):
                yield
            return
        stop = Event()
        ticker = Thread(target=self._tick, args=(scene, stop), daemon=True)
        ticker.start()
        try:
            yield
        finally:
            stop.set()
            ticker.join()

    def _tick(self, scene: Callable[[], Scene], stop: Event) -> None:
        while not stop.wait(_PLAIN_EVERY_S):
            self.console.print(Text("      " + plain_picture(scene())), soft_wrap=True)


class _Bars(Progress):
    """Bars of downloads; while there are none, a sign of life."""

    def __init__(self, console: Console, text: str) -> None:
        self._idle = _busy(text)
        columns = (TextColumn("    {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)

    def get_renderables(self) -> Iterator[RenderableType]:
        """See `Progress`."""
        yield self.make_tasks_table(self.tasks) if self.tasks else self._idle


class Downloads:
    """Fulfils `cdc.local.local_server.Progress`: bars on a terminal, lines elsewhere."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._progress = _Bars(screen.console, "starting servers")
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
        self._screen.note(text)

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


class Reading:
    """Fulfils `cdc.verify.log_check.Progress`: one line on a terminal that says how far the comparison is."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._spinner = Spinner("dots", Text("reading the log back", style="dim"))
        self._live = Live(Padding(self._spinner, (0, 0, 0, 2)), console=screen.console, transient=True)
        self._shown_s = 0.0

    def __enter__(self) -> Self:
        if self._screen.live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def verifying(self, table: str, doing: str, done: int, total: int) -> None:
        """See `cdc.verify.log_check.Progress`."""
        now_s = time.monotonic()
        if not self._screen.live or now_s - self._shown_s < 1 / _FPS:
            return
        self._shown_s = now_s
        what = "reading the topic of" if doing == "fold" else "comparing every row of"
        self._spinner.update(text=Text(f"{what} {table}: {done:,} of {total:,}", style="dim"))


def _busy(text: str) -> RenderableType:
    return Padding(Spinner("dots", Text(text, style="dim")), (0, 0, 0, 2))
