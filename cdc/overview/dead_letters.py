"""Lists the blocked keys of all sinks, counted by table and error, for the page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import TailraceError
from sinks.operate.dead_letter_view import BlockedRow, DeadLetterView, applied_sinks

if TYPE_CHECKING:
    from cdc.config.settings import Config

KEYS_MAX: Final = 500


def dead_letters(config: Config, sink: str, *, with_keys: bool) -> dict[str, Any]:
    """Return the blocked keys of one sink, or of all if `sink` is empty.

    Keys are values of rows: they are in the answer only `with_keys`, at most KEYS_MAX. A sink that cannot be read is
    in `unread` with the reason. Raises UsageError for a sink without dead letters.
    """
    groups: list[dict[str, Any]] = []
    keys: list[dict[str, Any]] = []
    unread: dict[str, str] = {}
    for name in [sink] if sink else applied_sinks(config):
        with DeadLetterView(config, name) as view:
            try:
                rows = view.blocked()
            except TailraceError as error:
                unread[name] = error.message
                continue
        groups += _groups(name, rows)
        keys += [_key(name, row) for row in rows[: KEYS_MAX - len(keys)]] if with_keys else []
    return {"groups": groups, "keys": keys if with_keys else None, "unread": unread}


def _groups(sink: str, rows: Sequence[BlockedRow]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], list[BlockedRow]] = {}
    for row in rows:
        found.setdefault((row.table, row.block.error), []).append(row)
    return [
        {
            "sink": sink,
            "table": table,
            "error": error,
            "keys": len(each),
            "records": sum(row.block.record_count for row in each),
            "since": _time(min(row.block.since_ms for row in each)),
        }
        for (table, error), each in sorted(found.items())
    ]


def _key(sink: str, row: BlockedRow) -> dict[str, Any]:
    block = row.block
    return {
        "sink": sink,
        "table": row.table,
        "key": row.key,
        "records": block.record_count,
        "tries": block.tries,
        "since": _time(block.since_ms),
        "error": block.error,
        "requested": row.requested,
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
