"""Runs the demo step by step: servers, tables, capture, data, load with a crash in the middle, and the proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import psycopg
from rich.console import Group
from rich.text import Text

from cdc.artifacts.download_progress import NoProgress
from cdc.config.load import parse
from cdc.config.settings import Config
from cdc.demo import bank, proof
from cdc.demo.demo_stack import start_servers, write_config
from cdc.demo.live_facts import LiveFacts
from cdc.demo.picture import Scene
from cdc.demo.screen import Screen
from cdc.demo.shop_events import ShopEvents
from cdc.demo.sink_tour import VIEW, SinkTour, day_line
from cdc.errors import LocalError
from cdc.local.command_process import CaptureProcess, run_command
from cdc.local.owned_stack import OwnedStack
from cdc.lsn import Lsn
from cdc.model.topic_names import data_topic
from cdc.replication.connect import translate
from cdc.shop import rows
from cdc.shop.config_text import STORES, VIEW_STORES
from cdc.shop.rows import views_folder
from cdc.shop.workload import Shop
from cdc.verify.log_check import fold_and_compare

_DOWN_S: Final = 1.0  # time between the kill of capture and its restart
_POLL_S: Final = 0.1
_CAUGHT_UP_S: Final = 90.0
_SEED: Final = 18
_SERVERS: Final = {"postgres": "PostgreSQL", "kafka": "Kafka", "opensearch": "OpenSearch", "valkey": "Valkey"}


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line.

    Attributes:
        seconds: duration of the load.
        branches: size of the bank, 100,000 accounts each.
        tamper: change a row while capture is stopped, which the comparison must find.
        keep: leave all processes running.
        sinks: also maintain a lake, indices and caches.
    """

    seconds: int = 30
    branches: int = 5
    tamper: bool = False
    keep: bool = False
    sinks: bool = True


class Tour:
    """One demo. Call `run` once."""

    def __init__(self, demo: OwnedStack, screen: Screen, options: Options) -> None:
        self._demo = demo
        self._screen = screen
        self._options = options
        self._began_s = time.monotonic()

    def run(self) -> bool:
        """Run all steps. Returns whether everything is exact. Raises TailraceError; servers stay as they are."""
        try:
            with ExitStack() as closing:
                return self._run(closing)
        except psycopg.Error as error:
            raise translate(error, "work in the demo's database") from error

    def _run(self, closing: ExitStack) -> bool:
        self._servers()
        session = closing.enter_context(psycopg.connect(self._demo.stack.postgres.dsn, autocommit=True))
        self._tables(session)
        config, capture = self._capture()
        ending = closing.enter_context(ExitStack())
        ending.callback(capture.stop)
        sinks = self._sinks(ending) if self._options.sinks else None
        live = LiveFacts(config, capture)
        closing.callback(live.close)
        self._data(session, capture, live)
        if sinks is not None:
            self._own_write(sinks, config, session)
        crash = self._load(config, capture, live, sinks)
        lsn = _wal(session)
        self._drain(capture, live, lsn, crash)
        if self._options.tamper:
            self._tamper(session, capture)
        failed = self._check_sinks(sinks, config, session, lsn) if sinks is not None else None
        exact = self._prove(config, lsn, failed)
        if self._options.keep:
            ending.pop_all()
        return exact

    def _servers(self) -> None:
        with self._timed() as took:
            start_servers(self._demo.stack)
        found = {server.name: server for server in self._demo.stack.describe()}
        names = ", ".join(
            f"{title} {found[name].version} on port {found[name].ports[name]}"
            for name, title in _SERVERS.items()
            if name in found
        )
        self._screen.step("Servers", names, took())

    def _tables(self, session: psycopg.Connection) -> None:
        postgres = self._demo.stack.postgres
        with self._timed() as took:
            postgres.prepare(NoProgress())
            bank.create_tables(postgres.programs, postgres.printable_dsn)
            rows.create_tables(session)
        self._screen.step("Tables", "a bank (pgbench's 4 tables) and a small shop (6), all empty", took())
        self._screen.step("Config", str(self._demo.config))
        self._screen.file(write_config(self._demo, views_folder() if self._options.sinks else None))

    def _capture(self) -> tuple[Config, CaptureProcess]:
        config = parse(self._demo.config.read_text(encoding="utf-8"), {})
        capture = CaptureProcess(self._demo, int(config.http.listen.rpartition(":")[2]))
        with self._timed() as took, self._screen.working("starting capture"):
            capture.start()
            capture.await_running()
        self._screen.step("Capture", f"cdc run -c {self._demo.config.name}", took())
        self._screen.note("slot, publication and topics exist; every change is captured from now on")
        return config, capture

    def _sinks(self, ending: ExitStack) -> SinkTour:
        sinks = SinkTour(self._demo)
        ending.callback(sinks.stop)
        sinks.start()
        config = self._demo.config.name
        self._screen.step("Stores", f"cdc sink run {' | '.join((*STORES, *VIEW_STORES))} -c {config}")
        self._screen.step("Lake", f"cdc sink run lake -c {config}")
        self._screen.note("Spark follows the topics: tables, every version of an order, and SQL views. One of them:")
        sql = (views_folder() / f"{VIEW}.sql").read_text(encoding="utf-8")
        self._screen.file("\n".join(line for line in sql.splitlines() if not line.startswith("--")), "sql")
        return sinks

    def _data(self, session: psycopg.Connection, capture: CaptureProcess, live: LiveFacts) -> None:
        expected = rows.FILLED
        expected += self._options.branches * (bank.ACCOUNTS_PER_BRANCH + bank.TELLERS_PER_BRANCH + 1)

        def scene() -> Scene:
            done = min(1.0, live.facts.record_count / expected)
            return Scene("Filling the tables through capture", live.facts, done=done)

        with self._timed() as took, self._screen.watching(scene):
            rows.fill(session, _SEED)
            for _ in bank.fill(session, self._options.branches):
                capture.check()
            self._await_caught_up(capture, live, _wal(session))
        self._screen.step("Data", f"{expected:,} rows inserted and captured, {expected / took():,.0f} rows/s", took())

    def _own_write(self, sinks: SinkTour, config: Config, session: psycopg.Connection) -> None:
        """Wait for Spark's first cut, so that the load can show the view; then read a write back from the stores."""
        with self._timed() as took, self._screen.working("Spark starts and reads the existing rows"):
            sinks.await_lsn(config, str(_wal(session)), "lake")
        self._screen.step("Cut", "the lake has published its first cut", took())
        with self._screen.working("index and cache read the existing rows"):
            found = sinks.own_write(config, session)
        good = all(is_good for _, is_good in found)
        self._screen.step("Read", "your own writes: a product and a customer were renamed, then read back", good=good)
        for text, _ in found:
            self._screen.note(text)

    def _load(self, config: Config, capture: CaptureProcess, live: LiveFacts, sinks: SinkTour | None) -> _Crash:
        dsn, seconds = self._demo.stack.postgres.printable_dsn, self._options.seconds
        with ExitStack() as closing, self._timed() as took:
            events = ShopEvents(config, [data_topic(config.name, "shop", table) for table in rows.TABLES])
            closing.callback(events.close)
            work = bank.Bank(self._demo.stack.postgres.programs, dsn, seconds)
            closing.callback(work.stop)
            clerks = Shop(dsn, _SEED)
            closing.callback(clerks.stop)
            crash = _Crash(took)

            def scene() -> Scene:
                return Scene(
                    "Bank and shop at work",
                    live.facts,
                    done=min(1.0, took() / seconds),
                    bank_rate=work.rate,
                    shop_rate=clerks.commit_count / max(took(), 1.0),
                    lines=events.lines,
                    notes=crash.notes,
                    view=sinks.view_line() if sinks is not None else "",
                )

            with self._screen.watching(scene):
                while work.running:
                    capture.check()
                    if not crash.notes and took() >= seconds / 2:
                        crash.happen(capture)
                    if live.facts.caught_up:
                        crash.over()
                    time.sleep(_POLL_S)
                clerks.stop()
                work.finish()
        rate = (work.transaction_count + clerks.commit_count) / seconds
        counts = f"{work.transaction_count:,} transactions of the bank, {clerks.commit_count:,} of the shop"
        self._screen.step("Load", f"{counts} ({rate:,.0f}/s)", took())
        self._screen.note(f"{clerks.rollback_count:,} more were rolled back and must not appear in Kafka")
        return crash

    def _drain(self, capture: CaptureProcess, live: LiveFacts, lsn: Lsn, crash: _Crash) -> None:
        def scene() -> Scene:
            return Scene("Writers have stopped, capture reads the rest", live.facts, done=1.0)

        with self._timed() as took, self._screen.watching(scene):
            self._await_caught_up(capture, live, lsn)
            crash.over()
        self._screen.step("Crash", "capture was killed, and continued exactly at the end of Kafka's log")
        for at_s, text in crash.notes:
            self._screen.note(f"{at_s:5.1f} s  {text}")
        self._screen.step("Drain", f"writers have stopped; Kafka has everything up to {lsn}", took())

    def _tamper(self, session: psycopg.Connection, capture: CaptureProcess) -> None:
        capture.stop()
        session.execute("update public.pgbench_accounts set abalance = abalance + 1 where aid = 4711")
        self._screen.step("Tamper", "one account was changed while capture is stopped: the comparison must find it")

    def _check_sinks(self, sinks: SinkTour, config: Config, session: psycopg.Connection, lsn: Lsn) -> list[str]:
        """Compare the sinks with topics and source. Returns the checks that failed."""
        with self._timed() as took, self._screen.working("the sinks apply the rest"):
            sinks.await_lsn(config, str(lsn), "lake", *STORES, *VIEW_STORES)
            kept, wanted = sinks.view_rows(session)
        failed = [] if kept == wanted else [f"the comparison of {VIEW} with PostgreSQL"]
        self._screen.step("View", f"{VIEW} at {lsn}", took(), good=not failed)
        for side, days in (("by Spark     ", kept), ("by PostgreSQL", wanted)):
            for day in days:
                self._screen.note(f"{side}  {day_line(day)}")
        for text in sinks.of_views():
            self._screen.note(text)
        for sink in (*STORES, *VIEW_STORES):
            arguments = ("verify", sink, "--no-source")
            command = f"cdc {' '.join(arguments)}"
            with self._timed() as took, self._screen.working(command):
                good, output = run_command(self._demo, *arguments)
            self._screen.step("Check", command, took(), good=good)
            self._screen.show(Text(output.rstrip()))
            failed += [] if good else [command]
        return failed

    def _prove(self, config: Config, lsn: Lsn, failed: list[str] | None) -> bool:
        with self._timed() as took, self._screen.working("reading the topics and comparing every row"):
            report = fold_and_compare(config, lsn, totals=bank.TOTALS)
        exact = proof.is_exact(report)
        self._screen.step("Proof", f"{report.record_count:,} records compared with every row", took(), good=exact)
        self._screen.show(Group(proof.tables(report), Text(proof.BAG_NOTE, style="dim")))
        self._screen.show(proof.sums(report))
        self._screen.show(proof.ending(report, failed, time.monotonic() - self._began_s))
        return exact and not failed

    def _await_caught_up(self, capture: CaptureProcess, live: LiveFacts, lsn: Lsn) -> None:
        deadline_s = time.monotonic() + _CAUGHT_UP_S
        while live.end_lsn < lsn:
            capture.check()
            if time.monotonic() > deadline_s:
                raise LocalError(f"Kafka is at {live.end_lsn}, not at {lsn}, after {_CAUGHT_UP_S:.0f} s")
            time.sleep(_POLL_S)

    @contextmanager
    def _timed(self) -> Iterator[Callable[[], float]]:
        """Yield a function that returns the seconds of the block so far, or in total after its end."""
        began_s = time.monotonic()
        ended_s: list[float] = []
        try:
            yield lambda: (ended_s[0] if ended_s else time.monotonic()) - began_s
        finally:
            ended_s.append(time.monotonic())


class _Crash:
    """Kills capture, restarts it, and records when it has caught up."""

    def __init__(self, took: Callable[[], float]) -> None:
        self.notes: tuple[tuple[float, str], ...] = ()
        self._took = took
        self._restarted_s: float | None = None

    def happen(self, capture: CaptureProcess) -> None:
        """Kill capture, wait, and restart it."""
        capture.kill()
        self._note("kill -9: capture is gone, in the middle of its work")
        time.sleep(_DOWN_S)
        capture.start()
        self._restarted_s = self._took()
        self._note("capture starts again and reads its position from Kafka")

    def over(self) -> None:
        """Record once that capture has caught up."""
        if self._restarted_s is not None:
            self._note(f"capture has caught up, {self._took() - self._restarted_s:.1f} s after its start")
            self._restarted_s = None

    def _note(self, text: str) -> None:
        self.notes = (*self.notes, (self._took(), text))


def _wal(session: psycopg.Connection) -> Lsn:
    row = session.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0]).before_header()
