"""The demo, step by step: servers, tables, capture, data, load with a crash in the middle, and the proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import psycopg
from rich.console import Group
from rich.text import Text

from cdc.config.load import parse
from cdc.config.settings import Config
from cdc.demo import bank, shop, verdict
from cdc.demo.bank import Bank
from cdc.demo.capture import Capture
from cdc.demo.events import Events
from cdc.demo.lake import TABLES, VIEW, LakeRun, LakeVerdict
from cdc.demo.picture import Scene
from cdc.demo.place import Place
from cdc.demo.screen import Downloads, Reading, Screen
from cdc.demo.shop import Shop
from cdc.demo.stores import SINKS, VIEW_SINKS, StoresRun
from cdc.demo.verdict import StoresVerdict, Verdict
from cdc.demo.watch import Watch
from cdc.errors import LocalError
from cdc.lsn import Lsn
from cdc.model.topic_names import data_topic
from cdc.replication.connect import translate
from cdc.verify.log_check import fold_and_compare

_DOWN_S: Final = 1.0  # how long capture stays killed
_POLL_S: Final = 0.1
_CAUGHT_UP_S: Final = 90.0
_SERVERS: Final = {"postgres": "PostgreSQL", "kafka": "Kafka", "opensearch": "OpenSearch", "valkey": "Valkey"}


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line chooses.

    Attributes:
        seconds: how long the load runs.
        branches: size of the bank, 100,000 accounts each.
        tamper: change a row behind capture's back before the comparison, which must then find it.
        keep: leave capture and the lake's sink running.
        sinks: keep the shop in a lake, an index and a cache too.
    """

    seconds: int = 30
    branches: int = 5
    seed: int = 18
    tamper: bool = False
    keep: bool = False
    sinks: bool = True


class Tour:
    """One demo in a place of its own. `run` once."""

    def __init__(self, place: Place, screen: Screen, options: Options) -> None:
        self._place = place
        self._screen = screen
        self._options = options
        self._began_s = time.monotonic()

    def run(self) -> Verdict:
        """All of it. Raises TailraceError; what was started is ended, but for the servers, which are the place's."""
        try:
            return self._run()
        except psycopg.Error as error:
            raise translate(error, "work in the demo's database") from error

    def _run(self) -> Verdict:
        with ExitStack() as closing:
            self._servers()
            session = closing.enter_context(psycopg.connect(self._place.stack.postgres.dsn, autocommit=True))
            self._tables(session)
            config, capture = self._capture()
            ending = closing.enter_context(ExitStack())
            ending.callback(capture.stop)
            stores = self._stores(ending)
            lake = self._lake(ending)
            watch = Watch(config, capture)
            closing.callback(watch.close)
            self._data(session, capture, watch)
            if lake is not None:
                self._first_cut(lake)
            if stores is not None:
                self._own_write(stores, config, session)
            crash = self._load(config, capture, watch, lake)
            lsn = _wal(session)
            self._drain(capture, watch, lsn, crash)
            if self._options.tamper:
                self._tamper(session, capture)
            seen = self._lake_proof(lake, session, lsn) if lake is not None else None
            kept = self._stores_proof(stores, config, lsn) if stores is not None else None
            found = self._proof(config, session, lsn, seen, kept)
            if self._options.keep:
                ending.pop_all()
            return found

    def _servers(self) -> None:
        with self._timed() as took, Downloads(self._screen) as downloads:
            self._place.stack.up(downloads)
        found = {server.name: server for server in self._place.stack.describe()}
        names = ", ".join(
            f"{title} {found[name].version} on port {found[name].ports[name]}"
            for name, title in _SERVERS.items()
            if name in found
        )
        self._screen.step("Servers", names, took())

    def _tables(self, session: psycopg.Connection) -> None:
        postgres = self._place.stack.postgres
        with self._timed() as took:
            bank.create_tables(postgres.programs, postgres.printable_dsn)
            shop.create_tables(session)
        self._screen.step("Tables", "a bank (pgbench's 4 tables) and a small shop (6), all empty", took())
        self._screen.step("Config", str(self._place.config))
        self._screen.file(self._place.write_config(LakeRun.views() if self._options.sinks else None))

    def _capture(self) -> tuple[Config, Capture]:
        config = parse(self._place.config.read_text(encoding="utf-8"), {})
        capture = Capture(self._place, int(config.http.listen.rpartition(":")[2]))
        with self._timed() as took, self._screen.working("starting capture"):
            capture.start()
            capture.await_running()
        self._screen.step("Capture", f"cdc run -c {self._place.config.name}", took())
        self._screen.note("slot, publication and topics were made; from here on nothing is missed")
        return config, capture

    def _stores(self, ending: ExitStack) -> StoresRun | None:
        if not self._options.sinks:
            return None
        stores = StoresRun(self._place)
        ending.callback(stores.stop)
        stores.start()
        names = " | ".join((*SINKS, *VIEW_SINKS))
        self._screen.step("Stores", f"cdc sink run {names} -c {self._place.config.name}")
        return stores

    def _lake(self, ending: ExitStack) -> LakeRun | None:
        if not self._options.sinks:
            return None
        lake = LakeRun(self._place)
        ending.callback(lake.stop)
        lake.start()
        self._screen.step("Lake", f"cdc sink run lake -c {self._place.config.name}")
        self._screen.note("Spark follows the topics: tables, every version of an order, and views of SQL. One of them:")
        sql = (LakeRun.views() / f"{VIEW}.sql").read_text(encoding="utf-8")
        self._screen.file("\n".join(line for line in sql.splitlines() if not line.startswith("--")), "sql")
        return lake

    def _data(self, session: psycopg.Connection, capture: Capture, watch: Watch) -> None:
        expected = self._options.branches * (bank.ACCOUNTS_PER_BRANCH + bank.TELLERS_PER_BRANCH + 1)
        expected += shop.FILLED
        title = "Filling the tables through it"

        def scene() -> Scene:
            facts = watch.facts
            return Scene(title, facts, done=min(1.0, facts.record_count / expected))

        with self._timed() as took, self._screen.watching(scene):
            shop.fill(session, self._options.seed)
            for _ in bank.fill(session, self._options.branches):
                capture.check()
            self._await_caught_up(capture, watch, _wal(session))
        rate = expected / took()
        self._screen.step("Data", f"{expected:,} rows inserted and captured, {rate:,.0f} rows/s", took())

    def _load(self, config: Config, capture: Capture, watch: Watch, lake: LakeRun | None) -> _Crash:
        dsn, seconds = self._place.stack.postgres.printable_dsn, self._options.seconds
        with ExitStack() as closing:
            events = Events(config, [data_topic(config.name, "shop", table) for table in TABLES])
            closing.callback(events.close)
            with self._timed() as took:
                work = Bank(self._place.stack.postgres.programs, dsn, seconds)
                closing.callback(work.stop)
                clerks = Shop(dsn, self._options.seed)
                closing.callback(clerks.stop)
                crash = _Crash(took)
                scene = _LoadScene(work, clerks, watch, events, crash, took, seconds, lake)
                with self._screen.watching(scene):
                    while work.running:
                        capture.check()
                        if not crash.notes and took() >= seconds / 2:
                            crash.happen(capture)
                        if watch.facts.caught_up:
                            crash.over()
                        time.sleep(_POLL_S)
                    clerks.stop()
                    work.finish()
        rate = (work.transaction_count + clerks.commit_count) / seconds
        counts = f"{work.transaction_count:,} transactions of the bank, {clerks.commit_count:,} of the shop"
        self._screen.step("Load", f"{counts} ({rate:,.0f}/s)", took())
        self._screen.note(f"{clerks.rollback_count:,} more were rolled back: nobody may ever see them")
        return crash

    def _drain(self, capture: Capture, watch: Watch, lsn: Lsn, crash: _Crash) -> None:
        def scene() -> Scene:
            return Scene("Writers have stopped, capture reads the rest", watch.facts, done=1.0)

        with self._timed() as took, self._screen.watching(scene):
            self._await_caught_up(capture, watch, lsn)
            crash.over()
        self._screen.step("Crash", "capture was killed, and went on exactly where Kafka's log ends")
        for at_s, text in crash.notes:
            self._screen.note(f"{at_s:5.1f} s  {text}")
        self._screen.step("Drain", f"writers have stopped; Kafka has everything up to {lsn}", took())

    def _tamper(self, session: psycopg.Connection, capture: Capture) -> None:
        """For those who do not believe a comparison they have not seen fail."""
        capture.stop()
        session.execute("update public.pgbench_accounts set abalance = abalance + 1 where aid = 4711")
        self._screen.step("Tamper", "capture was stopped, then one account changed: the comparison must find it")

    def _first_cut(self, lake: LakeRun) -> None:
        """Spark is slow at first; the load waits for it, so that the view can be watched."""
        with self._timed() as took, self._screen.working("Spark warms up, and takes in what there is"):
            manifest = lake.await_lsn(Lsn(0))
        self._screen.step("Cut", f"the lake's first one is published, at {Lsn(manifest.end_lsn)}", took())

    def _own_write(self, stores: StoresRun, config: Config, session: psycopg.Connection) -> None:
        """A program that has written waits for its own LSN, and then finds what it wrote."""
        with self._screen.working("index and cache take in what there is"):
            seen = stores.own_write(config, session)
        good = all(one.good for one in seen)
        self._screen.step("Read", "your own writes: a product and a customer were renamed, and waited for", good=good)
        for one in seen:
            self._screen.note(f"{one.waited_s * 1000:4.0f} ms  {one.how}  {one.answer}")

    def _stores_proof(self, stores: StoresRun, config: Config, lsn: Lsn) -> StoresVerdict:
        with self._timed() as took, self._screen.working("index and cache take in the rest"):
            found = StoresVerdict(stores.verify(config, lsn))
        self._screen.step("Stores", f"every key compared with its topic: {found.compared:,}", took(), good=found.ok)
        self._screen.show(verdict.stores(found))
        for how, answer in stores.of_views():
            self._screen.note(f"{how}  {answer}")
        return found

    def _lake_proof(self, lake: LakeRun, session: psycopg.Connection, lsn: Lsn) -> LakeVerdict:
        with self._timed() as took, self._screen.working("the lake takes in the rest"):
            manifest = lake.await_lsn(lsn)
            found = lake.compare(session, manifest)
        self._screen.step("View", f"{VIEW} at {found.lsn} (cut {found.cut}), by Spark", took(), good=found.ok)
        self._screen.show(verdict.lake(found))
        return found

    def _proof(
        self,
        config: Config,
        session: psycopg.Connection,
        lsn: Lsn,
        seen: LakeVerdict | None,
        kept: StoresVerdict | None,
    ) -> Verdict:
        with self._timed() as took, Reading(self._screen) as progress:
            report = fold_and_compare(config, lsn, totals=bank.TOTALS, progress=progress)
            found = Verdict(report, bank.sums(session), seen, kept)
        text = f"{report.record_count:,} records read back and compared with every row"
        self._screen.step("Proof", text, took(), good=found.ok)
        self._screen.show(Group(verdict.tables(report), Text(verdict.BAG_NOTE, style="dim")))
        self._screen.show(verdict.sums(found))
        self._screen.show(verdict.ending(found, time.monotonic() - self._began_s))
        return found

    def _await_caught_up(self, capture: Capture, watch: Watch, lsn: Lsn) -> None:
        deadline_s = time.monotonic() + _CAUGHT_UP_S
        while watch.end_lsn < lsn:
            capture.check()
            if time.monotonic() > deadline_s:
                raise LocalError(f"the log reached {watch.end_lsn} and not {lsn} within {_CAUGHT_UP_S:.0f} s")
            time.sleep(_POLL_S)

    @contextmanager
    def _timed(self) -> Iterator[Callable[[], float]]:
        """A function that says how long the block has run, or took."""
        began_s = time.monotonic()
        ended_s: list[float] = []
        try:
            yield lambda: (ended_s[0] if ended_s else time.monotonic()) - began_s
        finally:
            ended_s.append(time.monotonic())


class _Crash:
    """Kills capture while it works, starts it again, and notes when it has caught up."""

    def __init__(self, took: Callable[[], float]) -> None:
        self.notes: tuple[tuple[float, str], ...] = ()
        self._took = took
        self._restarted_s: float | None = None

    def happen(self, capture: Capture) -> None:
        """Kill it, let work pile up, start it again."""
        capture.kill()
        self._note("kill -9: capture is gone, in the middle of its work")
        time.sleep(_DOWN_S)
        capture.start()
        self._restarted_s = self._took()
        self._note("capture starts again, and asks Kafka how far the log is")

    def over(self) -> None:
        """Capture has caught up; noted once."""
        if self._restarted_s is not None:
            self._note(f"capture has caught up, {self._took() - self._restarted_s:.1f} s after its start")
            self._restarted_s = None

    def _note(self, text: str) -> None:
        self.notes = (*self.notes, (self._took(), text))


@dataclass(frozen=True, slots=True)
class _LoadScene:
    """The picture while the load runs."""

    bank: Bank
    shop: Shop
    watch: Watch
    events: Events
    crash: _Crash
    took: Callable[[], float]
    seconds: int
    lake: LakeRun | None

    def __call__(self) -> Scene:
        took_s = self.took()
        return Scene(
            "Bank and shop at work",
            self.watch.facts,
            done=min(1.0, took_s / self.seconds),
            bank_rate=self.bank.rate,
            shop_rate=self.shop.commit_count / max(took_s, 1.0),
            lines=self.events.lines,
            notes=self.crash.notes,
            view=self.lake.glance() if self.lake is not None else "",
        )


def _wal(session: psycopg.Connection) -> Lsn:
    row = session.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0]).before_header()
