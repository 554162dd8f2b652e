"""Plots the cost of views against the size of their base, one panel per view: ``tests.bench.viewplot CSV PNG``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, NullLocator, StrMethodFormatter

from tests.bench.viewdata import KINDS
from tests.bench.views import AUTO, Measured, figures, read_csv

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

_CHANGES: Final = 2_000  # the cuts that are drawn; the raw data has the others
_COLOURS: Final = {"recompute": "tab:gray", "affected": "tab:blue", "delta": "tab:orange"}  # delta: removed
_CHOICE: Final = f"{AUTO}'s choice"
_SECONDS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
_STYLES: Final = dict(zip(KINDS, ("-", "--"), strict=True))


def plot(found: Sequence[Measured], file: Path, changes: int = _CHANGES) -> None:
    """Plot medians of seconds by plan on logarithmic axes; a cross marks the plan that the driver chose."""
    names = list(dict.fromkeys(one.view for one in found))
    figure = Figure(figsize=(4.5 * len(names), 4.5), dpi=110, layout="constrained")
    panels = figure.subplots(1, len(names), sharex=True, sharey=True, squeeze=False)[0]
    cells = [cell for cell in figures(found) if cell["changes"] == changes]
    for name, axes in zip(names, panels, strict=True):
        for kind, style in _STYLES.items():
            mine = sorted((c for c in cells if c["view"] == name and c["kind"] == kind), key=lambda c: int(c["lines"]))
            for plan in _COLOURS:
                points = [(c["lines"], c["seconds"][plan]) for c in mine if plan in c["seconds"]]
                if points:
                    axes.plot(
                        *zip(*points, strict=True), style, color=_COLOURS[plan], marker="o", label=f"{plan}, {kind}"
                    )
            chosen = [(c["lines"], c["seconds"][c["chosen"]]) for c in mine if c["chosen"] in c["seconds"]]
            if chosen:
                axes.plot(*zip(*chosen, strict=True), "kx", markersize=10, label=_CHOICE)
        _dress(axes, name, sorted({cell["lines"] for cell in cells}))
    panels[0].set_ylabel("seconds a cut, the write included")
    handles, labels = panels[0].get_legend_handles_labels()
    said = dict(zip(labels, handles, strict=True))  # each once
    last = sorted(said, key=lambda label: label == _CHOICE)
    panels[0].legend([said[label] for label in last], last, fontsize="small")
    figure.suptitle(f"{changes:,} changed lines, {changes // 4:,} orders, {changes // 100} customers a cut")
    figure.savefig(file)


def _dress(axes: Axes, name: str, lines: Sequence[int]) -> None:
    axes.set_title(name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, ticks in ((axes.xaxis, lines), (axes.yaxis, _SECONDS)):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xlabel("lines in the base")
    axes.grid(visible=True, alpha=0.25)


if __name__ == "__main__":
    plot(read_csv(Path(sys.argv[1])), Path(sys.argv[2]))
