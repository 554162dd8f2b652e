"""Draws docs/assets/flow.svg: how a change travels from PostgreSQL through Kafka into the stores.

Run it after a change: ``python docs/assets/draw_flow.py``. The picture brings its own background, so it is readable on
light and dark pages, and follows the reader's colour scheme.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

TARGET: Final = Path(__file__).with_name("flow.svg")
WIDTH: Final = 960
HEIGHT: Final = 352
_BACK: Final = "PostgreSQL may forget WAL only after the Kafka transaction is known to be committed"

_STYLE: Final = """
  .page { fill: #f7fafb; stroke: #d3e0e4 }
  .box { fill: #ffffff; stroke: #7fa5b0; stroke-width: 1.5 }
  .own { fill: #e2f1f4; stroke: #17748a; stroke-width: 2 }
  .chip { fill: #ffffff; stroke: #a9c6cd }
  .title { font-weight: 600; font-size: 16px; fill: #10313a }
  .text { font-size: 13px; fill: #3d5a63 }
  .code { font-size: 12.5px; fill: #10313a; font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
  .line { fill: none; stroke: #17748a; stroke-width: 2 }
  .back { fill: none; stroke: #c2571a; stroke-width: 2; stroke-dasharray: 6 4 }
  .head { fill: #17748a }
  .backhead { fill: #c2571a }
  .backtext { font-size: 13px; fill: #a4470f }
  @media (prefers-color-scheme: dark) {
    .page { fill: #16242a; stroke: #2b4048 }
    .box { fill: #1f3038; stroke: #4f7480 }
    .own { fill: #12414d; stroke: #4fb3c8 }
    .chip { fill: #1f3038; stroke: #4f7480 }
    .title { fill: #eef6f8 }
    .text { fill: #b5cad1 }
    .code { fill: #e3eff2 }
    .line { stroke: #6cc4d8 }
    .back { stroke: #f0a066 }
    .head { fill: #6cc4d8 }
    .backhead { fill: #f0a066 }
    .backtext { fill: #f0b27f }
  }
"""


def box(x: int, y: int, width: int, height: int, kind: str = "box") -> str:
    """A rounded rectangle."""
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'


def text(x: int, y: int, words: str, kind: str = "text", anchor: str = "middle") -> str:
    """One line of text, centred on `x` by default."""
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'


def arrow(path: str, kind: str = "line") -> str:
    """A path with a head at its end."""
    head = "url(#backhead)" if kind == "back" else "url(#head)"
    return f'<path class="{kind}" d="{path}" marker-end="{head}"/>'


def source() -> list[str]:
    """PostgreSQL, with what capture reads of it."""
    return [
        box(24, 56, 168, 208),
        text(108, 84, "PostgreSQL", "title"),
        text(108, 106, "15 to 18"),
        box(44, 124, 128, 32, "chip"),
        text(108, 145, "WAL", "code"),
        box(44, 168, 128, 32, "chip"),
        text(108, 189, "tables", "code"),
        box(44, 212, 128, 32, "chip"),
        text(108, 233, "outbox", "code"),
    ]


def capture() -> list[str]:
    """Tailrace's capture and its three inputs."""
    return [
        box(272, 56, 176, 208, "own"),
        text(360, 84, "Tailrace", "title"),
        text(360, 106, "cdc run"),
        text(360, 145, "decode, encode"),
        text(360, 189, "exact snapshot"),
        text(360, 233, "route events"),
        arrow("M172 140 H266"),
        arrow("M172 184 H266"),
        arrow("M172 228 H266"),
        arrow("M448 160 H522"),
    ]


def log() -> list[str]:
    """Kafka, and the way back of the position."""
    return [
        box(528, 56, 176, 208),
        text(616, 84, "Kafka", "title"),
        text(616, 106, "one transaction:"),
        box(546, 124, 140, 32, "chip"),
        text(616, 145, "topics", "code"),
        box(546, 168, 140, 32, "chip"),
        text(616, 189, "position", "code"),
        box(546, 212, 140, 32, "chip"),
        text(616, 233, "cut index", "code"),
        arrow("M616 264 V306 H108 V270", "back"),
        text(
            362, 328, "PostgreSQL may forget WAL only after the Kafka transaction is known to be committed", "backtext"
        ),
    ]


def stores() -> list[str]:
    """What follows the topics."""
    found = []
    for number, (title, words) in enumerate(
        [
            ("Search", "OpenSearch"),
            ("Cache", "Redis, Valkey"),
            ("Lake and views", "Delta tables on Spark"),
            ("Your consumers", "Debezium's format"),
        ]
    ):
        y = 28 + number * 68
        kind = "box" if number == 3 else "own"
        found += [
            box(772, y, 172, 56, kind),
            text(858, y + 24, title, "title"),
            text(858, y + 44, words),
            arrow(f"M704 160 C740 160 736 {y + 28} 766 {y + 28}"),
        ]
    return found


def picture() -> str:
    """The whole picture as SVG."""
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path class="{name}" d="M0 0 L10 5 L0 10 z"/></marker>'
        for name in ("head", "backhead")
    )
    label = "Changes flow from PostgreSQL through Tailrace into Kafka, and from there into search, cache and lake"
    page = f'<rect class="page" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12"/>'
    parts = [page, *source(), *capture(), *log(), *stores()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" '
        f'font-family="system-ui, -apple-system, Segoe UI, Roboto, DejaVu Sans, sans-serif">\n'
        f"<style>{_STYLE}</style>\n<defs>{heads}</defs>\n" + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    TARGET.write_text(picture(), encoding="utf-8")
