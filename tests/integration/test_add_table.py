"""ALTER PUBLICATION ADD TABLE with open transactions: no row is missing, in any order of steps (A8).

Rows that a transaction wrote before the ADD are not in the stream, however late it commits. Many tables go through
their schedules concurrently, on one capture; TAILRACE_SCHEDULES sets how many.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import psycopg

from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.capture.topic_log import TopicLog
    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections

_SCHEDULES: Final = int(os.environ.get("TAILRACE_SCHEDULES", "40"))
_AT_ONCE: Final = 10  # tables, each with two sessions
_READ: Final[Sections] = {"snapshot": {"mode": "initial"}, "capture": {"catalog_check_s": 0.1}}

Step: TypeAlias = tuple[str, str]
"""Who does it (open: a transaction over the ADD; new: one statement; dba), and the statement."""


@dataclass
class Schedule:
    """One table's steps, in an order that is drawn; the sessions are made when they are needed."""

    table: str
    steps: list[Step]
    sessions: dict[str, psycopg.Connection] = field(default_factory=dict)

    def step(self, dsn: str) -> None:
        """Do the next one."""
        who, statement = self.steps.pop(0)
        if who not in self.sessions:
            self.sessions[who] = psycopg.connect(dsn, autocommit=True)
        self.sessions[who].execute(statement.encode())

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()


def drawn(chance: random.Random, table: str, publication: str) -> Schedule:
    """A row in an open transaction before ADD, after ADD in the same, in a new one; and what else may be between."""
    before = [("open", "begin"), ("open", f"insert into {table} values (1, 'before')")]
    before += chance.sample(
        [
            ("open", f"update {table} set v = 'by the open one' where id = 11"),
            ("open", f"delete from {table} where id = 12"),
            ("new", f"insert into {table} values (20, 'committed')"),
        ],
        chance.randint(0, 3),
    )
    opened = [("open", f"insert into {table} values (2, 'after')")]
    opened += [("open", f"update {table} set v = 'twice' where id = 1")] * chance.randint(0, 1)
    opened.append(("open", "commit" if chance.random() < 0.85 else "rollback"))
    new = [("new", f"insert into {table} values (3, 'new')"), ("new", f"update {table} set v = 'new' where id = 10")]
    behind = _merged(chance, opened, new[: chance.randint(1, 2)])
    return Schedule(table, [*before, ("dba", f"alter publication {publication} add table {table}"), *behind])


def _merged(chance: random.Random, one: list[Step], other: list[Step]) -> list[Step]:
    """Both in their own order, shuffled into each other."""
    picks = [0] * len(one) + [1] * len(other)
    chance.shuffle(picks)
    sides: tuple[Iterator[Step], Iterator[Step]] = (iter(one), iter(other))
    return [next(sides[pick]) for pick in picks]


def test_no_row_is_missing_of_a_table_that_is_added_under_open_transactions(capture: CaptureSite) -> None:
    chance = random.Random(seed())
    capture.sql("create table first (id int primary key)")
    capture.running(_READ).stop()
    daemon = capture.running({**_READ, "source": {"create": False}})  # else capture would add them by itself
    tables = [f"added_{number}" for number in range(_SCHEDULES)]

    for begin in range(0, _SCHEDULES, _AT_ONCE):
        run(capture, chance, tables[begin : begin + _AT_ONCE])
    until(lambda: complete(daemon) >= {f"public.{table}" for table in tables}, "all are read", within_s=120)
    log = capture.settled(daemon)

    missing = {table: difference for table in tables if (difference := compared(capture, log, table))}
    assert missing == {}, f"seed {seed()}"
    copied = [event for event in log.events if event.op == "r" and event.after["v"] == "before"]
    assert copied, "no row was missing in the stream: the test is weaker than it says"


def run(capture: CaptureSite, chance: random.Random, tables: list[str]) -> None:
    """These tables' schedules, step by step in a random order."""
    for table in tables:
        capture.transaction(
            f"create table {table} (id int primary key, v text)",
            f"insert into {table} values (10, 'old'), (11, 'old'), (12, 'old')",
        )
    schedules = [drawn(chance, table, capture.slot) for table in tables]
    try:
        while left := [schedule for schedule in schedules if schedule.steps]:
            chance.choice(left).step(capture.dsn)
    finally:
        for schedule in schedules:
            schedule.close()


def complete(daemon: Daemon) -> set[str]:
    """Tables whose snapshot is over."""
    return {one["table"] for one in daemon.status().get("snapshots", []) if one["state"] == "complete"}


def compared(capture: CaptureSite, log: TopicLog, table: str) -> str:
    """How the topic differs from the table; empty: not at all."""
    topic = log.fold(capture.topic(table))
    folded = sorted((row["id"], row["v"]) for row in topic.values())
    rows = capture.query(f"select id, v from {table} order by id")
    return "" if folded == rows else f"the table has {rows}, the topic {folded}"
