"""Chooses what `cdc dev` runs: sinks, servers and the outbox, by options and installed extras. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cdc.shop.config_text import LAKE, STORES, VIEW_STORES

OPTIONAL: Final = (*STORES, LAKE)
"""Parts that `--without` can leave out."""

_OUTBOX: Final = "outbox"
_PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "search": ("opensearchpy",),
    "cache": ("redis",),
    LAKE: ("pyspark", "pyarrow", "deltalake", "obstore", "sqlglot"),
    _OUTBOX: ("sqlalchemy", "alembic"),
}
_EXTRAS: Final = {LAKE: "warehouse"}
_SERVERS: Final = {"search": "opensearch", "cache": "valkey"}
_TITLES: Final = {
    "search": "the index",
    "cache": "the cache",
    LAKE: "the lake and its views",
    _OUTBOX: "events of the outbox",
}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part that cannot run, because an extra is not installed; `command` installs it."""

    what: str
    extra: str
    command: str


@dataclass(frozen=True, slots=True)
class Parts:
    """What runs.

    Attributes:
        sinks: names of sinks, in the order in which they are shown.
        servers: local servers, see `cdc.local.stack.SERVERS`.
        outbox: capture events of the outbox too.
        left_out: parts that would run if their extras were installed.
    """

    sinks: tuple[str, ...]
    servers: tuple[str, ...]
    outbox: bool
    left_out: tuple[LeftOut, ...]


def choose_parts(without: Iterable[str], *, own_database: bool, installed: Callable[[str], bool]) -> Parts:
    """Return the parts to run. `installed` returns whether a package can be imported.

    The sample shop has an outbox, and two sinks that keep views of the lake. With the user's own database there are
    neither views nor a local PostgreSQL.
    """
    wanted = [part for part in OPTIONAL if part not in set(without)]
    wanted += [] if own_database else [_OUTBOX]
    lacking = [part for part in wanted if not all(installed(package) for package in _PACKAGES[part])]
    running = [part for part in wanted if part not in lacking]
    sinks = [part for part in running if part in STORES]
    if LAKE in running and not own_database:
        sinks += [view for store, view in zip(STORES, VIEW_STORES, strict=True) if store in running]
    sinks += [LAKE] if LAKE in running else []
    servers = [
        *([] if own_database else ["postgres"]),
        "kafka",
        *(_SERVERS[part] for part in STORES if part in running),
    ]
    return Parts(tuple(sinks), tuple(servers), _OUTBOX in running, tuple(_left_out(part) for part in lacking))


def _left_out(part: str) -> LeftOut:
    extra = _EXTRAS.get(part, part)
    return LeftOut(_TITLES[part], extra, f"pip install 'tailrace[capture,local,{extra}]'")
