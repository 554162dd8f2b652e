"""`cdc status`: the document, the lines and the exit code, for each combination of servers that answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from rich.console import Console

from cdc.cli import status_text
from cdc.cli.status_text import Moment, document, exit_code, lines
from cdc.config.load import parse
from cdc.config.settings import Http
from cdc.errors import SlotHeld, SourceGap, SourceUnreachable
from cdc.inspect.pipeline_state import LogView, PipelineView, SourceView, ask_daemon
from cdc.lsn import Lsn
from cdc.model.change_records import BatchStats, StreamPosition
from cdc.model.progress_record import Identity, Progress
from cdc.model.run_state import State
from cdc.model.table_facts import DdlFinding
from cdc.model.units import duration
from cdc.replication.catalog_queries import SourceIdentity
from cdc.replication.publication import PublicationFacts
from cdc.replication.slot import SlotFacts
from cdc.startup.judgement import Verdict
from cdc.telemetry.capture_status import Status, ddl_document
from cdc.telemetry.metrics import Metrics
from cdc.web.http_server import WebServer
from tests.fixtures.servers.manual_clock import ManualClock

CONFIG = parse('name = "shop"\n[source]\ndsn = "dbname=shop"\n[kafka]\nbootstrap = "k:9092"\n', {})
IDENTITY = Identity(
    system_identifier="7",
    timeline=1,
    database="shop",
    database_oid=5,
    slot="cdc_shop",
    publication="cdc_shop",
    publication_oid=11,
    server_version=180006,
    partitions={},
    topic_ids={},
    tables={"public.t": (30, 31), "public.dropped": (40, 41)},
)
SLOT = SlotFacts(
    name="cdc_shop",
    plugin="pgoutput",
    database="shop",
    restart_lsn=Lsn(0x900),
    confirmed_flush_lsn=Lsn(0x1000),
    wal_status="reserved",
    safe_wal_size=1 << 30,
    retained_bytes=0x800,
    lag_bytes=0x100,
)
PUBLICATION = PublicationFacts(
    name="cdc_shop",
    oid=11,
    all_tables=False,
    via_root=True,
    insert=True,
    update=True,
    delete=True,
    truncate=True,
    owner="cdc",
    owned=True,
    tables={},
    filtered=frozenset(),
    columns={},
)
SOURCE = SourceView(1.0, SourceIdentity("7", 1, False, "shop", 5, 180006), "18.6", Lsn(0x1100), SLOT, PUBLICATION)
LOG = LogView(Progress(epoch=1, end_lsn=0x1000, commit_lsn=0xF00), IDENTITY, 1_700_000_000_000)
MOMENT = Moment(1_700_000_060.0)


def running(state: State = State.RUNNING, **more: object) -> dict[str, Any]:
    clock = ManualClock()
    status = Status("shop", clock, Metrics())
    status.enter(state)
    status.caught_up()
    status.published(BatchStats(500, 90_000, 5, 0), StreamPosition(Lsn(0x1000), Lsn(0xF00)), 0.012)
    return {**status.snapshot(), **more}


def text(found: dict[str, Any]) -> str:
    console = Console(width=160, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(lines(found))
    return captured.get()


def judged(view: PipelineView, moment: Moment = MOMENT) -> dict[str, Any]:
    return document(CONFIG, view, moment)


def test_a_running_daemon_is_shown_with_flow_lag_and_slot() -> None:
    found = judged(PipelineView(running(), SOURCE, LOG))

    assert exit_code(found) == 0
    assert found["position"] == "0/1000"
    assert found["lag_bytes"] == 0x100
    shown = text(found)
    assert "RUNNING for 0.0 s" in shown
    assert "log 0/1000   confirmed 0/1000   server 0/1100" in shown
    assert "last batch 500 rows in 12 ms" in shown
    assert "reserved, keeps 2.0 KiB, safe for 1.0 GiB more" in shown
    assert "last transaction 60 s ago" in shown


def test_signals_that_are_not_read_are_shown() -> None:
    listening = {"listening": True, "error": "", "done": 0, "refused": 0, "next_offset": None}
    broken = {**listening, "listening": False, "error": "no broker answers"}

    assert "not read: no broker answers" in text(judged(PipelineView(running(signals=broken), SOURCE, LOG)))
    assert "not read" not in text(judged(PipelineView(running(signals=listening), SOURCE, LOG)))


def test_a_daemon_that_is_down_is_shown_from_source_and_kafka() -> None:
    found = judged(
        PipelineView(None, SOURCE, LOG, {"daemon": "no daemon answers on 127.0.0.1:8087: Connection refused"})
    )

    assert found["state"] == "DOWN"
    assert exit_code(found) == 0
    assert found["position"] == "0/1000"
    shown = text(found)
    assert "DOWN  no daemon answers on 127.0.0.1:8087" in shown
    assert "256 B of WAL" in shown
    assert "rows/s" not in shown


def test_ddl_that_the_stream_did_not_tell_is_shown_until_it_is_accepted() -> None:
    found = [
        DdlFinding(
            kind="joined", table=f"public.t{n}", what=f"public.t{n} joined", hint="h", epoch=1, since_lsn=1, lsn=2
        )
        for n in range(5)
    ]
    documents = [ddl_document(one) for one in found]
    down = judged(PipelineView(None, SOURCE, replace(LOG, ddl=found), {"daemon": "down"}))
    up = judged(PipelineView(running(ddl=documents, ddl_count=5), SOURCE, LOG))

    assert down["ddl"] == up["ddl"] == documents
    assert exit_code(up) == 0
    assert "public.t2 joined" in text(up)
    assert "public.t3" not in text(up)
    assert "and 2 more" in text(up)
    assert "cdc ddl accept" in text(up)
    assert "cdc ddl" not in text(judged(PipelineView(running(), SOURCE, replace(LOG, ddl=found)))), (
        "the daemon knows better"
    )


def test_slot_reader_without_an_answering_daemon_is_reported() -> None:
    source = replace(SOURCE, slot=replace(SLOT, active_pid=4711))

    assert "pid 4711 reads the slot" in text(judged(PipelineView(None, source, LOG, {"daemon": "nobody"})))


def test_a_side_that_is_unreachable_is_named_and_the_rest_is_shown() -> None:
    found = judged(PipelineView(running(), None, None, {"source": "connection refused", "kafka": "no answer"}))

    assert exit_code(found) == 0
    shown = text(found)
    assert "PostgreSQL  unreachable: connection refused" in shown
    assert "Kafka       unreachable: no answer" in shown
    assert "RUNNING" in shown


def test_nothing_reachable_is_exit_code_1() -> None:
    found = judged(PipelineView(None, None, None, {"daemon": "a", "source": "b", "kafka": "c"}))

    assert found["state"] == "UNKNOWN"
    assert exit_code(found) == 1
    assert text(found).count("unreachable") == 3


@pytest.mark.parametrize("state", [state for state in State if state.needs_operator])
def test_a_state_that_needs_a_person_is_exit_code_3(state: State) -> None:
    assert exit_code(judged(PipelineView(running(state), SOURCE, LOG))) == 3


def test_an_error_of_the_daemon_is_shown_with_what_to_do() -> None:
    status = Status("shop", ManualClock(), Metrics())
    status.enter(State.WAITING, "slot", SlotHeld("pid 9 reads the slot", hint="stop it", command="kill it"))

    shown = text(judged(PipelineView(status.snapshot(), SOURCE, LOG)))

    assert "WAITING (slot)" in shown
    assert "pid 9 reads the slot" in shown
    assert "hint: stop it" in shown
    assert "try:  kill it" in shown


def test_how_long_the_slot_lasts_comes_from_the_rate_of_wal() -> None:
    found = judged(PipelineView(None, SOURCE, LOG, {"daemon": "x"}), Moment(0.0, wal_rate=float(1 << 20)))

    assert found["slot"]["lost_in_seconds"] == 1024
    assert "lost in 17 min if capture stopped confirming (1.0 MiB/s of WAL)" in text(found)


def test_without_a_limit_the_slot_is_never_lost() -> None:
    source = replace(SOURCE, slot=replace(SLOT, safe_wal_size=None))

    found = judged(PipelineView(None, source, LOG, {"daemon": "x"}), Moment(0.0, wal_rate=1e9))

    assert found["slot"]["lost_in_seconds"] is None
    assert "without limit" in text(found)


def test_names_with_control_characters_are_escaped() -> None:
    source = replace(SOURCE, identity=replace(SOURCE.identity, database="a\x1b[31m"))

    assert "\x1b" not in text(judged(PipelineView(None, source, LOG, {"daemon": "x"})))


@pytest.mark.parametrize("daemon", [None, running()], ids=["down", "running"])
def test_next_start_that_would_stop_is_shown_with_what_to_do_and_is_exit_code_3(daemon: dict[str, Any] | None) -> None:
    gap = SourceGap("replication slot 'cdc_shop' is gone", hint="repair it", command="cdc slot recreate --resnapshot")

    found = judged(PipelineView(daemon, SOURCE, LOG, {}, Verdict("slot", gap)))

    assert found["outlook"] == {
        "state": "GAP",
        "why": gap.message,
        "hint": "repair it",
        "command": "cdc slot recreate --resnapshot",
    }
    assert exit_code(found) == 3
    shown = text(found)
    assert "next start  GAP: replication slot 'cdc_shop' is gone" in shown
    assert "cdc slot recreate --resnapshot" in shown


@pytest.mark.parametrize(
    ("daemon", "verdict", "shown"),
    [
        (None, Verdict(), False),
        (None, Verdict("slot", SlotHeld("slot is in use by pid 7")), True),
        (running(), Verdict("slot", SlotHeld("slot is in use by pid 7")), False),
        (None, Verdict("source", SourceUnreachable("refused")), False),
    ],
)
def test_next_start_that_would_run_or_wait_needs_no_operator(
    daemon: dict[str, Any] | None, verdict: Verdict, shown: bool
) -> None:
    found = judged(PipelineView(daemon, SOURCE, LOG, {}, verdict))

    assert exit_code(found) == 0
    assert ("next start" in text(found)) == shown


def test_before_the_first_start_nothing_is_wrong() -> None:
    nothing = replace(SOURCE, slot=SlotFacts(name="cdc_shop", exists=False), publication=None)

    found = judged(PipelineView(None, nothing, LogView(None, None, None), {"daemon": "x"}))

    assert exit_code(found) == 0
    assert "nothing captured yet" in text(found)


def test_a_document_can_be_json() -> None:
    assert json.loads(json.dumps(judged(PipelineView(running(), SOURCE, LOG))))["kafka"]["end_lsn"] == "0/1000"


def test_the_daemon_is_asked_over_http() -> None:
    metrics = Metrics()
    web = WebServer("127.0.0.1:0", Status("shop", ManualClock(), metrics), metrics)
    try:
        assert ask_daemon(Http(listen=f"0.0.0.0:{web.port}"), "shop")["state"] == "STARTING"
        with pytest.raises(SourceUnreachable, match="belongs to 'shop'"):
            ask_daemon(Http(listen=f"127.0.0.1:{web.port}"), "other")
    finally:
        web.close()
    with pytest.raises(SourceUnreachable, match="no daemon answers"):
        ask_daemon(Http(listen=f"127.0.0.1:{web.port}"), "shop")


@pytest.fixture
def foreign_server() -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


def test_another_program_on_the_port_is_no_daemon(foreign_server: int) -> None:
    with pytest.raises(SourceUnreachable, match="another program answers"):
        ask_daemon(Http(listen=f"127.0.0.1:{foreign_server}"), "shop")


def test_without_a_port_there_is_nothing_to_ask() -> None:
    for listen in ("", "127.0.0.1:0"):
        with pytest.raises(SourceUnreachable, match="has no port"):
            ask_daemon(Http(listen=listen), "shop")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "0.0 s"),
        (0.34, "0.3 s"),
        (12, "12 s"),
        (119, "119 s"),
        (180, "3 min"),
        (7500, "2 h 5 min"),
        (356400, "4 d 3 h"),
    ],
)
def test_durations_are_short(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_every_state_has_a_colour_or_needs_a_person() -> None:
    for state in State:
        assert state in status_text._COLOURS or state.needs_operator or state is State.STOPPED
