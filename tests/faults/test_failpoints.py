"""kill -9 at each step of a start and of a batch: the log still holds exactly the history (fault E2).

The short form takes some of them, others in each run; `make faults-long` takes all.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final

from tests.faults.test_kill import acknowledged_early
from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.failpoints import NAMES
from tests.fixtures.faults.tally import tally
from tests.fixtures.faults.workload import KEYS, SCHEMA, writing
from tests.fixtures.servers.seed import seed

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Sections

COUNT: Final = int(os.environ.get("TAILRACE_FAILPOINTS", "6"))
SMALL: Final[Sections] = {"capture": {"batch_rows_max": 40, "catalog_check_s": 0.2}}
_COMES_TO_IT_S: Final = 120.0
# Steps that load comes to again and again, and those only a start comes to.
_REPEATED: Final = ("read", "assemble", "begin", "produce", "submit", "flush", "commit", "settle", "confirm", "finish")
_FIRST: Final = ("make topics", "publish tables", "make slot", "open stream", "fence", "check identity", "first cut")


def test_log_is_exactly_the_history_after_kill_9_at_every_failpoint(capture: CaptureSite) -> None:
    capture.sql(*SCHEMA)
    chance = random.Random(seed())
    codes = {}

    def die_at(failpoint: str) -> None:
        codes[failpoint] = capture.daemon(SMALL, mutant=f"fail_at:{failpoint}").exit_code(_COMES_TO_IT_S)

    for failpoint in chosen(
        [f"{when} {step}:1" for step in _FIRST for when in ("before", "after")], chance, COUNT // 3
    ):
        die_at(failpoint)
    capture.running(SMALL).kill()
    oracle = capture.oracle()
    with writing(capture.dsn, seed()):
        for failpoint in chosen([timed(name, chance) for name in NAMES], chance, COUNT):
            die_at(failpoint)
            assert acknowledged_early(capture) == []
    log = capture.settled(capture.running(SMALL), 120.0)

    assert {failpoint for failpoint, code in codes.items() if code != -9} == set(), "every failpoint is come to"
    assert history_faults(oracle.changes(list(KEYS)), log, KEYS) == []
    tally("failpoints", kills=len(codes), events=len(log.events), transactions=len(oracle.transactions(list(KEYS))))


def chosen(names: list[str], chance: random.Random, count: int) -> list[str]:
    """So many of them; those before a slot is there in the order of a start, so that the first of them is the first."""
    return [names[index] for index in sorted(chance.sample(range(len(names)), min(count, len(names))))]


def timed(name: str, chance: random.Random) -> str:
    """A failpoint with the number of times it is passed before it kills."""
    return f"{name}:{chance.randint(2, 20) if name.partition(' ')[2] in _REPEATED else 1}"
