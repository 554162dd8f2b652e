"""Tables of a sink whose rows a snapshot has not read yet: up to which LSN the sink may lack their changes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from cdc.lsn import Lsn

SNAPSHOTTING: Final = "snapshotting"
"""State of such a table in a cut, and in a manifest."""


class Unread(NamedTuple):
    """The tables that snapshots are reading.

    A transaction that committed before `lsn` may be missing from them; later ones are streamed. 0: none is missing.
    """

    lsn: Lsn = Lsn(0)
    tables: tuple[str, ...] = ()

    def __or__(self, other: Unread) -> Unread:
        """Return both together."""
        return Unread(max(self.lsn, other.lsn), tuple(sorted({*self.tables, *other.tables})))


NONE: Final = Unread()


class UnreadTables:
    """Follows the states of tables from cut to cut.

    The first cut that has a table as snapshotting is where its stream has begun, or shortly after.
    """

    def __init__(self, held: Callable[[str], bool]) -> None:
        self._held = held
        self._epoch = 0
        self._since: dict[str, int] = {}
        self.now = NONE

    def add(self, epoch: int, end_lsn: int, states: Mapping[str, str], *, whole: bool) -> bool:
        """Add the next cut; `whole`: `states` has all tables. Return whether a new epoch begins with it."""
        begins = epoch > self._epoch
        if begins:
            self._epoch, self._since = epoch, {}
        before = dict(self._since)
        if whole:
            self._since = {table: lsn for table, lsn in before.items() if table in states}
        for table, state in states.items():
            if state != SNAPSHOTTING:
                self._since.pop(table, None)
            elif self._held(table):
                self._since.setdefault(table, end_lsn)
        if begins or self._since != before:
            self.now = Unread(Lsn(max(self._since.values(), default=0)), tuple(sorted(self._since)))
        return begins
