"""Translates frames of windows: ROWS, and RANGE with and without distances. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from sinks.warehouse.views.meaning.aggregates import sorted_by
from sinks.warehouse.views.meaning.pg_types import DATE, INTEGERS
from sinks.warehouse.views.meaning.refusal import NotProven

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.typed import Typed

_HINT: Final = "write rows between n preceding and n following"
_WORDS: Final = {"UNBOUNDED": "unbounded", "CURRENT ROW": "current row"}
_UNITS: Final = {"week": ("day", 7), "day": ("day", 1)}
_DAYS: Final = {"timestamp", "timestamptz"}
_SIDES: Final = ("unbounded preceding", "preceding", "current row", "following", "unbounded following")
_ALTERNATIVES: Final = {
    "GROUPS": "compute dense_rank() in a subquery, and use range over it",
    "EXCLUDE": "subtract the excluded row's value, or filter rows in a lateral subquery",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame in Spark SQL, and another sort key for it; empty for that of the window."""

    bounds: str
    key: str = ""


def frame(node: exp.Window, spec: exp.WindowSpec, order: Sequence[tuple[Typed, exp.Ordered]]) -> Frame:
    """Translate a frame. Raises NotProven."""
    kind = str(spec.args.get("kind") or "").upper()
    exclude = spec.args.get("exclude")
    if kind == "GROUPS" or (exclude is not None and exclude.name.upper() != "NO OTHERS"):
        word = "GROUPS" if kind == "GROUPS" else "EXCLUDE"
        raise NotProven(node, f"uses a frame with {word.lower()}", _ALTERNATIVES[word])
    if kind not in {"ROWS", "RANGE"}:
        raise NotProven(node, "uses this frame", _HINT)
    start = _bound(node, spec, "start")
    end = _bound(node, spec, "end") if spec.args.get("end") else ("current row", "")
    _check_order(node, start, end)
    if kind == "ROWS" or not (start[1] or end[1]):
        if kind == "ROWS" and any(one[1] and not one[1].isdigit() for one in (start, end)):
            raise NotProven(node, "uses a frame of rows with this distance", _HINT)
        return Frame(f"{kind.lower()} between {_shown(start)} and {_shown(end)}")
    if len(order) != 1:
        raise NotProven(node, "uses a frame of range with a distance, and not one sort key", "order by one column")
    key, ordered = order[0]
    return _ranged(node, key, ordered, start, end)


def _ranged(node: exp.Window, key: Typed, ordered: exp.Ordered, start: tuple[str, str], end: tuple[str, str]) -> Frame:
    """Return a frame of RANGE with distances, over a key that is wide enough for key + distance."""
    if key.type.name in INTEGERS:
        if any(one[1] and not one[1].isdigit() for one in (start, end)):
            raise NotProven(node, "uses a frame of range with this distance", "write a whole number")
        wide = key.of(f"cast({key.sql} as decimal(38,0))", key.type)
        return Frame(f"range between {_shown(start)} and {_shown(end)}", sorted_by(wide, ordered))
    if key.type == DATE or key.type.name in _DAYS:
        if any(one[1] and not one[1].startswith("interval") for one in (start, end)):
            raise NotProven(node, "uses a frame of range with this distance", "write interval '7 days' preceding")
        return Frame(f"range between {_shown(start)} and {_shown(end)}")
    raise NotProven(node, f"uses a frame of range with a distance over {key.type}", "order by an integer or a time")


def _bound(node: exp.Window, spec: exp.WindowSpec, side: str) -> tuple[str, str]:
    """Return which bound it is, and its distance."""
    value, direction = spec.args.get(side), str(spec.args.get(f"{side}_side") or "").lower()
    if isinstance(value, exp.Literal) and not value.is_string and value.name.isdigit():
        return direction, value.name
    if isinstance(value, exp.Interval | exp.Cast | exp.Literal):
        return direction, _interval(node, value)
    shown = _WORDS.get(str(value).upper(), "")
    if not shown:
        raise NotProven(node, "uses this frame", _HINT)
    return f"{shown} {direction}".strip(), ""


def _interval(node: exp.Window, value: exp.Expr) -> str:
    unit = value.args.get("unit")
    name = unit.name.lower().removesuffix("s") if isinstance(unit, exp.Var) else ""
    text = str(value.this.this) if isinstance(value, exp.Interval) and isinstance(value.this, exp.Literal) else ""
    if name not in _UNITS or not text.isdigit() or len(text) > 6:
        raise NotProven(node, "uses a frame of range with this distance", "write interval '7 days' preceding")
    shown, times = _UNITS[name]
    return f"interval '{int(text) * times}' {shown}"


def _shown(bound: tuple[str, str]) -> str:
    return f"{bound[1]} {bound[0]}" if bound[1] else bound[0]


def _check_order(node: exp.Window, start: tuple[str, str], end: tuple[str, str]) -> None:
    """Refuse frames that PostgreSQL refuses: those that end before they begin."""
    first, last = _SIDES.index(start[0]), _SIDES.index(end[0])
    if first > last or start[0] == "unbounded following" or end[0] == "unbounded preceding":
        raise NotProven(node, "uses a frame that ends before it begins", _HINT)
