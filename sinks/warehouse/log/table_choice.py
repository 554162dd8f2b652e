"""Chooses what a sink keeps of the log: its tables, its event topics, and the part of a span that is read for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from cdc.config.settings import Warehouse
from cdc.errors import SinkUnfit
from cdc.model.progress_record import SchemaRecord
from cdc.patterns import matches
from cdc.telemetry import log
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.cut_position import CutPosition
from sinks.warehouse.log.event_archive import event_topics
from sinks.warehouse.log.lake_columns import LakeTable, form_of
from sinks.warehouse.log.span import Span
from sinks.warehouse.log.table_commit import Names


@dataclass(frozen=True, slots=True)
class Choice:
    """What is kept, up to a position.

    Attributes:
        tables: topic -> the newest form of the table.
        names: topic -> lake tables of the newest form.
        events: topics of outbox events -> their archive.
        left_out: topics that are not kept.
    """

    tables: Mapping[str, LakeTable]
    names: Mapping[str, Names]
    events: Mapping[str, str]
    left_out: frozenset[str]

    @property
    def archives(self) -> dict[str, str]:
        """Topic -> its archive."""
        return {topic: names.archive for topic, names in self.names.items()} | dict(self.events)

    @property
    def lake_tables(self) -> set[str]:
        """Every lake table that is kept, except for views."""
        return {name for names in self.names.values() for name in names.all} | set(self.events.values())


def choose(name: str, end: CutPosition, schemas: Collection[SchemaRecord], settings: Warehouse) -> Choice:
    """Return what the settings select of all tables and topics.

    Args:
        name: of the pipeline.
        end: the position.
        schemas: every schema record, in order of first appearance.
        settings: of the sink.
    """
    newest = {record.topic: record for record in schemas}
    events = event_topics(name, end, newest)
    tables = {
        topic: form_of(record, settings.types)
        for topic, record in newest.items()
        if matches(record.table, settings.tables)
    }
    wanted = {topic: layout.archive(topic) for topic, named in events.items() if matches(named, settings.tables)}
    names = {topic: names_of(table, settings) for topic, table in tables.items()}
    return Choice(tables, names, wanted, frozenset((newest.keys() - tables) | (events.keys() - wanted)))


def names_of(table: LakeTable, settings: Warehouse) -> Names:
    """Return the lake tables of a table in this form; one without a key has only an archive."""
    return Names.of(table, history=matches(table.table, settings.history))


def reading(span: Span, choice: Choice, held: Collection[str] | None) -> Span:
    """Return the span without unwanted topics, and with the whole of every topic that was not kept before.

    Args:
        span: the new part of the log.
        choice: what is kept.
        held: lake tables before this cut; None for the first cut.

    Raises:
        SinkUnfit: a lake table would have to begin in the middle of its topic.
    """
    joining: set[str] = set()
    if held is not None:
        past = {topic for (topic, _), (_, count) in span.start.accounts.items() if count}
        joining = {topic for topic, archive in choice.archives.items() if archive not in held}
        _refuse_late(choice, past - joining, held)
        if past & joining:
            log.get().info("tables_joined_the_lake", topics=sorted(past & joining), note="read from their beginning")
    start = {at: account for at, account in span.start.accounts.items() if at[0] not in joining}
    end = {at: account for at, account in span.end.accounts.items() if at[0] not in choice.left_out}
    return replace(span, start=replace(span.start, accounts=start), end=replace(span.end, accounts=end))


def _refuse_late(choice: Choice, past: Collection[str], held: Collection[str]) -> None:
    """Refuse a table that would begin in the middle of its topic and look complete. `past`: topics already read."""
    for topic, names in choice.names.items():
        if topic not in past:
            continue
        table = choice.tables[topic].table
        if names.history and names.history not in held:
            raise SinkUnfit(
                f"the history of {table} was requested after the lake had taken its first events",
                hint="its earlier versions would be missing: remove it from `history`, or use another folder",
                table=table,
            )
        schema, _, rest = table.partition(".")
        if names.mirror and names.mirror not in held and names.mirror != layout.mirror(schema, rest):
            raise SinkUnfit(
                f"an older release stored {table} where the table of another schema may be stored",
                hint=f"it belongs in {names.mirror}: rebuild the lake in another folder",
                table=table,
            )
