"""Maps names of lake tables, as people write them in SQL and on the command line, to tables. Pure.

A mirror is `orders` or `public.orders`; the prefixes `mirror.`, `history.` and `archive.` give the kind. Names are
compared in the form of their folders (`layout`), first exactly and then without regard to case.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final

from cdc.model.topic_names import escape
from sinks.warehouse.lake import layout

KINDS: Final = ("mirror", "history", "archive")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMES_SHOWN_MAX: Final = 20


def quoted(name: str) -> str:
    """Quote an identifier for Spark SQL: dots and quotes have a meaning in a name that is parsed."""
    return "`" + name.replace("`", "``") + "`"


def matching_tables(parts: Sequence[str], tables: Collection[str]) -> list[str]:
    """Return the lake tables (``mirror/public.orders`` ...) that a name of these parts can mean; exact ones if any."""
    return _matching(parts, tables, exact=True) or _matching(parts, tables, exact=False)


def lower_forms(names: Iterable[Sequence[str]]) -> frozenset[str]:
    """Return the forms of names, for `can_mean`."""
    return frozenset(form.lower() for parts in names for form in _forms(parts))


def can_mean(forms: Collection[str], table: str) -> bool:
    """Return whether one of the names can mean a lake table."""
    return any(name.lower() in forms for name in _names(table))


def sql_name(table: str) -> str:
    """Return a lake table's name in a query: ``mirror/public.Order-20lines`` is ``public.`Order lines```."""
    kind, _, folder = table.partition("/")
    if kind == "archive":
        return f"archive.`{folder}`"
    parts = [part if _PLAIN.fullmatch(part) else f"`{part}`" for part in map(unescaped, folder.split("."))]
    return ".".join(parts if kind == "mirror" else [kind, *parts])


def captured_table(table: str, complete: Collection[str]) -> str:
    """Return which captured table of `complete` (``schema.table``) a lake table is made of; empty if none."""
    kind, _, own = table.partition("/")
    folders = _folders(tuple(complete))
    return folders.get(own, "") or (folders.get(own.partition(".")[2], "") if kind == "archive" else "")


def known_names_hint(name: str, shown: Sequence[str]) -> str:
    """Return a hint with the known names and the one most like `name`; empty if there are none."""
    if not shown:
        return ""
    short = {one.rpartition(".")[2]: one for one in reversed(shown)}
    close = difflib.get_close_matches(name, [*shown, *short], n=1, cutoff=0.6)
    more = f" and {len(shown) - _NAMES_SHOWN_MAX} more" if len(shown) > _NAMES_SHOWN_MAX else ""
    meant = f"did you mean {short.get(close[0], close[0])}? " if close else ""
    return f"{meant}known names: {', '.join(sorted(shown)[:_NAMES_SHOWN_MAX])}{more}"


def unescaped(part: str) -> str:
    """Return the identifier for an escaped part of a name."""
    plain = re.sub(rb"-([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), part.encode())
    return plain.decode(errors="replace")


def _matching(parts: Sequence[str], tables: Collection[str], *, exact: bool) -> list[str]:
    by_name = _by_name(frozenset(tables), exact)
    forms = _forms(parts)
    return sorted({table for form in forms for table in by_name.get(form if exact else form.lower(), ())})


@lru_cache(maxsize=4)
def _by_name(tables: frozenset[str], exact: bool) -> dict[str, list[str]]:  # noqa: FBT001 - a key
    """Return name -> lake tables. Remembered, because each view of each cut asks for the same tables."""
    found: dict[str, list[str]] = {}
    for table in tables:
        for name in _names(table):
            found.setdefault(name if exact else name.lower(), []).append(table)
    return found


@lru_cache(maxsize=4)
def _folders(complete: tuple[str, ...]) -> dict[str, str]:
    """Return folder of a mirror -> captured table."""
    found: dict[str, str] = {}
    for name in complete:
        schema, _, rest = name.partition(".")
        found.setdefault(layout.mirror(schema, rest).partition("/")[2], name)
    return found


def _forms(parts: Sequence[str]) -> list[str]:
    """Return the forms that the parts can have in `_names`."""
    forms = [".".join(map(escape, parts))]
    if len(parts) > 1:
        *kind, schema, table = parts
        forms.append(".".join([*kind, layout.mirror(schema, table).partition("/")[2]]))  # a long name is shortened
    if parts[0].lower() == "archive":
        forms.append(".".join(parts))  # a topic's name as one identifier
    return forms


def _names(table: str) -> list[str]:
    """Return every name of a lake table, escaped."""
    kind, _, folder = table.partition("/")
    tails = folder.split(".")
    if kind == "archive":
        return [f"archive.{'.'.join(tails[index:])}" for index in range(len(tails))]
    named = [f"{kind}.{folder}", f"{kind}.{tails[-1]}"]
    return [*named, folder, tails[-1]] if kind == "mirror" else named
