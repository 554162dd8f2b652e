"""Rejects options of `cdc tail` that match nothing: a key column of no table, a start past the end of the log."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from cdc.clock import Clock, SystemClock
from cdc.errors import UsageError

if TYPE_CHECKING:
    from cdc.cutindex.log_start import Start
    from cdc.inspect.log_reading import Table
    from cdc.progress.restore import TopicReader

_POLL_S: Final = 0.5
_AHEAD_MS: Final = 60_000  # the server's clock may be this far ahead of ours


def check_key(key: object, tables: Sequence[Table]) -> None:
    """Raise UsageError when no record of these tables can have that key."""
    if key is None or not tables:
        return
    keyed = [table for table in tables if table.key]
    if not keyed:
        raise UsageError(f"{_named(tables)} has no key", hint="omit --key")
    columns = sorted({column for table in keyed for column in table.key})
    if isinstance(key, dict):
        if any(key.keys() <= set(table.key) for table in keyed):
            return
        unknown = [str(column) for column in key if column not in columns]
        if not unknown:
            raise UsageError(
                f"no table has all of the columns {', '.join(map(str, key))} in its key", hint=_keys(keyed)
            )
        near = get_close_matches(unknown[0], columns, n=1)
        raise UsageError(
            f"--key names {unknown[0]!r}, which is not a key column of {_named(tables)}",
            hint=f"{f'did you mean {near[0]}? ' if near else ''}{_keys(keyed)}",
        )
    if not any(len(table.key) == 1 for table in keyed):
        raise UsageError(
            f"--key is one value, but the key of {_named(keyed)} has several columns",
            hint=f"give a JSON object; {_keys(keyed)}",
        )


def check_start(reader: TopicReader, name: str, start: Start, *, follow_s: float, clock: Clock | None = None) -> None:
    """Raise UsageError when a start is past the end of the log; with `follow_s`, first wait that long for it.

    The LSN of a commit that capture is about to publish is valid.
    """
    from cdc.cutindex.log_start import AtLsn, AtTime
    from cdc.cutindex.lookup import end_of_log

    clock = clock or SystemClock()
    if isinstance(start, AtTime) and start.ts_ms > clock.wall_s() * 1000 + _AHEAD_MS:
        raise UsageError("--from is a time in the future", hint="use --from now to wait for new events")
    if not isinstance(start, AtLsn):
        return
    ends_s, never = clock.monotonic_s() + follow_s, threading.Event()
    while True:
        end = end_of_log(reader, name)
        if end is None or start.lsn <= end:
            return
        if clock.monotonic_s() >= ends_s:
            waited = f" after waiting {follow_s:g} s" if follow_s else ""
            raise UsageError(
                f"--from {start.lsn} is past the end of the log at {end}{waited}",
                hint="use --from now to wait for new events",
                command="cdc tail --from now",
            )
        clock.wait(never, _POLL_S)


def _named(tables: Sequence[Table]) -> str:
    return tables[0].name if len(tables) == 1 else "any of these tables"


def _keys(tables: Sequence[Table]) -> str:
    shown = "; ".join(f"the key of {table.name} is {', '.join(table.key)}" for table in tables[:3])
    return shown + (f"; and {len(tables) - 3} more tables" if len(tables) > 3 else "")
