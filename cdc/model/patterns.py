"""Shell patterns of ``schema.table``, as `source.tables` and sinks take them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase


def matches(table: str, patterns: Sequence[str]) -> bool:
    """Whether ``schema.table`` is selected: the last pattern that fits decides, ``!`` in front excludes."""
    for pattern in reversed(patterns):
        if fnmatchcase(table, pattern.removeprefix("!")):
            return not pattern.startswith("!")
    return False


def pattern_for(name: str) -> str:
    """The pattern that fits `name` and, but for one with ``!`` in front, nothing else."""
    escaped = re.sub(r"[*?[]", r"[\g<0>]", name)
    return f"?{escaped[1:]}" if escaped.startswith("!") else escaped
