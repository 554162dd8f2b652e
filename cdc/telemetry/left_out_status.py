"""Tables that are left out, for logs, metrics and /status. Written by the catalog watch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from cdc.model.left_out import REASONS, LeftOut
from cdc.telemetry import log
from cdc.telemetry.exposition import UNKNOWN
from cdc.telemetry.metrics import Metrics

LEFT_OUT_SHOWN: Final = 100  # in /status; `cdc doctor` shows all
_LOGGED: Final = 20  # at a time


class LeftOutStatus:
    """Thread-safe: the list is replaced as a whole."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.tables: Sequence[LeftOut] = ()
        self._checked = False
        for reason in REASONS:
            metrics.tables_left_out.labels(reason).set(UNKNOWN)

    def seen(self, found: Sequence[LeftOut]) -> None:
        """Set the tables that are left out now. A table is logged once when it is left out, and once when it joins."""
        before = set(self.tables)
        new = [one for one in found if one not in before]
        for one in new[:_LOGGED]:
            log.get().warning("table_left_out", **one.document())
        if len(new) > _LOGGED:
            log.get().warning("tables_left_out_more", count=len(new) - _LOGGED)
        names = {one.table for one in found}
        for one in self.tables:
            if one.table not in names:
                log.get().info("table_no_longer_left_out", table=one.table)
        self.tables = tuple(sorted(found, key=lambda one: one.table))
        self._checked = True
        self._count(found)

    @property
    def count(self) -> int | None:
        """Number of tables that are left out; None before the first check."""
        return len(self.tables) if self._checked else None

    def document(self) -> list[dict[str, str]]:
        """Return the tables that /status shows."""
        return [one.document() for one in self.tables[:LEFT_OUT_SHOWN]]

    def _count(self, found: Sequence[LeftOut]) -> None:
        counts = Counter(one.reason for one in found)
        for reason in REASONS:
            self._metrics.tables_left_out.labels(reason).set(counts[reason])
