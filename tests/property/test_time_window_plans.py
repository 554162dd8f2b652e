"""Views over time windows that are kept by keys have the rows of a plain count, after any corrections, in DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.warehouse.planner import plan as planning
from sinks.warehouse.planner import time_windows
from sinks.warehouse.planner.plan import plan_view
from sinks.warehouse.planner.relations import WEIGHT, Relation, images, old
from sinks.warehouse.planner.time_windows import NUMBERS
from tests.property.time_oracle import Event, Groups, sessions, windows
from tests.property.viewworld import in_duckdb

Oracle: TypeAlias = "Callable[[list[Event]], list[tuple[Any, ...]]]"

_SCHEMA: Final = pa.schema(
    [("id", pa.int64()), ("user_id", pa.int64()), ("at", pa.timestamp("us")), ("amount", pa.int32())]
)
_EVENTS: Final = Relation("events", {"id": "bigint", "user_id": "bigint", "at": "timestamp", "amount": "int"}, ("id",))
_ZERO: Final = datetime(1970, 1, 1)  # noqa: DTZ001
_SUMS: Final = "count(*) as n, sum(amount) as total"
_BY_SESSION: Final = "events group by user_id, session_window(at, '5 seconds')"
_SOME_BY_SESSION: Final = (
    "events e where e.amount > 1 group by e.user_id, session_window(e.at, '5 seconds') having count(*) > 1"
)


def _listed(groups: Groups, *columns: int) -> list[tuple[Any, ...]]:
    """The columns of the key, then count and sum, as `_SUMS`."""
    return [
        (*(key[column] for column in columns), len(rows), _sum(row["amount"] for row in rows))
        for key, rows in groups.items()
    ]


def _sum(values: Any) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


SHAPES: Final[dict[str, tuple[str, Oracle]]] = {
    "tumbling": (
        f"select window.start as started, {_SUMS} from events group by window(at, '10 seconds')",
        lambda events: _listed(windows(events, 10, 10), 0),
    ),
    "tumbling of a user": (
        f"select e.user_id, window.end, {_SUMS} from events e group by e.user_id, window(e.at, '10 seconds')",
        lambda events: _listed(windows(events, 10, 10, by="user_id"), 2, 1),
    ),
    "tumbling with an offset": (
        f"select window.start, {_SUMS} from events group by window(at, '10 seconds', '10 seconds', '3 seconds')",
        lambda events: _listed(windows(events, 10, 10, 3), 0),
    ),
    "hopping": (
        f"select window.start, window.end, {_SUMS} from events group by window(at, '30 seconds', '10 seconds')",
        lambda events: _listed(windows(events, 30, 10), 0, 1),
    ),
    "hopping that does not fit": (
        f"select user_id, window.start, {_SUMS} from events group by user_id, window(at, '25 seconds', '10 seconds')",
        lambda events: _listed(windows(events, 25, 10, by="user_id"), 2, 0),
    ),
    "sessions": (
        f"select user_id, session_window.start, session_window.end, {_SUMS} from {_BY_SESSION}",
        lambda events: _listed(sessions(events, 5, by="user_id"), 2, 0, 1),
    ),
    "sessions of some": (
        f"select e.user_id as who, session_window.start as began, {_SUMS} from {_SOME_BY_SESSION}",
        lambda events: [
            row
            for row in _listed(sessions([e for e in events if (e["amount"] or 0) > 1], 5, by="user_id"), 2, 0)
            if row[2] > 1
        ],
    ),
}
_MISTAKES: Final = {
    "a session ends at its gap": ("sessions", "<= LAG", "< LAG"),
    "the last hop is left out": ("hopping", ".i < 3", ".i < 2"),
    "a hop more": ("hopping that does not fit", "+ 25000000", "+ 35000000"),
    "windows before 1970 begin too late": ("tumbling", "PMOD(UNIX_MICROS(at), ", "mod(UNIX_MICROS(at), "),
    "the offset is forgotten": ("tumbling with an offset", "- 3000000", "- 0"),
}


class Kept:
    """One view over events that change, kept by its plan."""

    def __init__(self, seed: int, shape: str, *, without_old_images: bool = False) -> None:
        self._random = random.Random(seed)
        self.sql, self.oracle = SHAPES[shape]
        self.plan = plan_view("v", self.sql, {"events": _EVENTS})
        self._without_old = without_old_images
        self._db = duckdb.connect(config={"threads": 1})
        self._db.sql("create macro timestamp_micros(x) as make_timestamp(x)")
        self._db.sql("create macro pmod(x, y) as (x % y + y) % y")
        self._db.register(NUMBERS.name, pa.table({"i": range(NUMBERS.rows)}))
        self.events: list[Event] = []
        self._change(10)
        self._register([], self.events)
        self.rows = self._run(self.plan.whole_sql())

    def step(self) -> None:
        before = [dict(event) for event in self.events]
        self._change(self._random.choice([1, 1, 2, 5]))
        self._register(before, self.events)
        keys = self._run(self.plan.keys_sql({"events"}))
        self._db.register("k", pa.Table.from_pylist(keys, schema=self._key_schema()))
        gone = {tuple(row.values()) for row in keys}
        kept = [row for row in self.rows if tuple(row[name] for name in self.plan.key) not in gone]
        starts = {}
        for span in self.plan.spans if keys else ():
            times = [round((row[span.start] - _ZERO) / timedelta(microseconds=1)) for row in keys]
            starts[span.start] = (min(times), max(times))
        self.rows = kept + self._run(self.plan.rows_query("k", starts).sql())

    def faults(self) -> tuple[Counter[Any], Counter[Any]]:
        """What is missing, and what is too much."""
        found, wanted = Counter(tuple(row.values()) for row in self.rows), Counter(self.oracle(self.events))
        return wanted - found, found - wanted

    def _change(self, count: int) -> None:
        pick = self._random
        for _ in range(count):
            if self.events and pick.random() < 0.3:
                self.events.pop(pick.randrange(len(self.events)))
                continue
            key = pick.randrange(16)
            second = pick.choice([None, *range(-12, 40), 4.5, 5.000001])
            new = {
                "id": key,
                "user_id": pick.choice([None, 1, 2]),
                "at": None if second is None else _ZERO + timedelta(seconds=second),
                "amount": pick.choice([None, 1, 2, 3]),
            }
            self.events = [event for event in self.events if event["id"] != key] + [new]

    def _register(self, before: list[Event], after: list[Event]) -> None:
        gone, come = ([one for one in a if one not in b] for a, b in ((before, after), (after, before)))
        olds = [] if self._without_old else [{**one, WEIGHT: -1} for one in gone]
        seen = [*olds, *({**one, WEIGHT: 1} for one in come)]
        self._db.register("events", pa.Table.from_pylist(after, schema=_SCHEMA))
        self._db.register(old("events"), pa.Table.from_pylist(before, schema=_SCHEMA))
        schema = _SCHEMA.append(pa.field(WEIGHT, pa.int32()))
        self._db.register(images("events"), pa.Table.from_pylist(seen, schema=schema))

    def _key_schema(self) -> pa.Schema:
        whole = self._db.sql(in_duckdb(self.plan.whole_sql())).to_arrow_table().schema
        return pa.schema([whole.field(name) for name in self.plan.key])

    def _run(self, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._db.sql(in_duckdb(sql)).to_arrow_table().to_pylist()
        return rows


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=8)
@given(seed=st.integers(0, 1 << 30))
def test_windows_kept_by_keys_have_the_rows_of_a_plain_count(shape: str, seed: int) -> None:
    kept = Kept(seed, shape)
    assert kept.plan.reason == ""
    assert bool(kept.plan.spans) is ("sessions" not in shape and "of a user" not in shape)
    assert not any(kept.faults())
    for _ in range(8):
        kept.step()
        assert not any(kept.faults()), kept.sql


@pytest.mark.parametrize("mistake", _MISTAKES)
def test_window_rule_with_a_mistake_is_found_wrong(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, right, wrong = _MISTAKES[mistake]
    original = time_windows.without_time_windows

    def broken(*arguments: Any) -> time_windows.Plain:
        plain = original(*arguments)
        assert right in plain.sql, plain.sql
        return replace(plain, sql=plain.sql.replace(right, wrong))

    monkeypatch.setattr(planning, "without_time_windows", broken)
    assert any(_fails(shape, seed) for seed in range(40))


@pytest.mark.parametrize("shape", ["tumbling", "hopping"])
def test_rows_are_read_for_the_whole_size_of_the_last_window(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    between = time_windows.Span.between

    def short(span: time_windows.Span, least: int, greatest: int) -> Any:
        return between(replace(span, window=replace(span.window, size=0)), least, greatest)

    monkeypatch.setattr(time_windows.Span, "between", short)

    assert any(_fails(shape, seed) for seed in range(40))


@pytest.mark.parametrize("shape", SHAPES)
def test_windows_without_old_images_are_found_wrong(shape: str) -> None:
    assert any(_fails(shape, seed, without_old_images=True) for seed in range(40))


def _fails(shape: str, seed: int, *, without_old_images: bool = False) -> bool:
    kept = Kept(seed, shape, without_old_images=without_old_images)
    for _ in range(8):
        if any(kept.faults()):
            return True
        kept.step()
    return any(kept.faults())


@pytest.mark.parametrize(
    ("grouped", "reason"),
    [
        ("session_window(at, '5 seconds')", "without another grouped value"),
        ("1, session_window(at, '5 seconds')", "by the number of a column"),
        ("u, session_window(at, '5 seconds')", "sessions by an alias"),
        ("window(at, '1 month')", "duration is not fixed"),
        ("window(at + interval 1 day, '1 day')", "a computed time"),
        ("window(at, '1 day', '1 second')", "windows have the same row"),
        ("window(at, '1 day', '2 days')", "slide is not between"),
        ("window(id, '1 day')", "a computed time"),
        ("window(at, '1 day'), window(at, '2 days')", "not the only one of its GROUP BY"),
    ],
)
def test_windows_that_no_plan_covers_are_recomputed_with_the_reason(grouped: str, reason: str) -> None:
    sql = f"select user_id as u, count(*) as n from events group by {grouped}"

    assert reason in plan_view("v", sql, {"events": _EVENTS}).reason
