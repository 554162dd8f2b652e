"""Runs a sink that applies one key at a time: read records, apply each key in order, commit offsets.

One thread runs the loop, and `settings.parallel` threads wait for the store in `Target.apply`. One turn of the loop:

1. poll records from the group; park those of blocked keys;
2. collect the answers of the store: finish the keys, retry them after a pause, or park them;
3. after an outage of the store, ask for its positions, and read again from there if it lost writes;
4. pass ready keys to free threads;
5. commit positions, at most every COMMIT_EVERY_S, up to the lowest offset that is not finished;
6. pause partitions with too many held records.

A position is committed only when everything below it is DONE, OVERTAKEN or parked. So a crash at any moment only means
that some changes are applied twice, which has no effect. After `run` raises, the runner cannot be used again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cdc.errors import BrokerUnreachable, SinkUnreachable, TailraceError, TopicMissing
from cdc.kafka.cluster_facts import TopicFacts
from cdc.kafka.group_member import PartitionStart, PollResult
from cdc.model.log_record import LogRecord
from cdc.telemetry import log
from sinks.contract import Change, Outcome, ParkedKey, Topic, TopicPartition, Verdict
from sinks.runner.backoff import growing_pause
from sinks.runner.frontier import Frontier
from sinks.runner.key_fold import by_key, change_of
from sinks.runner.key_queues import KeyQueue, KeyQueues, Pace, full_partitions
from sinks.runner.partition_ends import PartitionEnds
from sinks.runner.partition_progress import Partition, lag_of, uncommitted
from sinks.runner.request_pool import Answer, Pool
from sinks.runner.runner_contracts import Away, Group, RunnerParts
from sinks.state.offset_metadata import metadata, start_offset, topic_recreated, window_of

COMMIT_EVERY_S: Final = 0.1  # readers wait for it: keeps the p99 from commit to visible below 300 ms
COMMIT_AGAIN_S: Final = 60.0  # proves that the sink is awake, see `sinks.state.offset_metadata`
LOOK_EVERY_S: Final = 1.0  # between checks for requests of operators: pause, retries of dead letters
LEAVE_S: Final = 10.0  # for requests under way at a revocation; below the shortest session timeout brokers accept
BROKER_S: Final = 60.0  # of failing commits, until the runner rejoins the group
SPAN_MAX: Final = 500_000  # records after an unfinished one, including finished ones: a crash repeats them
_SPAN_AGAIN: Final = SPAN_MAX * 3 // 4
_BUSY_S: Final = 0.005
_IDLE_S: Final = 0.1
_BEHIND: Final = Outcome(Verdict.REFUSED, "behind", "an earlier record of the key is parked")


class SinkRunner:
    """Keeps a store in step with the topics: `join` a group, `run` once, `close`. See `cdc.kafka.group_member`.

    Raises errors that need an operator (SinkStale, SinkGap, SinkUnfit, TopicMissing) and errors that a restart fixes.
    """

    def __init__(self, parts: RunnerParts) -> None:
        self._parts = parts
        self._group: Group | None = None
        self._partitions: dict[TopicPartition, Partition] = {}
        self._queues = KeyQueues()
        self._pool = Pool(parts.target, parts.settings.parallel, name="apply")
        self._ends = PartitionEnds(parts.clock)
        self._pace = Pace(parts.settings.request_records)
        self._prepared: set[tuple[str, str]] = set()
        self._subscribed: set[str] = set()
        self._retries: list[ParkedKey] = []
        self._away: Away | None = None
        self._failures = 0
        self._pause: str | None = None
        self._acknowledged: tuple[str, str] | None = None  # the acknowledged pause, and as which member
        self._stopped: set[TopicPartition] = set()
        self._looked_s = self._watched_s = self._commit_s = -1e9
        self._broker_away_s: float | None = None
        self._still_s: float | None = None
        self._has_assignment = self._dead = self._alarmed = False

    def join(self, group: Group) -> None:
        """Use this group; the runner handles its assignments."""
        self._group = group
        self._parts.closing.callback(group.close)

    def run(self, stop: threading.Event) -> None:
        """Apply records until `stop`. `close` then finishes and commits what is under way."""
        try:
            while not stop.is_set():
                self.step()
        except BaseException:
            self._dead = True
            raise

    def close(self) -> None:
        """Finish and commit what is under way, leave the group, and close everything."""
        try:
            if self._group is not None:
                self._group.close()
            if self._acknowledged is not None:
                self._parts.control.report_running()
        except TailraceError as error:
            log.get().warning("sink_left_unsaid", **log.error_fields(error))
        finally:
            self._pool.close()
            self._parts.closing.close()

    def step(self) -> None:
        """One turn of the loop."""
        group = self._joined()
        self._parts.observer.turned()
        self._check_requests()
        self._take_in(group.poll(self._wait_s()))  # 1
        self._collect(self._pool.collect())  # 2
        self._recover()  # 3
        self._launch()  # 4
        self._commit()  # 5
        self._acknowledge()
        self._throttle()  # 6

    def assigned(self, places: Mapping[TopicPartition, PartitionStart]) -> Mapping[TopicPartition, int]:
        """See `cdc.kafka.group_member.Membership`."""
        self._has_assignment = True
        if not places:
            return {}
        parts = self._parts
        topics = self._topics({topic for topic, _ in (*places, *self._partitions)})
        parts.target.open([topic for topic, _ in topics.values()])
        parts.letters.assigned([*self._partitions, *places])
        parts.places.reload()
        kept = parts.target.saved_positions()
        unknown = [place for place, begin in places.items() if begin.committed is None]
        first = parts.starts(unknown) if parts.starts is not None and unknown else {}
        starts: dict[TopicPartition, int] = {}
        for place, begin in places.items():
            topic, facts = topics[place[0]]
            if begin.committed is None:
                parts.places.check(place, topic.topic_id, parts.why)
            window, now_s = window_of(facts.configs), parts.clock.wall_s()
            start = start_offset(place, begin, topic.topic_id, window, now_s, parts.why, first.get(place))
            if kept is not None and begin.committed is not None:
                start = min(start, max(kept.get(place, begin.low), begin.low))
            starts[place] = start
            one = Partition(topic, window, begin.low, Frontier(start), high=begin.high)
            one.at_end = start >= begin.high
            self._partitions[place] = one
        log.get().info("sink_assigned", partitions=len(places), all=len(self._partitions))
        return starts

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        """See `cdc.kafka.group_member.Membership`."""
        going = {place for place in places if place in self._partitions}
        if not going:
            return
        if not self._dead:
            self._finish(going)
        self._drop(going)
        log.get().info("sink_revoked", partitions=len(going), all=len(self._partitions))

    def lost(self, places: Sequence[TopicPartition]) -> None:
        """See `cdc.kafka.group_member.Membership`."""
        going = {place for place in places if place in self._partitions}
        self._drop(going)
        if going:
            log.get().warning("sink_lost", partitions=len(going), all=len(self._partitions))

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The applied position of each assigned partition."""
        return {place: one.frontier.position for place, one in self._partitions.items()}

    def _joined(self) -> Group:
        assert self._group is not None, "join comes before run"
        return self._group

    def _topics(self, names: Iterable[str]) -> dict[str, tuple[Topic, TopicFacts]]:
        """Return what the broker and the schemas say about these topics. Raises TopicMissing."""
        tables = self._parts.schemas.tables()
        found: dict[str, tuple[Topic, TopicFacts]] = {}
        for name, facts in self._parts.directory.describe(sorted(names)).items():
            if facts is None:
                raise TopicMissing(f"topic {name!r} no longer exists", hint="it was deleted", topic=name)
            schema = tables[name]
            found[name] = Topic(name, facts.topic_id, facts.partition_count, schema.table, schema.key), facts
        return found

    def _check_requests(self) -> None:
        """Check at intervals for requests of operators, recreated topics and new tables."""
        parts, now_s = self._parts, self._parts.clock.monotonic_s()
        if now_s - self._watched_s >= parts.watch_s or (not self._subscribed and now_s - self._watched_s >= 1.0):
            self._watched_s = now_s
            self._watch()
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._pause = parts.control.look()
            self._check_orphans()
            if self._pause is None:
                self._take_retries()
            self._ends.look(self._joined(), self._partitions, self._stopped)
            self._report_lag(now_s)

    def _watch(self) -> None:
        parts = self._parts
        parts.schemas.look()
        if parts.tables is not None:
            parts.tables.look()
        wanted = set(parts.schemas.tables())
        if wanted - self._subscribed:
            self._joined().subscribe(sorted(wanted))
            self._subscribed = wanted
        of_topic = {one.topic.topic: one.topic.topic_id for one in self._partitions.values()}
        for name, (topic, _) in self._topics(of_topic).items():
            if topic.topic_id != of_topic[name]:
                raise topic_recreated(parts.why, name, found=topic.topic_id, wanted=of_topic[name])

    def _check_orphans(self) -> None:
        unowned, group = self._parts.unowned, self._joined()
        left = unowned.look(group.member, self._subscribed) if unowned is not None else []
        if left:
            places = [f"{topic}-{partition}" for topic, partition in left]
            log.get().warning("sink_partitions_unowned", partitions=places, doing="rejoining the group")
            group.rejoin()

    def _take_retries(self) -> None:
        """Queue the dead letters that an operator wants retried; those of a busy key wait for it."""
        letters = self._parts.letters
        waiting: list[ParkedKey] = []
        for parked in (*self._retries, *letters.retries()):
            if parked.place not in self._partitions:
                continue
            if not parked.records:
                letters.settled(parked, Outcome(Verdict.DONE))
            elif not self._queues.retry(parked):
                waiting.append(parked)
        self._retries = waiting

    def _take_in(self, polled: PollResult) -> None:
        queues, letters = self._queues, self._parts.letters
        behind: dict[tuple[TopicPartition, bytes], list[LogRecord]] = {}
        begun: set[TopicPartition] = set()
        for record in polled.records:
            place, key = record.topic_partition, record.key
            one = self._partitions.get(place)
            if one is None or record.offset < one.frontier.next_offset:
                continue
            if key is None:
                by_key([record])  # raises TopicMismatch
                continue
            if place not in begun:
                begun.add(place)
                one.batch_begins(record)
                one.at_end = False
            one.frontier.took(record.offset)
            one.high = max(one.high, record.offset + 1)
            if not queues.holds(place, key) and letters.blocks(place, key):
                behind.setdefault((place, key), []).append(record)
            else:
                queues.add(record)
        for (place, key), records in behind.items():
            self._park(place, key, records, _BEHIND)
        for place, offset in polled.ends.items():
            if place in self._partitions:
                self._partitions[place].ended(offset)

    def _park(self, place: TopicPartition, key: bytes, records: Sequence[LogRecord], outcome: Outcome) -> None:
        self._parts.letters.park(place, key, records, outcome)
        self._parts.observer.refused(1)
        self._finished(place, records)

    def _finished(self, place: TopicPartition, records: Iterable[LogRecord]) -> None:
        one = self._partitions.get(place)
        if one is not None:
            for record in records:
                one.frontier.finished(record.offset)

    def _collect(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            if isinstance(answer.error, SinkUnreachable):
                self._unanswered(answer.queues, answer.error)
            elif answer.error is not None:
                raise answer.error
            else:
                self._judge(answer)

    def _unanswered(self, queues: Iterable[KeyQueue], error: SinkUnreachable) -> None:
        """Retry requests without an answer, after reading the positions of the store."""
        now_s = self._parts.clock.monotonic_s()
        for queue in queues:
            self._queues.again(queue, now_s, counts=False)
        if self._away is None:
            self._failures += 1
            self._away = Away(now_s + growing_pause(self._failures), error)
            self._pace.overloaded()
            self._parts.observer.waits("store", error)

    def _judge(self, answer: Answer) -> None:
        now_s, keys, records, later = self._parts.clock.monotonic_s(), 0, 0, 0
        for queue, outcome in zip(answer.queues, answer.outcomes, strict=True):
            if queue.left:
                self._queues.done(queue)
            elif outcome.verdict is Verdict.LATER:
                later += 1
                self._queues.again(queue, now_s + growing_pause(queue.attempts + 1))
            elif outcome.verdict is Verdict.REFUSED:
                self._refused(queue, outcome)
            else:
                keys, records = keys + 1, records + len(queue.asked)
                if self._parts.spans is not None:
                    self._parts.spans.applied(queue.asked)
                if queue.parked is not None:
                    self._parts.letters.settled(queue.parked, outcome)
                self._finished(queue.place, self._queues.done(queue))
        self._parts.observer.applied(keys, records)
        if later:
            self._pace.overloaded()
            self._parts.observer.postponed(later)
        else:
            self._pace.went_well()
        if keys:
            self._failures = 0
            self._works()

    def _works(self) -> None:
        """A write succeeded, or nothing was left to write."""
        if self._away is None and self._pause is None and self._broker_away_s is None:
            self._parts.observer.goes_on()

    def _refused(self, queue: KeyQueue, outcome: Outcome) -> None:
        parked = queue.parked
        records = self._queues.close_off(queue)
        if parked is not None:
            self._parts.letters.settled(parked, outcome)
            self._parts.observer.refused(1)
        if records:
            self._park(queue.place, queue.key, records, outcome if parked is None else _BEHIND)

    def _recover(self) -> None:
        """After an outage read the positions of the store first: it may have lost acknowledged writes."""
        away, now_s = self._away, self._parts.clock.monotonic_s()
        if away is None or self._pool.busy or now_s < away.at_s:
            return
        try:
            kept = self._parts.target.saved_positions()
        except SinkUnreachable as error:
            self._failures += 1
            self._away = Away(now_s + growing_pause(self._failures), error)
            return
        self._away = None
        if kept is not None:
            self._rewind(kept)

    def _rewind(self, kept: Mapping[TopicPartition, int]) -> None:
        for place, one in self._partitions.items():
            offset = max(kept.get(place, one.low), one.low)
            if offset < one.frontier.position:
                log.get().warning("sink_rewinds", topic=place[0], partition=place[1], offset=offset)
                self._queues.drop([place])
                one.rewind(offset)
                self._joined().seek(place, offset)

    def _launch(self) -> None:
        if self._away is not None or self._pause is not None:
            return
        settings, now_s = self._parts.settings, self._parts.clock.monotonic_s()
        self._queues.wake(now_s)
        while self._pool.free and self._queues.ready and self._away is None:
            queues = self._queues.take(now_s, records_max=self._pace.records, bytes_max=settings.request_bytes)
            changes = [change_of(queue.asked) for queue in queues]
            try:
                self._prepare(changes)
            except SinkUnreachable as error:
                self._unanswered(queues, error)
                return
            self._pool.submit(queues, changes)

    def _prepare(self, changes: Iterable[Change]) -> None:
        """Prepare every schema in the store before its first row."""
        for change in changes:
            name = (change.topic, change.schema_id)
            if change.row is not None and name not in self._prepared:
                self._parts.target.prepare(self._parts.schemas.find(*name))
                self._prepared.add(name)

    def _commit(self, *, only: set[TopicPartition] | None = None) -> None:
        """Make positions durable: first in the store, then in the group."""
        now_s = self._parts.clock.monotonic_s()
        if only is None and (now_s - self._commit_s < COMMIT_EVERY_S or self._acknowledged is not None):
            return
        among = self._partitions if only is None else {at: self._partitions[at] for at in only}
        positions = uncommitted(among, now_s, again_s=COMMIT_AGAIN_S)
        if self._has_assignment and all(one.is_level for one in self._partitions.values()):
            self._parts.observer.level()
            self._works()
        if not positions or self._away is not None:
            return
        self._commit_s = now_s
        at_s = self._parts.clock.wall_s()
        try:
            self._parts.target.save_positions(positions)
        except SinkUnreachable as error:
            self._unanswered((), error)
            return
        marked = {at: (offset, metadata(among[at].topic.topic_id, at_s)) for at, offset in positions.items()}
        if self._committed(marked, now_s):
            for place, offset in positions.items():
                among[place].committed, among[place].committed_s = offset, now_s
            self._parts.places.committed({place: among[place].topic.topic_id for place in positions})
            self._report_lag(now_s)

    def _committed(self, marked: Mapping[TopicPartition, tuple[int, str]], now_s: float) -> bool:
        try:
            done = self._joined().commit(marked)
        except BrokerUnreachable as error:
            if self._broker_away_s is None:
                self._broker_away_s = now_s
                self._parts.observer.waits("broker", error)
            if now_s - self._broker_away_s > BROKER_S:
                raise
            return False
        if self._broker_away_s is not None:
            self._broker_away_s = None
            self._parts.observer.goes_on()
        return done

    def _report_lag(self, now_s: float) -> None:
        if not self._has_assignment:
            return  # the lag is unknown, not 0, while the store or Kafka keeps the worker from its partitions
        still = self._away is not None or self._pause is not None
        self._still_s = (self._still_s or now_s) if still else None
        lag = lag_of(
            self._partitions.values(),
            self._parts.clock.wall_s() * 1000,
            still_s=0.0 if self._still_s is None else now_s - self._still_s,
        )
        self._parts.observer.committed(self.positions, lag)
        in_danger = lag.left_s is not None and lag.seconds > lag.left_s
        if in_danger and not self._alarmed:
            log.get().error(
                "sink_retention_alarm",
                behind_s=round(lag.seconds),
                left_s=round(lag.left_s or 0),
                hint="Kafka will remove records that the sink has not read yet: speed it up, or raise the retention",
            )
        self._alarmed = in_danger

    def _acknowledge(self) -> None:
        """Report that this worker is paused, once nothing is under way and all is committed; or that it runs again."""
        control, observer = self._parts.control, self._parts.observer
        if self._pause is None and self._acknowledged is not None:
            control.report_running()
            self._acknowledged = None
            observer.goes_on()
        elif self._pause is not None and not self._pool.busy:
            current = self._pause, self._joined().member  # the member id changes when the worker rejoins
            if current == self._acknowledged:
                return
            self._commit(only=set(self._partitions))
            if not uncommitted(self._partitions, self._commit_s, again_s=COMMIT_AGAIN_S):
                observer.waits("paused", None)
                control.report_paused(current[1])
                self._acknowledged = current

    def _throttle(self) -> None:
        places = set(self._partitions)
        if self._pause is not None or self._away is not None:
            wanted = places
        else:
            wanted = full_partitions(self._queues.held, places, self._stopped, self._parts.bounds)
            for place, one in self._partitions.items():
                if one.frontier.span >= (_SPAN_AGAIN if place in self._stopped else SPAN_MAX):
                    wanted.add(place)
        group = self._joined()
        group.pause(wanted - self._stopped)
        group.resume((self._stopped - wanted) & places)
        self._stopped = wanted

    def _wait_s(self) -> float:
        """Return how long the poll may wait for records."""
        now_s = self._parts.clock.monotonic_s()
        if self._pool.busy:
            return _BUSY_S
        if self._queues.ready and self._away is None and self._pause is None:
            return 0.0
        next_s = self._queues.next_s()
        until_s = min(_IDLE_S, _IDLE_S if next_s is None else max(0.0, next_s - now_s))
        due_s = self._commit_s + COMMIT_EVERY_S - now_s
        return min(until_s, due_s) if due_s > 0 else until_s

    def _finish(self, going: set[TopicPartition]) -> None:
        """Wait a bounded time for requests of these partitions, and commit their positions."""
        ends_s = self._parts.clock.monotonic_s() + LEAVE_S
        while self._queues.flying(going) and self._parts.clock.monotonic_s() < ends_s:
            self._collect(self._pool.collect(_IDLE_S))
        try:
            self._commit(only=going)
        except TailraceError as error:
            log.get().warning("sink_left_uncommitted", **log.error_fields(error))

    def _drop(self, going: set[TopicPartition]) -> None:
        self._queues.drop(going)
        self._retries = [one for one in self._retries if one.place not in going]
        self._stopped -= going
        for place in going:
            del self._partitions[place]
