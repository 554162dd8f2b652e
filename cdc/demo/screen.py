"""Prints the steps of the demo, with a live picture on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from cdc.demo.picture import Scene, picture, plain_picture

WIDTH_MAX: Final = 100
_PLAIN_WIDTH: Final = 100
_PLAIN_EVERY_S: Final = 5.0
_NAME_WIDTH: Final = 9
_FILE_INDENT: Final = 6
_FPS: Final = 4


class Screen:
    """Prints to standard output. Use it from one thread."""

    def __init__(self, console: Console | None = None) -> None:
        plain = Console(highlight=False, markup=False, emoji=False)
        if not plain.is_terminal:
            plain = Console(highlight=False, markup=False, emoji=False, width=_PLAIN_WIDTH)
        self.console = console or plain
        self.live = self.console.is_terminal
        if self.live and self.console.width > WIDTH_MAX:
            self.console.width = WIDTH_MAX

    def heading(self, text: str, below: str) -> None:
        """Print the title."""
        self.console.print(Text.assemble("\n", ("  " + text, "bold"), "\n", ("  " + below, "dim"), "\n"))

    def step(self, name: str, text: str, seconds: float | None = None, *, good: bool = True) -> None:
        """Print a finished step."""
        took = "" if seconds is None else f"  {seconds:.1f} s"
        grid = Table.grid()
        grid.add_column(width=4)
        grid.add_column(width=_NAME_WIDTH + 1)
        grid.add_column()
        mark = Text("  ✓", style="bold green") if good else Text("  ✗", style="bold red")
        grid.add_row(mark, Text(name, style="bold"), Text.assemble(text, (took, "dim")))
        self.console.print(grid)

    def note(self, text: str | Text) -> None:
        """Print a detail of the previous step."""
        self.console.print(Padding(text, (0, 0, 0, _NAME_WIDTH + 5), expand=False), style="dim")

    def file(self, text: str, language: str = "toml") -> None:
        """Print the content of a file."""
        plain = Text(text.rstrip())
        shown = Syntax(plain.plain, language, theme="ansi_dark", background_color="default") if self.live else plain
        self.console.print(Padding(shown, (1, 0, 1, _FILE_INDENT), expand=False))

    def show(self, what: RenderableType) -> None:
        """Print a renderable, indented, after an empty line."""
        self.console.print(Padding(what, (1, 0, 0, 2), expand=False))

    @contextlib.contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Show a spinner with `text` while the block runs."""
        if not self.live:
            yield
            return
        with Live(_busy(text), console=self.console, transient=True):
            yield

    @contextlib.contextmanager
    def watching(self, scene: Callable[[], Scene]) -> Iterator[None]:
        """Draw `scene` repeatedly while the block runs. On a terminal, nothing of it stays."""
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


def _busy(text: str) -> RenderableType:
    return Padding(Spinner("dots", Text(text, style="dim")), (0, 0, 0, 2))
