"""Parses the comments above a view's query: dialect, late policy, plan, key, publishing, swap. Pure.

    -- dialect: postgres        the query is PostgreSQL's SQL; default: spark
    -- collation: C             the database orders text by code points; default: unknown
    -- time zones: same         Spark and the database have the same time zone rules; default: unknown
    -- late: correct            a late row of a published window recomputes the window
    -- plan: affected           how the view is kept: recompute or affected; default: auto, the cheapest
    -- key: order_id, line      columns that identify rows; unique and never null, or the view is left behind
    -- publish: topic           the view is also a compacted topic, ``<name>.views.<view>``; needs a key
    -- swap: manual             changed SQL is built beside the active one and waits for `cdc views swap`

Other comments have no meaning, but `-- name: ...` with a name that is almost one of these is refused. The header ends
where the query begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final, Literal

from sinks.warehouse.views.determinism import Finding

_LINE: Final = re.compile(r"--\s*(\w+|time zones)\s*:\s*(.*?)\s*", re.IGNORECASE)
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "dialect": ("spark", "postgres"),
    "collation": ("c",),
    "time zones": ("same",),
    "late": ("correct",),
    "plan": ("auto", "recompute", "affected"),
    "publish": ("topic",),
    "swap": ("auto", "manual"),
}
_SETTINGS: Final = ("key", *_WORDS)
_CLOSE: Final = 0.75  # of difflib: one or two letters differ
_REMOVED_PLAN: Final = "delta"
_COLUMN: Final = re.compile(r"[^\W\d]\w*|`[^`]+`|\"[^\"]+\"")
_KEY_COLUMNS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Header:
    """Settings in a view's file above its query.

    Attributes:
        key: columns that identify rows, in the order of the topic's key; empty if none are named.
        publish: whether the view is a topic as well.
        swap: when changed SQL becomes active: once it is built, or on request.
        collation: of the database as its user declares it; empty if unknown.
        zones: whether its user declares that Spark and the database have the same time zone rules.
    """

    dialect: str = "spark"
    late: str = "correct"
    plan: str = "auto"
    key: tuple[str, ...] = ()
    publish: bool = False
    swap: Literal["auto", "manual"] = "auto"
    collation: Literal["", "C"] = ""
    zones: bool = False


def read_header(sql: str, *, is_stored: bool = False) -> Header | Finding:
    """Return the header of a file's text, or what is wrong with it.

    Args:
        sql: the text.
        is_stored: whether it is the text of an earlier generation, which no one can edit: a plan that was removed is
            read as ``auto``.
    """
    found = Header()
    publish_line = 0
    seen: set[str] = set()
    for number, line in enumerate(sql.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("--"):
            break
        match = _LINE.fullmatch(line.strip())
        if match is None:
            continue
        name, value = match[1].lower(), match[2]
        if name not in _SETTINGS:
            close = get_close_matches(name, _SETTINGS, n=1, cutoff=_CLOSE)
            if close and not is_stored:
                hint = f"did you mean {close[0]}? Write a comment without a colon behind its first word"
                return Finding(f"unknown setting {name}", hint, number)
            continue
        if name in seen and not is_stored:
            return Finding(f"{name} is set twice", "remove one of the lines", number)
        seen.add(name)
        if name == "key":
            key = _columns(value)
            if not key:
                return Finding(f"invalid key: {value}", "expected e.g. -- key: order_id, line", number)
            found = replace(found, key=key)
            continue
        word = value.lower()
        if name == "plan" and word == _REMOVED_PLAN:
            if is_stored:
                continue
            hint = "remove the line, so that the cheaper plan is chosen, or write affected or recompute"
            return Finding("plan delta was removed: it was rarely faster than the other plans", hint, number)
        if word not in _WORDS[name]:
            return Finding(f"unknown {name}: {value}", f"expected {' or '.join(_WORDS[name])}", number)
        if name == "publish":
            found, publish_line = replace(found, publish=True), number
        elif name == "swap":
            found = replace(found, swap="manual" if word == "manual" else "auto")
        elif name == "collation":
            found = replace(found, collation="C")
        elif name == "time zones":
            found = replace(found, zones=True)
        elif name == "plan":
            found = replace(found, plan=word)
        elif name == "late":
            found = replace(found, late=word)
        else:
            found = replace(found, dialect=word)
    if found.publish and not found.key:
        return Finding("publish: topic needs a key", "name the columns that identify rows: -- key: id", publish_line)
    return found


def _columns(text: str) -> tuple[str, ...]:
    """Return the names in a list; empty if it is not a valid list."""
    names = [part.strip() for part in text.split(",")]
    if len(names) > _KEY_COLUMNS_MAX or any(not _COLUMN.fullmatch(name) for name in names):
        return ()
    plain = tuple(name.strip('`"') for name in names)
    return plain if len({name.lower() for name in plain}) == len(plain) else ()
