"""Reads the recorded facts of the catalog and the DDL findings that operators have accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cdc.model.table_facts import AcceptedFindings, CatalogScope, DdlFinding, TableRecord
from cdc.model.topic_names import progress_topic
from cdc.progress.record_format import accepted_key, catalog_key, decode, table_key
from cdc.progress.restore import TopicReader


@dataclass(frozen=True, slots=True)
class RecordedCatalog:
    """What the log has of the catalog. `scope` is None if it was never recorded.

    Attributes:
        tables: by ``schema.table``.
        accepted: the position up to which findings are accepted, by ``schema.table``.
    """

    scope: CatalogScope | None
    tables: Mapping[str, TableRecord]
    accepted: Mapping[str, AcceptedFindings]

    @property
    def unsettled(self) -> list[DdlFinding]:
        """The open findings: those that are not accepted, by table."""
        return [
            one
            for table, record in sorted(self.tables.items())
            for one in record.findings
            if table not in self.accepted or not self.accepted[table].covers(one)
        ]


def recorded_catalog(reader: TopicReader, name: str) -> RecordedCatalog:
    """Read the recorded catalog. Raises ProgressDamaged for an unreadable record."""
    topic = progress_topic(name)
    return _catalog({key: value for key, (_, value) in reader.last_records(topic).items()}, name)


class CatalogFollower:
    """Follows the recorded catalog: each call reads only what is new. One thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._partition = (progress_topic(name), 0)
        self._scope = catalog_key(name)
        self._prefixes = (table_key(name, ""), accepted_key(name, ""))
        self._at = 0
        self._records: dict[bytes, bytes] = {}
        self._catalog = RecordedCatalog(None, {}, {})

    def read(self, reader: TopicReader) -> RecordedCatalog:
        """Return the catalog as it is now. Raises what `recorded_catalog` raises."""
        low, high = reader.end_offsets([self._partition[0]])[self._partition]
        if self._at > high:  # the topic was made again
            self._at, self._records = 0, {}
        changed = self._at == 0
        for batch in reader.read({self._partition: max(low, self._at)}, {self._partition: high}):
            for record in batch:
                key = record.key
                if key is None or not (key == self._scope or key.startswith(self._prefixes)):
                    continue
                changed = True
                if record.value is None:
                    self._records.pop(key, None)
                else:
                    self._records[key] = record.value
        self._at = high
        if changed:
            self._catalog = _catalog(self._records, self._name)
        return self._catalog


class Acceptances:
    """Follows acceptances while capture runs. One thread."""

    def __init__(self, reader: TopicReader, name: str) -> None:
        self._reader = reader
        self._name = name
        self._at: int | None = None

    def new(self) -> Mapping[str, AcceptedFindings]:
        """Return the acceptances since the last call, by table; the first call returns all."""
        partition = (progress_topic(self._name), 0)
        low, high = self._reader.end_offsets([partition[0]])[partition]
        begin = low if self._at is None else max(low, self._at)
        found: dict[bytes, bytes] = {}
        for batch in self._reader.read({partition: begin}, {partition: high}):
            found.update(
                (record.key, record.value) for record in batch if record.key is not None and record.value is not None
            )
        self._at = high
        return _catalog(found, self._name).accepted


def _catalog(records: Mapping[bytes, bytes], name: str) -> RecordedCatalog:
    topic = progress_topic(name)
    scope = records.get(catalog_key(name))
    return RecordedCatalog(
        None if scope is None else decode(scope, CatalogScope, topic),
        {table: decode(records[key], TableRecord, topic) for table, key in _named(records, table_key(name, ""))},
        {
            table: decode(records[key], AcceptedFindings, topic)
            for table, key in _named(records, accepted_key(name, ""))
        },
    )


def _named(keys: Iterable[bytes], prefix: bytes) -> list[tuple[str, bytes]]:
    return [(key.removeprefix(prefix).decode(), key) for key in keys if key.startswith(prefix)]
