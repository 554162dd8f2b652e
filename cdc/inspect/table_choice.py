"""Chooses tables of the log by name or shell pattern."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from cdc.errors import UsageError
from cdc.inspect.log_reading import Table

_TABLES_SHOWN_MAX: Final = 20


def chosen_tables(known: Sequence[Table], names: Sequence[str]) -> list[Table]:
    """Return the tables with these names, all without any. Raises UsageError for an unknown name."""
    if not names:
        return list(known)
    wanted: dict[str, Table] = {}
    for name in names:
        found = [table for table in known if name in (table.name, table.topic)]
        found = found or [table for table in known if table.name.partition(".")[2] == name]
        found = found or [table for table in known if fnmatchcase(table.name, name)]
        if not found:
            raise unknown_name(f"no captured table matches {name!r}", name, [table.name for table in known])
        wanted.update((table.name, table) for table in found)
    return list(wanted.values())


def unknown_name(message: str, name: str, names: Sequence[str]) -> UsageError:
    """Return the error for a name that is not one of `names`, with the closest one."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    more = f" and {len(names) - _TABLES_SHOWN_MAX} more" if len(names) > _TABLES_SHOWN_MAX else ""
    available = ", ".join(sorted(names)[:_TABLES_SHOWN_MAX])
    return UsageError(
        message,
        hint=f"{f'did you mean {close[0]}? ' if close else ''}available: {available}{more}",
        command=f"cdc tail {close[0]}" if close else "",
    )
