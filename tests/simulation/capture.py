"""A simulated capture process: the real start and pipeline, assembled as in `cdc.startup.protocol`.

It has no snapshots (tests/property/snapshot_*.py simulate those), no DDL watch and no threads: commits run in
`tests.fixtures.servers.executors`, and the catalog watch polls on request.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final, Protocol, cast

from cdc.capture.assembler import Assembler, BatchLimits
from cdc.capture.pipeline import Parts, Pipeline
from cdc.capture.table_planner import Catalog, TablePlanner
from cdc.clock import Clock
from cdc.config.secret import Secret
from cdc.config.settings import Config, Kafka, Snapshot
from cdc.config.settings import Source as SourceSettings
from cdc.contracts import ReplicationStream
from cdc.errors import OutcomeUnknown, ProducerFenced, SlotHeld, SourceUnreachable, TailraceError
from cdc.lsn import Lsn
from cdc.model.incomplete_record import IncompleteRecords
from cdc.model.topic_names import schema_topic
from cdc.progress.restore import TopicReader, recorded_forms
from cdc.publish.live_keys import SpooledKeys
from cdc.publish.publisher import KafkaPublisher, Producer
from cdc.publish.topic_setup import TopicDirectory
from cdc.replication.catalog_queries import SourceIdentity
from cdc.replication.catalog_watch import CatalogWatch, Watched
from cdc.replication.connect import Connection
from cdc.replication.key_read import ReadDeferred, ReadRequest, ReadResult
from cdc.replication.reselect import Reselector
from cdc.replication.slot import SlotFacts
from cdc.startup.claim_log import Claim, Session, StartConnections, claim_log
from cdc.startup.slot_setup import SourceServer
from cdc.startup.source_identity import Source
from cdc.startup.topic_check import LedgerTopics
from tests.fixtures.capture.scripted_capture import NotingObserver, no_side_topics
from tests.fixtures.servers.executors import Scripted, When
from tests.simulation.broker import Broker, DirectoryDoor, LogDoor, SimulatedProducer
from tests.simulation.source import CatalogDoor, LookDoor, Postgres, ServerDoor, Walsender, tables
from tests.simulation.world import KeyReads, Looks, Opens, World, edge

CONFIG: Final = Config(
    name="shop",
    source=SourceSettings(dsn=Secret(""), tables=("public.*", "!public.t3"), slot="cdc_shop", publication="cdc_shop"),
    kafka=Kafka(bootstrap="broker:9092", partitions=2, replication_factor=1, allow_unreplicated=True),
    snapshot=Snapshot(mode="never"),
)
_TABLES: Final = tables()
_POLL_S: Final = 2.0
_BACKOFF_S: Final = 2.0
_RING_MAX: Final = 3


class OpenStream(ReplicationStream, Session, Protocol):
    """The stream of a start, and then the pipeline."""


@dataclass(slots=True)
class Weather:
    """Shared by all processes of a history. `private`: every ring has its own transactional ids (a mutant)."""

    world: World
    postgres: Postgres
    broker: Broker
    caps: BatchLimits
    when: When
    private: bool = False


class Life:
    """One process from its start to its death or stop. It restarts capture as `cdc.run.daemon.Daemon` does.

    Attributes:
        dead: whether it was killed.
        again_s: time of its next attempt.
        stopped: the error that needs an operator, if it ended with one.
    """

    def __init__(self, weather: Weather) -> None:
        self.weather = weather
        self.dead = False
        self.stopped: TailraceError | None = None
        self.stream: Walsender | None = None
        self.producers: list[SimulatedProducer] = []
        self.pipeline: Pipeline | None = None
        self.looks_in_vain = 0
        self.again_s = 0.0
        self._made: KafkaPublisher | None = None
        self._watch: CatalogWatch | None = None
        self._polled_s = 0.0
        self._look = cast(
            "Connection",  # the watch uses no other statements
            edge(Looks, LookDoor(weather.postgres), weather.world, self),
        )

    @property
    def over(self) -> bool:
        """Whether it has ended for good."""
        return self.dead or self.stopped is not None

    @property
    def producer(self) -> SimulatedProducer:
        """The producer whose turn it is."""
        assert self._made is not None
        return self.producers[self._made._turn]

    def die(self) -> None:
        """See `tests.simulation.world.Process`."""
        self.dead = True
        if self.stream is not None:
            self.stream.orphan()
        for producer in self.producers:
            producer.abandon()

    def step(self) -> None:
        """Run one step of the pipeline, or a start. Raises Crash if the process is killed in it."""
        try:
            if self.pipeline is None:
                self._start()
            else:
                self._go_on(self.pipeline)
        except TailraceError as error:
            self._failed(error)

    def _go_on(self, pipeline: Pipeline) -> None:
        """Run as `cdc.startup.protocol.RunningCapture.run`, which distinguishes fencing from a transaction timeout."""
        try:
            pipeline.step()
        except ProducerFenced as error:
            held = self.weather.postgres.holder()
            if held is not None and held is self.stream:
                raise OutcomeUnknown("a Kafka transaction took longer than transaction.timeout.ms") from error
            raise

    def _failed(self, error: TailraceError) -> None:
        """Close everything, in the order of `cdc.startup.protocol._start`."""
        world, publisher = self.weather.world, self._made
        if publisher is not None:
            if publisher._submitted and world.dice.random() < 0.5:
                world.seen["commit done while all is closed"] += 1
                publisher._submitted[-1].done.exception()  # the threads own them, and closing waits for these
            publisher.close()
        if self.stream is not None:
            self.stream.close()
        self.pipeline = self.stream = self._watch = self._made = None
        self.producers = []
        world.seen[f"ends with {type(error).__name__}"] += 1
        if error.retry != "timed":
            self.stopped = error
        else:
            self.again_s = world.clock.now_s + _BACKOFF_S

    def _start(self) -> None:
        weather, world = self.weather, self.weather.world
        clock: Clock = edge(Clock, world.clock, world, self)
        reader = edge(TopicReader, LogDoor(weather.broker), world, self)
        admin = edge(TopicDirectory, DirectoryDoor(weather.broker), world, self)
        source = Source(
            cast("Connection", None),  # unused: the queries of a start go to ServerDoor
            SourceIdentity("1", weather.postgres.timeline, False, "d", 1, 180000),
            _TABLES,
        )
        neighbours = StartConnections(
            server=edge(SourceServer, ServerDoor(weather.postgres), world, self),
            reader=reader,
            admin=admin,
            stream=edge(Opens, self, world, self).open,
            publisher=lambda epoch: self._publisher(clock, epoch),
            clock=clock,
        )
        try:
            claim = claim_log(CONFIG, source, neighbours)
        except SlotHeld:
            world.seen["slot held"] += 1
            if any(producer.is_newest for producer in self.producers):
                world.violate("P6", "a process without the slot has fenced a producer")
            raise
        self._run(claim, clock, reader, LedgerTopics(CONFIG, admin, reader, claim.publisher.ledger, claim.restored))

    def open(self, at: Lsn, _: SlotFacts) -> OpenStream:
        """See `tests.simulation.world.Opens`."""
        self.stream = self.weather.postgres.stream(at)
        return cast(
            "OpenStream",  # the edge has the stream's own attributes as well
            edge(ReplicationStream, self.stream, self.weather.world, self),
        )

    def _publisher(self, clock: Clock, epoch: int) -> KafkaPublisher:
        weather = self.weather
        owner, ring = object(), weather.world.dice.randint(1, _RING_MAX)  # versions differ
        first = f"shop.{id(owner)}" if weather.private else "shop"
        self.producers = [SimulatedProducer(weather.broker, f"{first}.{one}", owner) for one in range(_RING_MAX)]
        producers: list[Producer] = [edge(Producer, producer, weather.world, self) for producer in self.producers]
        executor = Scripted(weather.when)
        self._made = KafkaPublisher("shop", producers, clock, epoch=epoch, ring=ring, executor=executor)
        return self._made

    def _run(self, claim: Claim[OpenStream], clock: Clock, reader: TopicReader, accounts: LedgerTopics) -> None:
        """Step 6, and the pipeline (`cdc.startup.protocol._start`)."""
        publisher, epoch, holes, observer = claim.publisher, claim.epoch, IncompleteRecords(), NotingObserver()
        watched = Watched(
            slot=CONFIG.slot,
            publication=CONFIG.publication,
            publication_oid=claim.publication.oid,
            tables={table.oid: (table.table, claim.publication.tables.get(table.oid, 0)) for table in _TABLES},
        )
        self._watch = CatalogWatch(
            Secret(""), watched, clock, period_s=_POLL_S, seen=lambda _: None, failed=lambda: None
        )
        self._watch._check(self._look)
        accounts.begin([*claim.data, schema_topic(CONFIG.name)])
        catalog = edge(Catalog, CatalogDoor(self.weather.postgres), self.weather.world, self)
        forms = recorded_forms(reader, CONFIG.name)
        planner = TablePlanner(CONFIG, "d", catalog, accounts.open_topic, epoch=epoch, forms=forms, holes=holes)
        publisher.introduce(claim.identity, claim.restored.since_lsn)
        publisher.write([], planner.introduce(_TABLES, claim.publication.columns, claim.position.end_lsn))
        publisher.commit(claim.position, self.verified())  # 6
        reads = edge(KeyReads, self, self.weather.world, self)
        reselect = Reselector(
            reads.read, holes, clock, threading.Event(), observer=observer, healthy=self.verified, owe=lambda _: False
        )
        self.pipeline = Pipeline(
            Parts(
                stream=claim.session,
                publisher=publisher,
                assembler=Assembler(
                    claim.position, epoch=epoch, caps=self.weather.caps, on_truncate="delete", side=no_side_topics()
                ),
                planner=planner,
                live_keys=SpooledKeys(lambda: nullcontext(reader), publisher.ledger),
                reselect=reselect,
                observer=observer,
                clock=clock,
                verified=self.verified,
                batch_age_max_s=1.0,
                kafka_check_s=0.2,  # a history is rarely idle for longer
            )
        )

    def verified(self) -> Lsn:
        """Return the LSN that the catalog watch has covered; poll as often as its thread would."""
        watch, now_s = self._watch, self.weather.world.clock.now_s
        assert watch is not None
        if watch.failure is None and now_s - self._polled_s >= _POLL_S:
            self._polled_s = now_s
            try:
                watch._check(self._look)
            except TailraceError as error:
                watch.failure = error
        return watch.verified()

    def read(self, asks: Sequence[ReadRequest], xids: frozenset[int]) -> list[ReadResult]:
        """Finds every row; each becomes visible after a number of attempts."""
        if any(producer.open for producer in self.producers):
            self.weather.world.violate("P12", "a Kafka transaction is open while rows are read by key")
        self.weather.postgres.reachable()
        if self.looks_in_vain > 0:
            self.looks_in_vain -= 1
            self.weather.world.seen["row not visible yet"] += 1
            raise ReadDeferred(SourceUnreachable("not visible yet"))
        return [
            ReadResult(ask.columns, {at: (b"later",) * len(ask.columns) for at, _ in enumerate(ask.keys)})
            for ask in asks
        ]
