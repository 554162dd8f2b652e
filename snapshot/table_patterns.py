"""Selects tables by the names and patterns of a signal, in time linear in their lengths. Pure.

A pattern comes from any program that may write to the signals topic. Python's own `re` backtracks: one short expression
can hold the interpreter lock for years. RE2 does not backtrack. It supports no lookaround, back-references or
possessive repeats, and reads a repeat count that does not fit an integer as text, so counts are checked first.

https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final, Protocol, cast

import re2

PATTERN_MAX: Final = 500  # characters
REPEAT_MAX: Final = 1000  # as RE2 has it, for counts that it recognises
COMPARISONS_MAX: Final = 200_000  # patterns x tables of one signal, each some microseconds
_MEMORY_MAX: Final = 512 << 10  # bytes of one compiled expression and its cached states
_REPEAT: Final = re.compile(r"\{([0-9]*)(?:,([0-9]*))?\}")
_NOTHING: Final = r"[^\x00-\x{10ffff}]"
_WILD: Final = frozenset("*?[")


class PatternError(Exception):
    """The pattern cannot be used; the message says why and quotes nothing of it."""


class _Expression(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


def selected(pattern: str, names: Collection[str], *, regular: bool) -> list[str]:
    """Return those of `names` that a pattern selects; a name selects itself.

    `regular`: the pattern is a regular expression that matches a whole name; otherwise it is a shell pattern.

    Raises:
        PatternError: the regular expression is invalid, unsupported or too large.
    """
    if pattern in names:
        return [pattern]
    if not regular and not _WILD & set(pattern):
        return []
    expression = compiled(pattern) if regular else _compiled_shell(pattern)
    return [name for name in names if expression.fullmatch(name)]


@lru_cache(maxsize=64)
def compiled(pattern: str) -> _Expression:
    """Return a regular expression that matches in linear time. Raises PatternError."""
    if len(pattern) > PATTERN_MAX:
        raise PatternError(f"the regular expression has {len(pattern)} characters; at most {PATTERN_MAX} are accepted")
    counts = [count for found in _REPEAT.finditer(pattern) for count in found.groups() if count]
    if any(len(count.lstrip("0")) > len(str(REPEAT_MAX)) or int(count) > REPEAT_MAX for count in counts):
        raise PatternError(f"the regular expression repeats something more than {REPEAT_MAX} times")
    return _compiled(pattern)


@lru_cache(maxsize=64)
def _compiled_shell(pattern: str) -> _Expression:
    """Return what matches as `fnmatch.fnmatchcase` does, which is slow for some patterns. Raises PatternError."""
    if len(pattern) > PATTERN_MAX:
        raise PatternError(f"the pattern has {len(pattern)} characters; at most {PATTERN_MAX} are accepted")
    pieces, at = [], 0
    while at < len(pattern):
        sign, at = pattern[at], at + 1
        if sign == "*":
            pieces.append(".*")
        elif sign == "?":
            pieces.append(".")
        elif sign == "[" and (end := pattern.find("]", at + 1 + (pattern[at : at + 1] == "!"))) >= 0:
            pieces.append(_any_of(pattern[at:end]))
            at = end + 1
        else:
            pieces.append(re2.escape(sign))
    return _compiled("".join(pieces), dot_matches_newline=True)


def _any_of(body: str) -> str:
    """Return the expression for what stands in brackets; a range whose ends are in the wrong order is empty."""
    negated, body = body[:1] == "!", body.removeprefix("!")
    found, at = "", 0
    while at < len(body):
        if body[at + 1 : at + 2] == "-" and at + 2 < len(body):
            low, high = body[at], body[at + 2]
            found += f"{_code(low)}-{_code(high)}" if low <= high else ""
            at += 3
        else:
            found += _code(body[at])
            at += 1
    if not found:
        return "." if negated else _NOTHING
    return f"[{'^' if negated else ''}{found}]"


def _code(sign: str) -> str:
    return f"\\x{{{ord(sign):x}}}"


def _compiled(expression: str, *, dot_matches_newline: bool = False) -> _Expression:
    options = re2.Options()
    options.max_mem = _MEMORY_MAX
    options.log_errors = False
    options.dot_nl = dot_matches_newline
    try:
        return cast("_Expression", re2.compile(expression, options))
    except (re2.error, UnicodeEncodeError):
        raise PatternError(
            "the regular expression is invalid, too large, or uses lookaround, back-references or possessive repeats, "
            "which are not supported"
        ) from None


def check_comparisons(patterns: Sequence[str], table_count: int) -> None:
    """Raise PatternError when so many patterns over so many tables would take too long."""
    if len(patterns) * table_count > COMPARISONS_MAX:
        raise PatternError(
            f"{len(patterns)} patterns over {table_count} tables are too many; name the tables, or send several signals"
        )
