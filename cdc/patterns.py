"""Shell patterns of ``schema.table``, as `source.tables` and sinks take them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

_Choice = TypeVar("_Choice")


def matches(table: str, patterns: Sequence[str]) -> bool:
    """Whether ``schema.table`` is selected: the last pattern that fits decides, ``!`` in front excludes."""
    for pattern in reversed(patterns):
        if fnmatchcase(table, pattern.removeprefix("!")):
            return not pattern.startswith("!")
    return False


def chosen(table: str, overrides: Mapping[str, _Choice], default: _Choice) -> _Choice:
    """What holds for ``schema.table``: of the last pattern that fits, else `default`."""
    for pattern in reversed(list(overrides)):
        if fnmatchcase(table, pattern):
            return overrides[pattern]
    return default


def pattern_for(name: str) -> str:
    """The pattern that fits `name` and, but for one with ``!`` in front, nothing else."""
    escaped = re.sub(r"[*?[]", r"[\g<0>]", name)
    return f"?{escaped[1:]}" if escaped.startswith("!") else escaped
