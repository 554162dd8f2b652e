"""Random DDL on all tables while capture streams and looks at the catalog all the time.

Capture must neither stop nor wait for an operator, and when the storm is over, each topic has the rows of its table.
The oracle is PostgreSQL. ``TAILRACE_DDL_STORM_S`` sets how long it lasts.
"""

from __future__ import annotations

import json
import os
import random
import time
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from tests.fixtures.capture.snapshot_waits import INITIAL
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections

_STORM_S: Final = float(os.environ.get("TAILRACE_DDL_STORM_S", "25"))
_SEED: Final = int(os.environ.get("TAILRACE_DDL_STORM_SEED", "0")) or random.randrange(1 << 31)
_SECTIONS: Final[Sections] = {**INITIAL, "capture": {"catalog_check_s": 0.1}}
_NAMES: Final = tuple(f"s{number}" for number in range(6))
_MADE: Final = "create table {} (id int primary key, v text not null, n int)"
_GOING_ON: Final = {"CATCHING_UP", "RUNNING", "STARTING", "WAITING"}


class Storm:
    """Draws statements. Those that PostgreSQL refuses, such as a second primary key, are passed over."""

    def __init__(self, session: psycopg.Connection[Any], draw: random.Random) -> None:
        self._session = session
        self._draw = draw
        self.ran: list[str] = []
        self._number = 0

    def step(self) -> None:
        """Some DML, then one or two changes in one transaction."""
        for _ in range(self._draw.randrange(4)):
            self._run(self._rows())
        changes: list[Callable[[str], list[str]]] = [
            self._filled, self._plain, self._dropped_column, self._typed, self._rewritten, self._renamed, self._swapped,
            self._recreated, self._without_key, self._with_key, self._with_new_key, self._unlogged, self._logged,
            self._identity, self._vacuumed, self._hidden, self._key_renamed,
        ]  # fmt: skip
        self._run(*self._draw.choice(changes)(self._draw.choice(_NAMES)))

    def calm(self) -> None:
        """Give each table a form that can be captured, and the columns of its topic."""
        for name in _NAMES:
            self._run(f"alter table if exists {name}_away rename to {name}")
            self._run(*self._logged(name))
            self._run(f"alter table {name} rename column other to id")
            self._run(f"alter table {name} drop column key cascade")
            self._run(f"alter table {name} replica identity full")  # so that rows without a key can be deleted
            self._run(f"delete from {name} a using {name} b where a.id = b.id and a.ctid < b.ctid")
            self._run(*self._with_key(name))
            self._run(f"alter table {name} replica identity default")
            self._run(_MADE.format(name))
            self._run(f"insert into {name} values (1, 'calm') on conflict do nothing")

    def _run(self, *statements: str) -> None:
        try:
            with self._session.transaction():
                self._session.execute("set local lock_timeout = '5s'")
                for statement in statements:
                    self._session.execute(statement.encode())
        except psycopg.Error:
            return
        self.ran += statements

    def _new(self) -> int:
        self._number += 1
        return self._number

    def _rows(self) -> str:
        name, first = self._draw.choice(_NAMES), self._draw.randrange(50)
        rows = f"select i, 'i' || i from generate_series({first}, {first + 9}) i"
        return self._draw.choice([
            f"insert into {name} (id, v) {rows} on conflict do nothing",
            f"update {name} set v = v || 'u', n = {first} where id % 7 = {first % 7}",
            f"delete from {name} where id % 11 = {first % 11}",
        ])  # fmt: skip

    def _filled(self, name: str) -> list[str]:
        return [f"alter table {name} add column c{self._new()} int not null default {self._number}"]

    def _plain(self, name: str) -> list[str]:
        return [f"alter table {name} add column c{self._new()} text"]

    def _dropped_column(self, name: str) -> list[str]:
        found = self._session.execute(
            "select attname from pg_attribute where attrelid = to_regclass(%s) and attname like 'c%%' and attnum > 3",
            (name,),
        ).fetchall()
        return [f"alter table {name} drop column {self._draw.choice(found)[0]}"] if found else []

    def _typed(self, name: str) -> list[str]:
        kind = self._draw.choice(["int", "bigint", "text"])
        return [f"alter table {name} alter column n type {kind} using n::{kind}"]

    def _rewritten(self, name: str) -> list[str]:
        return [f"alter table {name} alter column v type text using v || 'w'"]

    def _renamed(self, name: str) -> list[str]:
        there = self._session.execute("select to_regclass(%s) is null", (f"{name}_away",)).fetchone()
        return [f"alter table {name} rename to {name}_away" if there and there[0]
                else f"alter table {name}_away rename to {name}"]  # fmt: skip

    def _swapped(self, name: str) -> list[str]:
        other = self._draw.choice(_NAMES)
        return [f"alter table {name} rename to swapping", f"alter table {other} rename to {name}",
                f"alter table swapping rename to {other}"]  # fmt: skip

    def _recreated(self, name: str) -> list[str]:
        return [f"drop table {name}", _MADE.format(name), f"insert into {name} values (7, 'new')"]

    def _without_key(self, name: str) -> list[str]:
        return [f"alter table {name} drop constraint {self._constraint(name)}"]

    def _constraint(self, name: str) -> str:
        row = self._session.execute(
            "select conname from pg_constraint where conrelid = to_regclass(%s) and contype = 'p'", (name,)
        ).fetchone()
        return row[0] if row else "none"

    def _with_key(self, name: str) -> list[str]:
        return [f"alter table {name} add primary key (id)"]

    def _with_new_key(self, name: str) -> list[str]:
        return [f"alter table {name} add column key bigint generated always as identity primary key"]

    def _unlogged(self, name: str) -> list[str]:
        return [f"alter table {name} set unlogged"]

    def _logged(self, name: str) -> list[str]:
        return [f"alter table {name} set logged"]

    def _identity(self, name: str) -> list[str]:
        return [f"alter table {name} replica identity {self._draw.choice(['full', 'default', 'nothing'])}"]

    def _vacuumed(self, name: str) -> list[str]:
        return [f"cluster {name} using {self._constraint(name)}"]

    def _hidden(self, name: str) -> list[str]:
        return [_MADE.format(f"{name}_more"), f"insert into {name}_more values (1, 'x')", f"drop table {name}_more"]

    def _key_renamed(self, name: str) -> list[str]:
        return [f"alter table {name} rename column {self._draw.choice(['id to other', 'other to id'])}"]


def differs(capture: CaptureSite, name: str) -> str:
    """How the topic of a table differs from it, in keys and in the values of all its columns; empty if it does not."""
    topic = {row["id"]: row for row in capture.log().fold(capture.topic(name)).values()}
    rows = {row["id"]: row for (row,) in capture.query(f"select to_jsonb(t) from {name} t")}
    if topic.keys() != rows.keys():
        return f"{name}: missing {sorted(rows.keys() - topic.keys())}, too many {sorted(topic.keys() - rows.keys())}"
    for key, row in rows.items():
        for column, value in row.items():
            if topic[key].get(column) != value:
                return f"{name}: row {key} has {column} = {value!r}, its topic {json.dumps(topic[key])}"
    return ""


def _still_works(daemon: Daemon, storm: Storm) -> None:
    assert daemon.alive, "\n".join([daemon.log_text()[-5000:], *storm.ran[-60:]])
    assert daemon.status().get("state", "RUNNING") in _GOING_ON, daemon.log_text()[-6000:]


@pytest.mark.timeout(600 + 2 * _STORM_S)
def test_random_ddl_neither_stops_capture_nor_leaves_a_topic_that_differs(capture: CaptureSite) -> None:
    print(f"seed {_SEED}")
    capture.sql("create table always (id int primary key)")  # one table must be left, or a start refuses
    capture.sql(*[_MADE.format(name) for name in _NAMES], *[f"insert into {name} values (1, 'a')" for name in _NAMES])
    daemon = capture.running(_SECTIONS)
    with capture.connect() as session:
        storm = Storm(session, random.Random(_SEED))
        end_s = time.monotonic() + _STORM_S
        while time.monotonic() < end_s or len(storm.ran) <= _STORM_S:
            storm.step()
            _still_works(daemon, storm)
        storm.calm()
    left = dict.fromkeys(_NAMES, "not looked at")

    def equal() -> bool:
        _still_works(daemon, storm)
        for name in list(left):
            left[name] = differs(capture, name)
            if not left[name]:
                del left[name]
        return not left

    try:
        until(equal, "the topics have the rows of their tables", within_s=120)
    except TimeoutError:
        status = daemon.status()
        pytest.fail(f"seed {_SEED}: {left}\nleft out {status.get('left_out')}\n" + "\n".join(storm.ran[-300:]))
    assert len(storm.ran) > _STORM_S
    until(lambda: daemon.status().get("left_out") == [], "no table is left out")
