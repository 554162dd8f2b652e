"""Finds the tables that a start would leave out because of their topics. Reads only.

A start finds them after it has claimed the log; `cdc status` and `cdc doctor` find them here, with the same planner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc.capture.table_planner import TablePlanner
from cdc.config.settings import Config
from cdc.errors import ProgressDamaged, SourceRefused, TailraceError, TopicMismatch
from cdc.lsn import Lsn
from cdc.model.incomplete_record import IncompleteRecords
from cdc.model.left_out import LeftOut, no_topic
from cdc.model.progress_record import AvroIds, AvroSchemas, TopicForm
from cdc.model.topic_names import data_topic, schema_topic
from cdc.model.type_facts import TypeFacts
from cdc.progress.restore import TopicReader, recorded_forms
from cdc.replication import catalog_queries
from cdc.replication.connect import Connection
from cdc.replication.publication import PublicationFacts
from cdc.replication.table_shape import SourceTable
from cdc.startup.judgement import LogFacts, new_topic_errors


def without_usable_topic(config: Config, tables: Sequence[SourceTable], log: LogFacts) -> list[LeftOut]:
    """Return the tables that are new since the last start and have no usable topic."""
    by_topic = {data_topic(config.name, table.namespace, table.name): table for table in tables}
    return [
        no_topic(by_topic[topic].table, by_topic[topic].oid, error)
        for topic, error in new_topic_errors(config, log).items()
        if topic in by_topic and isinstance(error, TopicMismatch)
    ]


def with_changed_key(
    config: Config,
    sql: Connection,
    tables: Sequence[SourceTable],
    publication: PublicationFacts | None,
    reader: TopicReader,
    log: LogFacts,
) -> tuple[list[LeftOut], TailraceError | None]:
    """Return the tables whose key does not match their topics, and an error if `[encode]` refuses the start."""
    if log.damage is not None or log.restored.identity is None or log.topics.get(schema_topic(config.name)) is None:
        return [], None
    try:
        forms = recorded_forms(reader, config.name)
        planner = TablePlanner(
            config, "", _Types(sql), _never_opened, epoch=0, forms=forms, holes=IncompleteRecords(),
            registry=_RecordedIds(forms),
        )  # fmt: skip
        planner.introduce(tables, publication.columns if publication is not None else {}, Lsn(0))
    except (ProgressDamaged, SourceRefused) as error:
        return [], error
    return list(planner.left_out.values()), None


class _Types:
    """A `cdc.capture.table_planner.Catalog` for tables whose key and generated columns are known."""

    def __init__(self, sql: Connection) -> None:
        self._sql = sql

    def key_columns(self, oid: int, wanted: Sequence[str]) -> tuple[str, ...]:
        return catalog_queries.key_columns(self._sql, oid, wanted)

    def ancestors(self, oid: int) -> Sequence[str]:
        return catalog_queries.ancestors(self._sql, oid)

    def generated_columns(self, oid: int) -> Sequence[str]:
        return catalog_queries.generated_columns(self._sql, oid)

    def types(self, oids: Sequence[int]) -> dict[int, TypeFacts]:
        return catalog_queries.types(self._sql, oids)


class _RecordedIds:
    """A `cdc.contracts.SchemaRegistry` that registers nothing: a forecast must not change the registry."""

    def __init__(self, forms: Mapping[str, TopicForm]) -> None:
        self._forms = forms

    def register(self, topic: str, schemas: AvroSchemas, table: str) -> AvroIds:  # noqa: ARG002
        form = self._forms.get(table)
        return AvroIds(form.key_id if form is not None else None, 0)


def _never_opened(topic: str, compacted: bool) -> int:  # noqa: FBT001 - the planner's signature
    raise AssertionError(f"a forecast opens no topic: {topic}, {compacted}")
