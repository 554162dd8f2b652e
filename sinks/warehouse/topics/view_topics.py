"""Publishes views as compacted topics: the changes from the version in the topic to the version in the manifest.

The order, which no crash can break:

1. The lake's tables and its manifest are published, as without topics. Otherwise a crash could leave events of a cut
   that no reader sees.
2. For each published view, the differences by key between the version in the topic and the manifest's are sent. They go
   into one Kafka transaction of the lake's own transactional id, or into several if they are many.
3. The same transaction contains a record of `<name>.__cuts.<lake>` with the version that the topic now has.

A driver begins by reading the last such record, and does 2 and 3 for the newest manifest. So versions in between may be
skipped, and no difference is lost or sent twice: both versions are pinned, so a repeated comparison gives the same
differences in the same order. The broker refuses a driver that was replaced. Vacuum keeps the versions that topics
are as of (`needed`).

A topic that another lake has written, for example one in another folder, has no version here. Then the new version is
compared with the rows of the topic itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec
from msgspec import structs

from cdc.encode.partitioner import partition_of
from cdc.errors import LakeDamaged, SinkUnfit, ViewRefused
from cdc.kafka.admin import TopicAdmin
from cdc.model.progress_record import SchemaKey
from cdc.model.topic_names import VIEWS, sink_group, view_cuts_topic, view_schema_topic, view_topic
from cdc.publish.ledger import roll
from cdc.publish.topic_rules import data_want, view_log_wants
from cdc.publish.topic_setup import TopicDirectory, ensure_topics
from cdc.telemetry import log
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.lake import layout
from sinks.warehouse.topics.topic_rows import RowReader, TopicVersions, rows_in
from sinks.warehouse.topics.view_positions import Published, ViewCut, arrived, decoded, pins, states
from sinks.warehouse.views.frame_diff import FrameVersions
from sinks.warehouse.views.version_diff import Pin, ReplacedRows, Versions
from sinks.warehouse.views.view_keys import check_stored_key
from sinks.warehouse.views.view_records import Envelope, check_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.config.settings import Kafka
    from cdc.kafka.cluster_facts import TopicFacts
    from cdc.model.change_records import Record
    from cdc.publish.topic_rules import TopicWant
    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import Manifest
    from sinks.warehouse.views.definition import View
    from sinks.warehouse.views.view_records import Difference, RowForm

RECORDS_MAX: Final = 20_000
"""Of one Kafka transaction; capture's limit, too. More differences take several transactions, as one spread cut."""
BYTES_MAX: Final = 32 << 20

Partition: TypeAlias = tuple[str, int]
Account: TypeAlias = tuple[int, int, str]
_encode: Final = msgspec.json.Encoder().encode


class Sender(Protocol):
    """A Kafka transaction of the lake; `sinks.warehouse.lake.fence.Fence` implements it."""

    def send(
        self,
        records: Mapping[Partition, Sequence[Record]],
        closing: Callable[[Mapping[Partition, int]], tuple[str, Record]],
    ) -> None:
        """Commit these records, and the one that `closing` makes from the last offset of each partition."""


class MarkReader(RowReader, Protocol):
    """What this module needs of `cdc.kafka.log_reader.LogReader`."""

    def last_records(self, topic: str) -> dict[bytes, tuple[int, bytes]]:
        """Return key -> offset and value of the last record of each key in partition 0."""


class ViewTopics:
    """The topics of one lake's views. Call `publish` for each manifest. Single-threaded.

    Args:
        name: of the pipeline.
        lake: of the sink.
        kafka: the section of the configuration.
        row_bytes_max: of a record of data, as capture has it.
        reader: reads the last record of a previous driver.
        sender: holds the lake's transactional id.
        location: of the lake.
        directory: describes and creates topics; Kafka's by default.
        records_max: limit of one Kafka transaction.
        spark: the session that compares versions.
        in_frames: compare them in the executors; else in the driver, which needs no session.
    """

    def __init__(
        self,
        name: str,
        lake: str,
        kafka: Kafka,
        *,
        row_bytes_max: int,
        reader: MarkReader,
        sender: Sender,
        location: Location,
        directory: TopicDirectory | None = None,
        records_max: int = RECORDS_MAX,
        spark: SparkSession | None = None,
        in_frames: bool = False,
    ) -> None:
        self._spark, self._in_frames = spark, in_frames
        self._name = name
        self._cuts, self._schemas = view_cuts_topic(name, lake), view_schema_topic(name, lake)
        self._cut_key = _encode({"sink": sink_group(name, lake)})
        self._kafka = kafka
        self._row_bytes_max = row_bytes_max
        self._directory = directory or TopicAdmin(kafka, client_id=f"{sink_group(name, lake)}.topics")
        self._records_max = records_max
        self._reader = reader
        self._sender = sender
        self._location = location
        self._last: ViewCut | None = None
        self._accounts: dict[str, Account] = {}
        self._batch = _Batch()
        self._opened = False
        self._ensured: set[str] = set()
        self._schemas_sent: set[bytes] = set()

    def publish(
        self, manifest: Manifest, views: Sequence[View], moved: Mapping[str, ReplacedRows] | None = None
    ) -> dict[str, str]:
        """Bring the topics up to a manifest. Returns view -> reason, for the topics that are left behind.

        `moved` has what the newest cut replaced in views that it kept by keys, if still known; it saves reading.

        Raises what Kafka raises; TopicMismatch if a topic was recreated; LakeDamaged if a version is gone.
        """
        wanted = {view.name: view for view in views if view.header.publish and not layout.is_beside(view.name)}
        if not self._opened:
            if not wanted and not self._were_published():
                return {}
            self._open()
        _refuse_schema(manifest, wanted)
        # Two manifests may end at one LSN: events of the second follow those of the first.
        same = self._last is not None and self._last.commit_lsn == manifest.end_lsn
        self._batch.ordinal = self._last.ordinal if self._last is not None and same else 0
        behind: dict[str, str] = {}
        for name, view in wanted.items():
            try:
                self._publish_view(manifest, view, (moved or {}).get(name))
            except ViewRefused as error:
                behind[name] = error.message
            else:
                state = manifest.views.get(name)
                reason = "it has no version yet" if state is None else state.reason
                if reason:
                    behind[name] = reason
        self._commit(manifest, behind)
        return behind

    def needed(self) -> dict[str, set[int]]:
        """Return the versions that differences will still be computed from: vacuum must keep them."""
        found: dict[str, set[int]] = {}
        for table, version in pins({} if self._last is None else self._last.published):
            found.setdefault(table, set()).add(version)
        return found

    def _were_published(self) -> bool:
        """Whether a previous driver published views: their versions and topics must be kept."""
        return self._directory.describe([self._cuts])[self._cuts] is not None

    def _open(self) -> None:
        self._ensure(view_log_wants(self._cuts, self._schemas, self._kafka), {})
        found = self._reader.last_records(self._cuts).get(self._cut_key)
        if found is not None:
            self._last = decoded(found[1], self._cuts)
            self._accounts = dict(self._last.changed)
            self._batch.published = dict(self._last.published)
        self._opened = True

    def _publish_view(self, manifest: Manifest, view: View, moved: ReplacedRows | None) -> None:
        state = manifest.views.get(view.name)
        if state is None:
            return
        mark = self._mark(view)
        newest = Pin(layout.view(view.name, state.generation), state.version)
        if mark.to_table:
            # A version in progress is finished first, exactly as it began: both versions are pinned.
            mark = self._send(manifest, view.name, mark, Pin(mark.to_table, mark.to_version))
        if Pin(mark.table, mark.version) != newest:
            if not mark.table:
                self._check_first(view, newest)
            self._send(manifest, view.name, mark, newest, moved)

    def _mark(self, view: View) -> Published:
        """Return the position of a view's topic; the topic is created with its first view."""
        topic, mark = view_topic(self._name, view.name), self._batch.published.get(view.name)
        if mark is not None and mark.key != view.header.key:
            raise ViewRefused(
                f"the key of view {view.name} changed from {', '.join(mark.key)} to {', '.join(view.header.key)}, and "
                f"the topic {topic} holds rows under the old one",
                hint="publish it under another name, in another file",
                view=view.name,
            )
        if mark is not None and topic in self._ensured:
            return mark
        if mark is not None and self._is_foreign(mark):
            log.get().warning("view_topic_is_of_another_lake", view=view.name, topic=topic)
            blank = Published(key=mark.key, topic_id=mark.topic_id, partition_count=mark.partition_count)
            mark = self._batch.published[view.name] = blank
        recorded = {} if mark is None else {topic: mark}
        want = data_want(topic, self._kafka, row_bytes_max=self._row_bytes_max)
        facts = self._ensure([want], recorded)[topic]
        self._ensured.add(topic)
        return mark or Published(key=view.header.key, topic_id=facts.topic_id, partition_count=facts.partition_count)

    def _is_foreign(self, mark: Published) -> bool:
        """Whether this lake lacks the version that the topic is as of."""
        pin = Pin(mark.to_table, mark.to_version) if mark.to_table else Pin(mark.table, mark.version)
        if not mark.table_id:
            return False
        try:
            return self._table_id(pin) != mark.table_id
        except LakeDamaged:
            return True

    def _table_id(self, pin: Pin) -> str:
        return str(pinned(self._location, *pin).metadata().id)

    def _check_first(self, view: View, pin: Pin) -> None:
        """Check the key of a view that was not a topic before, because it was not checked when it was computed."""
        if self._in_frames and self._spark is not None:
            check_stored_key(self._spark, self._location, view.name, pin, view.header.key)
            return
        data = pinned(self._location, pin.table, pin.version).to_pyarrow_dataset()
        wanted = {name.lower() for name in view.header.key}
        names = [name for name in data.schema.names if name.lower() in wanted]
        check_key(view.name, data.to_table(columns=names), view.header.key)

    def _send(
        self, manifest: Manifest, view: str, mark: Published, new: Pin, moved: ReplacedRows | None = None
    ) -> Published:
        """Stage the differences from a position to a version. Raises ViewRefused, with nothing staged."""
        old = Pin(mark.table, mark.version) if mark.table else None
        by_key = mark.by_key if mark.sent else self._in_frames
        pins = (self._location, self._name, view, mark.key, old, new)
        held = {} if old or mark.to_table else rows_in(self._reader, view_topic(self._name, view))
        versions: Versions
        if held:
            versions, by_key = TopicVersions(*pins, held), False
        elif by_key and self._spark is not None:
            versions = FrameVersions(*pins, self._spark)
        else:
            versions = Versions(*pins)
        if new.table not in {mark.table, mark.to_table} or not mark.table_id:
            mark = structs.replace(mark, table_id=self._table_id(new))
        try:
            return self._send_versions(manifest, versions, structs.replace(mark, by_key=by_key), moved)
        finally:
            versions.release()

    def _send_versions(
        self, manifest: Manifest, versions: Versions, mark: Published, moved: ReplacedRows | None
    ) -> Published:
        form, batch, view, new = versions.form, self._batch, versions.view, versions.new
        # Not recorded while it is compared with the topic: the next driver would read the topic again.
        unknown = structs.replace(mark, table_id="") if isinstance(versions, TopicVersions) else None
        mark = structs.replace(mark, to_table=new.table, to_version=new.version, schema_id=form.record.schema_id)
        limits = (self._row_bytes_max, self._records_max)
        envelope, topic = Envelope(form, manifest), view_topic(self._name, view)
        staged = _Staged(topic, mark.partition_count, limits, batch.ordinal)
        sent = mark.sent
        # Parts are counted in file order, so that another driver can continue. A small change needs no parts.
        few = versions.among(moved) if moved is not None and not sent else None
        if few is None or not staged.take_all(few, envelope):
            staged = _Staged(topic, mark.partition_count, limits, batch.ordinal)
            for difference in islice(versions.differences(), sent, None):
                staged.take(difference, envelope)
                sent += 1
                if staged.full:
                    if not mark.sent:
                        # Before the first part is sent, all of the version must be known to be writable.
                        for one in versions.differences():
                            _Staged(topic, 1, limits, 0).take(one, envelope)
                    mark = structs.replace(mark, sent=sent)
                    batch.add(view, unknown or mark, staged, self._schema(manifest, form))
                    self._commit(manifest, None)
                    staged = _Staged(topic, mark.partition_count, limits, batch.ordinal)
        else:
            sent = len(few)
        mark = arrived(mark)
        batch.add(view, mark, staged, self._schema(manifest, form) if sent else None)
        if batch.count > self._records_max:
            self._commit(manifest, None)
        if sent:
            log.get().info("view_published", view=view, cut=manifest.cut, changes=sent)
        return mark

    def _schema(self, manifest: Manifest, form: RowForm) -> tuple[str, Record]:
        """Return the schema record, sent with the first row of it that this driver sends; repeating it is harmless."""
        schema = structs.replace(form.record, epoch=manifest.position.epoch, lsn=manifest.end_lsn)
        return self._schemas, (_encode(SchemaKey(schema.table, schema.schema_id)), _encode(schema), None)

    def _commit(self, manifest: Manifest, behind: Mapping[str, str] | None) -> None:
        """Send the staged records with their cut; `behind` is given if the lake's cut ends with it."""
        batch, last = self._batch, self._last
        tables = dict(states(batch.published, behind or {}))
        recorded_cut = (
            None if last is None else (last.epoch, last.end_lsn, last.next_ordinal, last.tables, last.published)
        )
        now = (manifest.position.epoch, manifest.end_lsn, 0, tables, batch.published)
        if recorded_cut == now or not (batch.published or behind):
            return
        made: list[ViewCut] = []

        def closing(ends: Mapping[Partition, int]) -> tuple[str, Record]:
            before = last.end_lsn if last is not None and last.epoch == manifest.position.epoch else 0
            made.append(
                ViewCut(
                    epoch=manifest.position.epoch,
                    end_lsn=before if behind is None else manifest.end_lsn,
                    commit_lsn=manifest.end_lsn,
                    next_ordinal=1 if behind is None else 0,
                    full=True,
                    since_lsn=manifest.position.since_lsn,
                    tables=tables,
                    changed=self._counts(ends),
                    ordinal=batch.ordinal,
                    published=dict(sorted(batch.published.items())),
                    cut=manifest.cut,
                )
            )
            return self._cuts, (self._cut_key, _encode(made[-1]), None)

        self._sender.send(batch.taken(self._schemas_sent), closing)
        self._last = made[-1]
        self._accounts = dict(made[-1].changed)
        batch.clear()

    def _counts(self, ends: Mapping[Partition, int]) -> dict[str, Account]:
        """Return the counts of all partitions, including the open transaction."""
        accounts = dict(self._accounts)
        for (topic, partition), records in self._batch.records.items():
            place = f"{topic}-{partition}"
            _, count, rolling = accounts.get(place, (0, 0, "0"))
            rolled = roll(int(rolling, 16), records)
            accounts[place] = (ends[topic, partition] + 1, count + len(records), f"{rolled:016x}")
        return dict(sorted(accounts.items()))

    def _ensure(self, wants: Sequence[TopicWant], recorded: Mapping[str, Published]) -> dict[str, TopicFacts]:
        return ensure_topics(
            self._directory,
            wants,
            kafka=self._kafka,
            create=self._kafka.create_topics,
            recorded_partitions={topic: mark.partition_count for topic, mark in recorded.items()},
            recorded_topic_ids={topic: mark.topic_id for topic, mark in recorded.items()},
        )


def _refuse_schema(manifest: Manifest, wanted: Collection[str]) -> None:
    """Raises SinkUnfit if captured tables have the topics that views need."""
    taken = sorted(table for table in manifest.position.complete if table.startswith(f"{VIEWS}."))
    if taken and wanted:
        raise SinkUnfit(
            f"the schema {VIEWS} is captured ({', '.join(taken[:3])}), but its topics have the names of view topics",
            hint=f"exclude it from source.tables, or remove `-- publish: topic` from {', '.join(sorted(wanted))}",
            table=taken[0],
        )


class _Staged:
    """Staged records of one view."""

    def __init__(self, topic: str, partition_count: int, limits: tuple[int, int], ordinal: int) -> None:
        self.topic = topic
        self.records: dict[Partition, list[Record]] = {}
        self.ordinal = ordinal
        self._partition_count = partition_count
        self._row_bytes_max, self._records_max = limits
        self._count = 0
        self._bytes = 0

    @property
    def full(self) -> bool:
        return self._count >= self._records_max or self._bytes >= BYTES_MAX

    def take_all(self, differences: Iterable[Difference], envelope: Envelope) -> bool:
        """Whether one transaction has room for all of them. Raises ViewRefused."""
        for difference in differences:
            if self.full:
                return False
            self.take(difference, envelope)
        return True

    def take(self, difference: Difference, envelope: Envelope) -> None:
        """Add a difference. Raises ViewRefused for a document that is too large."""
        value = envelope.of(difference, self.ordinal)
        size = len(difference.key) + len(value)
        if size > self._row_bytes_max:
            raise ViewRefused(
                f"{self.topic} would need a record of {size:,} bytes, but the limit is {self._row_bytes_max:,}",
                hint="drop a column from the view, or raise capture.row_bytes_max",
            )
        place = (self.topic, partition_of(difference.key, self._partition_count))
        records = self.records.setdefault(place, [])
        records.append((difference.key, value, None))
        if difference.op == "d":
            records.append((difference.key, None, None))
        self.ordinal += 1
        self._count += 1
        self._bytes += size


class _Batch:
    """The next Kafka transaction: records of all views, and their positions after it."""

    def __init__(self) -> None:
        self.records: dict[Partition, list[Record]] = {}
        self.published: dict[str, Published] = {}
        self.count = 0
        self.ordinal = 0
        self._schemas: dict[bytes, tuple[str, Record]] = {}

    def add(self, view: str, mark: Published, staged: _Staged, schema: tuple[str, Record] | None) -> None:
        for place, records in staged.records.items():
            self.records.setdefault(place, []).extend(records)
            self.count += len(records)
        self.ordinal = staged.ordinal
        self.published[view] = mark
        if schema is not None:
            self._schemas[schema[1][0] or b""] = schema

    def taken(self, known: set[bytes]) -> dict[Partition, Sequence[Record]]:
        """Return all records; schemas that are not `known` come first, so that each precedes its first row."""
        found: dict[Partition, Sequence[Record]] = {}
        fresh = {key: schema for key, schema in self._schemas.items() if key not in known}
        for topic, _ in fresh.values():
            found[topic, 0] = [record for of, record in fresh.values() if of == topic]
        known.update(fresh)
        return {**found, **self.records}

    def clear(self) -> None:
        self.records = {}
        self._schemas = {}
        self.count = 0
