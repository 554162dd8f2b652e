"""Explains msgspec's errors about a configuration: the key in TOML's form, and a hint with what is accepted. Pure.

Msgspec writes `$.sinks[...].mode` for every sink, and so for receivers; the one that is meant is found by its key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from cdc.config.notify_settings import Notify
from cdc.config.section import section_of
from cdc.config.settings import Config, Sink

_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.+?)`(?: - at `\$\.?(.*)`)?")
_MISSING: Final = re.compile(r"Object missing required field `(.+?)`(?: - at `\$\.?(.*)`)?")
_AT: Final = re.compile(r"(.+) - at `\$\.?(.*)`")
_CHOICE: Final = re.compile(r"Invalid enum value '(.*)'")
_TABLES: Final = {"sinks[...]": "sinks", "notify[...]": "notify"}
_FEW: Final = 16  # as many keys fit into a hint
_EVERYWHERE: Final = "docs/reference/config.md lists every key"


def explained(message: str, raw: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text and the hint for a message of msgspec. `raw` is the configuration that it is about."""
    if match := _UNKNOWN.fullmatch(message):
        section, sink = _named(match[2] or "", match[1], raw)
        return f"unknown key {_key(section, match[1])}", _keys_hint(match[1], section, sink)
    if match := _MISSING.fullmatch(message):
        return f"{_key(match[2] or '', match[1])} is missing; it has no default", _EVERYWHERE
    match = _AT.fullmatch(message)
    if match is None:
        return message, _EVERYWHERE
    what, path = match[1], match[2]
    section, _, key = path.rpartition(".")
    chosen = _CHOICE.fullmatch(what)
    section, sink = _named(section, key, raw, value=chosen[1] if chosen else None)
    if chosen:
        return f"{_key(section, key)}: unknown value {chosen[1]!r}", _choices_hint(chosen[1], section, key, sink)
    return f"{_key(section, key)}: {what}", _EVERYWHERE


def _key(section: str, key: str) -> str:
    return f"{section}.{key}" if section else key


def _named(section: str, key: str, raw: Mapping[str, Any], *, value: str | None = None) -> tuple[str, str]:
    """Return the section with the name of its sink or receiver, if only one can be meant, and the kind of that."""
    group = _TABLES.get(section, "")
    if not isinstance(raw.get(group), Mapping):
        return section, ""
    tables = {name: table for name, table in raw[group].items() if isinstance(table, Mapping) and key in table}
    if value is not None:
        tables = {name: table for name, table in tables.items() if table[key] == value}
    if len(tables) != 1:
        return section, ""
    ((name, table),) = tables.items()
    return f"{group}.{name}", str(table.get("kind", ""))


def _types(section: str, sink: str) -> Iterator[type[Any]]:
    """Return the types that a section may have."""
    if not section:
        yield Config
    elif section.startswith("notify"):
        yield Notify
    elif sink:
        yield from (one for one in get_args(Sink) if getattr(one, "__struct_config__").tag == sink)  # noqa: B009
    else:
        kind = section_of(get_type_hints(Config).get(section))
        yield from () if kind is None else (kind,)


def _keys_hint(key: str, section: str, sink: str) -> str:
    """Return the nearest known key, or all keys of a small section."""
    names = [field.encode_name for kind in _types(section, sink) for field in msgspec.structs.fields(kind)]
    near = get_close_matches(key, names, n=1)
    if not near and not 0 < len(names) <= _FEW:
        return _EVERYWHERE
    said = f"did you mean {near[0]}?" if near else f"{section or 'the file'} has {', '.join(names)};"
    return f"{said} {_EVERYWHERE}"


def _choices_hint(value: str, section: str, key: str, sink: str) -> str:
    """Return what a setting with a few values accepts."""
    wanted = [get_type_hints(kind).get(key) for kind in _types(section, sink)]
    choices = [str(one) for hint in wanted if get_origin(hint) is Literal for one in get_args(hint)]
    if not choices:
        return _EVERYWHERE
    near = get_close_matches(value, choices, n=1)
    return f"expected one of {', '.join(choices)}" + (f"; did you mean {near[0]}?" if near else "")
