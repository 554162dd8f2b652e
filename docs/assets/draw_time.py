"""Draws docs/assets/watermark.svg and windows.svg: eight clicks, as the log has them and as they happened.

Run it after a change: ``python docs/assets/draw_time.py``. Everything in the pictures is computed from `CLICKS`, and so
is `shown`, which docs/explanation/time.md has as a table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

FOLDER: Final = Path(__file__).parent
CLICKS: Final = (2, 11, 18, 12, 31, 14, 44, 36)
"""Minutes after 10:00, in the order of the log."""
CUTS: Final = {"A": 4, "B": 5, "C": 6, "D": 8}
"""Cut -> how many clicks the log has then."""
LATENESS: Final = 10
SIZE: Final = 20
SLIDE: Final = 10
GAP: Final = 10
POLICIES: Final = ("correct", "hold", "drop")

WIDTH: Final = 960
HEIGHT: Final = 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 660, 44, 340
_STYLE: Final = """
  .page { fill: #f7fafb; stroke: #d3e0e4 }
  .axis { stroke: #7fa5b0; stroke-width: 1.5; fill: none }
  .grid { stroke: #d3e0e4; stroke-width: 1 }
  .seen { stroke: #17748a; stroke-width: 2; fill: none }
  .mark { stroke: #c2571a; stroke-width: 2; fill: none; stroke-dasharray: 6 4 }
  .click { fill: #17748a }
  .late { fill: #c2571a }
  .bar { fill: #e2f1f4; stroke: #17748a; stroke-width: 1.5 }
  .moved { fill: #fbe6da; stroke: #c2571a; stroke-width: 1.5 }
  .title { font-weight: 600; font-size: 16px; fill: #10313a }
  .text { font-size: 13px; fill: #3d5a63 }
  .latetext { font-size: 13px; fill: #a4470f }
  @media (prefers-color-scheme: dark) {
    .page { fill: #16242a; stroke: #2b4048 }
    .axis { stroke: #4f7480 }
    .grid { stroke: #2b4048 }
    .seen { stroke: #6cc4d8 }
    .mark { stroke: #f0a066 }
    .click { fill: #6cc4d8 }
    .late { fill: #f0a066 }
    .bar { fill: #12414d; stroke: #4fb3c8 }
    .moved { fill: #54331f; stroke: #f0a066 }
    .title { fill: #eef6f8 }
    .text { fill: #b5cad1 }
    .latetext { fill: #f0b27f }
  }
"""


def seen_until(count: int) -> int:
    """The greatest time of the first clicks."""
    return max(CLICKS[:count])


def is_late(number: int) -> bool:
    """Whether a click, counted from 0, is before the watermark when it arrives."""
    return number > 0 and CLICKS[number] < seen_until(number) - LATENESS


def shown(policy: str, cut: str) -> dict[int, int]:
    """Begin of a window -> clicks that readers see at a cut."""
    count = CUTS[cut]
    clicks = [at for number, at in enumerate(CLICKS[:count]) if policy != "drop" or not is_late(number)]
    found: dict[int, int] = {}
    for at in sorted(clicks):
        begin = at - at % SIZE
        if policy != "hold" or begin + SIZE < seen_until(count) - LATENESS:
            found[begin] = found.get(begin, 0) + 1
    return found


def table() -> str:
    """`shown` for each policy and cut, in Markdown."""
    lines = [f"| Policy | {' | '.join(f'cut {cut}' for cut in CUTS)} |", f"|---|{'---|' * len(CUTS)}"]
    for policy in POLICIES:
        cells = (
            ", ".join(f"{clock(begin)}: {count}" for begin, count in shown(policy, cut).items()) or "nothing"
            for cut in CUTS
        )
        lines.append(f"| {policy} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def clock(minute: int) -> str:
    """A time of day."""
    return f"{10 + minute // 60}:{minute % 60:02}"


def text(x: float, y: float, words: str, kind: str = "text", anchor: str = "middle") -> str:
    """One line of text."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def line(kind: str, *points: tuple[float, float]) -> str:
    """A line through points."""
    return f'<polyline class="{kind}" points="{" ".join(f"{x:g},{y:g}" for x, y in points)}"/>'


def dot(x: float, y: float, *, late: bool) -> str:
    """A click."""
    return f'<circle class="{"late" if late else "click"}" cx="{x:g}" cy="{y:g}" r="6"/>'


def watermark() -> list[str]:
    """The clicks in the order of the log, with the greatest time so far and the watermark."""
    step = (_RIGHT - _LEFT) / len(CLICKS)

    def y(minute: float) -> float:
        return _BOTTOM - (minute + 12) * (_BOTTOM - _TOP) / 60

    parts = [
        text(_LEFT, 28, "when it happened", "title", "start"),
        text(_RIGHT, 386, "order in the log", "title", "end"),
    ]
    for minute in range(-10, 50, 10):
        parts += [line("grid", (_LEFT, y(minute)), (_RIGHT, y(minute)))]
        parts += [text(_LEFT - 10, y(minute) + 4, clock(minute) if minute >= 0 else "9:50", anchor="end")]
    seen: list[tuple[float, float]] = []
    for number, at in enumerate(CLICKS):
        x = _LEFT + (number + 0.5) * step
        level = y(seen_until(number + 1))
        seen += [(x, level), (x + step, level)]
        parts += [dot(x, y(at), late=is_late(number)), text(x, _BOTTOM + 18, str(number + 1))]
    low = y(0) - y(LATENESS)
    parts += [line("seen", *seen[:-1]), line("mark", *((x, place + low) for x, place in seen[:-1]))]
    end = y(seen_until(len(CLICKS)))
    parts += [
        text(_RIGHT + 14, end + 5, "greatest time so far", anchor="start"),
        text(_RIGHT + 14, end + low + 5, "watermark: 10 minutes less", "latetext", "start"),
    ]
    late = next(number for number in range(len(CLICKS)) if is_late(number))
    place = _LEFT + (late + 0.5) * step
    parts += [text(place + 14, y(CLICKS[late]) + 22, "late: below the watermark", "latetext", "start")]
    return [*parts, line("axis", (_LEFT, _TOP), (_LEFT, _BOTTOM), (_RIGHT, _BOTTOM))]


def windows() -> list[str]:
    """The clicks as they happened, and the windows that they are in."""
    right = WIDTH - 40

    def x(minute: float) -> float:
        return 170 + minute * (right - 170) / 60

    parts = [text(24, 40, "clicks", "title", "start")]
    for minute in range(0, 70, 10):
        parts += [line("grid", (x(minute), 52), (x(minute), 372)), text(x(minute), 390, clock(minute))]
    for number, at in enumerate(CLICKS):
        parts += [dot(x(at), 66, late=is_late(number)), text(x(at), 46, str(number + 1))]
    late = next(at for number, at in enumerate(CLICKS) if is_late(number))

    def bar(row: int, begin: int, end: int, count: int) -> list[str]:
        kind = "moved" if begin <= late < end else "bar"
        y, width = 88 + row * 34, x(min(end, 60)) - x(max(begin, 0)) - 3
        label = text(x(max(begin, 0)) + width / 2, y + 18, f"{count} {'click' if count == 1 else 'clicks'}")
        return [f'<rect class="{kind}" x="{x(max(begin, 0)):g}" y="{y}" width="{width:g}" height="26" rx="6"/>', label]

    def inside(begin: int, end: int) -> int:
        return sum(begin <= at < end for at in CLICKS)

    for begin in range(0, 60, SIZE):
        parts += bar(0, begin, begin + SIZE, inside(begin, begin + SIZE))
    for begin in range(-SLIDE, 50, SLIDE):
        parts += bar(2 if begin % SIZE == 0 else 3, begin, begin + SIZE, inside(begin, begin + SIZE))
    for begin, end, count in sessions():
        parts += bar(5, begin, end, count)
    parts += [
        text(24, 106, "every 20 minutes", anchor="start"),
        text(24, 174, "20 minutes,", anchor="start"),
        text(24, 192, "every 10 minutes", anchor="start"),
        text(24, 276, "sessions, 10 minutes", anchor="start"),
        text(170, 330, "The late click changes the windows that it is in, and no other.", "latetext", "start"),
    ]
    return parts


def sessions() -> list[tuple[int, int, int]]:
    """Begin, end and number of clicks of each session."""
    found: list[tuple[int, int, int]] = []
    for at in sorted(CLICKS):
        if found and at <= found[-1][1]:
            begin, _, count = found[-1]
            found[-1] = (begin, at + GAP, count + 1)
        else:
            found.append((at, at + GAP, 1))
    return found


def picture(label: str, parts: list[str]) -> str:
    """A picture as SVG."""
    page = f'<rect class="page" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" '
        f'font-family="system-ui, -apple-system, Segoe UI, Roboto, DejaVu Sans, sans-serif">\n'
        f"<style>{_STYLE}</style>\n" + "\n".join([page, *parts]) + "\n</svg>\n"
    )


def pictures() -> dict[str, str]:
    """Name of the file -> its text."""
    return {
        "watermark.svg": picture("Clicks in the order of the log; one is below the watermark and late", watermark()),
        "windows.svg": picture("The same clicks as they happened, and the windows that they are in", windows()),
    }


if __name__ == "__main__":
    for name, content in pictures().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
