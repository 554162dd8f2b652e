"""Parses the subset of PostgreSQL's regular expressions that has the same meaning in Java. Pure.

PostgreSQL's patterns (ARE) and Java's differ in syntax, in what classes contain, and in where ``^``, ``$`` and ``.``
match. So a pattern is parsed here, and Java's is written from what was understood: sets of code points, sequences,
alternatives and repetitions. Everything else is refused with its position.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

_LAST: Final = 0x10FFFF
_BOUND_MOST: Final = 255  # DUPMAX of PostgreSQL
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_ASCII: Final = [chr(code) for code in range(1, 128)]
_PUNCTUATION: Final = frozenset(string.punctuation)
_SPACE: Final = " \t\n\v\f\r"
_WORD: Final = string.ascii_letters + string.digits + "_"
_CLASSES: Final = {
    "alpha": string.ascii_letters,
    "digit": string.digits,
    "alnum": string.ascii_letters + string.digits,
    "upper": string.ascii_uppercase,
    "lower": string.ascii_lowercase,
    "space": _SPACE,
    "blank": " \t",
    "punct": string.punctuation,
    "xdigit": string.hexdigits,
    "cntrl": "".join(one for one in _ASCII if ord(one) < 32 or ord(one) == 127),
    "print": "".join(one for one in _ASCII if 32 <= ord(one) < 127),
    "graph": "".join(one for one in _ASCII if 32 < ord(one) < 127),
}
_SHORTHANDS: Final = {"d": string.digits, "w": _WORD, "s": _SPACE}
_CLASS_HINT: Final = 'a class of characters follows the collation: write e.g. [0-9], or x collate "C" ~ ...'


class Unknown(Exception):
    """A pattern has a construct that is not known to be equal. `at` is its position from 1, `hint` what to write."""

    def __init__(self, at: int, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.at = at
        self.what = what
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set of code points, as sorted ranges that neither touch nor overlap."""

    ranges: tuple[tuple[int, int], ...]

    def java(self) -> str:
        """Return it in Java's syntax."""
        if len(self.ranges) == 1 and self.ranges[0][0] == self.ranges[0][1]:
            return _code(self.ranges[0][0])
        if self.ranges == ((0, _LAST),):
            return "."
        return f"[{''.join(_code(low) if low == high else f'{_code(low)}-{_code(high)}' for low, high in self.ranges)}]"

    def meets(self, other: Chars) -> bool:
        """Whether both sets have a character in common."""
        return any(a <= d and c <= b for a, b in self.ranges for c, d in other.ranges)


@dataclass(frozen=True, slots=True)
class Anchor:
    """The start or the end of the text."""

    start: bool

    def java(self) -> str:
        """Return it in Java's syntax, where $ is also before a newline at the end."""
        return r"\A" if self.start else r"\z"


@dataclass(frozen=True, slots=True)
class Row:
    """One item after the other."""

    items: tuple[Item, ...]

    def java(self) -> str:
        """Return it in Java's syntax."""
        return "".join(one.java() for one in self.items)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several items."""

    items: tuple[Item, ...]

    def java(self) -> str:
        """Return it in Java's syntax."""
        return "|".join(one.java() for one in self.items)


@dataclass(frozen=True, slots=True)
class Group:
    """An item in parentheses, which may be a group that captures."""

    item: Item
    captures: bool

    def java(self) -> str:
        """Return it in Java's syntax."""
        return f"({'' if self.captures else '?:'}{self.item.java()})"


@dataclass(frozen=True, slots=True)
class Repeat:
    """An item several times; no `high` is any number of times."""

    item: Item
    low: int
    high: int | None
    lazy: bool

    def java(self) -> str:
        """Return it in Java's syntax."""
        return f"{self.item.java()}{{{self.low},{'' if self.high is None else self.high}}}{'?' if self.lazy else ''}"


Item: TypeAlias = Chars | Anchor | Row | Choice | Group | Repeat


def parsed(pattern: str, *, c: bool, any_case: bool) -> Item:
    """Parse a pattern.

    Args:
        pattern: PostgreSQL's regular expression.
        c: whether the collation is C, so that classes are those of ASCII.
        any_case: whether letters match in both cases.

    Raises:
        Unknown: it is not known to be equal in Java.
    """
    if pattern.startswith("***"):
        raise Unknown(1, "a prefix ***")
    return _Parser(pattern, c, any_case).whole()


class _Parser:
    def __init__(self, pattern: str, c: bool, any_case: bool) -> None:  # noqa: FBT001  the fields of one pattern
        self._text = pattern
        self._at = 0
        self._c = c
        self._any_case = any_case

    def whole(self) -> Item:
        if not self._text:
            return Row(())
        found = self._choice()
        if self._peek():
            raise self._unknown("a parenthesis without its partner")
        return found

    def _choice(self) -> Item:
        items = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            items.append(self._sequence())
        return items[0] if len(items) == 1 else Choice(tuple(items))

    def _sequence(self) -> Item:
        items: list[Item] = []
        while self._peek() not in {"", "|", ")"}:
            items.append(self._repeated())
        if not items:
            raise self._unknown("an empty alternative", "write (...)? for an optional part")
        return items[0] if len(items) == 1 else Row(tuple(items))

    def _repeated(self) -> Item:
        start = self._at
        item = self._atom()
        bounds = self._bounds()
        if bounds is None:
            return item
        if isinstance(item, Anchor):
            self._at = start
            raise self._unknown("a repeated anchor")
        lazy = self._peek() == "?"
        if lazy:
            self._at += 1
        if self._peek() in {"*", "+", "?", "{"}:
            raise self._unknown("two quantifiers in a row")
        return Repeat(item, *bounds, lazy)

    def _bounds(self) -> tuple[int, int | None] | None:
        one = self._peek()
        if one in {"*", "+", "?"}:
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[one]
        if one != "{":
            return None
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(end, 0)].partition(",")
        digits = [low] + ([high] if high else [])
        if end < 0 or not all(part.isascii() and part.isdigit() and int(part) <= _BOUND_MOST for part in digits):
            raise self._unknown("this repetition", "write {m}, {m,} or {m,n} with numbers up to 255")
        least, most = int(low), (int(high) if high else None) if comma else int(low)
        if most is not None and (most < least or most == 0):
            raise self._unknown("this repetition", "write {m,n} with n >= m and n > 0")
        self._at = end + 1
        return least, most

    def _atom(self) -> Item:
        one = self._peek()
        if one == "(":
            return self._group()
        if one == "[":
            return self._bracket()
        if one == "\\":
            return self._escape()
        if one in {"*", "+", "?", "{"}:
            raise self._unknown("a quantifier without something before it", f"write \\{one} for the character")
        if one in {"}", "]"}:
            raise self._unknown(f"a single {one}", f"write \\{one}")
        self._at += 1
        if one == ".":
            return Chars(((0, _LAST),))
        if one in {"^", "$"}:
            return Anchor(start=one == "^")
        return self._set([(ord(one), ord(one))])

    def _group(self) -> Item:
        captures = not self._text.startswith("(?", self._at)
        if not captures and not self._text.startswith("(?:", self._at):
            raise self._unknown("options, a comment or a look-around (?", "write (?:...) for a group")
        start = self._at
        self._at += 1 if captures else 3
        found = self._choice()
        if self._peek() != ")":
            self._at = start
            raise self._unknown("a parenthesis without its partner")
        self._at += 1
        return Group(found, captures)

    def _escape(self) -> Item:
        one = self._text[self._at + 1 : self._at + 2]
        if one in {"A", "Z"}:
            self._at += 2
            return Anchor(start=one == "A")
        if one.lower() in _SHORTHANDS and one:
            ranges = self._class(_SHORTHANDS[one.lower()])
            self._at += 2
            return self._set(ranges, negated=one.isupper())
        found = self._escaped()
        return self._set([(found, found)])

    def _escaped(self) -> int:
        """Read an escaped character, and return its code point."""
        one = self._text[self._at + 1 : self._at + 2]
        if one not in _CONTROLS and one not in _PUNCTUATION:
            raise self._unknown(f"the escape \\{one}", "escape punctuation only; write (^|[^a-z]) for a word's edge")
        self._at += 2
        return ord(_CONTROLS.get(one, one))

    def _bracket(self) -> Item:
        start = self._at
        self._at += 1
        negated = self._peek() == "^"
        if negated:
            self._at += 1
        ranges: list[tuple[int, int]] = []
        first = True
        while self._peek() != "]" or first:
            if not self._peek():
                self._at = start
                raise self._unknown("a bracket without its partner")
            ranges += self._in_bracket(is_first=first)
            first = False
        self._at += 1
        return self._set(ranges, negated=negated)

    def _in_bracket(self, *, is_first: bool) -> Sequence[tuple[int, int]]:
        """Read one item of a bracket expression."""
        if self._text.startswith("[:", self._at):
            end = self._text.find(":]", self._at)
            name = self._text[self._at + 2 : max(end, 0)]
            if name not in _CLASSES:
                raise self._unknown(f"the class [:{name[:20]}:]")
            ranges = self._class(_CLASSES[name])
            self._at = end + 2
            return ranges
        if self._peek() == "[" and self._text[self._at + 1 : self._at + 2] in {".", "="}:
            raise self._unknown("a collating element", "write the character itself")
        if self._peek() == "\\" and self._text[self._at + 1 : self._at + 2] in _SHORTHANDS:
            ranges = self._class(_SHORTHANDS[self._text[self._at + 1]])
            self._at += 2
            return ranges
        low = self._single()
        if low == ord("-") and not is_first and self._peek() != "]":
            self._at -= 1
            raise self._unknown("a - within a bracket", "write it first or last")
        if self._peek() != "-" or self._text.startswith("-]", self._at):
            return [(low, low)]
        self._at += 1
        if self._peek() == "[":
            raise self._unknown("a range that ends with [", "write \\[")
        high = self._single()
        if high < low or high > 127 or low == ord("-"):
            raise self._unknown("this range", "write ranges of ASCII characters, such as a-z")
        if self._peek() == "-" and not self._text.startswith("-]", self._at):
            raise self._unknown("a - within a bracket", "write it first or last")
        return [(low, high)]

    def _single(self) -> int:
        """Read one character of a bracket expression."""
        if not self._peek():
            raise self._unknown("a bracket without its partner")
        if self._peek() == "\\":
            return self._escaped()
        self._at += 1
        return ord(self._text[self._at - 1])

    def _class(self, characters: str) -> list[tuple[int, int]]:
        if not self._c and characters != string.hexdigits:
            raise self._unknown("a class of characters", _CLASS_HINT)
        return [(ord(one), ord(one)) for one in characters]

    def _set(self, ranges: Sequence[tuple[int, int]], *, negated: bool = False) -> Chars:
        if self._any_case:
            ranges = [*ranges, *_other_case(ranges)]
        merged = _merged(ranges)
        return Chars(_complement(merged) if negated else merged)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _unknown(self, what: str, hint: str = "") -> Unknown:
        return Unknown(self._at + 1, what, hint)


def _other_case(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the other case of the ASCII letters of some ranges."""
    letters = [one for one in string.ascii_letters if any(low <= ord(one) <= high for low, high in ranges)]
    return [(ord(one.swapcase()), ord(one.swapcase())) for one in letters]


def _merged(ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def _complement(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    starts = [0, *(high + 1 for _, high in ranges)]
    ends = [*(low - 1 for low, _ in ranges), _LAST]
    return tuple((low, high) for low, high in zip(starts, ends, strict=True) if low <= high)


def _code(code: int) -> str:
    """Return a character in Java's syntax: letters and digits as they are, others by number."""
    one = chr(code)
    return one if one.isascii() and one.isalnum() else f"\\x{{{code:x}}}"
