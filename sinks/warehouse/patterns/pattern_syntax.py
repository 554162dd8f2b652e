"""Parses the text in PATTERN (...) to a tree. Pure.

    A B+ (C | D){1,3}? $     variables, sequences, alternatives, quantifiers, anchors

Quantifiers are greedy, and reluctant with a ``?`` behind them. The standard (ISO/IEC 9075-2, row pattern recognition)
also has PERMUTE, exclusions and patterns that match no row. They are refused here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from sinks.warehouse.patterns.refusal import PatternRefused

_TOKEN: Final = re.compile(
    r"(?P<space>\s+|--[^\n]*|/\*.*?\*/)|(?P<name>[A-Za-z_]\w*|`(?:[^`]|``)+`)|(?P<number>\d+)|(?P<sign>\{-|-\}|[-+*?(){},|^$])",
    re.DOTALL,
)
_DEPTH_MAX: Final = 50  # parentheses within each other
REPEAT_MAX: Final = 1_000  # a bounded quantifier is written out that often


@dataclass(frozen=True, slots=True)
class Variable:
    """One row that meets the condition of a variable, whose name is in upper case."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the parts; an earlier one is preferred."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part `least` to `most` times, or without an end; more often is preferred unless it is reluctant."""

    part: Pattern
    least: int
    most: int | None
    is_reluctant: bool = False


@dataclass(frozen=True, slots=True)
class Anchor:
    """The start or the end of the partition; matches no row."""

    is_start: bool


Pattern: TypeAlias = Variable | Sequence | Choice | Repeat | Anchor


def parse_pattern(text: str, start: int = 0) -> Pattern:
    """Return the tree of a pattern. Raises PatternRefused; its place counts from `start`."""
    reader = _Reader(text, start)
    found = reader.choice(0)
    if reader.sign is not None or reader.name is not None:
        raise reader.error(f"PATTERN has an unexpected {reader.shown}")
    if may_be_empty(found):
        raise PatternRefused(
            "PATTERN can match without any row", "require a row: A+ instead of A*, or one more variable", start
        )
    return found


def may_be_empty(pattern: Pattern) -> bool:
    """Whether it can match without a row."""
    if isinstance(pattern, Variable):
        return False
    if isinstance(pattern, Sequence):
        return all(map(may_be_empty, pattern.parts))
    if isinstance(pattern, Choice):
        return any(map(may_be_empty, pattern.parts))
    return isinstance(pattern, Anchor) or pattern.least == 0 or may_be_empty(pattern.part)


def variables_of(pattern: Pattern) -> tuple[str, ...]:
    """Return its variables in the order of their first use."""
    if isinstance(pattern, Variable):
        return (pattern.name,)
    if isinstance(pattern, Anchor):
        return ()
    parts = (pattern.part,) if isinstance(pattern, Repeat) else pattern.parts
    return tuple(dict.fromkeys(name for part in parts for name in variables_of(part)))


def variable_name(text: str) -> str:
    """Return a name as written, with or without quotes, as the name of a variable: it has no case."""
    plain = text[1:-1].replace("``", "`") if text.startswith("`") else text
    return plain.upper()


class _Reader:
    """The tokens of a pattern, one at a time: `name` or `sign` is the current one, both None at the end."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._start = start
        self._next = 0
        self.place = start
        self.name: str | None = None
        self.sign: str | None = None
        self.advance()

    @property
    def shown(self) -> str:
        return self.name or self.sign or "end"

    def error(self, message: str, hint: str = "write PATTERN (A B+ (C | D)*)") -> PatternRefused:
        return PatternRefused(message, hint, self.place)

    def advance(self) -> None:
        self.name = self.sign = None
        while self._next < len(self._text):
            self.place = self._start + self._next
            match = _TOKEN.match(self._text, self._next)
            if match is None:
                raise self.error(f"PATTERN has an unexpected {self._text[self._next]!r}")
            self._next = match.end()
            if match["space"] is None:
                self.name = match["name"]
                self.sign = match["sign"] or match["number"]
                return
        self.place = self._start + len(self._text)

    def choice(self, depth: int) -> Pattern:
        if depth > _DEPTH_MAX:
            raise self.error(f"PATTERN has more than {_DEPTH_MAX} parentheses within each other", "simplify it")
        parts = [self._sequence(depth)]
        while self.sign == "|":
            self.advance()
            parts.append(self._sequence(depth))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self, depth: int) -> Pattern:
        parts = []
        while self.name is not None or self.sign in {"(", "^", "$", "{-"}:
            parts.append(self._repeated(self._single(depth)))
        if not parts:
            raise self.error(f"PATTERN expects a variable before {self.shown}")
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _single(self, depth: int) -> Pattern:
        if self.sign == "{-":
            raise self.error("PATTERN has an exclusion {- -}, which is not supported", "select rows by CLASSIFIER()")
        found: Pattern
        if self.sign == "(":
            self.advance()
            found = self.choice(depth + 1)
            if self.sign != ")":
                raise self.error(f"PATTERN expects ) before {self.shown}")
        elif self.sign is not None:
            found = Anchor(self.sign == "^")
        else:
            found = Variable(variable_name(str(self.name)))
        self.advance()
        if isinstance(found, Variable) and found.name == "PERMUTE" and self.sign == "(":
            raise self.error("PATTERN has PERMUTE, which is not supported", "write the orders: (A B | B A)")
        return found

    def _repeated(self, part: Pattern) -> Pattern:
        bounds: tuple[int, int | None] | None = None
        if self.sign in {"*", "+", "?"}:
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self.sign]
            self.advance()
        elif self.sign == "{":
            bounds = self._bounds()
        if bounds is None:
            return part
        least, most = bounds
        if most is None and may_be_empty(part):
            hint = "repeat something that has a row: (A | B)* instead of (A* | B)*"
            raise self.error("PATTERN repeats without an end what can match no row", hint)
        if max(least, most or 0) > REPEAT_MAX or (most is not None and not least <= most) or most == 0:
            raise self.error(f"PATTERN has an invalid quantifier {{{least},{most}}}", f"write {{1,{REPEAT_MAX}}}")
        is_reluctant = self.sign == "?"
        if is_reluctant:
            self.advance()
        if self.sign in {"*", "+", "?", "{"}:
            raise self.error("PATTERN has two quantifiers in a row", "put the first into parentheses: (A+)?")
        return Repeat(part, least, most, is_reluctant)

    def _bounds(self) -> tuple[int, int | None]:
        self.advance()
        least = self._number()
        most = least
        if self.sign == ",":
            self.advance()
            most = self._number()
        elif least is None:
            raise self.error("PATTERN has an invalid quantifier {}", "write {2}, {2,}, {,3} or {2,3}")
        if self.sign != "}":
            raise self.error("PATTERN has an invalid quantifier", "write {2}, {2,}, {,3} or {2,3}")
        self.advance()
        return least or 0, most

    def _number(self) -> int | None:
        if self.sign is None or not self.sign.isdigit():
            return None
        found = int(self.sign[:9])
        self.advance()
        return found
