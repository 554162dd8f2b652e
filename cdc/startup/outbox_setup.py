"""Creates the outbox router as a stage of capture, with its topics and its record, if an outbox is configured.

Rows that are in the table when capture first sees it are routed before the stream is read, in one Kafka transaction
with the record of that (`cdc.startup.outbox_copy`). The catalog watch or the stream notices a table that is created
while capture runs. Capture then starts over and includes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.contracts import OutboxObserver
from cdc.errors import SourceUnreachable, TailraceError
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.outbox_record import OutboxRecord
from cdc.model.topic_names import refused_events_topic
from cdc.model.visibility import PgSnapshot
from cdc.publish.publisher import KafkaPublisher
from cdc.publish.topic_rules import collision
from cdc.replication.catalog_queries import reading
from cdc.replication.connect import Connection, deadline
from cdc.replication.table_shape import SourceTable
from cdc.startup.identity_record import IdentityRecord
from cdc.startup.outbox_prune import PruneObserver, PruneThread
from cdc.startup.topic_check import LedgerTopics, event_want
from cdc.telemetry import log
from outbox.copied_rows import CopiedOutbox
from outbox.event_routes import Counts
from outbox.event_topics import EventTopics
from outbox.router import Router

_ANSWER_S: Final = 30.0
_THERE: Final = """
select c.oid::int8, exists (
    select from pg_catalog.pg_publication_tables t
    where t.pubname = %(publication)s and t.schemaname = n.nspname and t.tablename = c.relname
)
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname || '.' || c.relname = %(table)s and c.relkind in ('r', 'p')
"""
_NAMED: Final = """
select n.nspname || '.' || c.relname
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.oid = %(oid)s::oid
"""


class OutboxStage:
    """The outbox of one start.

    Attributes:
        router: the stage.
        table: its facts from the catalog; None if it does not exist or is not published.
    """

    def __init__(
        self,
        config: Config,
        sql: Connection,
        table: SourceTable | None,
        record: OutboxRecord | None,
        accounts: LedgerTopics,
        publisher: KafkaPublisher,
        identity: IdentityRecord,
        observer: OutboxObserver,
    ) -> None:
        """`record` is the recorded state of the outbox."""
        assert config.outbox is not None
        self.table = table
        self._config = config
        self._sql = sql
        self._record = record
        self._accounts = accounts
        self._publisher = publisher
        self._identity = identity
        self._observer = observer
        names = EventTopics.of(config.name, config.outbox)
        copied = record is not None and record.seen
        self.router = Router(
            config.outbox,
            names,
            refused_events_topic(config.name),
            row_bytes_max=config.capture.row_bytes_max,
            open_topic=self._open,
            known=[topic for topic in accounts.topics if names.type_of(topic) is not None],
            unknown=self._check,
            copies={record.relation: CopiedOutbox(PgSnapshot.parse(record.seen), Lsn(record.seen_to_lsn))}
            if record is not None and copied
            else {},
        )
        self._written: deque[Counts] = deque()

    @property
    def missing(self) -> bool:
        """Whether rows of the table must be routed before the stream is read."""
        return needs_copy(self._config, self.table, self._record)

    @property
    def missed(self) -> bool:
        """Whether the log may already have some of them: since a repair a range of changes is unknown."""
        record = self._record
        return record is not None and record.missed

    @property
    def topics(self) -> list[str]:
        """The topics of events, and that of refused events."""
        names = EventTopics.of(self._config.name, self.router.settings)
        refused = refused_events_topic(self._config.name)
        return [topic for topic in self._accounts.topics if topic == refused or names.type_of(topic) is not None]

    def skip(self) -> None:
        """Record that the rows of the table are done, if they are configured to be skipped."""
        table, record = self.table, self._record
        if table is not None and not self.missing and (record is None or record.relation != table.oid):
            self._publisher.keep(OutboxRecord(table=table.table, relation=table.oid))
            log.get().info("outbox_rows_skipped", table=table.table)

    def due(self) -> bool:
        """See `cdc.contracts.SideWriter.due`: events never wait for this."""
        return False

    def write(self, position: StreamPosition) -> bool:  # noqa: ARG002 - it belongs to no position of the stream
        """See `cdc.contracts.SideWriter.write`: what was counted so far is reported when it is durable."""
        self._written.append(self.router.counts)
        self.router.counts = Counts()
        return False

    def written(self) -> None:
        """See `cdc.contracts.SideWriter.written`."""
        found = self._written.popleft() if self._written else Counts()
        if found:
            self._observer.outbox_routed(found.events, found.refused, found.ignored)

    def check_unpublished(self, connection: Connection) -> None:
        """Check for a table that is not published yet. Raises SourceUnreachable if capture could publish it.

        The stream itself shows one that is published, after all its earlier rows.
        """
        assert self._config.outbox is not None
        names = {"publication": self._config.publication, "table": self._config.outbox.table}
        with reading("check for the outbox"), deadline(connection, _ANSWER_S):
            row = connection.execute(_THERE, names).fetchone()
        known = 0 if self.table is None else self.table.oid
        if row is not None and row[0] != known and not row[1] and self._config.source.create:
            raise _appeared(self._config.outbox.table)

    def _check(self, oid: int) -> None:
        """Handle an outbox that the stream shows and the start did not know: a new start includes it.

        A table that is gone, or has another name now, was the outbox when the rows were written. They are ordinary
        events.
        """
        assert self._config.outbox is not None
        if self.table is not None and self.table.oid == oid:
            return
        with reading("check for the outbox"), deadline(self._sql, _ANSWER_S):
            row = self._sql.execute(_NAMED, {"oid": oid}).fetchone()
        if row is not None and row[0] == self._config.outbox.table:
            raise _appeared(self._config.outbox.table)

    def _open(self, topic: str) -> int | None:
        """Create or check a topic; None if Kafka could not distinguish its name from another one."""
        if not self._accounts.known(topic):
            if collision([*self._accounts.topics, topic]) is not None:
                log.get().warning("outbox_topic_refused", topic=topic)
                return None
            facts = self._accounts.open_wanted(event_want(self._config, topic))
            self._identity.topic_opened(topic, facts)
            log.get().info("outbox_topic_opened", topic=topic, partitions=facts.partition_count)
        return self._accounts.open_topic(topic, False)  # noqa: FBT003 - see cdc.capture.table_planner.OpenTopic


def needs_copy(config: Config, table: SourceTable | None, record: OutboxRecord | None) -> bool:
    """Return whether rows of a table must be routed before the stream: first seen, another table, or after a repair."""
    if config.outbox is None or table is None:
        return False
    if record is not None and record.relation == table.oid:
        return record.missed
    return config.outbox.existing == "route"


def _appeared(table: str) -> SourceUnreachable:
    return SourceUnreachable(
        f"the outbox {table} was created while capture was running; capture starts over to include it",
        hint="this takes a moment and loses nothing",
        table=table,
    )


def prune_until(
    config: Config,
    table: SourceTable | None,
    durable: Callable[[], Lsn],
    clock: Clock,
    observer: PruneObserver,
    closing: ExitStack,
) -> None:
    """Prune the table until `closing` is closed, if pruning is enabled. If `durable` raises, nothing is pruned."""
    if config.outbox is None or config.outbox.prune == "off" or table is None:
        return

    def known() -> Lsn:
        try:
            return durable()
        except TailraceError:
            return Lsn(0)

    thread = PruneThread(config, table, known, clock, observer)
    thread.start()
    closing.callback(thread.close)
