"""Simulates the parts of PostgreSQL that capture sees: WAL, a slot, a publication, walsenders.

The slot never sends confirmed WAL again. A walsender sends whole transactions in commit order. It starts with the first
commit record at or above the requested position, but not below the confirmed one (`Source.first_to_send` in
tests/property/histories.py has the same rule). After a crash of the server, the slot has its last saved position.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cdc.errors import SlotHeld, SourceGap, SourceUnreachable
from cdc.lsn import Lsn
from cdc.model.relation import ReplicaIdentity
from cdc.model.timeline import TimelineSwitch
from cdc.model.type_facts import TypeFacts
from cdc.replication.catalog_queries import VISIBLE_TRANSACTIONS
from cdc.replication.catalog_watch import _CHECK, _FINGERPRINT, _NOW, _TABLES
from cdc.replication.publication import Ensured, PublicationFacts
from cdc.replication.slot import SlotFacts
from cdc.replication.stream import ServerIdentity
from cdc.replication.table_shape import SourceColumn, SourceTable
from cdc.wire.pgoutput import Begin, Commit
from tests.fixtures.capture import pgoutput as server
from tests.property.histories import FIRST_LSN, LEFT_OUT, Step, change_of, relation_of
from tests.simulation.world import World

CAPTURED: Final = (1, 2)
SLOT: Final = "cdc_shop"
_TIME_US: Final = 1_700_000_000_000_000
_ORPHANED_S: Final = 5.0  # wal_sender_timeout of a walsender whose client vanished


@dataclass(slots=True)
class Committed:
    """A transaction in the WAL. `published` are the tables in the publication when it committed."""

    commit_lsn: int
    end_lsn: int
    xid: int
    steps: tuple[Step, ...]
    published: frozenset[int]
    frames: list[tuple[Step, bytes, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.frames = [
            (step, server.frame(relation_of(step)), server.frame(change_of(step)))
            for step in self.steps
            if step.oid in self.published
        ]


class Postgres:
    """A simulated server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.transactions: list[Committed] = []
        self.wal_end = FIRST_LSN
        self.system_identifier, self.timeline = "1", 1
        self.switches: list[TimelineSwitch] = []
        self.publication_oid = 0
        self.members = dict.fromkeys((*CAPTURED, LEFT_OUT), 0)
        self.slot_there = False
        self.slot_from = 0
        self.confirmed = self.saved = 0
        self.walsender: Walsender | None = None
        self.pids = 0
        self.down_until_s = 0.0
        self.told_confirmed: Callable[[int], None] = lambda _: None

    def commit(self, steps: Sequence[Step], *, gap: int, size: int) -> None:
        """Commit a transaction; its commit record has `size` bytes and starts `gap` bytes after the previous WAL."""
        published = frozenset(oid for oid in self.members if self.publication_oid)
        lsn = self.wal_end + gap
        self.wal_end = lsn + size
        number = len(self.transactions) + 700
        self.transactions.append(Committed(lsn, self.wal_end, number, tuple(steps), published))

    def write_elsewhere(self, size: int) -> None:
        """Write WAL of other tables or databases."""
        self.wal_end += size

    def save(self) -> None:
        """Save the position of the slot."""
        self.saved = self.confirmed

    def restart(self, *, crashed: bool, for_s: float = 0.0) -> None:
        """Restart; every connection breaks."""
        self.hang_up()
        self.down_until_s = self.world.clock.now_s + for_s
        if crashed:
            self.confirmed = self.saved
        else:
            self.save()

    def promote(self) -> None:
        """Promote a standby that has everything."""
        self.restart(crashed=True)
        self.switches.append(TimelineSwitch(self.timeline, Lsn(self.wal_end)))
        self.timeline += 1

    def leave_the_history(self) -> None:
        """Promote a standby whose history was never on the timeline of the log."""
        self.restart(crashed=True)
        self.switches.clear()
        self.timeline += 1

    def hang_up(self) -> None:
        """End the walsender and its connection."""
        if self.walsender is not None:
            self.walsender.over = True
            self.walsender = None

    def reachable(self) -> None:
        """Raise if the server is down."""
        if self.world.clock.now_s < self.down_until_s:
            raise SourceUnreachable("PostgreSQL is starting up")

    def holder(self) -> Walsender | None:
        """Return the walsender that has the slot; one without a client ends after a while."""
        held = self.walsender
        if held is not None and held.orphaned_s and self.world.clock.now_s >= held.orphaned_s:
            self.hang_up()
        return self.walsender

    def stream(self, at: Lsn) -> Walsender:
        """START_REPLICATION."""
        self.reachable()
        if not self.slot_there:
            raise SourceGap(f'cannot stream from slot "{SLOT}": it does not exist', slot=SLOT)
        held = self.holder()
        if held is not None:
            raise SlotHeld(f"slot {SLOT!r} is active", slot=SLOT, pid=held.pid)
        self.pids += 1
        self.walsender = Walsender(self, self.pids, at)
        return self.walsender

    def confirm(self, lsn: int) -> None:
        """Handle a standby status, which moves the slot only forward."""
        self.told_confirmed(lsn)
        self.confirmed = max(self.confirmed, lsn)

    def publication(self) -> PublicationFacts | None:
        """See `cdc.startup.slot_setup.SourceServer`."""
        self.reachable()
        if not self.publication_oid:
            return None
        return PublicationFacts(
            name=SLOT,
            oid=self.publication_oid,
            all_tables=False,
            via_root=True,
            insert=True,
            update=True,
            delete=True,
            truncate=True,
            owner="cdc",
            owned=True,
            tables=dict(self.members),
            filtered=frozenset(),
            columns={},
        )

    def publish(self, tables: Sequence[SourceTable]) -> Ensured:
        """See `cdc.startup.slot_setup.SourceServer`."""
        self.reachable()
        created = not self.publication_oid
        if created:
            self.pids += 1
            self.publication_oid = self.pids
        added = [table for table in tables if not self.members.get(table.oid)]
        for table in added:
            self.pids += 1
            self.members[table.oid] = self.pids
        facts = self.publication()
        assert facts is not None
        return Ensured(facts, created, tuple(added))

    def slot(self) -> SlotFacts:
        """See `cdc.startup.slot_setup.SourceServer`."""
        self.reachable()
        if not self.slot_there:
            return SlotFacts(name=SLOT, exists=False, slot_type="")
        held = self.holder()
        return SlotFacts(
            name=SLOT,
            plugin="pgoutput",
            database="d",
            active_pid=held.pid if held is not None else None,
            confirmed_flush_lsn=Lsn(self.confirmed),
            wal_status="reserved",
        )

    def make_slot(self) -> SlotFacts:
        """See `cdc.startup.slot_setup.SourceServer`."""
        self.reachable()
        if self.slot_there:
            raise SourceUnreachable("another session made the slot just now")
        self.slot_there = True
        self.confirmed = self.saved = self.slot_from = self.wal_end
        return self.slot()

    def drop_slot(self) -> None:
        """End the walsender and drop the slot."""
        self.hang_up()
        self.slot_there = False

    def republish(self) -> None:
        """Drop the publication and create it again."""
        self.pids += 1
        self.publication_oid = self.pids

    def restore(self, *, below: int) -> bool:
        """Replace the server with an older copy, whose WAL ends below; return False if no such copy exists."""
        kept = [one for one in self.transactions if one.end_lsn < below]
        wal_end = kept[-1].end_lsn if kept else FIRST_LSN
        if wal_end >= below:
            return False
        self.restart(crashed=True)
        self.transactions, self.wal_end = kept, wal_end
        self.switches = [switch for switch in self.switches if switch.at <= wal_end]
        self.timeline = 1 + len(self.switches)
        self.confirmed = self.saved = min(self.confirmed, wal_end)
        return True

    def first_from(self, lsn: int) -> int:
        """Return the index of the first transaction whose commit record starts at or above `lsn`."""
        return bisect_left(self.transactions, lsn, key=lambda one: one.commit_lsn)


@dataclass(slots=True)
class ServerDoor:
    """`cdc.startup.slot_setup.SourceServer` of one process."""

    postgres: Postgres

    def publication(self) -> PublicationFacts | None:
        return self.postgres.publication()

    def existing(self, oids: Collection[int]) -> frozenset[int]:
        self.postgres.reachable()
        return frozenset(oids)

    def publish(self, tables: Sequence[SourceTable]) -> Ensured:
        return self.postgres.publish(tables)

    def slot(self) -> SlotFacts:
        return self.postgres.slot()

    def make_slot(self) -> SlotFacts:
        return self.postgres.make_slot()

    def wal_end(self) -> Lsn:
        self.postgres.reachable()
        return Lsn(self.postgres.wal_end)

    def timeline(self) -> int:
        self.postgres.reachable()
        return self.postgres.timeline

    def history(self, timeline: int) -> list[TimelineSwitch]:
        self.postgres.reachable()
        return [switch for switch in self.postgres.switches if switch.timeline < timeline]


class Walsender:
    """Both ends of a `cdc.contracts.ReplicationStream`."""

    def __init__(self, postgres: Postgres, pid: int, at: int) -> None:
        self.postgres = postgres
        self.pid = pid
        self.over = False
        self.orphaned_s = 0.0
        self.received = at
        self.identity = ServerIdentity(
            system_identifier=postgres.system_identifier,
            timeline=postgres.timeline,
            flushed=Lsn(postgres.wal_end),
            database="d",
            backend_pid=pid,
        )
        self._next = postgres.first_from(max(at, postgres.confirmed))
        self._frames: list[bytes] = []
        self._shapes: dict[int, int] = {}
        self._inside = False
        self._fresh = True

    def orphan(self) -> None:
        """Lose the client, which the server notices at once or by the timeout."""
        if self.over:
            return
        world = self.postgres.world
        if world.dice.random() < 0.5:
            self.postgres.hang_up()
        else:
            world.seen["slot held by nobody"] += 1
            self.orphaned_s = world.clock.now_s + _ORPHANED_S

    def read(self, wait_s: float) -> list[bytes]:
        world = self.postgres.world
        world.clock.now_s += 0.001
        if self.over:
            raise SourceUnreachable("PostgreSQL ended the stream")
        dice = world.dice
        count = dice.choice((0, 1, 3, 8, 40))
        frames: list[bytes] = []
        while len(frames) < count and self._fill():
            take = count - len(frames)
            if dice.random() < (0.5 if self._fresh else 0.1):
                frames.append(self._keepalive())
            self._fresh = False
            frames += self._frames[:take]
            del self._frames[:take]
            self._inside = bool(self._frames)
        if not frames:
            world.clock.now_s += wait_s
            if dice.random() < 0.5:
                frames = [self._keepalive()]
        self._note(frames)
        return frames

    def confirm(self, lsn: Lsn) -> None:
        if self.over:
            raise SourceUnreachable("PostgreSQL ended the stream")
        if lsn > self.received:
            self.postgres.world.seen["log ahead of the stream"] += 1
        self.postgres.confirm(min(lsn, self.received))

    def request_reply(self) -> None:
        """Do nothing: a keepalive comes anyway."""

    def close(self) -> None:
        """Close the stream in an orderly way."""
        if not self.over:
            self.postgres.hang_up()

    def _fill(self) -> bool:
        if self._frames:
            return True
        transactions = self.postgres.transactions
        if self._next >= len(transactions):
            return False
        one = transactions[self._next]
        self._next += 1
        frames = [server.frame(Begin(Lsn(one.commit_lsn), _TIME_US, one.xid))]
        for step, relation, change in one.frames:
            if self._shapes.get(step.oid) != step.shape:
                self._shapes[step.oid] = step.shape
                frames.append(relation)
            frames.append(change)
        frames.append(server.frame(Commit(Lsn(one.commit_lsn), Lsn(one.end_lsn), _TIME_US)))
        self._frames = frames
        return True

    def _keepalive(self) -> bytes:
        """Return the position of the walsender: before the next transaction, or the end of the WAL if all are sent."""
        transactions = self.postgres.transactions
        if self._inside or self._frames:
            self.postgres.world.seen["keepalive inside a transaction or in front of it"] += 1
            at = transactions[self._next - 1].commit_lsn
        elif self._next < len(transactions):
            at = transactions[self._next].commit_lsn
        else:
            at = self.postgres.wal_end
        return server.keepalive(at)

    def _note(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            if frame[0] == 107:
                self.received = max(self.received, int.from_bytes(frame[1:9], "big"))
            elif frame[25:26] == b"C":
                self.received = max(self.received, int.from_bytes(frame[35:43], "big"))


@dataclass(slots=True)
class CatalogDoor:
    """`cdc.capture.table_planner.Catalog`."""

    postgres: Postgres

    def key_columns(self, oid: int, wanted: Sequence[str]) -> tuple[str, ...]:
        self.postgres.reachable()
        return ("id",)

    def ancestors(self, oid: int) -> Sequence[str]:
        self.postgres.reachable()
        return ()

    def generated_columns(self, oid: int) -> Sequence[str]:
        self.postgres.reachable()
        return ()

    def types(self, oids: Sequence[int]) -> dict[int, TypeFacts]:
        self.postgres.reachable()
        return {}


@dataclass(slots=True)
class LookDoor:
    """The connection of the catalog watch; supports its five statements."""

    postgres: Postgres
    _rows: list[Any] = field(default_factory=list)

    def execute(self, statement: str, names: object = None) -> LookDoor:
        postgres = self.postgres
        postgres.reachable()
        if statement == _NOW:
            self._rows = [(str(Lsn(postgres.wal_end)),)]
        elif statement == VISIBLE_TRANSACTIONS:
            self._rows = [(f"{len(postgres.transactions)} {postgres.publication_oid} {postgres.members}",)]
        elif statement == _FINGERPRINT:
            self._rows = [(postgres.publication_oid, hash(tuple(sorted(postgres.members.items()))))]
        elif statement == _TABLES:
            there = bool(postgres.publication_oid)
            self._rows = [
                (oid, there and bool(postgres.members.get(oid)), postgres.members.get(oid, 0), f"public.t{oid}")
                for oid in CAPTURED
            ]
        else:
            assert statement == _CHECK
            at, oid = str(Lsn(postgres.confirmed)), postgres.publication_oid or None
            self._rows = [(at, at, "reserved", None, 0, postgres.slot_there, oid, oid is not None)]
        return self

    def fetchone(self) -> Any:
        return self._rows[0]

    def fetchall(self) -> list[Any]:
        return self._rows


def tables() -> list[SourceTable]:
    """Return the captured tables in their first shape."""
    columns = (
        SourceColumn("id", 23, -1, "integer", not_null=True, generated=False, toastable=False),
        SourceColumn("c0", 25, -1, "text", not_null=False, generated=False, toastable=True),
    )
    return [
        SourceTable(
            oid=oid,
            namespace="public",
            name=f"t{oid}",
            kind="r",
            persistence="p",
            replica_identity=ReplicaIdentity.DEFAULT,
            key=("id",),
            key_problem="",
            keyless=False,
            columns=columns,
        )
        for oid in CAPTURED
    ]
