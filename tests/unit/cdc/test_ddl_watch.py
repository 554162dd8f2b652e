"""The DDL watch: it reads what changed, writes what changed, and stops only for findings that are durable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, get_args

import pytest

from cdc.capture.ddl_watch import DdlWatch
from cdc.config.settings import Ddl
from cdc.errors import BrokerUnreachable, SourceRefused
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.ddl_finding import OPEN_MAX, merge_findings
from cdc.model.relation import Relation, ReplicaIdentity
from cdc.model.table_facts import (
    AcceptedFindings,
    CatalogScope,
    ColumnFacts,
    DdlFinding,
    FindingKind,
    LeafFacts,
    TableFacts,
    TableRecord,
)
from cdc.model.visibility import widened
from cdc.progress.recorded_catalog import RecordedCatalog
from cdc.replication.catalog_facts import Digest
from tests.fixtures.servers.manual_clock import ManualClock

_AT = StreamPosition(Lsn(100))


@dataclass
class ScriptedCatalog:
    """Implements `cdc.capture.ddl_watch.Catalog`: tables by name, each with columns that were added with a default."""

    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    asked: list[list[int]] = field(default_factory=list)
    lsn: int = 1000
    takes_s: float = 0.0
    clock: ManualClock | None = None
    is_open: bool = False
    reads: list[tuple[str, bool]] = field(default_factory=list)
    oids: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def one_snapshot(self) -> Iterator[None]:
        self.is_open = True
        yield
        self.is_open = False

    def version(self) -> str:
        self._read("version")
        return f"{self.tables} {self.oids}"

    def scope(self) -> CatalogScope:
        self._read("scope")
        self.lsn += 10
        if self.clock is not None:
            self.clock.now_s += self.takes_s
        return CatalogScope(lsn=self.lsn, xid=700, all_tables=False, schemas=(), selected=("public.*",))

    def digests(self) -> dict[int, Digest]:
        self._read("digests")
        return {self._oid(name): Digest(f"public.{name}", hash(columns)) for name, columns in self.tables.items()}

    def facts(self, oids: Sequence[int]) -> dict[int, TableFacts]:
        self._read("facts")
        self.asked.append(sorted(oids))
        return {self._oid(name): self._facts(name) for name in self.tables if self._oid(name) in oids}

    def names(self, oids: Sequence[int]) -> Mapping[int, str]:
        self._read("names")
        return {}

    def taken(self, names: Sequence[str]) -> frozenset[str]:
        self._read("taken")
        return frozenset()

    def end_of_wal(self) -> Lsn:
        self.lsn += 10
        return Lsn(self.lsn)

    def _read(self, what: str) -> None:
        self.reads.append((what, self.is_open))

    def _oid(self, name: str) -> int:
        return self.oids.get(name, sum(name.encode()))

    def _facts(self, name: str) -> TableFacts:
        columns = [ColumnFacts(1, "id", 23, -1, 5, 0, False, True)]
        columns += [ColumnFacts(2 + n, c, 23, -1, 6, 0, True, True) for n, c in enumerate(self.tables[name])]
        oid = self._oid(name)
        return TableFacts(oid, "public", name, 1, 5, tuple(columns), (LeafFacts(oid, "public", name, oid, True),))


@dataclass
class NotingLog:
    """See `cdc.capture.ddl_watch.DdlLog`."""

    notes: list[dict[str, TableRecord | None]] = field(default_factory=list)

    def note(self, scope: CatalogScope, tables: Mapping[str, TableRecord | None]) -> None:
        self.notes.append(dict(tables))


@dataclass
class NotingObserver:
    """See `cdc.contracts.DdlObserver`."""

    told: list[DdlFinding] = field(default_factory=list)
    unsettled: list[DdlFinding] = field(default_factory=list)

    def ddl_found(self, told: Sequence[DdlFinding], unsettled: Sequence[DdlFinding]) -> None:
        self.told += told
        self.unsettled = list(unsettled)

    def ddl_accepted(self, table: str, count: int) -> None: ...


class Rig:
    """A watch after its first check and commit, over tables a and b."""

    def __init__(self, settings: Ddl = Ddl()) -> None:  # noqa: B008 - frozen
        self.clock = ManualClock()
        self.catalog = ScriptedCatalog({"a": (), "b": ()})
        self.log = NotingLog()
        self.observer = NotingObserver()
        self.accepted: dict[str, AcceptedFindings] | BrokerUnreachable = {}
        recorded = RecordedCatalog(None, {}, {})
        self.watch = DdlWatch(
            settings, recorded, self.log, self.clock, epoch=2, observer=self.observer, accepted=self._accepted
        )
        self.watch.check(self.catalog)
        self.commit()

    def commit(self) -> None:
        self.watch.write(_AT)
        self.watch.written()

    def look(self) -> None:
        self.clock.now_s += 1
        self.watch.settle()
        self.watch.check(self.catalog)

    def _accepted(self) -> Mapping[str, AcceptedFindings]:
        if isinstance(self.accepted, BrokerUnreachable):
            raise self.accepted
        return self.accepted


def test_facts_are_read_and_written_of_changed_tables_only() -> None:
    rig = Rig()
    rig.catalog.tables["b"] = ("d",)

    rig.look()
    rig.commit()
    rig.look()

    assert rig.catalog.asked == [[97, 98], [98]]
    assert [sorted(notes) for notes in rig.log.notes] == [["public.a", "public.b"], ["public.b"]]
    assert [one.table for one in rig.observer.told] == ["public.b"]
    assert not rig.watch.due(), "nothing more to write"


def test_every_check_reads_the_catalog_on_one_snapshot() -> None:
    rig = Rig()
    rig.catalog.tables["b"] = ("d",)

    rig.look()
    del rig.catalog.tables["a"]
    rig.look()

    assert {what for what, _ in rig.catalog.reads} == {"scope", "version", "digests", "facts", "names", "taken"}
    assert all(is_open for _, is_open in rig.catalog.reads)


def test_digests_are_read_only_after_a_transaction_has_ended() -> None:
    rig = Rig()
    rig.catalog.reads.clear()

    rig.look()
    assert [what for what, _ in rig.catalog.reads] == ["scope", "version"]
    rig.catalog.tables["b"] = ("d",)
    rig.look()

    assert [one.table for one in rig.observer.told] == ["public.b"]
    assert rig.observer.told[0].since_lsn == rig.catalog.lsn - 20, "since the check that read no digests"


def test_checks_take_a_fiftieth_of_the_time_at_most() -> None:
    rig = Rig()
    rig.catalog.clock, rig.catalog.takes_s = rig.clock, 2.0
    rig.look()
    began, looks = rig.clock.now_s, rig.catalog.lsn

    for _ in range(99):
        rig.clock.now_s += 1
        rig.watch.check(rig.catalog)
    assert rig.catalog.lsn == looks
    rig.clock.now_s = began + 101
    rig.watch.check(rig.catalog)

    assert rig.catalog.lsn > looks


@pytest.mark.parametrize("kind", get_args(FindingKind))
def test_open_finding_of_any_kind_stops_capture_where_the_policy_says_so(kind: FindingKind) -> None:
    finding = DdlFinding(kind=kind, table="public.b", what="it changed", hint="", epoch=2, since_lsn=900, lsn=1000)
    tables = {"public.b": TableRecord(facts=None, findings=(finding,))}

    def started(policy: Literal["warn", "stop", "resnapshot"]) -> DdlWatch:
        recorded = RecordedCatalog(None, tables, {})
        settings = Ddl(policy="warn", tables={"public.b": policy})
        observer = NotingObserver()
        watch = DdlWatch(settings, recorded, NotingLog(), ManualClock(), epoch=2, observer=observer, accepted=dict)
        watch.check(ScriptedCatalog({"a": ()}))
        watch.write(_AT)
        return watch

    with pytest.raises(SourceRefused, match="it changed") as stop:
        started("stop").written()

    assert stop.value.facts["kind"] == kind
    started("warn").written()
    started("resnapshot").written()


def test_stop_comes_after_the_commit_that_has_the_finding() -> None:
    rig = Rig(Ddl(policy="stop"))
    rig.catalog.tables["b"] = ("d",)
    rig.look()

    rig.watch.written()  # of a commit that was under way before
    rig.watch.write(_AT)
    with pytest.raises(SourceRefused, match=r"d of public\.b") as caught:
        rig.watch.written()

    record = rig.log.notes[-1]["public.b"]
    assert record is not None
    assert [one.kind for one in record.findings] == ["column_filled"]
    assert caught.value.facts["lsn"] == record.findings[0].lsn


def test_findings_are_kept_side_by_side_and_what_is_found_again_is_one() -> None:
    rig = Rig()
    rig.catalog.tables["b"] = ("d",)
    rig.look()
    first = rig.observer.unsettled[0]
    rig.catalog.tables["b"] = ("d", "e")
    rig.look()
    rig.catalog.tables["b"] = ()
    rig.look()
    rig.catalog.tables["b"] = ("d",)
    rig.look()

    assert [one.what.split()[0] for one in rig.observer.told] == ["d", "e", "d"]
    other, again = rig.observer.unsettled
    assert other.what.split()[0] == "e"
    assert (again.what, again.since_lsn) == (first.what, first.since_lsn)
    assert again.lsn > other.lsn > first.lsn


def test_unread_findings_are_bounded_and_keep_their_range() -> None:
    def finding(number: int) -> DdlFinding:
        return DdlFinding(
            kind="partition_left",
            table="public.b",
            what=f"p{number}",
            hint="",
            epoch=1,
            since_lsn=number,
            lsn=number + 1,
        )

    kept: tuple[DdlFinding, ...] = ()
    for number in range(1, 101):
        kept = merge_findings(kept, [finding(number)])

    assert len(kept) == OPEN_MAX
    assert (kept[0].what, kept[0].since_lsn, kept[0].lsn) == ("p81; and earlier ones", 1, 82)
    assert kept[1:] == tuple(finding(number) for number in range(82, 101))


def test_acceptance_settles_what_was_noticed_up_to_its_lsn() -> None:
    rig = Rig(Ddl(policy="stop"))
    rig.catalog.tables["b"] = ("d",)
    rig.look()
    finding = rig.observer.unsettled[0]

    rig.accepted = {
        "public.b": AcceptedFindings(epoch=2, lsn=finding.lsn - 1),
        "public.a": AcceptedFindings(epoch=9, lsn=1),
    }
    rig.look()
    assert rig.observer.unsettled == [finding]
    rig.accepted = {"public.b": AcceptedFindings(epoch=1, lsn=finding.lsn + 1000)}
    rig.look()
    assert rig.observer.unsettled == [finding], "LSNs of another epoch say nothing"
    rig.accepted = {"public.b": AcceptedFindings(epoch=2, lsn=finding.lsn)}
    rig.look()
    rig.commit()

    assert rig.observer.unsettled == []
    record = rig.log.notes[-1]["public.b"]
    assert record is not None
    assert record.findings == ()


def test_what_was_noticed_later_stays_open() -> None:
    rig = Rig()
    rig.catalog.tables["b"] = ("d",)
    rig.look()
    (first,) = rig.observer.unsettled
    del rig.catalog.tables["b"]
    rig.look()

    rig.accepted = {"public.b": AcceptedFindings(epoch=2, lsn=first.lsn)}
    rig.look()

    assert [one.kind for one in rig.observer.unsettled] == ["left"]


def test_broker_that_is_away_does_not_end_the_watch() -> None:
    rig = Rig()
    rig.catalog.tables["b"] = ("d",)
    rig.look()
    rig.accepted = BrokerUnreachable("away")
    rig.catalog.tables["a"] = ("d",)

    rig.look()

    assert {one.table for one in rig.observer.unsettled} == {"public.a", "public.b"}


def test_table_that_is_gone_is_deleted_once_its_finding_is_accepted() -> None:
    rig = Rig()
    del rig.catalog.tables["b"]
    rig.look()
    rig.commit()
    (finding,) = rig.observer.unsettled
    rig.accepted = {"public.b": AcceptedFindings(epoch=2, lsn=finding.lsn)}

    rig.look()
    rig.commit()

    assert finding.kind == "left"
    assert rig.log.notes[-1] == {"public.b": None}


def test_first_record_of_the_catalog_reports_nothing() -> None:
    assert Rig().observer.told == []


@pytest.mark.parametrize(
    ("xid", "near", "wide"),
    [
        (5, 3, 5),
        (3, 5, 3),
        (5, (1 << 32) + 10, (1 << 32) + 5),
        (0xFFFFFFF0, (1 << 32) + 10, 0xFFFFFFF0),
        (3, (1 << 32) - 2, (1 << 32) + 3),
    ],
)
def test_transaction_ids_are_widened_to_the_nearest(xid: int, near: int, wide: int) -> None:
    assert widened(xid, near) == wide


def test_table_is_read_again_until_that_goes_on_for_sure_and_is_settled_then() -> None:
    rig = Rig(Ddl(policy="resnapshot"))
    asked: list[tuple[str, int, int, bool]] = []
    surely = False

    def read_again(facts: TableFacts, lsn: int, *, sweep: bool) -> bool:
        asked.append((facts.table, facts.oid, lsn, sweep))
        return surely

    rig.watch.read_again = read_again
    rig.catalog.tables["b"] = ("d",)
    rig.look()
    finding = rig.observer.unsettled[0]
    rig.look()
    assert rig.observer.unsettled == [finding]
    surely = True
    rig.look()

    assert asked == [("public.b", 98, finding.lsn, False)] * 2
    assert rig.observer.unsettled == []


def test_what_no_reading_mends_stays_open() -> None:
    rig = Rig(Ddl(policy="resnapshot"))
    rig.watch.read_again = lambda *_, **__: True
    del rig.catalog.tables["b"]

    rig.look()
    rig.look()

    assert [one.kind for one in rig.observer.unsettled] == ["left"]


def test_name_that_was_away_between_two_checks_is_noted_at_once_and_found_by_the_next_check() -> None:
    rig = Rig(Ddl(policy="resnapshot"))
    asked: list[tuple[str, int]] = []

    def read_again(facts: TableFacts, lsn: int, *, sweep: bool) -> bool:
        assert sweep
        asked.append((facts.table, lsn))
        return False

    rig.watch.read_again = read_again
    at = Lsn(rig.catalog.lsn + 5)
    rig.watch.shown(Relation(4711, "public", "b", ReplicaIdentity.DEFAULT, ()), at)

    noted = rig.log.notes[-1]["public.b"]  # a commit may follow that asks no one
    assert noted is not None
    assert [(one.kind, one.lsn) for one in noted.findings] == [("returned", at)]
    rig.watch.settle()
    assert asked == []
    rig.look()
    rig.look()
    rig.look()
    assert asked == [("public.b", rig.observer.unsettled[0].lsn)]
    assert asked[0][1] > at


def test_table_that_the_stream_shows_under_its_former_name_is_not_found_twice() -> None:
    """The stream is behind the catalog: the check that saw the new owner for the first time found all of it."""
    rig = Rig()
    at = Lsn(rig.catalog.lsn)
    rig.watch.shown(Relation(4711, "public", "b", ReplicaIdentity.DEFAULT, ()), at)
    rig.look()

    assert rig.observer.unsettled == []


def test_new_owner_that_the_stream_showed_before_a_check_did_is_one_finding() -> None:
    rig = Rig()
    rig.watch.shown(Relation(4711, "public", "b", ReplicaIdentity.DEFAULT, ()), Lsn(rig.catalog.lsn + 5))
    rig.catalog.oids["b"] = 4711
    for _ in range(3):
        rig.look()

    assert [one.kind for one in rig.observer.unsettled] == ["replaced"]


def test_owner_that_no_check_saw_is_found_although_the_check_in_between_saw_another_one() -> None:
    rig = Rig()
    rig.watch.shown(Relation(4712, "public", "b", ReplicaIdentity.DEFAULT, ()), Lsn(rig.catalog.lsn + 5))
    rig.catalog.oids["b"] = 4711  # the transaction of 4712 is not visible yet
    for _ in range(3):
        rig.look()

    assert [one.kind for one in rig.observer.unsettled] == ["replaced", "returned"]


def test_start_repeats_the_finding_of_a_name_that_was_away_because_its_rows_may_have_gone_on() -> None:
    rig = Rig()
    at = Lsn(rig.catalog.lsn + 5)
    rig.watch.shown(Relation(4711, "public", "b", ReplicaIdentity.DEFAULT, ()), at)
    noted = rig.log.notes[-1]["public.b"]
    assert noted is not None

    recorded = RecordedCatalog(rig.catalog.scope(), {"public.b": noted}, {})
    observer = NotingObserver()
    watch = DdlWatch(Ddl(), recorded, NotingLog(), ManualClock(), epoch=2, observer=observer, accepted=dict)
    watch.check(rig.catalog)

    assert [one.lsn for one in observer.unsettled if one.kind == "returned"] == [rig.catalog.lsn]
    assert rig.catalog.lsn > at
