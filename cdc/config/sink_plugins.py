"""Finds kinds of sinks that other installed packages provide, as entry points of the group ``tailrace.sinks``."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from cdc.errors import ConfigError

GROUP: Final = "tailrace.sinks"
BUILT_IN: Final = ("cache", "search", "warehouse")
_GUIDE: Final = "docs/contributing/add-a-sink.md"


def plugin(kind: str) -> EntryPoint | None:
    """Return the entry point of a kind; None when no installed package provides it.

    Raises ConfigError when several packages provide it.
    """
    found = sorted(entry_points(group=GROUP, name=kind), key=lambda entry: entry.value)
    if len({entry.value for entry in found}) > 1:
        raise ConfigError(
            f"several packages provide the sink kind {kind!r}: {', '.join(map(package, found))}",
            hint="uninstall all of them but one",
        )
    return found[0] if found else None


def package(entry: EntryPoint) -> str:
    """Return the name and version of the package that provides an entry point."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


def with_plugin(table: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the table of a sink in the form of `cdc.config.settings.Plugin` if its kind is not built in.

    Raises ConfigError for an unknown kind, with the known kinds.
    """
    kind = table["kind"]
    if kind in BUILT_IN:
        return table
    if not isinstance(kind, str):
        raise ConfigError(f"{where}.kind must be a string", hint='for example kind = "search"')
    if plugin(kind) is None:
        known = sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))})
        near = get_close_matches(kind, known, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(
            f"{where}.kind: unknown kind {kind!r}{meant}",
            hint=f"the known kinds are {', '.join(known)}; another kind needs its package installed ({_GUIDE})",
        )
    if "plugin" in table:
        raise ConfigError(f"unknown key {where}.plugin", hint=f"settings of the kind go into [{where}.options]")
    return {**table, "kind": "plugin", "plugin": kind}
