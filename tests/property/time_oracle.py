"""What windows over event time contain, by the simplest rules: one row and one window at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, TypeAlias

Event: TypeAlias = "dict[str, Any]"
"""id, user_id, at (a time or None), amount."""
Groups: TypeAlias = "dict[tuple[Any, ...], list[Event]]"

_ZERO = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC, like the sessions of a lake


def windows(events: Iterable[Event], size_s: int, slide_s: int, offset_s: int = 0, *, by: str = "") -> Groups:
    """(begin, end, value of `by`) -> events in the window."""
    found: Groups = defaultdict(list)
    for event in events:
        if event["at"] is None:
            continue
        second = (event["at"] - _ZERO).total_seconds() - offset_s
        begin = second - second % slide_s
        while begin + size_s > second:
            start = _ZERO + timedelta(seconds=begin + offset_s)
            found[start, start + timedelta(seconds=size_s), event.get(by)].append(event)
            begin -= slide_s
    return found


def sessions(events: Iterable[Event], gap_s: int, *, by: str) -> Groups:
    """(begin, end, value of `by`) -> events in the session, which ends `gap_s` after its last one."""
    apart: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        if event["at"] is not None:
            apart[event[by]].append(event)
    found: Groups = {}
    gap = timedelta(seconds=gap_s)
    for value, own in apart.items():
        run: list[Event] = []
        for event in sorted(own, key=lambda one: one["at"]):
            if run and event["at"] > run[-1]["at"] + gap:
                found[run[0]["at"], run[-1]["at"] + gap, value] = run
                run = []
            run = [*run, event]
        found[run[0]["at"], run[-1]["at"] + gap, value] = run
    return found
