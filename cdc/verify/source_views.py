"""Compares published views with the results of their own texts on PostgreSQL, while the tables are written.

A view's text runs on PostgreSQL in a snapshot. Then the lake's first cut that covers the snapshot is awaited. Rows that
changed between the two are replaced in the query's tables by their state in the log (`cdc.verify.view_delta`), so that
both sides are as of the same transaction. Spark computes nothing, and no code of the views' translation, plans or runs
is used: only the reader of the lake is shared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import psycopg

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import CutNotReached, LakeDamaged, TailraceError, UsageError
from cdc.lsn import Lsn
from cdc.model.topic_names import data_topic
from cdc.replication.table_shape import SourceTable
from cdc.verify.capture_wait import NOTICE_S, Notify, PatientReader, silent
from cdc.verify.source_snapshot import LOCKED, ResultColumn, SourceSnapshot, open_snapshot
from cdc.verify.view_delta import TableDelta, Undecided, table_delta
from sinks.warehouse.lake import layout
from sinks.warehouse.read.lake_reader import Lake
from sinks.warehouse.verify.published_rows import PublishedRows, published_rows, published_text
from sinks.warehouse.verify.row_multiset import Compared, compare
from sinks.warehouse.verify.value_forms import is_float, source_form
from sinks.warehouse.verify.view_collations import wrong_collations
from sinks.warehouse.verify.view_text import (
    NamedTable,
    NotCheckable,
    ViewText,
    one_query,
    quoted,
    view_text,
    views_read,
)

if TYPE_CHECKING:
    from cdc.kafka.log_reader import LogReader
    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import Manifest

State: TypeAlias = Literal["equal", "near", "different", "undecided", "not_compared", "not_checkable"]
"""``near``: equal but for the last digits of floats. ``undecided``: rows changed in a way that the check cannot follow.
``not_compared``: an error, or the view is left behind. ``not_checkable``: PostgreSQL can never run this view."""

WAIT_S: Final = 60.0
STATEMENT_S: Final = 300.0
_ATTEMPTS: Final = 3
_SETTLE_S: Final = 5.0  # wait for transactions that were open when the check began
_LOOK_S: Final = 0.1
_DATA_ERROR: Final = "22"  # SQLSTATE class: the query cannot have a result
_GROUPING_ERROR: Final = "42803"
_UNDEFINED_COLUMN: Final = "42703"
_QUERY_CANCELED: Final = "57014"
_LOCK_NOT_AVAILABLE: Final = "55P03"
_INSUFFICIENT_PRIVILEGE: Final = "42501"


@dataclass(slots=True, kw_only=True)
class SourceViewReport:
    """The comparison of a view with PostgreSQL.

    Attributes:
        cut: the cut of its rows.
        state: see `State`.
        found: counts and examples.
        replaced: rows of its tables that were taken from the log, because they changed after the snapshot.
        reason: why it was not compared, or what differs beside rows; empty if there is nothing to say.
        columns: names of its columns.
        collations: why its text is compared in another way than PostgreSQL's, even if no row shows it now.
        key: names of the columns that identify rows; empty if its file names none.
    """

    name: str
    cut: int
    state: State
    found: Compared = field(default_factory=Compared)
    replaced: int = 0
    reason: str = ""
    columns: tuple[str, ...] = ()
    collations: tuple[str, ...] = ()
    key: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the rows are those of PostgreSQL."""
        return self.state in {"equal", "near"}


@dataclass(frozen=True, slots=True)
class SourceViews:
    """All comparisons: the cut, where it ends, and a report for each view."""

    cut: int
    lsn: Lsn
    reports: tuple[SourceViewReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long to wait for the lake, how long one query may take on PostgreSQL, and all of them, in seconds."""

    wait_s: float = WAIT_S
    statement_s: float = STATEMENT_S
    total_s: float = float("inf")


def check_views_at_source(
    config: Config,
    location: Location,
    names: Sequence[str] = (),
    *,
    clock: Clock,
    limits: Limits | None = None,
    say: Notify = silent,
) -> SourceViews:
    """Compare the named views, or all if `names` is empty.

    Raises:
        UsageError: a view does not exist, or the lake is of another pipeline.
        CutNotReached: the lake does not reach the snapshot in time.
        TailraceError: errors of PostgreSQL, Kafka and the lake.
    """
    limits = limits or Limits()
    lake = Lake(location)
    manifest = lake.manifest()
    if manifest.name != config.name:
        raise UsageError(f"the lake in {location} belongs to pipeline {manifest.name!r}, not to {config.name!r}")
    for name in names:
        if name not in manifest.unbuilt:
            lake.view(name, manifest)
    known = {name for name in {**manifest.views, **manifest.unbuilt} if not layout.is_beside(name)}
    wanted = list(names) or sorted(known)
    with ExitStack() as closing:
        reader = closing.enter_context(PatientReader(config.kafka, wait_s=limits.wait_s, say=say))
        source = closing.enter_context(open_snapshot(config))
        check = _Check(config, lake, reader, source, clock, limits, say)
        reports = {name: _unbuilt(name, manifest) for name in wanted if name not in manifest.views}
        for attempt in range(_ATTEMPTS):
            left = [name for name in wanted if name not in reports or reports[name].state == "undecided"]
            if not left:
                break
            if attempt:
                say(f"comparing {', '.join(left)} again: {reports[left[0]].reason}")
            manifest = check.round(left, reports)
        check.compare_collations(manifest, reports)
        return SourceViews(manifest.cut, Lsn(manifest.end_lsn), tuple(reports[name] for name in wanted))
    raise AssertionError("unreachable")


@dataclass(slots=True)
class _Query:
    """A view's query: its text, its parameters, its tables, and the number of rows in the parameters."""

    sql: str
    parameters: list[str]
    tables: list[SourceTable]
    replaced: int


class _Check:
    """One run of the check: one connection, one reader, several snapshots."""

    def __init__(
        self,
        config: Config,
        lake: Lake,
        reader: LogReader,
        source: SourceSnapshot,
        clock: Clock,
        limits: Limits,
        say: Notify,
    ) -> None:
        self._config = config
        self._lake = lake
        self._reader = reader
        self._source = source
        self._clock = clock
        self._limits = limits
        self._say = say
        self._start: Mapping[tuple[str, int], int] = {}
        self._tables: list[SourceTable] = []
        self._deltas: dict[int, TableDelta] = {}
        self._end_s = clock.monotonic_s() + limits.total_s

    def round(self, names: Sequence[str], reports: dict[str, SourceViewReport]) -> Manifest:
        """Compare these views in one snapshot at one cut, which is returned."""
        manifest = self._lake.manifest()
        texts = self._texts(manifest)
        self._tables = self._tables_of(names, texts, manifest)
        self._deltas = {}
        if not self._tables:
            for name in names:
                reports[name] = self._report(name, texts, manifest)
            return manifest
        try:
            for table in self._tables:
                self._source.published(table)
            self._snapshot()
        except Undecided as why:
            for name in names:
                reports[name] = SourceViewReport(name=name, cut=manifest.cut, state="undecided", reason=str(why))
            return manifest
        try:
            manifest = self._await_cut()
            texts = self._texts(manifest)
            for name in names:
                reports[name] = self._report(name, texts, manifest)
        finally:
            self._source.end()
        return manifest

    def compare_collations(self, manifest: Manifest, reports: Mapping[str, SourceViewReport]) -> None:
        """Add to each report what its view declares wrongly about the order of text."""
        found = self._source.collations()
        for name, report in reports.items():
            text = published_text(self._lake, manifest, name) if name in manifest.views else None
            report.collations = tuple(wrong_collations(text or "", found))

    def _snapshot(self) -> None:
        """Take a snapshot that sees everything in the log up to now; see `cdc.verify.view_delta`."""
        topics = sorted(map(self._topic, self._tables))
        ends = self._reader.end_offsets(topics)
        self._start = {at: high for at, (_, high) in ends.items()}
        since = self._source.next_xid()
        began_s = self._clock.monotonic_s()
        while not self._source.begin(self._tables, statement_s=self._limits.statement_s, since_xid=since):
            if self._clock.monotonic_s() - began_s > _SETTLE_S:
                self._say("a transaction that began before this check is still open; comparing without waiting for it")
                return
            self._clock.wait(threading.Event(), _LOOK_S)

    def _await_cut(self) -> Manifest:
        """Wait for the first cut that has everything that the snapshot sees. Raises CutNotReached."""
        lsn = self._source.lsn.before_header()
        began_s, noticed = self._clock.monotonic_s(), False
        while (manifest := self._lake.manifest()).end_lsn < lsn:
            waited_s = self._clock.monotonic_s() - began_s
            at = f"the lake is at {Lsn(manifest.end_lsn)}, and PostgreSQL at {lsn}"
            if waited_s > self._limits.wait_s:
                raise CutNotReached(
                    f"the lake did not catch up within {self._limits.wait_s:g} s: {at}",
                    hint="check that capture and the lake's sink are running; if cuts take longer, raise --timeout",
                    command="cdc status",
                    lsn=lsn,
                )
            if waited_s > NOTICE_S and not noticed:
                noticed = True
                self._say(f"waiting for the lake's next cut: {at}; gives up after {self._limits.wait_s:g} s")
            self._clock.wait(threading.Event(), _LOOK_S)
        return manifest

    def _report(self, name: str, texts: Mapping[str, ViewText | str], manifest: Manifest) -> SourceViewReport:
        """Compare one view. Errors of this view alone become its report."""

        def failed(state: State, reason: str) -> SourceViewReport:
            return SourceViewReport(name=name, cut=manifest.cut, state=state, reason=reason)

        if self._clock.monotonic_s() > self._end_s:
            return failed("not_compared", f"the other views took {self._limits.total_s:g} s")
        state = manifest.views.get(name)
        if state is None:
            unbuilt = manifest.unbuilt.get(name)
            why = "it is no longer in the lake" if unbuilt is None else f"it has no rows: {unbuilt.reason}"
            return failed("not_compared", why)
        if state.reason:
            return failed("not_compared", f"it is left behind at cut {state.cut}: {state.reason}")
        try:
            query = self._query(name, texts, manifest)
            return self._compared(name, texts, query, manifest)
        except NotCheckable as why:
            return failed("not_checkable", str(why))
        except Undecided as why:
            return failed("undecided", str(why))
        except LakeDamaged as error:
            return failed("not_compared", error.message)
        except TailraceError as error:
            cause = error.__cause__
            sqlstate = (cause.sqlstate if isinstance(cause, psycopg.Error) else None) or ""
            if not sqlstate or sqlstate.startswith(("57P", "08")):
                raise
            return failed(*self._judged(sqlstate, type(cause).__name__, error))

    def _judged(self, sqlstate: str, condition: str, error: TailraceError) -> tuple[State, str]:
        """Return what an error of a view's query means."""
        if sqlstate.startswith(_DATA_ERROR):
            # The message of such an error can contain a value of a row.
            return "different", f"PostgreSQL raises {condition} ({sqlstate}), but the view has rows"
        if sqlstate == _LOCK_NOT_AVAILABLE:
            return "undecided", LOCKED
        if sqlstate == _GROUPING_ERROR and self._deltas:
            return (
                "undecided",
                "it groups by a primary key alone, so it is compared only while its tables do not change",
            )
        if sqlstate == _UNDEFINED_COLUMN:
            return "not_checkable", f"it reads a column that PostgreSQL does not have: {error.message}"
        if sqlstate == _QUERY_CANCELED:
            limit = f"its query took longer than {self._limits.statement_s:g} s on PostgreSQL"
            return "not_compared", f"{limit}; raise --statement-timeout"
        if sqlstate == _INSUFFICIENT_PRIVILEGE:
            return "not_compared", f"{error.message}; `cdc doctor --sql` prints the statements for a DBA"
        return "not_compared", error.message

    def _compared(
        self, name: str, texts: Mapping[str, ViewText | str], query: _Query, manifest: Manifest
    ) -> SourceViewReport:
        published = published_rows(self._lake, manifest, name)
        own = texts[name.lower()]
        key = own.key if isinstance(own, ViewText) else ()
        report = SourceViewReport(
            name=name, cut=manifest.cut, state="equal", columns=published.names, key=key, replaced=query.replaced
        )
        with self._source.statement(name):
            columns = self._source.columns(query.sql, query.parameters)
            self._check_columns(columns)
            difference = _other_columns(columns, published)
            if difference:
                report.state, report.reason = "different", difference
                return report
            kinds = [column.kind for column in columns]
            forms = [source_form(kind, lake) for kind, lake in zip(kinds, published.types, strict=True)]
            report.found = compare(
                published.rows(kinds),
                lambda: self._source.rows(query.sql, query.parameters, columns, forms),
                floats=[at for at, kind in enumerate(kinds) if is_float(kind)],
                key=_positions(key, published.names),
            )
            self._source.check_files(query.tables)
        found = report.found
        if found.missing or found.extra:
            report.state = "different" if self._source.settled else "undecided"
            if not self._source.settled:
                report.reason = "rows differ, but a transaction that began before the check is open and may explain it"
        elif found.near:
            report.state = "near"
        return report

    def _check_columns(self, columns: Sequence[ResultColumn]) -> None:
        encode = self._config.encode
        for column in columns:
            if column.kind.removesuffix("[]") == "interval" and encode.interval != "iso":
                raise NotCheckable(f"its column {column.name} is an interval in the form encode.interval chooses")
            if column.extension == "hstore" and encode.hstore == "json":
                raise NotCheckable(f"its column {column.name} is an hstore in the form encode.hstore chooses")

    def _texts(self, manifest: Manifest) -> dict[str, ViewText | str]:
        """Return view in lower case -> its text, or why PostgreSQL cannot run it."""
        found: dict[str, ViewText | str] = {}
        for name in manifest.views:
            if layout.is_beside(name):
                continue
            text = published_text(self._lake, manifest, name)
            try:
                found[name.lower()] = "its text is not in the lake" if text is None else view_text(text)
            except NotCheckable as why:
                found[name.lower()] = str(why)
        return found

    def _tables_of(
        self, names: Sequence[str], texts: Mapping[str, ViewText | str], manifest: Manifest
    ) -> list[SourceTable]:
        """Return the tables that these views read, also through other views; unknown ones are left out."""
        usable = {name: text for name, text in texts.items() if isinstance(text, ViewText)}
        found: dict[int, SourceTable] = {}
        for name in names:
            for view in (name.lower(), *views_read(name, usable)):
                for one in usable[view].names if view in usable else ():
                    if len(one.parts) > 1 or one.parts[0].lower() not in texts:
                        found |= {table.oid: table for table in self._meant(one, manifest)}
        return list(found.values())

    def _query(self, name: str, texts: Mapping[str, ViewText | str], manifest: Manifest) -> _Query:
        """Return a view's query over its tables as of the cut. Raises NotCheckable, Undecided."""
        usable: dict[str, ViewText] = {}
        for view, text in texts.items():
            if isinstance(text, ViewText):
                usable[view] = text
            elif view == name.lower():
                raise NotCheckable(text)
        query = _Query("", [], [], 0)
        ctes: dict[str, str] = {}

        def table(found: NamedTable) -> str:
            if len(found.parts) == 1 and found.parts[0].lower() in texts:
                raise NotCheckable(f"it reads the view {found}: {texts[found.parts[0].lower()]}")
            return self._from(found, manifest, query, ctes)

        own, views = one_query(name, usable, table)
        before = [*(f"{cte} as not materialized (\n{sql}\n)" for cte, sql in ctes.items())]
        before += [f"{cte} as (\n{sql}\n)" for cte, sql in views.items()]
        names = f"with {', '.join(before)}\n" if before else ""
        query.sql = f"{names}select * from (\n{own}\n) as v"  # noqa: S608 - the view's own text
        return query

    def _from(self, found: NamedTable, manifest: Manifest, query: _Query, ctes: dict[str, str]) -> str:
        """Return what stands for a table in a FROM clause."""
        meant = self._meant(found, manifest)
        if len(meant) != 1:
            why = "is ambiguous" if meant else "is not a captured table with a key"
            raise NotCheckable(f"{found} {why}")
        (table,) = meant
        if table.oid not in {one.oid for one in self._tables}:
            raise Undecided(f"the view began to read {table.table} meanwhile")
        if manifest.position.complete.get(table.table, "complete") != "complete":
            raise Undecided(f"{table.table} is being snapshotted")
        published = self._source.published(table)
        if published is None:
            raise NotCheckable(f"{table.table} is not in the publication")
        if table not in query.tables:
            query.tables.append(table)
        delta = self._delta(table, manifest)
        plain = published.plain()
        if plain is not None and not delta.rows:
            return plain.as_string()
        cte = quoted(f"tailrace_table_{table.oid}")
        if cte not in ctes:
            if delta.rows:
                query.parameters.append(delta.document())
                query.replaced += len(delta.rows)
            ctes[cte] = published.query(len(query.parameters) if delta.rows else None, self._config.encode).as_string()
        return cte

    def _delta(self, table: SourceTable, manifest: Manifest) -> TableDelta:
        if table.oid not in self._deltas:
            until = {at: end for at, (end, _) in manifest.position.accounts.items()}
            self._deltas[table.oid] = table_delta(
                self._reader, self._topic(table), self._start, until, self._source.snapshot
            )
        return self._deltas[table.oid]

    def _meant(self, found: NamedTable, manifest: Manifest) -> list[SourceTable]:
        """Return the captured tables with a mirror that a name can mean."""
        parts = found.parts[1:] if len(found.parts) > 1 and found.parts[0] == "mirror" else found.parts
        tables = [one for one in self._source.tables if layout.mirror(one.namespace, one.name) in manifest.tables]

        def matching(fold: Callable[[str], str]) -> list[SourceTable]:
            wanted = tuple(map(fold, parts))
            names = [(table, tuple(map(fold, (table.namespace, table.name)))) for table in tables]
            return [table for table, full in names if full[-len(wanted) :] == wanted]

        return matching(str) or matching(str.lower)

    def _topic(self, table: SourceTable) -> str:
        return data_topic(self._config.name, table.namespace, table.name)


def _unbuilt(name: str, manifest: Manifest) -> SourceViewReport:
    reason = f"it has no rows yet: {manifest.unbuilt[name].reason}"
    return SourceViewReport(name=name, cut=manifest.cut, state="not_compared", reason=reason)


def _other_columns(columns: Sequence[ResultColumn], published: PublishedRows) -> str:
    """Return how the columns differ; empty if they do not."""
    own = [column.name.lower() for column in columns]
    if own == [name.lower() for name in published.names]:
        return ""
    return f"its columns differ: PostgreSQL has {', '.join(own)}, the view {', '.join(published.names)}"


def _positions(key: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the positions of the key's columns; empty if one is missing."""
    lower = [name.lower() for name in names]
    return [lower.index(one.lower()) for one in key] if all(one.lower() in lower for one in key) else []
