"""Checks slot and publication every few seconds, on a connection of its own, and verifies WAL positions.

Each check first reads V = pg_current_wal_insert_lsn(). If publication and slot are as they must be, V becomes
`verified_lsn`. Nothing above it is ever acknowledged: PostgreSQL 18 silently publishes nothing without its publication,
and would again publish nothing if the same WAL were decoded again.

The tables are read only if they may have changed: if a transaction has ended since the last check, and the fingerprint
of the catalog rows that decide is another one. For 10,000 tables the fingerprint takes the server a fifth of the time
that the full answer takes (18.6, 2026-11-29).

If a check fails, or the server ends this connection, `failure` is set and the pipeline gives up the stream. That lets
the server shut down: a fast shutdown waits for every walsender whose client is not at its end, and capture may not
acknowledge up to there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import psycopg

from cdc.clock import Clock
from cdc.config.secret import Secret
from cdc.errors import InvariantError, SourceGap, SourceUnreachable, TailraceError
from cdc.lsn import Lsn
from cdc.replication.catalog_queries import visible_transactions
from cdc.replication.connect import Connection, connect, deadline, sever, translate
from cdc.telemetry import log
from cdc.telemetry.capture_status import SlotReading

_ANSWER_S: Final = 10.0  # a check takes milliseconds; a server that does not answer for so long is unreachable

_NO_JIT: Final = "set jit = off"  # compiling costs more than checking thousands of tables

# A statement of its own, before the others: as part of them, the position would be newer than their snapshot.
_NOW: Final = "select pg_catalog.pg_current_wal_insert_lsn()::text"
# Each change gives a row another xmin. pg_get_publication_tables depends on these rows and on no others; an ancestor of
# a partition is in pg_class as a partitioned table. A partition whose detachment is pending shows in pg_inherits alone.
_FINGERPRINT: Final = """
select pg_catalog.count(*), pg_catalog.bit_xor(part.hash)
from (
    select pg_catalog.hash_record_extended(row(p.oid, p.xmin), 1) as hash
    from pg_catalog.pg_publication p where p.pubname = %(publication)s
    union all
    select pg_catalog.hash_record_extended(row(r.oid, r.xmin), 2)
    from pg_catalog.pg_publication p join pg_catalog.pg_publication_rel r on r.prpubid = p.oid
    where p.pubname = %(publication)s
    union all
    select pg_catalog.hash_record_extended(row(s.oid, s.xmin), 3)
    from pg_catalog.pg_publication p join pg_catalog.pg_publication_namespace s on s.pnpubid = p.oid
    where p.pubname = %(publication)s
    union all
    select pg_catalog.hash_record_extended(row(n.oid, n.xmin), 4) from pg_catalog.pg_namespace n
    union all
    select pg_catalog.hash_record_extended(row(c.oid, c.xmin), 5) from pg_catalog.pg_class c
    where c.oid = any(%(oids)s::oid[]) or c.relkind = 'p'
    union all
    select pg_catalog.hash_record_extended(row(i.inhrelid, i.inhparent, i.xmin), 6) from pg_catalog.pg_inherits i
) part
"""
# Run after _TABLES, which cannot tell a missing publication from an empty one.
_CHECK: Final = """
select coalesce(s.confirmed_flush_lsn::text, '0/0'),
       coalesce(s.restart_lsn::text, '0/0'),
       coalesce(s.wal_status, ''),
       s.safe_wal_size,
       coalesce(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), s.restart_lsn), 0)::int8,
       s.slot_name is not null,
       p.oid::int8,
       coalesce(p.pubinsert and p.pubupdate and p.pubdelete, false)
from (select 1) as one
left join pg_catalog.pg_replication_slots s on s.slot_name = %(slot)s
left join pg_catalog.pg_publication p on p.pubname = %(publication)s
"""
_TABLES: Final = """
select c.oid::int8, g.relid is not null, coalesce(r.oid::int8, 0), n.nspname || '.' || c.relname
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
left join (
    select p.oid as publication, t.relid
    from pg_catalog.pg_publication p cross join lateral pg_catalog.pg_get_publication_tables(p.pubname) t
    where p.pubname = %(publication)s
) g on g.relid = c.oid
left join pg_catalog.pg_publication_rel r on r.prpubid = g.publication and r.prrelid = c.oid
where c.oid = any(%(oids)s::oid[])
"""


_Row: TypeAlias = tuple[int, bool, int, str]
"""A table: pg_class.oid, whether it is published, pg_publication_rel.oid, its current ``schema.table``."""

_Fingerprint: TypeAlias = tuple[int, int]
"""Number and hash of the catalog rows that decide what is published."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """What the last check without a problem has seen: first the snapshot, then the fingerprint, then the tables.

    Attributes:
        tables: the tables that it checked: another object if others are watched now.
        snapshot: see `visible_transactions`.
    """

    tables: Mapping[int, tuple[str, int]]
    snapshot: str
    fingerprint: _Fingerprint


@dataclass(frozen=True, slots=True)
class Watched:
    """What must not change: the publication, by oid, and the tables that must be in it.

    A dropped table is not a gap: its rows are gone from the source as well.

    Attributes:
        tables: pg_class.oid -> name and oid of the pg_publication_rel row, which changes if a table is removed and
            added again.
        replaceable: those of them that another table may replace, in name and publication, in one transaction.
        selected: whether a name selects a table for capture. A table that was renamed to another name may leave the
            publication.
    """

    slot: str
    publication: str
    publication_oid: int
    tables: Mapping[int, tuple[str, int]]
    replaceable: frozenset[int] = frozenset()
    selected: Callable[[str], bool] = lambda _: True


class CatalogWatch:
    """A thread that checks every `period_s`. `verified` may be called from any thread."""

    def __init__(
        self,
        dsn: Secret,
        watched: Watched,
        clock: Clock,
        *,
        period_s: float,
        seen: Callable[[SlotReading], None],
        failed: Callable[[], None],
        checked: Callable[[Connection], None] = lambda _: None,
    ) -> None:
        """`failed` is called if a check gets no answer: capture may be stuck on another connection to that server.

        `checked` is called after each successful check except the first, in the thread of the watch. An error that it
        raises ends capture.
        """
        self.failure: TailraceError | None = None
        self._dsn = dsn
        self._watched = watched
        self._clock = clock
        self._period_s = period_s
        self._seen = seen
        self._failed = failed
        self._checked = checked
        self._verified = Lsn(0)
        self._last: _Checked | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None

    def start(self) -> None:
        """Check once, then start the thread. Raises what the first check finds wrong."""
        self._connection = connect(self._dsn, application_name="cdc watch")
        try:
            self._connection.execute(_NO_JIT)
            self._check(self._connection)
        except psycopg.Error as error:
            self._connection.close()
            raise translate(error, "set up the catalog watch") from error
        except TailraceError:
            self._connection.close()
            raise
        self._thread = threading.Thread(target=self._run, name="catalog-watch", daemon=True)
        self._thread.start()

    def watch(self, tables: Mapping[int, tuple[str, int]]) -> None:
        """Replace the tables that must stay published. Called in the thread of the watch."""
        self._watched = replace(self._watched, tables=tables)

    @property
    def watched(self) -> Mapping[int, tuple[str, int]]:
        """See `Watched.tables`."""
        return self._watched.tables

    def verified(self) -> Lsn:
        """Return the LSN below which everything was published as configured. Raises the failure, if there is one."""
        failure = self.failure
        if failure is not None:
            raise failure
        return self._verified

    def name_gap(self, connection: Connection, seen: SourceGap) -> None:
        """If a check finds the cause of the gap that the stream has `seen`, raise that gap, with its range.

        Before PostgreSQL 18 a server ends the stream itself when its publication is gone, perhaps before the next
        check.
        """
        if seen.facts["known_to"] is not None:
            return
        try:
            with deadline(connection, _ANSWER_S):
                self._check(connection)
        except SourceGap as named:
            raise named from seen
        except TailraceError as error:
            log.get().debug("gap_not_named", **log.error_fields(error))

    def close(self) -> None:
        """Stop the thread at once. A check that a silent server does not answer is cut off."""
        self._stop.set()
        if self._connection is not None:
            sever(self._connection)
        if self._thread is not None:
            self._thread.join()
        if self._connection is not None:
            self._connection.close()

    def _run(self) -> None:
        assert self._connection is not None
        while not self._clock.wait(self._stop, self._period_s):
            try:
                with deadline(self._connection, _ANSWER_S):
                    self._check(self._connection)
                self._checked(self._connection)
            except TailraceError as error:
                self.failure = error
                # Do not cut the stream for a gap: it would first be reported as a broken connection.
                if isinstance(error, SourceUnreachable) and not self._stop.is_set():
                    self._failed()
                return
            except Exception as error:  # noqa: BLE001 - without checks nothing is acknowledged and WAL piles up
                self.failure = InvariantError(f"the check of slot and publication failed: {log.origin(error)}")
                return

    def _check(self, connection: Connection) -> None:
        watched = self._watched
        try:
            now = connection.execute(_NOW).fetchone()
            seen = self._look(connection, watched)
            rows = [] if self._same(seen) else self._read(connection, watched)
            named = {"slot": watched.slot, "publication": watched.publication}
            row = connection.execute(_CHECK, named).fetchone()
        except psycopg.Error as error:
            raise translate(error, "check slot and publication") from error
        if now is None or row is None:
            raise SourceUnreachable("PostgreSQL did not answer the check of slot and publication")
        current = Lsn.parse(now[0])
        reading = SlotReading(
            at_s=self._clock.monotonic_s(),
            current_lsn=current,
            confirmed_lsn=Lsn.parse(row[0]),
            restart_lsn=Lsn.parse(row[1]),
            wal_status=row[2],
            safe_wal_bytes=row[3],
            retained_bytes=row[4],
        )
        wrong = self._wrong(reading, slot_there=row[5], oid=row[6], publishes=row[7], rows=rows)
        if wrong is not None:
            raise SourceGap(
                f"{wrong}; changes from {self._verified or current} on may be missing from the log",
                known_to=self._verified or current,
                resumes_at=current,
                hint="changes in that range are unknown; the command reads every table again, into the same topics. "
                "Run `cdc doctor` to find other problems",
                command="cdc slot recreate --resnapshot",
                slot=watched.slot,
                publication=watched.publication,
            )
        self._verified, self._last = current, seen
        self._seen(reading)

    def _look(self, connection: Connection, watched: Watched) -> _Checked:
        """Return what shows whether the tables must be read; the fingerprint only if a transaction has ended."""
        snapshot, last = visible_transactions(connection), self._last
        if last is not None and last.tables is watched.tables and last.snapshot == snapshot:
            return last
        found = connection.execute(_FINGERPRINT, _named(watched)).fetchone()
        assert found is not None
        return _Checked(watched.tables, snapshot, found)

    def _same(self, seen: _Checked) -> bool:
        last = self._last
        return last is not None and last.tables is seen.tables and last.fingerprint == seen.fingerprint

    def _read(self, connection: Connection, watched: Watched) -> list[_Row]:
        names = _named(watched)
        rows = _tables(connection, names)
        changed = self._changed(rows)
        if not changed:
            return rows
        # pg_get_publication_tables does not use the snapshot of its statement, pg_class does. A table that is
        # dropped at this moment is in one and not in the other. The next statement has it in neither.
        return [row for row in _tables(connection, names) if row[0] in changed]

    def _wrong(
        self,
        reading: SlotReading,
        *,
        slot_there: bool,
        oid: int | None,
        publishes: bool,
        rows: Sequence[_Row],
    ) -> str | None:
        watched = self._watched
        if not slot_there:
            return f"replication slot {watched.slot!r} is gone"
        if reading.wal_status == "lost":
            return f"replication slot {watched.slot!r} is lost: the server removed WAL that it needs"
        if oid is None:
            return f"publication {watched.publication!r} is gone"
        if oid != watched.publication_oid:
            return f"publication {watched.publication!r} was dropped and created again"
        if not publishes:
            return f"publication {watched.publication!r} no longer publishes inserts, updates and deletes"
        changed = self._changed(rows)
        if changed:
            names = ", ".join(sorted(changed.values())[:5])
            return f"publication {watched.publication!r} no longer has {names}, or did not have it for a time"
        return None

    def _changed(self, rows: Sequence[_Row]) -> dict[int, str]:
        """Return the tables, by oid, that are not in the publication as they were at the start."""
        tables, replaceable = self._watched.tables, self._watched.replaceable
        return {
            oid: tables[oid][0]
            for oid, published, member, name in rows
            if (not published or member != tables[oid][1])
            and not (oid in replaceable and name != tables[oid][0])
            and self._watched.selected(name)
        }


def _named(watched: Watched) -> Mapping[str, str]:
    """Return parameters. The oids are text: to adapt 10,000 numbers one by one takes longer than to join them."""
    return {"publication": watched.publication, "oids": "{" + ",".join(map(str, watched.tables)) + "}"}


def _tables(connection: Connection, names: Mapping[str, object]) -> list[_Row]:
    """Read the state of the tables. Empty if the publication is being dropped; the next statement sees that."""
    try:
        return connection.execute(_TABLES, names).fetchall()
    except psycopg.errors.UndefinedObject:
        return []
