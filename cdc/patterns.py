"""Matches ``schema.table`` names against shell patterns, as `source.tables` and sinks use them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

_Choice = TypeVar("_Choice")


def matches(table: str, patterns: Sequence[str]) -> bool:
    """Return whether ``schema.table`` is selected. The last matching pattern decides; a leading ``!`` excludes."""
    for pattern in reversed(patterns):
        if fnmatchcase(table, pattern.removeprefix("!")):
            return not pattern.startswith("!")
    return False


def chosen(table: str, overrides: Mapping[str, _Choice], default: _Choice) -> _Choice:
    """Return the value of the last pattern that matches ``schema.table``, or `default`."""
    for pattern in reversed(list(overrides)):
        if fnmatchcase(table, pattern):
            return overrides[pattern]
    return default


def pattern_for(name: str) -> str:
    """Return a pattern that matches `name` and, unless `name` begins with ``!``, nothing else."""
    escaped = re.sub(r"[*?[]", r"[\g<0>]", name)
    return f"?{escaped[1:]}" if escaped.startswith("!") else escaped
