"""`make time-proof`: random histories of events, random cuts and kills; every view has the rows of a plain calculation.

Events come late, twice, are corrected, moved to another user, deleted; a producer is silent and comes back with the
times of its own clock. The calculation shares nothing with the lake but the rows of the cut.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from tests.fixtures.views.kept_views import KeptLake
from tests.property.pattern_oracle import matches
from tests.property.test_time_window_plans import SHAPES
from tests.property.time_oracle import Event

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sinks.warehouse.lake.manifest import Manifest

SEEDS: Final = int(os.environ.get("TAILRACE_TIME_SEEDS", "1"))
STEPS: Final = 40
SCHEMA: Final = pa.schema(
    [("id", pa.int64()), ("user_id", pa.int64()), ("at", pa.timestamp("us")), ("amount", pa.int32())]
)
# Before 1970, at the end of summer time, and in a usual minute.
BEGINS: Final = ("1969-12-31 23:59:40", "2026-10-25 00:59:40", "2026-11-30 12:00:00")
USERS: Final = (*range(12), None)  # with few events each, so that whole partitions lose their matches
FALLS: Final = """select user_id, began, falls, least from events match_recognize (
    partition by user_id order by at
    measures A.at as began, count(B.*) as falls, last(B.amount) as least
    pattern (A B+) define B as amount < prev(amount)
)"""
ROLLING: Final = """select id, user_id, sum(amount) over (
    partition by user_id order by at range between interval 10 seconds preceding and current row
) as total from events where at is not null"""


def falls(events: list[Event]) -> Iterable[tuple[Any, ...]]:
    """User, time of the first row, number of falls and the last amount of each run of falling amounts."""
    for user in USERS:
        own = sorted((one for one in events if one["user_id"] == user), key=in_order)
        amounts = [one["amount"] for one in own]

        def meets(start: int, path: tuple[str, ...], amounts: list[int | None] = amounts) -> bool:
            at = start + len(path) - 1
            here, before = amounts[at], amounts[at - 1] if at else None
            return path[-1] == "A" or (here is not None and before is not None and here < before)

        for start, path in matches(
            ("seq", ("v", "A"), ("rep", ("v", "B"), 1, None, False)), len(own), meets, ("past", "")
        ):
            yield user, own[start]["at"], len(path) - 1, amounts[start + len(path) - 1]


def rolling(events: list[Event]) -> Iterable[tuple[Any, ...]]:
    """Id, user, and the sum of the ten seconds before."""
    for one in events:
        if one["at"] is not None:
            same = [other for other in events if other["user_id"] == one["user_id"] and other["at"] is not None]
            seen = [e["amount"] for e in same if one["at"] - timedelta(seconds=10) <= e["at"] <= one["at"]]
            known = [amount for amount in seen if amount is not None]
            yield one["id"], one["user_id"], sum(known) if known else None


def in_order(event: Event) -> tuple[bool, datetime, int]:
    """The order of a pattern: nulls first, rows of one time by their key."""
    return event["at"] is not None, event["at"] or datetime.fromisoformat(BEGINS[0]), event["id"]


VIEWS: Final = {
    **{f"v{n}": shape for n, shape in enumerate(SHAPES.values())},
    "falls": (FALLS, falls),
    "rolling": (ROLLING, rolling),
}


class History:
    """Events that change, one step after the other."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rows: dict[int, Event] = {}
        self._begin = datetime.fromisoformat(self.chance.choice(BEGINS))
        self._seconds = dict.fromkeys(USERS, 0.0)
        self._silent = self.chance.choice(USERS)

    def step(self) -> tuple[list[Event], list[Event]]:
        """Rows to put, and rows to take away."""
        chance = self.chance
        kind = chance.choice(["new"] * 6 + ["again", "corrected", "moved", "deleted", "deleted", "turn"])
        if kind == "turn":
            self._silent = chance.choice(USERS)
        if kind in {"new", "turn"} or not self.rows:
            return self._put(len(self.rows) + chance.randrange(1000) * 100, self._new())
        number = chance.choice(sorted(self.rows))
        row = self.rows[number]
        if kind == "deleted":
            return [], [self.rows.pop(number)]
        if kind == "corrected":
            row = {**row, "at": self._new()["at"], "amount": self._new()["amount"]}
        elif kind == "moved":
            row = {**row, "user_id": chance.choice(USERS)}
        return self._put(number, row)

    def _put(self, number: int, row: Event) -> tuple[list[Event], list[Event]]:
        self.rows[number] = {**row, "id": number}
        return [self.rows[number]], []

    def _new(self) -> Event:
        chance = self.chance
        user = chance.choice([one for one in USERS if one != self._silent])
        self._seconds[user] += chance.choice([0, 1, 1, 2, 5, 5.5, 12])
        seconds = self._seconds[user] - (chance.randrange(60) if chance.random() < 0.2 else 0)
        at = None if chance.random() < 0.03 else self._begin + timedelta(seconds=seconds)
        return {"user_id": user, "at": at, "amount": chance.choice([None, 0, 1, 2, 3])}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_views_of_time_have_the_rows_of_a_plain_calculation_at_every_cut(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    texts, history = {name: sql for name, (sql, _) in VIEWS.items()}, History(seed)
    lake = lake_of(spark, tmp_path / "many", texts)
    changed: dict[int, tuple[bool, Event]] = {}
    by_keys = 0
    for number in range(STEPS):
        put, gone = history.step()
        changed |= {one["id"]: (True, one) for one in put} | {one["id"]: (False, one) for one in gone}
        if number < 10 or (history.chance.random() > 0.2 and number < STEPS - 1):
            continue
        manifest = cut(lake, history, list(changed.values()))
        changed.clear()
        assert_right(lake, history)
        records = {name: state.plan for name, state in manifest.views.items() if state.plan is not None}
        assert {name: record.refused for name, record in records.items()} == dict.fromkeys(VIEWS, "")
        by_keys += sum(record.plan == "affected" for record in records.values())

    assert by_keys > len(VIEWS), "the plans by keys are hardly tried"
    once = lake_of(spark, tmp_path / "once", texts)
    once.cut({"events": (list(history.rows.values()), [])})
    assert_right(once, history)


def lake_of(spark: SparkSession, folder: Path, texts: dict[str, str]) -> KeptLake:
    return KeptLake(spark.newSession(), folder, texts, {"events": SCHEMA}, {"events": ("id",)})


def cut(lake: KeptLake, history: History, changed: list[tuple[bool, Event]]) -> Manifest:
    """A cut; sometimes the process ends in the middle of it, or behind it."""
    put, gone = ([one for is_put, one in changed if is_put is wanted] for wanted in (True, False))
    plans = {} if lake.store.current() is None else dict.fromkeys(VIEWS, "affected")
    end = history.chance.random()
    if end < 0.3:
        commit = lake.begin(**plans)
        lake.write(commit, "events", put, gone)
        if end < 0.15:  # the views are written, and the manifest is not
            lake.keeper.keep(commit, lake.store.current(), complete={}, plans=lake.plans)
        lake.restart()
    manifest = lake.cut({"events": (put, gone)}, **plans)
    if history.chance.random() < 0.2:
        lake.restart()
    return manifest


def assert_right(lake: KeptLake, history: History) -> None:
    for name, (sql, calculated) in VIEWS.items():
        found = Counter(tuple(one.values()) for one in lake.rows(name).to_pylist())
        assert found == Counter(calculated(list(history.rows.values()))), sql
