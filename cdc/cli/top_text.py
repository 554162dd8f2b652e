"""Draws the picture of the flow as a tree of lines for `cdc top`. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group
from rich.text import Text

from cdc.cli.output import plain
from cdc.model import units

_STYLES: Final = {"ok": "green", "off": "dim", "busy": "cyan", "warn": "bold yellow", "bad": "bold red"}
_SIGNS: Final = {"ok": "●", "off": "○", "busy": "◐", "warn": "▲", "bad": "✖"}
_BARS: Final = " ▁▂▃▄▅▆▇█"
_TREND: Final = 60
_ATTENTION_MAX: Final = 5
_SNAPSHOTS_MAX: Final = 5
_BAR_WIDTH: Final = 24
_TITLE_WIDTH: Final = 22


class Trend:
    """Rows per second of the last pictures."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_TREND)

    def add(self, found: Mapping[str, Any]) -> None:
        """Add a picture."""
        self._values.append(next((edge["rate"] or 0.0 for edge in found["edges"] if edge["to"] == "log"), 0.0))

    def text(self) -> str:
        """Return the values as bars, the highest one full; empty without a value."""
        most = max(self._values, default=0.0)
        if not most:
            return ""
        return "".join(_BARS[round((len(_BARS) - 1) * value / most)] for value in self._values)


def drawn(found: Mapping[str, Any], trend: Trend, *, width: int, height: int = 0) -> Group:
    """Return a picture for a terminal of this size; a `height` of 0 is unlimited."""
    lines = [*_head(found, trend), Text(), *_flow(found), *_snapshots(found), *_attention(found)]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
        line.truncate(width, overflow="ellipsis")
    if height and len(lines) > height:
        hidden = len(lines) - height + 1
        lines = [*lines[: height - 1], Text(f"{hidden} more lines: enlarge the window", style="dim")]
    return Group(*lines)


def _head(found: Mapping[str, Any], trend: Trend) -> Iterator[Text]:
    at = str(found["at"])[11:19]
    yield Text.assemble(
        (plain(found["name"]), "bold"),
        "  ",
        _state(found["state"], found["level"]),
        f"  {at} UTC   ",
        (trend.text(), "cyan"),
    )
    if found.get("without_daemon"):
        yield Text(f"{plain(found['without_daemon'])}; drawn from PostgreSQL and Kafka", style="yellow")


def _flow(found: Mapping[str, Any]) -> Iterator[Text]:
    nodes = {node["id"]: node for node in found["nodes"]}
    edges = {edge["to"]: edge for edge in found["edges"]}
    for name in ("source", "slot", "log"):
        if name in edges:
            yield Text.assemble("  │ ", _measures(edges[name]))
        yield from _node(nodes[name], "", "  │ ")
    sinks = [node for node in found["nodes"] if node["id"].startswith("sink:")]
    for number, sink in enumerate(sinks):
        last = number == len(sinks) - 1
        below = "     " if last else "  │  "
        edge = edges[sink["id"]]
        yield from _node(sink, "  └─ " if last else "  ├─ ", f"{below}   ", beside=_measures(edge))
        views = nodes.get(f"views:{sink['id'].removeprefix('sink:')}")
        if views is not None:
            yield from _node(views, f"{below}└─ ", f"{below}   ")


def _node(node: Mapping[str, Any], lead: str, below: str, *, beside: Text | None = None) -> Iterator[Text]:
    title = plain(node["title"])
    gap = " " * max(1, _TITLE_WIDTH - len(lead) - len(title))
    text = Text.assemble(lead, (title, "bold"), gap, _state(node["state"], node["level"]))
    text.append("  ")
    if beside is not None and beside.plain:
        text.append_text(beside)
        text.append("  ")
    text.append(plain(node["detail"]), style="dim")
    yield text
    if node["says"] and node["level"] in {"warn", "bad"}:
        yield Text.assemble(below, (plain(node["says"]), _STYLES[node["level"]]))


def _state(state: str, level: str) -> Text:
    return Text(f"{_SIGNS[level]} {plain(state)}", style=_STYLES[level])


def _measures(edge: Mapping[str, Any]) -> Text:
    """Return rate and lag of an edge."""
    parts = []
    if edge["rate"] is not None:
        parts.append(f"{_amount(edge['rate'], edge['rate_unit'])}")
    if edge["lag"] is not None:
        kept = "kept" if edge["to"] == "slot" else "behind"
        parts.append(f"{_amount(edge['lag'], edge['lag_unit'])} {kept}")
    if edge["lag_seconds"]:
        parts.append(units.duration(edge["lag_seconds"]))
    return Text(", ".join(parts), style="" if edge["level"] in {"ok", "off"} else _STYLES[edge["level"]])


def _amount(value: float, unit: str) -> str:
    if unit.startswith("B"):
        return units.size(value) + unit[1:]
    return f"{value:,.0f} {unit}"


def _snapshots(found: Mapping[str, Any]) -> Iterator[Text]:
    shown = [one for one in found["snapshots"] if one["state"] != "complete"][:_SNAPSHOTS_MAX]
    if not shown:
        return
    yield Text()
    more = found["snapshots_open"] - len(shown)
    yield Text(f"snapshots{f', and {more} more' if more > 0 else ''}", style="dim")
    for one in shown:
        yield Text.assemble(*_snapshot(one))


def _snapshot(one: Mapping[str, Any]) -> Sequence[str | tuple[str, str]]:
    share = min(1.0, one["blocks_done"] / one["blocks"]) if one["blocks"] else 0.0
    filled = round(_BAR_WIDTH * share)
    eta = f", {units.duration(one['eta_seconds'])} left" if one["eta_seconds"] is not None else ""
    waits = f", waits for {plain(one['waits_for'][0])}" if one["waits_for"] else ""
    speed = f", {one['rows_per_second']:,.0f} rows/s" if one["rows_per_second"] else ""
    bar = ("█" * filled + "░" * (_BAR_WIDTH - filled), "cyan")
    said = f" {100 * share:3.0f}%  {plain(one['table'])}  {one['state']}, {one['rows']:,} rows{speed}{eta}{waits}"
    return ["  ", bar, said]


def _attention(found: Mapping[str, Any]) -> Iterator[Text]:
    shown = [one for one in found["attention"] if one["level"] in {"warn", "bad"}]
    if not shown:
        return
    yield Text()
    yield Text("attention", style="dim")
    for one in shown[:_ATTENTION_MAX]:
        yield Text.assemble("  ", (f"{_SIGNS[one['level']]} {plain(one['says'])}", _STYLES[one["level"]]))
        if one["hint"]:
            yield Text(f"    hint: {plain(one['hint'])}", style="dim")
        if one["command"]:
            yield Text.assemble("    try:  ", (plain(one["command"]), "bold"))
    if len(shown) > _ATTENTION_MAX:
        yield Text(f"  and {len(shown) - _ATTENTION_MAX} more", style="dim")
