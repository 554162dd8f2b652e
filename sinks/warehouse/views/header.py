"""What the comments above a view's query say: dialect, late policy, key, publishing, how it is swapped. Pure.

    -- dialect: postgres        the query is PostgreSQL's SQL; spark without it
    -- late: correct            a row of a window that was published before is computed again
    -- plan: affected           the view is kept by this plan: recompute, affected or delta; auto: what takes least
    -- key: order_id, line      columns that tell rows apart: unique and never null, or the view is left behind
    -- publish: topic           the view is a compacted topic too, ``<name>.views.<view>``; needs a key
    -- swap: manual             changed SQL is built beside the old, which serves until `cdc views swap`

Other comments mean nothing. They end where the query begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from sinks.warehouse.views.determinism import Finding

_LINE: Final = re.compile(r"--\s*(dialect|late|plan|key|publish|swap)\s*:\s*(.*?)\s*", re.IGNORECASE)
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "dialect": ("spark", "postgres"),
    "late": ("correct",),
    "plan": ("auto", "recompute", "affected", "delta"),
    "publish": ("topic",),
    "swap": ("auto", "manual"),
}
_COLUMN: Final = re.compile(r"[^\W\d]\w*|`[^`]+`|\"[^\"]+\"")
_KEY_COLUMNS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Header:
    """What a view's file says above its query.

    Attributes:
        key: columns that tell rows apart, in the order of the key of a topic; empty when none is named.
        publish: whether the view is a topic as well.
        swap: what becomes of changed SQL when it is built: it serves at once, or when somebody says so.
    """

    dialect: str = "spark"
    late: str = "correct"
    plan: str = "auto"
    key: tuple[str, ...] = ()
    publish: bool = False
    swap: Literal["auto", "manual"] = "auto"


def read_header(sql: str) -> Header | Finding:
    """The header of a file's text, or what is wrong with it."""
    found = Header()
    publish_line = 0
    for number, line in enumerate(sql.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("--"):
            break
        match = _LINE.fullmatch(line.strip())
        if match is None:
            continue
        name, said = match[1].lower(), match[2]
        if name == "key":
            key = _columns(said)
            if not key:
                return Finding(f"key: {said} is no list of columns", "as in: -- key: order_id, line", number)
            found = replace(found, key=key)
            continue
        word = said.lower()
        if word not in _WORDS[name]:
            return Finding(f"{name}: {said} is not known", f"there is {' and '.join(_WORDS[name])}", number)
        if name == "publish":
            found, publish_line = replace(found, publish=True), number
        elif name == "swap":
            found = replace(found, swap="manual" if word == "manual" else "auto")
        elif name == "plan":
            found = replace(found, plan=word)
        elif name == "late":
            found = replace(found, late=word)
        else:
            found = replace(found, dialect=word)
    if found.publish and not found.key:
        return Finding("publish: topic needs a key", "name the columns that tell rows apart: -- key: id", publish_line)
    return found


def _columns(text: str) -> tuple[str, ...]:
    """The names in a list; none when it is no such list."""
    names = [part.strip() for part in text.split(",")]
    if len(names) > _KEY_COLUMNS_MAX or any(not _COLUMN.fullmatch(name) for name in names):
        return ()
    plain = tuple(name.strip('`"') for name in names)
    return plain if len({name.lower() for name in plain}) == len(plain) else ()
