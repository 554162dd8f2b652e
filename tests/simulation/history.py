"""One simulated history: processes, transactions and faults in an order that a seed decides, and its final checks.

A process is frozen by running the rest of the world inside one of its calls, so two daemons run side by side without
threads. At the end faults stop. Then everything must arrive without help (P12), or capture must have stopped in the
state that names the fault (P11).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from cdc.capture.assembler import BatchLimits
from cdc.errors import SourceGap, TailraceError
from tests.fixtures.servers.executors import When
from tests.property.histories import LEFT_OUT, Step
from tests.simulation.broker import Broker
from tests.simulation.capture import Life, Weather
from tests.simulation.referee import Referee
from tests.simulation.source import Postgres
from tests.simulation.world import Armed, Crash, Process, Violation, World, labels

_ROUNDS: Final = 28
_LIVES_MAX: Final = 3
_FROZEN_MAX: Final = 2
_PROMOTED: Final = 0.2  # of what ends all connections
_QUIET_STEPS: Final = 600  # bound of P12, in steps of all processes together
_LABELS: Final = labels()
_FAILING: Final = labels(failing=True)
_MAKING: Final = [
    label
    for label in _LABELS
    if label.startswith(("SourceServer.make_slot/", "SourceServer.publish/", "TopicDirectory.create/"))
]
_WHENS: Final[tuple[When, ...]] = ("at once", "unseen", "late")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a history: `faults` by kind, `crashed` by point."""

    seed: int
    violation: Violation | None
    faults: dict[str, int]
    crashed: dict[str, int]
    passed: dict[str, int]
    points: int
    event_count: int


@contextmanager
def quiet() -> Iterator[None]:
    """Turn logging off, because a history has thousands of starts."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


class History:
    """One simulated world and its events."""

    def __init__(self, seed: int, *, dice: random.Random | None = None) -> None:
        self.seed = seed
        self.dice = dice or random.Random(seed)
        self.world = World(self.dice)
        self.postgres = Postgres(self.world)
        self.broker = Broker(self.world)
        self.referee = Referee(self.world, self.broker, self.postgres)
        self.broker.appended, self.broker.committed = self.referee.appended, self.referee.committed
        self.postgres.told_confirmed = self.referee.confirmed
        caps = BatchLimits(self.dice.choice((1, 2, 4)), 1 << 30)
        self.weather = Weather(self.world, self.postgres, self.broker, caps, self.dice.choice(_WHENS))
        self.lives: list[Life] = []
        self.frozen: list[Life] = []
        self.broken: str | None = None  # the fault that capture cannot survive

    def run(self) -> Result:
        """Run the history from the first start to the end."""
        try:
            self._play()
            self._settle()
        except Violation:
            pass
        return self.result()

    def result(self) -> Result:
        """Return the result so far."""
        world = self.world
        return Result(
            self.seed,
            world.violation,
            dict(world.seen),
            dict(world.crashed),
            dict(world.passed),
            world.points,
            self.referee.event_count,
        )

    def _play(self) -> None:
        dice = self.dice
        self.spawn()
        self.world.meanwhile = self._meanwhile
        if dice.random() < 0.3:  # only the first start creates anything, so random faults would rarely hit it
            self.world.armed[dice.choice(_MAKING)] = Armed(self.world.kill)
        stopping = dice.random() < 0.12
        stop_at = dice.randrange(_ROUNDS // 3, _ROUNDS) if stopping else -1
        for number in range(_ROUNDS):
            if number == stop_at:
                self._break()
            self.round()

    def round(self) -> None:
        """Perhaps do something, then run a step of one process."""
        dice = self.dice
        chance = dice.random()
        if chance < 0.30:
            self.commit()
        elif chance < 0.55:
            self._arm()
        elif chance < 0.75:
            self._fault()
        for _ in range(dice.choice((1, 1, 2, 4))):
            self.step()

    def step(self) -> None:
        """Run a step of one of the processes."""
        awake = [life for life in self.lives if life not in self.frozen]
        if not awake:
            return
        clock = self.world.clock
        ready = [life for life in awake if life.again_s <= clock.now_s]
        if not ready:
            ready = [min(awake, key=lambda life: life.again_s)]
            clock.now_s = ready[0].again_s
        life = self.dice.choice(ready)
        try:
            life.step()
        except Crash:
            self.world.seen["process killed"] += 1
        if life.over:
            self._bury(life)

    def spawn(self) -> None:
        """Start a process, as a supervisor or an operator on a second machine does."""
        if len(self.lives) < _LIVES_MAX:
            self.lives.append(Life(self.weather))

    def commit(self) -> None:
        """Commit a transaction of any size; large ones are spread over several Kafka transactions."""
        if self.broken == "restored":
            return
        dice = self.dice
        count = dice.choice((0, 1, 1, 2, 5, 9, 14))
        kinds = "IIUUHDKKT" if dice.random() < 0.2 else "IIUUHDK"
        steps = [
            Step(dice.choice(kinds), dice.choice((1, 1, 2, LEFT_OUT)), dice.choice((1, 1, 1, 2)), dice.randrange(6))
            for _ in range(count)
        ]
        self.postgres.commit(steps, gap=dice.choice((0, 0, 3)), size=dice.randint(1, 4))

    def freeze(self, process: Process, label: str) -> None:
        """Stop a process (SIGSTOP) while the world goes on; often it is fenced when it resumes."""
        life = process
        assert isinstance(life, Life)
        if len(self.frozen) >= _FROZEN_MAX or life in self.frozen:
            return
        self.world.seen["process frozen"] += 1
        self.frozen.append(life)
        dice = self.dice
        lost = dice.random() < 0.7
        if lost and self.postgres.walsender is not None and self.postgres.walsender is life.stream:
            self.world.seen["zombie"] += 1
            self.postgres.hang_up()
        self.spawn()
        for _ in range(dice.choice((2, 6, 15))):
            self.round()
        self.frozen.remove(life)

    def _bury(self, life: Life) -> None:
        self.lives.remove(life)
        if life.dead:
            self.spawn()
            return
        error = life.stopped
        assert error is not None
        self._stopped(error)

    def _stopped(self, error: TailraceError) -> None:
        """P11: check that a stop has a name that fits an injected fault."""
        if error.state == "FENCED":
            self.world.seen["zombie stopped as FENCED"] += 1
            if not self.lives and self.broken is None:
                self.world.violate("P12", "the last process stopped as FENCED")
            return
        if self.broken is None or error.state not in self._states():
            self.world.violate("P11", f"stopped for nothing: {type(error).__name__}: {error}")
        if isinstance(error, SourceGap) and self.referee.missing and error.known_to is not None:
            first = self.referee.missing[0].commit_lsn
            if first < error.known_to:
                self.world.violate("P11", f"the gap begins at {error.known_to}, {first} is missing")
        self.world.seen[f"stopped as {error.state}"] += 1

    def _states(self) -> Sequence[str]:
        return ("DIVERGED",) if self.broken in {"timeline", "restored"} else ("GAP",)

    def _meanwhile(self) -> None:
        """Do something between two calls of a process."""
        chance = self.dice.random()
        if chance < 0.2:
            self.commit()
        elif chance < 0.3:
            self._foreign()
        elif chance < 0.4:
            self.broker.deliver_late()
        elif chance < 0.5:
            self.broker.write_markers()

    def _arm(self) -> None:
        """Arm a fault at a point, for the next process that passes it."""
        chance = self.dice.random()
        if chance < 0.45:
            self.world.arm(self.dice.choice(_LABELS), self.world.kill)
        elif chance < 0.7:
            self.world.arm(self.dice.choice(_FAILING), self.world.fail)
        else:
            self.world.arm(self.dice.choice(_LABELS), self.freeze)

    def _fault(self) -> None:
        """Inject a fault of the servers or the network now."""
        dice = self.dice
        faults: list[Callable[[], None]] = [
            self._restart,
            self._hang_up,
            self._foreign,
            self._late,
            self._stale,
            self._slow_markers,
            self._stop_broker,
            self._long_pause,
            self._unseen,
            self.postgres.save,
            self.broker.deliver_late,
            self.spawn,
        ]
        dice.choice(faults)()

    def _restart(self) -> None:
        if self.dice.random() < _PROMOTED:
            self.world.seen["PostgreSQL promoted"] += 1
            self.postgres.promote()
            return
        crashed = self.dice.random() < 0.5
        self.world.seen["PostgreSQL crashed" if crashed else "PostgreSQL restarted"] += 1
        self.postgres.restart(crashed=crashed, for_s=self.dice.choice((0.0, 0.0, 1.0)))

    def _hang_up(self) -> None:
        self.world.seen["connection lost"] += 1
        self.postgres.hang_up()

    def _foreign(self) -> None:
        if self.broken == "restored":
            return
        self.world.seen["foreign WAL"] += 1
        self.postgres.write_elsewhere(self.dice.randint(1, 30))

    def _late(self) -> None:
        producers = [producer for life in self.lives for producer in life.producers]
        if producers:
            producer = self.dice.choice(producers)
            producer.late = self.dice.choice(("produce", "lost", "end", "end", "unknown"))
            producer.lazy = producer.late == "lost" or self.dice.random() < 0.3

    def _stale(self) -> None:
        self.broker.stale_reads = self.dice.randint(1, 6)

    def _slow_markers(self) -> None:
        self.broker.slow_markers = True

    def _stop_broker(self) -> None:
        """Stop the broker in order at the next commit, and start it: every connection is lost."""
        self.broker.skip_markers = True
        self.broker.stopped = self._disconnect

    def _disconnect(self) -> None:
        for life in self.lives:
            for producer in life.producers:
                producer.suspicious = "the connection was lost"

    def _long_pause(self) -> None:
        self.world.clock.now_s += self.dice.choice((1.0, 6.0, 70.0))

    def _unseen(self) -> None:
        for life in self.lives:
            life.looks_in_vain = self.dice.randint(1, 4)

    def _break(self) -> None:
        """Inject, once, a fault that capture cannot survive."""
        postgres, dice = self.postgres, self.dice
        if not postgres.slot_there or not self.referee.reached.end_lsn:
            return
        self.broken = dice.choice(("slot", "advanced", "publication", "republished", "table", "timeline", "restored"))
        match self.broken:
            case "slot":
                postgres.drop_slot()
            case "advanced":
                postgres.hang_up()
                self.commit()
                postgres.confirmed = postgres.saved = postgres.wal_end
            case "publication":
                postgres.publication_oid = 0
            case "republished":
                postgres.republish()
            case "table":
                postgres.members[1] = 0
            case "timeline":
                postgres.leave_the_history()
            case _:
                # The lost transactions were committed, so they may already be on their way into the log.
                self.referee.learn()
                # Only if it has not written beyond the log; see docs/guarantees.md.
                reached = self.referee.reached
                if not postgres.restore(below=max(reached.end_lsn, reached.next_ordinal and reached.commit_lsn + 1)):
                    self.broken = None
                    return
        self.world.seen[f"broken: {self.broken}"] += 1
        self.commit()

    def _settle(self) -> None:
        """Stop all faults. P12, P7: everything arrives without help; or P11: a named stop."""
        world, postgres = self.world, self.postgres
        world.meanwhile = lambda: None
        world.armed.clear()
        self.broker.stale_reads, self.broker.slow_markers, self.broker.skip_markers = 0, False, False
        while self.broker.held:
            self.broker.deliver_late()
        for life in self.lives:
            life.looks_in_vain = 0
            for producer in life.producers:
                producer.late = ""
        self.broker.write_markers()
        if not self.lives and self.broken is None:
            world.violate("P12", "no process is left, and no stop says why")
        end = postgres.wal_end
        for _ in range(_QUIET_STEPS):
            if not self.lives:
                break
            if self.referee.complete and postgres.confirmed >= end and not self.referee.missing:
                break
            self.step()
        if self.broken is None:
            self._arrived(end)
        elif self.lives and not self._harmless(end):
            world.violate("P11", f"after {self.broken} capture goes on, and not everything is in the log")

    def _arrived(self, end: int) -> None:
        if not self.referee.complete:
            self.world.violate("P12", f"after {_QUIET_STEPS} steps the log is at {self.referee.reached.end_lsn}")
        if self.postgres.confirmed < end:
            self.world.violate("P12", f"{end} was never acknowledged, {self.postgres.confirmed} was")

    def _harmless(self, end: int) -> bool:
        return self.referee.complete and not self.referee.missing and self.postgres.confirmed >= end
