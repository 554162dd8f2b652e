"""The loop of a sink of one key at a time: the log is read, each key applied in order, offsets committed behind it.

One thread, and `settings.parallel` more in which `Target.apply` waits for the store. A turn of the loop, in order:

1. records are taken from the group; those of blocked keys are parked;
2. answers of the store are collected: done, asked again after a pause, or parked;
3. a store that did not answer is asked how far it is, and the log is read again from there if it lost something;
4. free threads get the keys that are ready;
5. positions are committed, at most every COMMIT_EVERY_S, to the lowest offset that is not finished;
6. partitions of which too much is held are paused.

A position is committed only when everything below it is DONE, OVERTAKEN or parked, so being killed at any moment means
that some of it is applied twice, which changes nothing. After any error that is raised the runner is dead.
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
from sinks.runner.partition_progress import Partition, lag_of, uncommitted
from sinks.runner.request_pool import Answer, Pool
from sinks.runner.runner_contracts import Away, Group, RunnerParts
from sinks.state.offset_metadata import metadata, start_offset, topic_recreated, window_of

COMMIT_EVERY_S: Final = 0.1  # a reader waits on it: p99 of commit to visible is to stay below 300 ms
COMMIT_AGAIN_S: Final = 60.0  # says that the sink is awake, see `sinks.state.offset_metadata`
LOOK_EVERY_S: Final = 1.0  # at what somebody asks of the sink: pause, retries of dead letters
LEAVE_S: Final = 10.0  # for requests under way when a partition goes; below the shortest session timeout brokers take
BROKER_S: Final = 60.0  # of commits that fail, until the group is joined anew
SPAN_MAX: Final = 500_000  # records behind one that is not finished, finished ones among them: what a crash repeats
_SPAN_AGAIN: Final = SPAN_MAX * 3 // 4
_BUSY_S: Final = 0.005
_IDLE_S: Final = 0.1
_BEHIND: Final = Outcome(Verdict.REFUSED, "behind", "an earlier record of the key is parked")


class SinkRunner:
    """Keeps a store in step with the log: `join` a group, `run` once, `close`. See `cdc.kafka.group_member`.

    Raises what needs a person (SinkStale, SinkGap, SinkUnfit, TopicMissing) and what starting over mends.
    """

    def __init__(self, parts: RunnerParts) -> None:
        self._parts = parts
        self._group: Group | None = None
        self._partitions: dict[TopicPartition, Partition] = {}
        self._lanes = KeyQueues()
        self._pool = Pool(parts.target, parts.settings.parallel, name="apply")
        self._pace = Pace(parts.settings.request_records)
        self._prepared: set[tuple[str, str]] = set()
        self._subscribed: set[str] = set()
        self._retries: list[ParkedKey] = []
        self._away: Away | None = None
        self._failures = 0
        self._pause: str | None = None
        self._said: tuple[str, str] | None = None  # which pause, and as which member
        self._stopped: set[TopicPartition] = set()
        self._looked_s = self._watched_s = self._commit_s = -1e9
        self._broker_away_s: float | None = None
        self._still_s: float | None = None
        self._has_assignment = self._dead = self._alarmed = False

    def join(self, group: Group) -> None:
        """Take part in this group, whose membership this is."""
        self._group = group
        self._parts.closing.callback(group.close)

    def run(self, stop: threading.Event) -> None:
        """Apply the log until `stop`; then what is under way is finished and committed."""
        try:
            while not stop.is_set():
                self.step()
        except BaseException:
            self._dead = True
            raise

    def close(self) -> None:
        """Leave the group, with what is under way finished and committed; then let go of everything."""
        try:
            if self._group is not None:
                self._group.close()
            if self._said is not None:
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
        self._look()
        self._take_in(group.poll(self._wait_s()))  # 1
        self._collect(self._pool.collect())  # 2
        self._mend()  # 3
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
        kept = parts.target.positions()
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
        """How far each partition of ours is applied."""
        return {place: one.frontier.position for place, one in self._partitions.items()}

    def _joined(self) -> Group:
        assert self._group is not None, "join comes before run"
        return self._group

    def _topics(self, names: Iterable[str]) -> dict[str, tuple[Topic, TopicFacts]]:
        """What the broker and the schemas say of these topics. Raises TopicMissing for one that does not exist."""
        tables = self._parts.schemas.tables()
        found: dict[str, tuple[Topic, TopicFacts]] = {}
        for name, facts in self._parts.directory.describe(sorted(names)).items():
            if facts is None:
                raise TopicMissing(f"topic {name!r} does not exist any more", hint="it was deleted", topic=name)
            schema = tables[name]
            found[name] = Topic(name, facts.topic_id, facts.partition_count, schema.table, schema.key), facts
        return found

    def _look(self) -> None:
        """What somebody wants, and what became of the topics, every now and then."""
        parts, now_s = self._parts, self._parts.clock.monotonic_s()
        if now_s - self._watched_s >= parts.watch_s or (not self._subscribed and now_s - self._watched_s >= 1.0):
            self._watched_s = now_s
            self._watch()
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._pause = parts.control.look()
            self._look_at_unowned()
            if self._pause is None:
                self._take_retries()
            self._tell_lag(now_s)

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

    def _look_at_unowned(self) -> None:
        unowned, group = self._parts.unowned, self._joined()
        left = unowned.look(group.member, self._subscribed) if unowned is not None else []
        if left:
            places = [f"{topic}-{partition}" for topic, partition in left]
            log.get().warning("sink_partitions_unowned", partitions=places, doing="joining the group anew")
            group.rejoin()

    def _take_retries(self) -> None:
        """Dead letters that somebody wants tried again; those whose key is busy wait for it."""
        letters = self._parts.letters
        waiting: list[ParkedKey] = []
        for parked in (*self._retries, *letters.retries()):
            if parked.place not in self._partitions:
                continue
            if not parked.records:
                letters.settled(parked, Outcome(Verdict.DONE))
            elif not self._lanes.retry(parked):
                waiting.append(parked)
        self._retries = waiting

    def _take_in(self, polled: PollResult) -> None:
        lanes, letters = self._lanes, self._parts.letters
        behind: dict[tuple[TopicPartition, bytes], list[LogRecord]] = {}
        begun: set[TopicPartition] = set()
        for record in polled.records:
            place, key = record.topic_partition, record.key
            one = self._partitions.get(place)
            if one is None or record.offset < one.frontier.next_offset:
                continue
            if key is None:
                by_key([record])  # says what is wrong
                continue
            if place not in begun:
                begun.add(place)
                one.batch_begins(record)
                one.at_end = False
            one.frontier.took(record.offset)
            one.high = max(one.high, record.offset + 1)
            if not lanes.holds(place, key) and letters.blocks(place, key):
                behind.setdefault((place, key), []).append(record)
            else:
                lanes.add(record)
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
                self._unanswered(answer.lanes, answer.error)
            elif answer.error is not None:
                raise answer.error
            else:
                self._judge(answer)

    def _unanswered(self, lanes: Iterable[KeyQueue], error: SinkUnreachable) -> None:
        """Nothing is known of these: the same again, once the store was asked how far it is."""
        now_s = self._parts.clock.monotonic_s()
        for lane in lanes:
            self._lanes.again(lane, now_s, counts=False)
        if self._away is None:
            self._failures += 1
            self._away = Away(now_s + growing_pause(self._failures), error)
            self._pace.overloaded()
            self._parts.observer.waits("store", error)

    def _judge(self, answer: Answer) -> None:
        now_s, keys, records, later = self._parts.clock.monotonic_s(), 0, 0, 0
        for lane, outcome in zip(answer.lanes, answer.outcomes, strict=True):
            if lane.left:
                self._lanes.done(lane)
            elif outcome.verdict is Verdict.LATER:
                later += 1
                self._lanes.again(lane, now_s + growing_pause(lane.attempts + 1))
            elif outcome.verdict is Verdict.REFUSED:
                self._refused(lane, outcome)
            else:
                keys, records = keys + 1, records + len(lane.asked)
                if lane.parked is not None:
                    self._parts.letters.settled(lane.parked, outcome)
                self._finished(lane.place, self._lanes.done(lane))
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
        """A write succeeded, or there is nothing to write."""
        if self._away is None and self._pause is None and self._broker_away_s is None:
            self._parts.observer.goes_on()

    def _refused(self, lane: KeyQueue, outcome: Outcome) -> None:
        parked = lane.parked
        records = self._lanes.close_off(lane)
        if parked is not None:
            self._parts.letters.settled(parked, outcome)
            self._parts.observer.refused(1)
        if records:
            self._park(lane.place, lane.key, records, outcome if parked is None else _BEHIND)

    def _mend(self) -> None:
        """When the store is asked again: first how far it is, since what it acknowledged may be lost."""
        away, now_s = self._away, self._parts.clock.monotonic_s()
        if away is None or self._pool.busy or now_s < away.at_s:
            return
        try:
            kept = self._parts.target.positions()
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
                self._lanes.drop([place])
                one.rewind(offset)
                self._joined().seek(place, offset)

    def _launch(self) -> None:
        if self._away is not None or self._pause is not None:
            return
        settings, now_s = self._parts.settings, self._parts.clock.monotonic_s()
        self._lanes.wake(now_s)
        while self._pool.free and self._lanes.ready and self._away is None:
            lanes = self._lanes.take(now_s, records_max=self._pace.records, bytes_max=settings.request_bytes)
            changes = [change_of(lane.asked) for lane in lanes]
            try:
                self._prepare(changes)
            except SinkUnreachable as error:
                self._unanswered(lanes, error)
                return
            self._pool.submit(lanes, changes)

    def _prepare(self, changes: Iterable[Change]) -> None:
        """Have the store know every schema before a row of it comes."""
        for change in changes:
            name = (change.topic, change.schema_id)
            if change.row is not None and name not in self._prepared:
                self._parts.target.prepare(self._parts.schemas.find(*name))
                self._prepared.add(name)

    def _commit(self, *, only: set[TopicPartition] | None = None) -> None:
        """Make positions durable: in the store, if it wants to know, then in the group."""
        now_s = self._parts.clock.monotonic_s()
        if only is None and (now_s - self._commit_s < COMMIT_EVERY_S or self._said is not None):
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
            self._parts.target.keep(positions)
        except SinkUnreachable as error:
            self._unanswered((), error)
            return
        marked = {at: (offset, metadata(among[at].topic.topic_id, at_s)) for at, offset in positions.items()}
        if self._committed(marked, now_s):
            for place, offset in positions.items():
                among[place].committed, among[place].committed_s = offset, now_s
            self._parts.places.committed({place: among[place].topic.topic_id for place in positions})
            self._tell_lag(now_s)

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

    def _tell_lag(self, now_s: float) -> None:
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
                hint="the sink is so far behind that Kafka will remove what it has not read",
            )
        self._alarmed = in_danger

    def _acknowledge(self) -> None:
        """Say that we are paused when nothing is under way and everything is committed; or that we go on."""
        control, observer = self._parts.control, self._parts.observer
        if self._pause is None and self._said is not None:
            control.report_running()
            self._said = None
            observer.goes_on()
        elif self._pause is not None and not self._pool.busy:
            said = self._pause, self._joined().member  # who has joined anew has another name
            if said == self._said:
                return
            self._commit(only=set(self._partitions))
            if not uncommitted(self._partitions, self._commit_s, again_s=COMMIT_AGAIN_S):
                observer.waits("paused", None)
                control.report_paused(said[1])
                self._said = said

    def _throttle(self) -> None:
        places = set(self._partitions)
        if self._pause is not None or self._away is not None:
            wanted = places
        else:
            wanted = full_partitions(self._lanes.held, places, self._stopped, self._parts.bounds)
            for place, one in self._partitions.items():
                if one.frontier.span >= (_SPAN_AGAIN if place in self._stopped else SPAN_MAX):
                    wanted.add(place)
        group = self._joined()
        group.pause(wanted - self._stopped)
        group.resume((self._stopped - wanted) & places)
        self._stopped = wanted

    def _wait_s(self) -> float:
        """How long records may be waited for."""
        now_s = self._parts.clock.monotonic_s()
        if self._pool.busy:
            return _BUSY_S
        if self._lanes.ready and self._away is None and self._pause is None:
            return 0.0
        next_s = self._lanes.next_s()
        until_s = min(_IDLE_S, _IDLE_S if next_s is None else max(0.0, next_s - now_s))
        due_s = self._commit_s + COMMIT_EVERY_S - now_s
        return min(until_s, due_s) if due_s > 0 else until_s

    def _finish(self, going: set[TopicPartition]) -> None:
        """Wait for requests of these partitions, a bounded time, and commit what they have reached."""
        ends_s = self._parts.clock.monotonic_s() + LEAVE_S
        while self._lanes.flying(going) and self._parts.clock.monotonic_s() < ends_s:
            self._collect(self._pool.collect(_IDLE_S))
        try:
            self._commit(only=going)
        except TailraceError as error:
            log.get().warning("sink_left_uncommitted", **log.error_fields(error))

    def _drop(self, going: set[TopicPartition]) -> None:
        self._lanes.drop(going)
        self._retries = [one for one in self._retries if one.place not in going]
        self._stopped -= going
        for place in going:
            del self._partitions[place]
