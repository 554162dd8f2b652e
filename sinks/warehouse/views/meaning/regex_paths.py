"""Decides whether the text that a regular expression matches is the same in PostgreSQL and in Java. Pure.

Whether a text matches is the same in both. Which part of it matches is not: PostgreSQL takes the longest match, Java
the first one that it finds. A pattern is deterministic if each next character can be matched by one place of the
pattern only. Then a text has one way through it, so the first match found by greedy repetition is the longest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sinks.warehouse.views.meaning.regex_syntax import Anchor, Chars, Choice, Group, Item, Repeat, Row

_PLACES_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class _Part:
    """Places of a part of a pattern: those that can come first and last, and whether it matches the empty text."""

    first: tuple[int, ...]
    last: tuple[int, ...]
    empty: bool


class _Ambiguous(Exception):
    """Its message says why the match can differ."""


def ambiguity(item: Item) -> str:
    """Return why the match, or the text of a group, can differ; empty if it cannot."""
    try:
        _Paths().check(item)
    except _Ambiguous as why:
        return str(why)
    return ""


def matches_empty(item: Item) -> bool:
    """Whether a pattern matches the empty text."""
    if isinstance(item, Row):
        return all(map(matches_empty, item.items))
    if isinstance(item, Choice):
        return any(map(matches_empty, item.items))
    if isinstance(item, Group):
        return matches_empty(item.item)
    if isinstance(item, Repeat):
        return item.low == 0 or matches_empty(item.item)
    return isinstance(item, Anchor)


def recurses(item: Item) -> bool:
    """Whether Java matches it by a recursion whose depth grows with the text."""
    return any(
        isinstance(one, Repeat) and one.high is None and not isinstance(one.item, Chars) for one in _walked(item)
    )


def groups(item: Item) -> list[bool]:
    """Return the groups that capture, in order: whether each is part of every match, exactly once."""
    return list(_groups(item, always=True))


def _groups(item: Item, *, always: bool) -> Iterator[bool]:
    if isinstance(item, Group):
        if item.captures:
            yield always
        yield from _groups(item.item, always=always)
    elif isinstance(item, Repeat):
        yield from _groups(item.item, always=False)
    elif isinstance(item, Choice):
        for one in item.items:
            yield from _groups(one, always=False)
    elif isinstance(item, Row):
        for one in item.items:
            yield from _groups(one, always=always)


def _walked(item: Item) -> Iterator[Item]:
    yield item
    if isinstance(item, Row | Choice):
        for one in item.items:
            yield from _walked(one)
    elif isinstance(item, Group | Repeat):
        yield from _walked(item.item)


class _Paths:
    """Numbers the places of a pattern, and finds which can follow which (Glushkov's automaton)."""

    def __init__(self) -> None:
        self._sets: list[Chars] = []
        self._next: list[set[int]] = []

    def check(self, item: Item) -> None:
        items = item.items if isinstance(item, Row) else (item,)
        if items and isinstance(items[0], Anchor) and items[0].start:
            items = items[1:]
        if items and isinstance(items[-1], Anchor) and not items[-1].start:
            items = items[:-1]
        part = self._part(Row(items))
        for following in (set(part.first), *self._next):
            places = sorted(following)
            for at, one in enumerate(places):
                if any(self._sets[one].meets(self._sets[other]) for other in places[at + 1 :]):
                    raise _Ambiguous("PostgreSQL takes the longest match and Spark the first, which can differ")

    def _part(self, item: Item) -> _Part:
        if isinstance(item, Chars):
            return self._place(item)
        if isinstance(item, Group):
            return self._part(item.item)
        if isinstance(item, Row):
            return self._joined([self._part(one) for one in item.items])
        if isinstance(item, Choice):
            parts = [self._part(one) for one in item.items]
            first = tuple(place for part in parts for place in part.first)
            last = tuple(place for part in parts for place in part.last)
            if any(part.empty for part in parts):
                raise _Ambiguous("an alternative matches the empty text")
            return _Part(first, last, empty=False)
        if isinstance(item, Repeat):
            return self._repeated(item)
        raise _Ambiguous("^ and $ are not at its start and end")

    def _place(self, chars: Chars) -> _Part:
        if len(self._sets) >= _PLACES_MAX:
            raise _Ambiguous("its repetitions are too long")
        self._sets.append(chars)
        self._next.append(set())
        place = len(self._sets) - 1
        return _Part((place,), (place,), empty=False)

    def _joined(self, parts: list[_Part]) -> _Part:
        found = _Part((), (), empty=True)
        for part in parts:
            for place in found.last:
                self._next[place].update(part.first)
            found = _Part(
                found.first + (part.first if found.empty else ()),
                part.last + (found.last if part.empty else ()),
                empty=found.empty and part.empty,
            )
        return found

    def _repeated(self, item: Repeat) -> _Part:
        if item.lazy and item.low != item.high:
            raise _Ambiguous("it repeats as few times as possible")
        if matches_empty(item.item):
            raise _Ambiguous("it repeats what matches the empty text")
        parts = [self._part(item.item) for _ in range(item.low)]
        tail = _Part((), (), empty=True)
        for _ in range(0 if item.high is None else item.high - item.low):
            joined = self._joined([self._part(item.item), tail])
            tail = _Part(joined.first, joined.last, empty=True)
        if item.high is None:
            loop = self._part(item.item)
            for place in loop.last:
                self._next[place].update(loop.first)
            tail = _Part(loop.first, loop.last, empty=True)
        return self._joined([*parts, tail])
