"""Draws the live picture of the demo. Pure: values in, renderables out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cdc.demo.live_facts import Facts
from cdc.demo.shop_events import Line

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_BAR: Final = 24
_STATES: Final = {"RUNNING": "green", "CATCHING_UP": "yellow", "STARTING": "yellow", "WAITING": "yellow"}
_VERBS: Final = {"insert": "green", "update": "yellow", "delete": "red"}
_FIXED_LINES: Final = 12  # of the picture, without topics, notes and events
_EVENTS_MAX: Final = 10
_TOPIC_BAR: Final = 20


@dataclass(frozen=True, slots=True)
class Scene:
    """The content of the picture.

    Attributes:
        title: the current step.
        done: its progress, 0 to 1.
        bank_rate: transactions per second of pgbench.
        shop_rate: transactions per second of the shop.
        notes: (seconds since the beginning, text), oldest first.
        view: a row of the lake's view, in one line; empty without a lake.
    """

    title: str
    facts: Facts
    done: float = 0.0
    bank_rate: float = 0.0
    shop_rate: float = 0.0
    lines: tuple[Line, ...] = ()
    notes: tuple[tuple[float, str], ...] = ()
    view: str = ""


def picture(scene: Scene, height: int) -> RenderableType:
    """Return the picture for a terminal of the given height."""
    facts = scene.facts
    parts: list[RenderableType] = [_head(scene), Text(), _figures(scene), Text(), _topics(facts.records)]
    if scene.view:
        parts += [Text(), Text.assemble(("daily_revenue, by Spark  ", "dim"), (scene.view, "bold cyan"))]
    room = (
        height
        - _FIXED_LINES
        - (2 if scene.view else 0)
        - len(facts.records)
        - (len(scene.notes) + 1 if scene.notes else 0)
    )
    if scene.lines and room > 0:
        parts += [Text(), _events(scene.lines, min(_EVENTS_MAX, room))]
    if scene.notes:
        parts += [Text(), _notes(scene)]
    return Padding(Group(*parts), (1, 0, 0, 4))


def plain_picture(scene: Scene) -> str:
    """Return the same content in one line."""
    facts = scene.facts
    commit = "" if facts.commit_ms is None else f", commit {facts.commit_ms:.0f} ms"
    return (
        f"{scene.title}: {scene.done:4.0%}  {state_text(facts.state):<11} {facts.rows_per_second:>8,.0f} rows/s "
        f"{facts.bytes_per_second / 1e6:>5.1f} MB/s  lag {size(facts.lag_bytes)}, {facts.lag_seconds:.1f} s{commit}, "
        f"{facts.record_count:,} records{f'; daily_revenue {scene.view}' if scene.view else ''}"
    )


def size(count_bytes: float) -> str:
    """Return a size with its unit, for example ``1.5 MB``."""
    for unit in ("B", "kB", "MB"):
        if abs(count_bytes) < 1000:
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1000
    return f"{count_bytes:.1f} GB"


def state_text(state: str) -> str:
    """Return a state in lower case, or ``down``."""
    return state.lower().replace("_", " ") if state else "down"


def _head(scene: Scene) -> RenderableType:
    filled = round(scene.done * _BAR)
    return Text.assemble(
        (scene.title, "bold"),
        "  ",
        ("━" * filled, "cyan"),
        ("━" * (_BAR - filled), "bright_black"),
        f" {scene.done:.0%}",
    )


def _figures(scene: Scene) -> RenderableType:
    facts = scene.facts
    state = Text(state_text(facts.state), style=f"bold {_STATES.get(facts.state, 'red')}")
    commit = "-" if facts.commit_ms is None else f"{facts.commit_ms:.0f} ms"
    late = "red" if facts.lag_seconds > 5 else "yellow" if facts.lag_seconds > 1 else "green"
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(min_width=22)
    grid.add_column(style="dim")
    grid.add_column()
    grid.add_row("PostgreSQL", _commits(scene), "capture", state)
    grid.add_row("captured", f"{facts.rows_per_second:,.0f} rows/s", "behind", Text(_behind(scene), style=late))
    grid.add_row("", f"{size(facts.bytes_per_second)}/s", "Kafka commit", commit)
    grid.add_row("", Text(_curve(facts.curve), style="cyan"), "", "")
    return grid


def _commits(scene: Scene) -> str:
    if not scene.bank_rate and not scene.shop_rate:
        return "-"
    return f"{scene.bank_rate + scene.shop_rate:,.0f} commits/s"


def _behind(scene: Scene) -> str:
    return f"{scene.facts.lag_seconds:.1f} s · {size(scene.facts.lag_bytes)} of WAL"


def _curve(rates: tuple[float, ...]) -> str:
    shown = rates[-22:]
    top = max(shown, default=0) or 1
    return "".join(_BLOCKS[min(len(_BLOCKS) - 1, int(rate / top * len(_BLOCKS)))] for rate in shown)


def _topics(records: dict[str, int]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.add_row(Text("topic", style="dim"), Text("records", style="dim"), "")
    top = max(records.values(), default=0) or 1
    for topic, count in sorted(records.items(), key=lambda item: -item[1]):
        # Sizes differ by orders of magnitude, so a bar shows the number of digits.
        length = round(_TOPIC_BAR * len(str(count)) / len(str(top))) if count else 0
        table.add_row(topic, f"{count:,}", Text("▪" * length, style="blue"))
    return table


def _events(lines: tuple[Line, ...], count: int) -> RenderableType:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for line in lines[-count:]:
        verb = Text(line.verb, style=_VERBS.get(line.verb, ""))
        table.add_row(line.table, verb, Text.assemble((line.key, "bold"), "  ", line.text))
    return Group(Text("some of the shop's events, as a consumer gets them", style="dim"), table)


def _notes(scene: Scene) -> RenderableType:
    return Group(*(Text.assemble((f"{at_s:5.1f} s  ", "dim"), (text, "magenta")) for at_s, text in scene.notes))
