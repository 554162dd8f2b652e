"""Finds DDL that the stream does not show, records it with the next Kafka transaction, and applies the policy to it.

The catalog watch's thread calls `check`, `settle` and `rejoined`; a start calls `check` once. The capture thread calls
the rest. Facts and findings wait here until the pipeline commits them.

A finding is durable before its policy acts. The other way round, a stop would lose the finding that it stopped for. An
operator who accepts a finding therefore sees exactly what capture saw.
"""

from __future__ import annotations

import shlex
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Final, Protocol

from cdc.clock import Clock
from cdc.config.settings import Ddl
from cdc.contracts import DdlObserver
from cdc.errors import BrokerError, SourceRefused, TailraceError
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.ddl_finding import (
    CatalogReading,
    away_for_a_time,
    compare_catalog,
    merge_findings,
    missed_while_left_out,
)
from cdc.model.relation import Relation
from cdc.model.table_facts import AcceptedFindings, CatalogScope, DdlFinding, TableFacts, TableRecord
from cdc.patterns import chosen, pattern_for
from cdc.progress.recorded_catalog import RecordedCatalog
from cdc.replication.catalog_facts import Digest

_PACE: Final = 50  # checks take at most a fiftieth of the time, however many tables there are
_NAMED_MAX: Final = 3
_REPAIRED: Final = frozenset({"column_filled", "type_changed", "values_rewritten", "partition_attached"})
"""Kinds that a new snapshot of the table repairs."""
_SWEPT: Final = frozenset({"joined", "renamed", "replaced", "recreated", "returned", "left"})
"""Kinds after which the topic may have keys that the table does not have, and that must be deleted as well.

``left`` is one of them, for the case that a table of that name is captured again.
"""
_CHECKS_IN_DOUBT: Final = 2
"""The stream may show a transaction before other sessions see it: the first check may still read the former names."""


@dataclass(slots=True)
class _Doubt:
    """A name that the stream showed with another owner than the catalog.

    Attributes:
        checks: how many checks are left before the catalog is believed.
        owner: oid of the table that the stream showed under the name last; 0 if it only showed its owner elsewhere.
    """

    checks: int = _CHECKS_IN_DOUBT
    owner: int = 0


class ReadAgain(Protocol):
    """Begins snapshots."""

    def __call__(self, facts: TableFacts, lsn: int, *, sweep: bool) -> bool:
        """Begin a snapshot of a table, unless one is active or began behind `lsn`. True if one is certain to go on.

        With `sweep` the snapshot also deletes keys from the topic that the table does not have.
        """


class Catalog(Protocol):
    """The catalog queries that are needed; `cdc.replication.catalog_facts` documents each."""

    def one_snapshot(self) -> AbstractContextManager[None]:
        """Let the queries of a block see the same catalog, except `end_of_wal`, which is behind what they see."""

    def version(self) -> str:
        """Return a text that is another one if anything in the catalog may have changed."""

    def scope(self) -> CatalogScope | None:
        """Return what holds for all tables; None without the publication."""

    def digests(self) -> Mapping[int, Digest]:
        """Return pg_class.oid -> digest of every captured table."""

    def facts(self, oids: Sequence[int]) -> Mapping[int, TableFacts]:
        """Return the facts of some tables."""

    def taken(self, names: Sequence[str]) -> Collection[str]:
        """Return those of the names (``schema.table``) that a table has, published or not."""

    def names(self, oids: Sequence[int]) -> Mapping[int, str]:
        """Return ``schema.table`` of those that still exist."""

    def end_of_wal(self) -> Lsn:
        """Return the current end of the server's WAL."""


class DdlLog(Protocol):
    """Stores facts and findings; `cdc.publish.publisher.KafkaPublisher` implements it."""

    def note(self, scope: CatalogScope, tables: Mapping[str, TableRecord | None]) -> None:
        """Write these with the next commit; None deletes."""


class DdlWatch:
    """Tracks DDL findings from discovery to acceptance. A `cdc.contracts.SideWriter` of the pipeline.

    `read_again` is set once snapshots can be taken.
    """

    def __init__(
        self,
        settings: Ddl,
        recorded: RecordedCatalog,
        log: DdlLog,
        clock: Clock,
        *,
        epoch: int,
        observer: DdlObserver,
        accepted: Callable[[], Mapping[str, AcceptedFindings]],
        wanted: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`accepted` returns what was accepted since its last call, by table; it may raise BrokerError.

        `wanted` returns whether the existing rows of a new table are read.
        """
        self._wanted = wanted
        self._settings = settings
        self._log = log
        self._clock = clock
        self._epoch = epoch
        self._observer = observer
        self._accepted = accepted
        self._lock = threading.Lock()
        self._scope = recorded.scope
        self._tables = dict(recorded.tables)
        self._names = {record.facts.oid: name for name, record in self._tables.items() if record.facts is not None}
        self._owned_since: dict[str, Lsn] = {}
        self._in_doubt: dict[str, _Doubt] = {}
        self._digests: dict[int, Digest] = {}
        self._version = ""  # of the catalog that `_digests` are of
        self._changed: set[str] = set()
        self._scope_changed = True
        self._writes: deque[bool] = deque()  # whether each commit under way has facts or findings
        self._refusal: TailraceError | None = None
        self._next_check_s = float("-inf")
        self.read_again: ReadAgain = _reads_nothing
        self._accept(recorded.accepted)
        for table, record in self._tables.items():
            if record.facts is not None and any(one.kind == "returned" for one in record.findings):
                self._in_doubt[table] = _Doubt()

    def check(self, catalog: Catalog) -> None:
        """Compare the catalog with the recorded facts. Raises SourceError if it cannot be read."""
        began_s = self._clock.monotonic_s()
        if began_s < self._next_check_s:
            return
        with self._lock:
            in_doubt = frozenset(self._in_doubt)
        with catalog.one_snapshot():
            scope = catalog.scope()
            if scope is not None:
                self._compare(catalog, scope, in_doubt)
        self._next_check_s = self._clock.monotonic_s() + _PACE * (self._clock.monotonic_s() - began_s)

    def settle(self) -> None:
        """Settle findings that are accepted or whose table is being read again. Reads Kafka while a finding is open."""
        if not any(record.findings for record in self._tables.values()):
            return
        self._accept(self._read_again())
        # The pipeline reports an unreachable broker; what is accepted meanwhile is read later.
        with suppress(BrokerError):
            self._accept(self._accepted())

    def shown(self, relation: Relation, commit_lsn: Lsn) -> None:
        """The stream shows a table under a name, in a transaction that commits at `commit_lsn`.

        If the catalog has had it otherwise since an earlier position, the name went to another table, perhaps only for
        a time that no check saw. The topics of both names are in doubt until later checks know who owns the names now.
        """
        with self._lock:
            if self._scope is None:
                return
            owner = self._tables.get(relation.table, TableRecord(facts=None)).facts
            wrong = {relation.table} if owner is not None and owner.oid != relation.oid else set()
            wrong |= {self._names.get(relation.oid, relation.table)} - {relation.table}
            for table in wrong:
                if commit_lsn <= self._owned_since.get(table, 0):
                    continue  # the check that saw the present owner for the first time has found it
                self._in_doubt[table] = _Doubt(owner=relation.oid if table == relation.table else 0)
                was = self._tables[table]
                found = away_for_a_time(table, epoch=self._epoch, since_lsn=self._scope.lsn, lsn=commit_lsn)
                record = TableRecord(facts=was.facts, findings=merge_findings(was.findings, [found]))
                self._keep(table, was, record)
                self._log.note(self._scope, {table: record})  # with the rows, whichever commit takes them

    def rejoined(self, table: str, lsn: Lsn) -> None:
        """A table that is not read is captured again since `lsn`. What it missed meanwhile stays open as a finding."""
        with self._lock:
            record, scope = self._tables.get(table), self._scope
            if record is None or scope is None or any(one.kind in _SWEPT for one in record.findings):
                return  # an open finding covers it
            finding = missed_while_left_out(table, epoch=self._epoch, since_lsn=scope.lsn, lsn=lsn)
            self._keep(
                table, record, TableRecord(facts=record.facts, findings=merge_findings(record.findings, [finding]))
            )
            self._act([finding])

    def due(self) -> bool:
        """See `cdc.contracts.SideWriter.due`."""
        return self._scope is not None and (bool(self._changed) or self._scope_changed)

    def write(self, position: StreamPosition) -> bool:  # noqa: ARG002 - it belongs to no position of the stream
        """See `cdc.contracts.SideWriter.write`."""
        with self._lock:
            due = self.due()
            self._writes.append(due)
            if self._scope is None or not due:
                return False
            self._log.note(self._scope, {table: self._tables.get(table) for table in self._changed})
            self._changed.clear()
            self._scope_changed = False
        return False

    def written(self) -> None:
        """See `cdc.contracts.SideWriter.written`. Raises if the policy of a recorded finding is to stop."""
        if self._writes:
            self._writes.popleft()
        if self._refusal is not None and not self.due() and not any(self._writes):
            raise self._refusal

    def _compare(self, catalog: Catalog, scope: CatalogScope, in_doubt: Collection[str]) -> None:
        version = catalog.version()
        if version == self._version and not in_doubt and not self._differs(scope):
            with self._lock:
                self._scope = scope
            return
        digests = dict(catalog.digests())
        for table in in_doubt:
            record = self._tables.get(table)
            if record is not None and record.facts is not None:
                self._digests.pop(record.facts.oid, None)
        if not in_doubt and digests == self._digests and not self._differs(scope):
            with self._lock:
                self._scope, self._version = scope, version
            return
        changed = [oid for oid, digest in digests.items() if self._digests.get(oid) != digest]
        found = dict(catalog.facts(changed))
        now = {facts.table: facts for facts in found.values()}
        before = {
            table: record.facts
            for table, record in self._tables.items()
            if record.facts is not None and (record.facts.oid in found or record.facts.oid not in digests)
        }
        gone = [facts.oid for facts in before.values() if facts.oid not in found]
        lost = [leaf.oid for facts in before.values() for leaf in facts.leaves]
        others = catalog.taken([table for table in before if table not in now])
        reading = CatalogReading(scope, now, catalog.names([*gone, *lost]), catalog.end_of_wal(), others)
        new = (
            []
            if self._scope is None
            else compare_catalog(self._scope, before, reading, epoch=self._epoch, returned=in_doubt)
        )
        with self._lock:
            self._record(before, reading, new, in_doubt)
            self._scope_changed = self._scope_changed or self._differs(scope)
            self._scope = scope
            self._digests = {oid: digest for oid, digest in digests.items() if oid in found or oid not in changed}
            self._version = version if len(self._digests) == len(digests) else ""
            self._act(new)

    def _differs(self, scope: CatalogScope) -> bool:
        was = self._scope
        return was is None or (was.all_tables, was.schemas, was.selected) != (
            scope.all_tables,
            scope.schemas,
            scope.selected,
        )

    def _record(
        self,
        before: Mapping[str, TableFacts],
        reading: CatalogReading,
        new: Sequence[DdlFinding],
        in_doubt: Collection[str],
    ) -> None:
        fresh: dict[str, list[DdlFinding]] = {}
        for one in new:
            fresh.setdefault(one.table, []).append(one)
        for table in before.keys() | reading.tables.keys() | fresh.keys() | set(in_doubt):
            was, facts = self._tables.get(table, TableRecord(facts=None)), reading.tables.get(table)
            found = merge_findings(was.findings, fresh.get(table, ()))
            if table in in_doubt and not any(one.kind == "returned" for one in fresh.get(table, ())):
                found = tuple(one for one in found if one.kind != "returned")  # another finding says what happened
            if facts is not None and (was.facts is None or was.facts.oid != facts.oid):
                self._owned_since[table] = reading.end_lsn
                if table in in_doubt and self._in_doubt[table].owner in {0, facts.oid}:
                    self._in_doubt[table].checks = 1  # the change of owner that the stream showed is found
            self._keep(table, was, TableRecord(facts=facts, findings=found))
        for table in in_doubt:
            self._in_doubt[table].checks -= 1
            if not self._in_doubt[table].checks or table not in reading.tables:
                del self._in_doubt[table]

    def _keep(self, table: str, was: TableRecord, record: TableRecord) -> None:
        if record == was:
            return
        self._changed.add(table)
        if was.facts is not None and self._names.get(was.facts.oid) == table:
            del self._names[was.facts.oid]
        if record.facts is not None:
            self._names[record.facts.oid] = table
        if record.facts is None and not record.findings:
            self._tables.pop(table, None)
        else:
            self._tables[table] = record

    def _accept(self, accepted: Mapping[str, AcceptedFindings]) -> None:
        with self._lock:
            for table, settled in accepted.items():
                record = self._tables.get(table, TableRecord(facts=None))
                left = tuple(one for one in record.findings if not settled.covers(one))
                if len(left) < len(record.findings):
                    self._keep(table, record, TableRecord(facts=record.facts, findings=left))
                    self._observer.ddl_accepted(table, len(record.findings) - len(left))
            self._act([])

    def _read_again(self) -> dict[str, AcceptedFindings]:
        """Begin snapshots for findings that they repair. Returns what is settled by those that go on."""
        with self._lock:
            records = [(table, record) for table, record in self._tables.items() if table not in self._in_doubt]
        settled_now: dict[str, AcceptedFindings] = {}
        for table, record in records:
            if record.facts is None:
                continue
            found = [one for one in record.findings if one.kind in _REPAIRED | _SWEPT and self._reads(one)]
            sweep = any(one.kind in _SWEPT for one in found)
            # A finding that no snapshot repairs stays open, and so does everything found later.
            if found and self.read_again(record.facts, max(one.lsn for one in found), sweep=sweep):
                others = [(one.epoch, one.lsn - 1) for one in record.findings if one not in found]
                epoch, lsn = min([max((one.epoch, one.lsn) for one in found), *others])
                settled_now[table] = AcceptedFindings(epoch=epoch, lsn=lsn)
        return settled_now

    def _act(self, new: Sequence[DdlFinding]) -> None:
        """Apply the policy to findings, here and nowhere else. `new` were just found; open ones are in `_tables`.

        A finding is open until it is accepted. ``warn`` only reports it. With ``stop``, capture ends as soon as all
        findings are recorded (`written`). ``resnapshot`` is left to `settle`.
        """
        by_table = sorted(self._tables.items())
        unsettled = [one for _, record in by_table for one in record.findings]
        self._observer.ddl_found(new, unsettled)
        stopping = [one for one in unsettled if self._policy(one.table) == "stop" and not self._reads(one)]
        self._refusal = _refusal(stopping) if stopping else None

    def _policy(self, table: str) -> str:
        return chosen(table, self._settings.tables, self._settings.policy)

    def _reads(self, finding: DdlFinding) -> bool:
        """Whether the table is read because of the finding. A new table is, under any policy, as at a first start."""
        if finding.kind == "joined":
            return self._wanted(finding.table)
        return self._policy(finding.table) == "resnapshot"


def _reads_nothing(facts: TableFacts, lsn: int, *, sweep: bool) -> bool:  # noqa: ARG001 - see `ReadAgain`
    return False


def _refusal(stopping: Sequence[DdlFinding]) -> SourceRefused:
    first, tables = stopping[0], {one.table for one in stopping}
    more = len(stopping) - _NAMED_MAX
    said = "; ".join(one.what for one in stopping[:_NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")
    return SourceRefused(
        f'[ddl] policy is "stop", and the stream does not show this DDL: {said}',
        hint="nothing is lost: the stream continues from here. Check which rows are affected; if the log needs their "
        "new form, update them. Then accept the finding and start again",
        command="cdc ddl list" if len(tables) > 1 else f"cdc ddl accept {shlex.quote(pattern_for(first.table))}",
        table=first.table,
        kind=first.kind,
        since_lsn=Lsn(first.since_lsn),
        lsn=Lsn(first.lsn),
    )
