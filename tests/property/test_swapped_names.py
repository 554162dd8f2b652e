"""Two tables exchange names, at any moment between checks of the catalog, while the stream is behind by any amount.

The oracle is a list: the rows of each table now. The topics and snapshots here are the simplest that keep their
promises: a row goes to the topic of the name that its table had then, and a snapshot, which begins after the LSN that
the DDL watch names, replaces a topic by the rows of the table as of its LSN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal, NamedTuple, get_args

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc.capture.ddl_watch import DdlWatch
from cdc.config.settings import Ddl
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.relation import Relation, ReplicaIdentity
from cdc.model.table_facts import CatalogScope, ColumnFacts, LeafFacts, TableFacts
from cdc.progress.recorded_catalog import RecordedCatalog
from cdc.replication.catalog_facts import Digest
from tests.fixtures.servers.manual_clock import ManualClock
from tests.unit.cdc.test_ddl_watch import NotingLog, NotingObserver

Step = Literal["swap", "move", "insert", "delete", "check", "settle", "deliver", "restart"]
_STEPS: Final[tuple[Step, ...]] = (*get_args(Step), "deliver")  # the stream is behind, but not always farther
_OIDS: Final = (11, 12)


class Change(NamedTuple):
    """A committed row: deleted or inserted, under the name that the table had."""

    lsn: int
    oid: int
    name: str
    key: int
    there: bool


class World:
    """A source with two tables, a topic for each name, and capture with its DDL watch. It is a catalog as well."""

    def __init__(self) -> None:
        self.lsn = 100
        self.tables = {11: "blue", 12: "green"}
        self.rows: dict[int, set[int]] = {11: set(), 12: set()}
        self.changes: list[Change] = []
        self.delivered = 0
        self.renamed: list[tuple[int, int]] = []
        self.described: dict[int, int] = {}
        self.topics: dict[str, set[int]] = {}
        self.snapshots: dict[str, tuple[int, int]] = {}
        self.begun: list[tuple[str, int, int, frozenset[int]]] = []
        self.clock = ManualClock()
        self.records = RecordedCatalog(None, {}, {})
        self.start()

    def start(self) -> None:
        self.log = NotingLog()
        self.watch = DdlWatch(
            Ddl(policy="resnapshot"), self.records, self.log, self.clock, epoch=1, observer=NotingObserver(),
            accepted=dict, wanted=lambda _: True,
        )  # fmt: skip
        self.watch.read_again = self.read_again
        self.described = {}
        self.scope_now: CatalogScope | None = self.records.scope
        self.check()

    def commit(self) -> None:
        """What is noted is durable; the next start reads it."""
        self.watch.write(StreamPosition(Lsn(self.lsn)))
        tables = dict(self.records.tables)
        for note in self.log.notes:
            for table, record in note.items():
                if record is None:
                    tables.pop(table, None)
                else:
                    tables[table] = record
        self.log.notes.clear()
        self.records = RecordedCatalog(self.scope_now, tables, {})
        self.watch.written()

    # What happens on the source.

    def swap(self) -> None:
        self.tables = {11: self.tables[12], 12: self.tables[11]}
        self.lsn += 1
        self.renamed += [(self.lsn, oid) for oid in _OIDS]

    def move(self) -> None:
        """The first table gets a name of its own, or its former one if that is free."""
        here = self.tables[11]
        away = f"{here}_old" if not here.endswith("_old") else here[:-4]
        if away not in self.tables.values():
            self.tables = {**self.tables, 11: away}
            self.renamed.append((self.lsn + 1, 11))
        self.lsn += 1

    def change(self, oid: int, key: int, *, there: bool) -> None:
        self.lsn += 1
        (self.rows[oid].add if there else self.rows[oid].discard)(key)
        self.changes.append(Change(self.lsn, oid, self.tables[oid], key, there))

    # What capture does.

    def check(self) -> None:
        self.clock.now_s += 1
        self.watch.check(self)
        self.watch.settle()
        self.commit()

    def settle(self) -> None:
        """The check was put off, because the last one took long."""
        self.watch.settle()
        self.commit()

    def deliver(self) -> None:
        """The next change of the stream, and the snapshots that began before it."""
        change = self.changes[self.delivered] if self.delivered < len(self.changes) else None
        self.take_snapshots(self.lsn + 1 if change is None else change.lsn)
        if change is None:
            return
        # pgoutput describes a table before its first row in a session, and again after each rename.
        since = self.described.get(change.oid)
        if since is None or any(oid == change.oid and since < lsn < change.lsn for lsn, oid in self.renamed):
            relation = Relation(change.oid, "public", change.name, ReplicaIdentity.DEFAULT, ())
            self.watch.shown(relation, Lsn(change.lsn))
        self.described[change.oid] = change.lsn
        topic = self.topics.setdefault(change.name, set())
        (topic.add if change.there else topic.discard)(change.key)
        self.delivered += 1
        self.commit()

    def take_snapshots(self, before: int) -> None:
        for name, _, lsn, rows in [one for one in self.begun if one[2] < before]:
            self.topics[name] = set(rows)
            self.begun = [one for one in self.begun if not (one[0] == name and one[2] <= lsn)]

    def read_again(self, facts: TableFacts, lsn: int, *, sweep: bool) -> bool:
        oid, began = self.snapshots.get(facts.name, (0, 0))
        if oid == facts.oid and began >= lsn:
            return True
        if self.tables[facts.oid] == facts.name:  # otherwise no rows can be read: the next check knows better
            self.lsn += 1
            self.snapshots[facts.name] = (facts.oid, self.lsn)
            self.begun.append((facts.name, facts.oid, self.lsn, frozenset(self.rows[facts.oid])))
        return False

    # The catalog; see `cdc.capture.ddl_watch.Catalog`.

    def one_snapshot(self) -> AbstractContextManager[None]:
        return nullcontext()

    def version(self) -> str:
        return f"{self.tables}"

    def scope(self) -> CatalogScope:
        self.scope_now = CatalogScope(lsn=self.lsn, xid=700, all_tables=False, schemas=(), selected=("public.*",))
        return self.scope_now

    def digests(self) -> Mapping[int, Digest]:
        return {oid: Digest(f"public.{name}", oid) for oid, name in self.tables.items()}

    def facts(self, oids: Sequence[int]) -> Mapping[int, TableFacts]:
        return {oid: self._facts(oid) for oid in oids}

    def _facts(self, oid: int) -> TableFacts:
        column, leaf = ColumnFacts(1, "id", 23, -1, 5, 0, False, True), LeafFacts(oid, "public", "x", oid, True)
        return TableFacts(oid, "public", self.tables[oid], 1, 5, (column,), (leaf,))

    def taken(self, names: Sequence[str]) -> Collection[str]:
        return ()

    def names(self, oids: Sequence[int]) -> Mapping[int, str]:
        return {}

    def end_of_wal(self) -> Lsn:
        return Lsn(self.lsn)


def run(steps: Sequence[tuple[Step, int, int]]) -> World:
    world = World()
    for step, table, key in steps:
        if step in {"insert", "delete"}:
            world.change(_OIDS[table], key, there=step == "insert")
        elif step == "restart":
            world.start()
        else:
            getattr(world, step)()
    for _ in range(4):
        while world.delivered < len(world.changes):
            world.deliver()
        world.check()
        world.deliver()
    return world


_BACK_FOR_A_TIME: Final[list[tuple[Step, int, int]]] = [
    ("insert", 0, 0), ("swap", 0, 0), ("check", 0, 0), ("swap", 0, 0), ("insert", 0, 1), ("swap", 0, 0),
]  # fmt: skip
"""The stream shows the table under its first name before and after the check that first has the other one."""


@settings(max_examples=1500)
@example(_BACK_FOR_A_TIME)
@given(st.lists(st.tuples(st.sampled_from(_STEPS), st.integers(0, 1), st.integers(0, 3)), max_size=40))
def test_topics_end_with_the_rows_of_the_tables_that_have_their_names(steps: list[tuple[Step, int, int]]) -> None:
    world = run(steps)

    for oid, name in world.tables.items():
        assert world.topics.get(name, set()) == world.rows[oid], name
