"""Runs one short history once for every fault at every call of an edge, without randomness (fault table, row C4).

The history has a row whose large value is read again, a transaction that is spread over several Kafka transactions, a
changed key and a TRUNCATE. Then PostgreSQL restarts, so that a second start has something to read. All runs are equal
up to the fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from tests.property.histories import Step
from tests.simulation.capture import Life
from tests.simulation.history import History
from tests.simulation.world import Process, Violation, never_fails

Act = Callable[[Process, str], None]

_TRANSACTIONS: Final = (
    (Step("I", 1, 1, 1), Step("H", 1, 1, 1), Step("I", 2, 1, 4)),
    tuple(Step("U", 1 + number % 2, 1, number) for number in range(9)),
    (Step("K", 1, 1, 1), Step("D", 2, 1, 4)),
    (Step("I", 1, 1, 7), Step("T", 1), Step("I", 1, 1, 8)),
)

_AFTERWARDS: Final = ((Step("U", 1, 1, 8), Step("H", 2, 1, 5)), (Step("I", 2, 1, 6),))
_STEPS_MAX: Final = 60


class Short(History):
    """The history described above, with one process and its successors."""

    def __init__(self) -> None:
        super().__init__(0, dice=random.Random(0))

    def _play(self) -> None:
        self.spawn()
        while self.postgres.publication_oid == 0 or not self.postgres.slot_there:
            self.step()
        for steps in _TRANSACTIONS:
            self.postgres.commit(steps, gap=0, size=2)
        for _ in range(_STEPS_MAX):
            if self.referee.complete:
                break
            self.step()
        self.postgres.restart(crashed=False)
        for steps in _AFTERWARDS:
            self.postgres.commit(steps, gap=0, size=2)

    def take_over(self, process: Process, label: str) -> None:
        """Freeze the process until another has taken over and published everything; then resume it."""
        assert isinstance(process, Life)
        self.frozen.append(process)
        self.postgres.hang_up()
        self.postgres.commit((Step("I", 1, 1, 9),), gap=1, size=2)
        self.spawn()
        for _ in range(_STEPS_MAX):
            if self.referee.complete:
                break
            self.step()
        self.frozen.remove(process)

    def overtake(self, process: Process, label: str) -> None:
        """Do as `take_over`, but kill the other process."""
        self.take_over(process, label)
        for other in [life for life in self.lives if life is not process]:
            other.die()
            self.lives.remove(other)
            self.spawn()
        self.postgres.hang_up()

    def produce_late(self, late: str) -> Act:
        """Let the next request of this kind time out, see `tests.simulation.broker.SimulatedProducer`."""

        def act(process: Process, label: str) -> None:
            assert isinstance(process, Life)
            producer = process.producer
            producer.late, producer.lazy = late, late == "lost"

        return act


def points() -> list[str]:
    """Return the labels of all points of the history without a fault, in order."""
    history = Short()
    history.world.trace = []
    result = history.run()
    if result.violation is not None:
        raise result.violation
    return history.world.trace


def faults(label: str) -> list[str]:
    """Return the faults that are possible at a point."""
    call, _, side = label.partition("/")
    found = ["kill", "take_over", "overtake"]
    if not never_fails(call):
        found.append("fail")
    if side == "before":
        found += {"Producer.commit": ["end", "unknown"], "Producer.produce_all": ["produce", "lost"]}.get(call, [])
    return found


def run_all() -> Iterator[tuple[int, str, str, Violation | None]]:
    """Yield (number of the point, label, fault, broken obligation) for every fault at every point."""
    for number, label in enumerate(points(), 1):
        for fault in faults(label):
            history = Short()
            acts: dict[str, Act] = {
                "kill": history.world.kill,
                "fail": history.world.fail,
                "take_over": history.take_over,
                "overtake": history.overtake,
            }
            history.world.script[number] = acts.get(fault) or history.produce_late(fault)
            yield number, label, fault, history.run().violation
