"""The main loop of the lake sink: applies one cut after the other, each completely or not at all.

The steps of a cut (the numbers are also in `LakeDriver._apply`):

1. The span is measured. The span and its pieces become durable (`pending`), so that a crash repeats the same ones.
2. The records of a piece are read in one bounded batch and counted against the cut index.
3. Each table takes the events of the piece: archive, history, mirror. Then the next piece follows. Of tables without
   rows only the archive does; the rest is derived from it after the last piece (`sinks.warehouse.first_load`).
4. Views whose inputs changed are computed, each after the views it reads.
5. The fence is checked: another driver may have taken over. Everything before this step may safely be done twice.
6. The manifest is published, and readers see all tables move together.
7. Published views follow in their topics, and Iceberg metadata follows.

A driver is unusable after any error. The caller creates a new one, which finds `pending` and repeats the cut.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from msgspec import structs

from cdc.errors import BrokerError, LakeDamaged, LakeUnready, SinkGap, SinkUnfit, SparkFailed
from cdc.lsn import Lsn
from cdc.model.progress_record import SchemaRecord
from cdc.model.topic_names import cuts_topic, schema_topic
from cdc.patterns import matches
from cdc.telemetry import log
from sinks.state.table_match import is_name, keeps_nothing, problem, unmatched, warn_of_settings
from sinks.warehouse.cut_plan import CutSize, begun_again, bytes_max, failed
from sinks.warehouse.cut_views import CutViews
from sinks.warehouse.first_load import TableLoader, loads_in, whole_log
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.cut_commit import CutCommit
from sinks.warehouse.lake.cut_position import START, CutPosition, Partition
from sinks.warehouse.lake.layout import is_beside, split_beside
from sinks.warehouse.lake.manifest import Manifest, Pending, Repair, TableState
from sinks.warehouse.lake.old_sums import drop_old_sums
from sinks.warehouse.lake.restore_check import check_newest
from sinks.warehouse.lake_observer import published_cut
from sinks.warehouse.log.cut_pieces import Chunk, Piece, parts_of, rest_of
from sinks.warehouse.log.cut_reader import read_cut_index, read_schemas
from sinks.warehouse.log.event_time import check_event_times, event_time_of
from sinks.warehouse.log.lake_columns import LakeTable, form_of, lake_table, unknown_overrides
from sinks.warehouse.log.log_repairs import awaiting, repairs_in
from sinks.warehouse.log.span import Span, joined, next_span, same_span
from sinks.warehouse.log.span_presence import check_there
from sinks.warehouse.log.span_reading import SpanReader
from sinks.warehouse.log.table_choice import Choice, choose, names_of, reading
from sinks.warehouse.log.table_commit import Names, TableWriter
from sinks.warehouse.parts import LakeParts
from sinks.warehouse.spark.spark_errors import translating_spark_errors
from sinks.warehouse.tables_at_once import TablesAtOnce, at_once
from sinks.warehouse.views.column_types import types_stored

_INDEX_RECORDS: Final = 20_000  # read from the cut index at once; a few hundred bytes each
_COMPACT_EVERY: Final = 64  # cuts; each adds a few small files to every table it writes
_PRUNE_EVERY: Final = 64
_Schemas = Mapping[tuple[str, str], SchemaRecord]
_ByTopic = Mapping[str, Mapping[str, SchemaRecord]]  # topic -> schema id -> record


@dataclass(frozen=True, slots=True)
class _Work:
    """The work of one cut.

    Attributes:
        span: the part of the log that the cut covers.
        new: the part of the span that is read.
        repairs: all of the log so far, if there is one in the span; else empty.
    """

    span: Span
    new: Span
    schemas: _Schemas
    choice: Choice
    repairs: tuple[Repair, ...] = ()


class LakeDriver:
    """Applies the log to the lake. Call `run` once, then `close`."""

    def __init__(self, parts: LakeParts) -> None:
        self._parts = parts
        self._manifest = parts.store.current()
        self._passed: Span | None = None
        self._left: frozenset[str] = frozenset()  # view tables that no kept cut names but a topic still depends on
        self._schemas: _Schemas = {}
        self._schemas_at = -1
        self._views = CutViews(parts, self._manifest)
        self._size = CutSize(parts.settings)
        seen = None if parts.spans is None else parts.spans.read
        small = None if parts.in_frames else parts.reader
        self._reader = SpanReader(parts.spark, parts.kafka_options, small, seen, in_frames=parts.in_frames)

    @property
    def position(self) -> CutPosition:
        """Where the newest cut of the lake ends."""
        return START if self._manifest is None else self._manifest.position

    def run(self, stop: threading.Event) -> None:
        """Apply cut after cut until `stop`. A cut under way is finished first."""
        try:
            self._run(stop)
        except (BrokerError, LakeUnready) as error:
            # Spark is healthy if another server is not, and a new JVM with its executors starts more slowly than one.
            if not isinstance(error, SparkFailed):
                self._parts.keep_spark()
            raise

    def _run(self, stop: threading.Event) -> None:
        self._resume()
        while not stop.is_set():
            began_s = self._parts.clock.monotonic_s()
            self.step()
            left_s = began_s + self._parts.settings.interval_s - self._parts.clock.monotonic_s()
            self._parts.clock.wait(stop, max(left_s, 0.0))

    def step(self) -> bool:
        """Apply the next cut. Returns whether the log had one."""
        parts, passed, kept = self._parts, self._passed, self._parts.settings.tables
        start = self.position if passed is None else passed.end
        cuts = read_cut_index(parts.reader, parts.name, start, _INDEX_RECORDS)
        reached = Lsn(cuts[-1][1].end_lsn if cuts else start.end_lsn)
        parts.observer.looked(reached, at_end=len(cuts) < _INDEX_RECORDS)

        def shortened(records_max: int) -> Span | None:
            found = next_span(start, cuts, events_max=records_max, keeps=partial(matches, patterns=kept))
            return found if found is None or passed is None else joined(passed, found)

        span = shortened(self._size.records_max)
        if span is None:
            return self._swap()
        # Heartbeats of an idle source are in the index, too. A cut without a new LSN is passed over and not read again,
        # as is what a repair of the log has written before all its snapshots are complete.
        at = span.end.epoch, span.end.end_lsn
        is_still = self._manifest is not None and at == (self.position.epoch, self.position.end_lsn)
        self._passed = span if is_still or span.end.awaited else None
        if span.end.awaited:
            parts.observer.waits(awaiting(span))
        if self._passed is not None:
            return self._swap()
        with translating_spark_errors("measure a cut"):
            span, pieces = self._whole(span) or self._size.bounded(span, self._measured, shortened)
        work = self._work(span)
        loads = loads_in(work.choice, self._manifest, pieces)
        self._apply(work, structs.replace(self._pending(span), pieces=pieces, loads=loads))
        return True

    def _whole(self, first: Span) -> tuple[Span, tuple[Piece, ...]] | None:
        """Return all of the log in pieces, for the first cut of a lake; None if it fits into a cut without pieces."""
        parts = self._parts
        if self._manifest is not None:
            return None
        keeps = partial(matches, patterns=parts.settings.tables)
        span = whole_log(partial(read_cut_index, parts.reader, parts.name, limit=_INDEX_RECORDS), first, keeps)
        pieces = self._size.divided(span, self._measured)
        return (span, pieces) if pieces else None

    def _measured(self, span: Span) -> Sequence[Chunk]:
        """Return the chunks of a span; empty if it fits into memory."""
        new = self._work(span).new
        check_there(self._parts.reader, new, self._parts.clock)
        return self._reader.chunks(new, bytes_max=bytes_max(self._parts.settings)) if new.ranges else ()

    def _work(self, span: Span) -> _Work:
        schemas = self._known_schemas(span)
        choice = choose(self._parts.name, span.end, schemas.values(), self._parts.settings)
        held = None if self._manifest is None else self._manifest.tables
        return _Work(span, reading(span, choice, held), schemas, choice)

    def _swap(self) -> bool:
        """Apply requested view changes without new log records: an idle source must not delay them."""
        if not self._views.is_due(self._manifest):
            return False
        span = Span(self.position, self.position, 0, {})
        self._apply(self._work(span), self._pending(span))
        return True

    def close(self) -> None:
        """Close everything. The next driver repeats what is not published."""
        self._reader.close()
        self._parts.closing.close()

    def _resume(self) -> None:
        """Finish an interrupted cut with the range that it began with."""
        parts, pending = self._parts, self._parts.store.pending()
        if self._manifest is not None:
            self._follow(self._manifest)  # the previous driver may have stopped before this
            drop_old_sums(self._manifest, parts.committer)
        if pending is None:
            if self._manifest is not None:
                check_newest(self._manifest, parts.committer)
            return
        cuts = read_cut_index(parts.reader, parts.name, self.position, pending.position.cuts_offset)
        wanted = [(offset, cut) for offset, cut in cuts if offset < pending.position.cuts_offset]
        span = same_span(self.position, wanted)
        if pending.position.cuts_offset == self.position.cuts_offset:
            span = Span(self.position, self.position, 0, {})  # views were swapped while the source was idle
        if span is None or span.end.end_lsn != pending.end_lsn:
            raise SinkGap(
                f"cannot resume cut {pending.cut}: its range up to {Lsn(pending.end_lsn)} cannot be read again",
                hint="the cut index has lost this range; rebuild the lake in another folder",
                end_lsn=Lsn(pending.end_lsn),
            )
        log.get().info("cut_resumed", cut=pending.cut, lsn=str(Lsn(pending.end_lsn)), attempts=pending.attempts + 1)
        work = self._work(span)
        with translating_spark_errors("measure a cut"):
            pending = begun_again(
                pending, work.new, work.choice, parts.committer, self._manifest, self._reader, parts.settings
            )
        parts.store.revise(pending)
        self._apply(work, pending)

    def _apply(self, work: _Work, pending: Pending) -> None:
        parts, span, began_s = self._parts, work.span, self._parts.clock.monotonic_s()
        work = replace(work, repairs=repairs_in(span, self._manifest, parts.spark, parts.location))
        commit, after = CutCommit(parts.store, parts.committer, pending), Lsn(self.position.end_lsn)  # 1
        if parts.spans is not None:
            parts.spans.began()
        try:
            with translating_spark_errors("apply a cut"):
                written = self._write(work, commit)  # 2, 3, 4
        except SparkFailed as error:
            failed(parts.store, error, parts.settings, self._views.computing)
            raise
        if pending.cut % _COMPACT_EVERY == 0:
            for table, key in sorted(written.items()):
                commit.compact(table, sort_by=key)
        parts.fence.hold(_offsets(parts.name, span))  # 5
        published_us = int(parts.clock.wall_s() * 1_000_000)
        self._manifest = commit.publish(name=parts.name, committed_at_us=published_us, repairs=work.repairs)  # 6
        took_s = parts.clock.monotonic_s() - began_s
        log.get().info(
            "cut_published",
            cut=pending.cut,
            lsn=str(Lsn(pending.end_lsn)),
            records=span.records,
            merged=span.merged,
            seconds=round(took_s, 3),
        )
        parts.observer.published(published_cut(self._manifest), records=span.records, took_s=took_s)
        if parts.spans is not None:
            took = began_s, began_s + took_s
            parts.spans.published(self._manifest, self._views.took, after=after, records=span.records, took=took)
        self._follow(self._manifest)  # 7
        if pending.cut % _PRUNE_EVERY == 0:
            self._forget_old()

    def _follow(self, manifest: Manifest) -> None:
        """Bring what follows the manifest up to it."""
        self._views.publish(manifest)
        iceberg = self._parts.iceberg
        if iceberg is not None:
            behind = iceberg.follow(manifest)
            self._parts.observer.iceberg(iceberg.cut, behind)

    def _write(self, work: _Work, commit: CutCommit) -> dict[str, tuple[str, ...]]:
        """Bring tables and views to the end of the cut. Returns the tables written, with their sort columns."""
        written: dict[str, tuple[str, ...]] = {}
        with ExitStack() as used:
            if work.new.ranges:
                written = self._tables(work, commit, used)
            self._found_new(work.choice, written, commit, used)
            self._forget(work.choice, commit)
            self._describe(work.choice, work.schemas, commit)
            self._views.apply(commit, work.span.end.complete, self._manifest)
        return written

    def _tables(self, work: _Work, commit: CutCommit, used: ExitStack) -> dict[str, tuple[str, ...]]:
        """Read the span piece by piece and apply its events to each table. `used` releases rows that views may read."""
        known, pieces, done = _by_topic(work.schemas), commit.pending.pieces, commit.pending.written
        check_there(self._parts.reader, rest_of(work.new, pieces[:done]), self._parts.clock)
        topics = {topic for topic, _ in work.new.ranges}
        # Forms come from the whole span: a piece must not return a table to an older form.
        forms = self._forms(work, known, commit.tables, topics - work.choice.events.keys())
        written: dict[str, tuple[str, ...]] = {}
        if pieces:
            facts = {"pieces": len(pieces), "written": done, "loads": len(commit.pending.loads)}
            log.get().info("cut_in_pieces", cut=commit.pending.cut, records=work.new.records, **facts)
        for number, part in enumerate(parts_of(work.new, pieces)):
            if number < done:
                continue
            commit.begin_piece(number)
            with ExitStack() as own:
                written |= self._piece(part, work, forms, commit, own if pieces else used)
            if pieces:
                commit.end_piece(number)
        commit.begin_piece(0)
        loads = {topic: forms[topic][-1] for topic in commit.pending.loads if topic in forms}
        if loads:
            TableLoader(self._parts, commit, work.choice.names, work.repairs).load(loads)
        return written

    def _piece(
        self, part: Span, work: _Work, forms: dict[str, list[LakeTable]], commit: CutCommit, used: ExitStack
    ) -> dict[str, tuple[str, ...]]:
        """Apply one piece. `forms` covers all topics; a form that only this piece reveals is added to it."""
        parts, schemas, known = self._parts, work.schemas, _by_topic(work.schemas)
        writer = self._writer(commit, used, work.repairs)
        topics = {topic for topic, _ in part.ranges}
        written: dict[str, tuple[str, ...]] = {}
        here = {topic: form for topic, form in forms.items() if topic in topics}
        loads = set(commit.pending.loads)
        # Rows of one table after the other are in the driver of a local committer, so that memory is bounded.
        with TablesAtOnce(at_once(parts.spark) if parts.in_frames else 1) as tables:
            for topic, first_rows in self._reader.outputs(part, here, loads=loads):
                rows, table = first_rows, here[topic][-1]
                if len(known[topic]) > len(here[topic]) and rows.has_unknown_schemas(table):
                    rows.release()
                    seen = self._seen_forms(work.new, known, [topic])
                    rows, table = next(self._reader.outputs(part, seen, loads=loads))[1], seen[topic][-1]
                    forms |= seen
                names = names_of(table, parts.settings)
                if topic in loads:
                    names = Names(names.archive, "", "")
                before = _schema_in(commit.tables, names)
                old = None if before is None else self._lake_table(schemas[(table.table, before)])
                rows.released_by(used)
                tables.do(partial(writer.write, rows, table, old, names))
                # Merges of scattered keys leave a mirror unsorted; sorted keys are found in few files.
                written |= {name: table.key if name == names.mirror else () for name in names.all}
        for topic, events in self._reader.events(part, sorted(topics & work.choice.events.keys())):
            commit.archive(work.choice.events[topic], events, schema_id="")
            written[work.choice.events[topic]] = ()
        return written

    def _forms(
        self, work: _Work, known: _ByTopic, held: Mapping[str, TableState], topics: Collection[str]
    ) -> dict[str, list[LakeTable]]:
        """Return, for each of these topics, the forms that its rows probably have, the form of the newest row last.

        A new schema usually arrives with its first row. So without a new schema in the span, rows are expected to have
        the form that the lake has. Rows with an unknown schema are detected, and their topic is surveyed: a schema can
        be written without a row, before a TRUNCATE that is passed over. Where nothing is known, rows are surveyed
        first.
        """
        span, choice = work.new, work.choice
        expected: dict[str, list[LakeTable]] = {}
        moved = _schemas_end(self._parts.name, span.start) != _schemas_end(self._parts.name, span.end)
        for topic in topics:
            records = known.get(topic, {})
            before = _schema_in(held, choice.names[topic]) if topic in choice.names else None
            if len(records) == 1:
                expected[topic] = [self._lake_table(record) for record in records.values()]
            elif before is not None and not moved:
                expected[topic] = [self._lake_table(records[before])]
        unsure = sorted(topics - expected.keys())
        return dict(sorted({**expected, **(self._seen_forms(span, known, unsure) if unsure else {})}.items()))

    def _seen_forms(self, span: Span, known: _ByTopic, topics: Sequence[str]) -> dict[str, list[LakeTable]]:
        """Return the forms that a survey of the rows finds."""
        seen = self._reader.survey(span, topics)
        return {
            topic: [self._lake_table(record) for record in _found_records(known.get(topic, {}), topic, schema_ids)]
            for topic, schema_ids in seen.items()
        }

    def _found_new(self, choice: Choice, written: Collection[str], commit: CutCommit, used: ExitStack) -> None:
        """Create empty lake tables for captured tables without rows."""
        writer = self._writer(commit, used)
        for topic, names in choice.names.items():
            if not any(name in written for name in names.all):
                writer.create_missing(choice.tables[topic], names)

    def _writer(self, commit: CutCommit, used: ExitStack, repairs: Sequence[Repair] = ()) -> TableWriter:
        parts = self._parts
        where = parts.spark, parts.location, parts.committer
        return TableWriter(*where, commit, used, in_frames=parts.in_frames, repairs=repairs)

    def _forget(self, choice: Choice, commit: CutCommit) -> None:
        """Leave unwanted tables and views out of the cut: they would soon be older than the manifest."""
        gone = {name for name in commit.views if split_beside(name)[0] not in self._views.names}
        for name in sorted(name for name in gone if not is_beside(name)):
            log.get().warning("view_removed", view=name, reason="its file is gone")
        commit.forget(commit.tables.keys() - choice.lake_tables, gone)

    def _describe(self, choice: Choice, schemas: _Schemas, commit: CutCommit) -> None:
        """Record what readers need: the key of each table, and the event-time column of a history."""
        states = commit.tables
        for topic, names in choice.names.items():
            for name in names.all:
                known = (choice.tables[topic].table, states[name].schema_id) if name in states else None
                if known is None or known not in schemas:
                    continue
                form = self._lake_table(schemas[known])
                event_time = event_time_of(form, self._parts.settings.event_time) if name == names.history else ""
                columns = types_stored(schemas[known], form) if self._views.needs_types(name) else {}
                commit.describe(name, key=form.key, event_time=event_time, columns=columns)

    def _pending(self, span: Span) -> Pending:
        cut = self._manifest.cut if self._manifest else 0
        end, decided = span.end, self._views.decided(self._manifest)
        return Pending(
            cut=cut + 1,
            start_cut=cut,
            position=end,
            serve=dict(decided.serve),
            texts=dict(decided.texts),
            plans=self._views.plans(self._manifest, decided, end),
        )

    def _known_schemas(self, span: Span) -> _Schemas:
        """Return every schema up to the end of the span. They are read again only if the index reports new ones."""
        at = _schemas_end(self._parts.name, span.end)
        if at != self._schemas_at:
            self._schemas = read_schemas(self._parts.reader, self._parts.name)
            self._schemas_at = at
            self._check_settings()
        return self._schemas

    def _check_settings(self) -> None:
        """Raises SinkUnfit if a setting names an unknown column."""
        settings = self._parts.settings
        captured = {record.table: True for record in self._schemas.values()}
        sink = self._parts.fence.name.rpartition(".")[2]
        of_tables = {"history": settings.history, "types": settings.types, "event_time": settings.event_time}
        warn_of_settings(sink, of_tables if captured else {}, captured)
        missing = unmatched(settings.tables, captured)
        if missing and captured:
            error = problem(sink, missing, captured)
            if keeps_nothing(settings.tables, missing) and all(is_name(one) for one in missing):
                raise error
            log.get().warning("sink_tables_unmatched", tables=missing, **log.error_fields(error))
        for table, overrides in settings.types.items():
            plain = [lake_table(record) for record in self._schemas.values() if record.table == table]
            unknown = unknown_overrides(overrides, plain) if plain else []
            if unknown:
                raise SinkUnfit(f"`types` of {table} names an unknown column: {', '.join(unknown)}", table=table)
        forms = {
            table: [self._lake_table(record) for record in self._schemas.values() if record.table == table]
            for table in settings.event_time
        }
        check_event_times(settings.event_time, forms, settings.history)

    def _lake_table(self, record: SchemaRecord) -> LakeTable:
        return form_of(record, self._parts.settings.types)

    def _forget_old(self) -> None:
        store, committer = self._parts.store, self._parts.committer
        settings = self._parts.settings
        since_us = int((self._parts.clock.wall_s() - settings.keep_hours * 3600) * 1e6) if settings.keep_hours else None
        pruned = store.prune(settings.keep_cuts, since_us=since_us)
        if not pruned.cuts:
            return
        published = {} if self._parts.topics is None else self._parts.topics.needed()
        needed = store.needed()
        if self._parts.iceberg is not None:
            kept = store.cuts()
            self._parts.iceberg.expire(kept)
            for table, versions in self._parts.iceberg.needed(kept).items():
                published.setdefault(table, set()).update(versions)
        for table, versions in needed.items():
            committer.vacuum(table, versions | published.get(table, set()))
        left = {table for table in pruned.tables | self._left if layout.is_view(table)} - needed.keys()
        self._left = frozenset(left & published.keys())
        for table in sorted(left - self._left):
            committer.drop(table)


def _schema_in(tables: Mapping[str, TableState], names: Names) -> str | None:
    """Return the schema id of a captured table's lake tables; None if there are none."""
    state = tables.get(names.archive)
    return None if state is None else state.schema_id


def _offsets(name: str, span: Span) -> dict[Partition, int]:
    """Return the offsets to commit. Never empty: only a request to the broker shows that the fence still holds."""
    touched = {partition: end for partition, (_, end, _) in span.ranges.items()}
    return {**touched, (cuts_topic(name), 0): span.end.cuts_offset}


def _schemas_end(name: str, position: CutPosition) -> int:
    """Return the end offset of the schema topic at a position."""
    return position.accounts.get((schema_topic(name), 0), (0, 0))[0]


def _by_topic(schemas: _Schemas) -> _ByTopic:
    found: dict[str, dict[str, SchemaRecord]] = {}
    for record in schemas.values():
        found.setdefault(record.topic, {})[record.schema_id] = record
    return found


def _found_records(known: Mapping[str, SchemaRecord], topic: str, schema_ids: Sequence[str]) -> list[SchemaRecord]:
    """Return the schema records of a topic's rows, in the given order."""
    missing = [schema_id for schema_id in schema_ids if schema_id not in known]
    if missing:
        raise LakeDamaged(
            f"{topic} has rows of schema {missing[0]}, which is missing in the schema topic",
            hint="its record was deleted; restore it, or rebuild the lake",
            topic=topic,
        )
    return [known[schema_id] for schema_id in schema_ids]
