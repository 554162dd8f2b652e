"""The lake of the demo: `cdc sink run lake` as a process of its own, what it shows live, and what it must be."""

from __future__ import annotations

import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from cdc.demo.place import Place
from cdc.demo.program import Program
from cdc.demo.viewproof import ViewFound, asked, compared, folder, queries
from cdc.errors import LocalError, TailraceError
from cdc.lsn import Lsn
from sinks.warehouse.lake.manifest import Manifest
from sinks.warehouse.read.lake_reader import Lake, read

VIEW: Final = "daily_revenue"
TABLES: Final = ("customers", "products", "orders", "order_lines", "follows", "posts")
_POLL_S: Final = 0.1
_REACH_S: Final = 200.0  # the first cut warms Spark up: 28 s alone, 77 s beside four jobs
_ROWS_MAX: Final = 100_000

Day = tuple[Any, int, int, Decimal]


@dataclass(frozen=True, slots=True)
class LakeVerdict:
    """What lake and PostgreSQL hold at one LSN.

    Attributes:
        lsn: of the lake's cut.
        counts: table -> rows in the mirror, rows in PostgreSQL.
        view: the rows of `VIEW`.
        query: the same query's in PostgreSQL.
        views: what came of every view.
    """

    lsn: Lsn
    cut: int
    counts: dict[str, tuple[int, int]]
    view: list[Day]
    query: list[Day]
    views: tuple[ViewFound, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether they agree."""
        views = all(found.differ == 0 for found in self.views)
        return views and self.view == self.query and all(kept == there for kept, there in self.counts.values())


class LakeRun(Program):
    """The sink, and a look at what it has published."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, "lake", "sink", "run", "lake")
        self._lake = Lake(place.lake)
        self._seen = (0, "")

    @staticmethod
    def views() -> Path:
        """The folder of the demo's views."""
        return folder()

    def glance(self) -> str:
        """The view as it is now, in a line."""
        try:
            manifest = self._lake.store.current()
            if manifest is None:
                return "Spark is starting"
            if manifest.cut != self._seen[0]:
                self._seen = (manifest.cut, _line(self._days(manifest)))
        except (TailraceError, OSError):
            return self._seen[1]
        age_s = max(0.0, time.time() - manifest.committed_at_us / 1e6)
        return f"{self._seen[1]}  (cut {manifest.cut}, {age_s:.0f} s ago)"

    def await_lsn(self, lsn: Lsn) -> Manifest:
        """Wait until a cut holds everything before `lsn`."""
        deadline_s = time.monotonic() + _REACH_S
        while (current := self._lake.store.current()) is None or current.end_lsn < lsn:
            self.check()
            if time.monotonic() > deadline_s:
                at = Lsn(current.end_lsn) if current else None
                raise LocalError(f"the lake is at {at} and not at {lsn} after {_REACH_S:.0f} s", hint=self.last_words())
            time.sleep(_POLL_S)
        return current

    def compare(self, session: psycopg.Connection, manifest: Manifest) -> LakeVerdict:
        """Hold a cut against the tables, to which nobody writes any more."""
        counts: dict[str, tuple[int, int]] = {}
        for table in TABLES:
            row = session.execute(sql.SQL("select count(*) from {}").format(sql.Identifier("shop", table))).fetchone()
            assert row is not None
            counts[f"shop.{table}"] = (manifest.tables[f"mirror/shop.{table}"].rows or 0, row[0])
        wanted = {name: asked(session, query) for name, query in queries(folder()).items()}
        views = tuple(compared(name, self._rows(name, manifest), rows) for name, rows in wanted.items())
        return LakeVerdict(
            Lsn(manifest.end_lsn), manifest.cut, counts, self._days(manifest), _days(wanted[VIEW]), views
        )

    def _days(self, manifest: Manifest) -> list[Day]:
        return _days(self._rows(VIEW, manifest))

    def _rows(self, view: str, manifest: Manifest) -> list[dict[str, Any]]:
        if view not in manifest.views:
            return []
        table, state = self._lake.view(view, manifest)
        rows: list[dict[str, Any]] = read(self._lake, table, state.version, limit=_ROWS_MAX).to_pylist()
        return rows


def _days(rows: list[dict[str, Any]]) -> list[Day]:
    return sorted((row["day"], row["orders"], int(row["items"]), row["revenue"]) for row in rows)


def _line(days: list[Day]) -> str:
    if not days:
        return "no orders yet"
    day, orders, _, revenue = days[-1]
    return f"{day}  {orders:,} orders  revenue {revenue:,}"
