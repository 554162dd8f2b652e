"""`cdc dev` without servers: what it chooses, the file it writes, the lines it shows, and its signals."""

from __future__ import annotations

import io
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from rich.console import Console

from cdc.cli import output
from cdc.cli.dev_screen import DevScreen
from cdc.cli.dev_signals import DevSignals
from cdc.config.load import parse
from cdc.config.secret import Secret
from cdc.config.sink_settings import Cache, Search, Warehouse
from cdc.dev.chosen_parts import OPTIONAL, choose_parts
from cdc.dev.dev_config import SLOT_PREFIX, Addresses, OwnSource, own_config, shop_config
from cdc.dev.own_database import own_config_of, read_own
from cdc.dev.part_lines import PartLine, Sample, part_lines
from cdc.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVERS: Final = ("postgres", "kafka", "opensearch", "valkey")
PORTS: Final = {"search": 1001, "cache": 1002, "documents": 1003, "answers": 1004, "lake": 1005}
ADDRESSES: Final = Addresses("127.0.0.1:9092", "http://127.0.0.1:9200", "redis://127.0.0.1:6379/0", 8087, PORTS)


def everything(_package: str) -> bool:
    return True


def test_by_default_the_shop_runs_with_every_sink() -> None:
    parts = choose_parts((), own_database=False, installed=everything)

    assert parts.sinks == ("search", "cache", "documents", "answers", "lake")
    assert parts.servers == SERVERS
    assert parts.outbox
    assert parts.left_out == ()


def test_without_a_sink_its_server_and_its_views_are_left_out_too() -> None:
    assert choose_parts(["search"], own_database=False, installed=everything).sinks == ("cache", "answers", "lake")
    assert choose_parts(["lake"], own_database=False, installed=everything).sinks == ("search", "cache")
    assert choose_parts(["cache"], own_database=False, installed=everything).servers == SERVERS[:3]
    assert choose_parts(OPTIONAL, own_database=False, installed=everything).servers == ("postgres", "kafka")


def test_an_own_database_has_no_local_postgres_no_outbox_and_no_views() -> None:
    parts = choose_parts((), own_database=True, installed=everything)

    assert parts.sinks == ("search", "cache", "lake")
    assert parts.servers == SERVERS[1:]
    assert not parts.outbox


@pytest.mark.parametrize(
    ("package", "extra", "gone"),
    [
        ("opensearchpy", "search", {"search", "documents"}),
        ("redis", "cache", {"cache", "answers"}),
        ("deltalake", "warehouse", {"lake", "documents", "answers"}),
        ("alembic", "outbox", set()),
    ],
)
def test_a_part_without_its_extra_is_left_out_and_named(package: str, extra: str, gone: set[str]) -> None:
    parts = choose_parts((), own_database=False, installed=lambda name: name != package)

    (left,) = parts.left_out
    assert left.extra == extra
    assert left.command == f"pip install 'tailrace[capture,local,{extra}]'"
    assert set(PORTS) - set(parts.sinks) == gone
    assert parts.outbox == (extra != "outbox")


def test_a_part_that_is_not_wanted_is_not_reported_as_missing() -> None:
    parts = choose_parts(["lake"], own_database=False, installed=lambda name: name != "pyspark")

    assert parts.left_out == ()


def test_file_of_the_shop_configures_every_part() -> None:
    parts = choose_parts((), own_database=False, installed=everything)
    text = shop_config("postgresql://u@h/shop", ADDRESSES, parts, token="secret", lake=Path("/l"), views=Path("/v"))
    config = parse(text, {})

    assert set(config.sinks) == set(parts.sinks)
    assert {name: sink.listen for name, sink in config.sinks.items()} == {
        name: f"127.0.0.1:{port}" for name, port in PORTS.items()
    }
    assert config.http.listen == "127.0.0.1:8087"
    assert config.http.token == Secret("secret")
    assert config.outbox is not None
    lake = config.sinks["lake"]
    assert isinstance(lake, Warehouse)
    assert (lake.path, lake.views) == ("/l", "/v")


def test_file_of_an_own_database_names_its_slot_and_no_password(tmp_path: Path) -> None:
    parts = choose_parts((), own_database=True, installed=everything)
    source = OwnSource(
        "sales", "postgresql://u@h/sales", "", f"{SLOT_PREFIX}sales_1", '    "public.*",\n    "!public.x",'
    )
    text = own_config(source, ADDRESSES, parts, token="t", lake=Path("/l"))
    (tmp_path / "cdc.toml").write_text(text, encoding="utf-8")
    config = own_config_of(tmp_path)

    assert config is not None
    assert (config.name, config.slot, config.publication) == ("sales", source.slot, source.slot)
    assert config.source.tables == ("public.*", "!public.x")
    search, cache = config.sinks["search"], config.sinks["cache"]
    assert isinstance(search, Search)
    assert isinstance(cache, Cache)
    assert (search.url, cache.url) == (ADDRESSES.search, ADDRESSES.cache)


def test_the_shop_has_nothing_to_drop_in_a_database(tmp_path: Path) -> None:
    parts = choose_parts((), own_database=False, installed=everything)
    text = shop_config("postgresql://u@h/shop", ADDRESSES, parts, token="t", lake=Path("/l"), views=Path("/v"))
    (tmp_path / "cdc.toml").write_text(text, encoding="utf-8")

    assert own_config_of(tmp_path) is None
    assert own_config_of(tmp_path / "none") is None


def test_an_invalid_dsn_is_refused_without_repeating_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_own(Secret("host=h password=pa ssw0rd"), tmp_path, {})

    assert "ssw0rd" not in f"{caught.value.message} {caught.value.hint} {caught.value.__cause__}"


STATUS: Final[dict[str, Any]] = {
    "state": "RUNNING",
    "reason": "",
    "error": None,
    "rows_per_second": 52.4,
    "lag_seconds": 0.04,
    "slot": {"lag_bytes": 2048},
    "sinks": {
        "search": {"state": "WAITING", "lag_records": 1200, "lag_seconds": 4.0, "reason": "store", "error": None},
        "cache": {"state": "RUNNING", "lag_records": 0, "lag_seconds": 0.0, "reason": "", "error": None},
    },
}


def lines(now: Sample, before: Sample | None = None) -> dict[str, PartLine]:
    found = part_lines(before or now, now, servers=SERVERS, sinks=("search", "cache"))
    return {line.part: line for line in found}


def test_each_part_has_a_line_with_state_rate_and_lag() -> None:
    before = Sample(100.0, STATUS, capture_runs=True, sinks={"cache": {"records": 10}}, change_count=50)
    now = Sample(110.0, STATUS, capture_runs=True, sinks={"cache": {"records": 90}}, change_count=250)
    found = lines(now, before)

    assert list(found) == ["shop", "servers", "capture", "search", "cache"]
    assert found["shop"] == PartLine("shop", "RUNNING", "20 changes/s")
    assert found["capture"] == PartLine("capture", "RUNNING", "52 rows/s", "0.0 s")
    assert found["search"] == PartLine("search", "WAITING", "", "1,200 behind, 4.0 s", "store")
    assert found["cache"] == PartLine("cache", "RUNNING", "8 records/s", "0 behind, 0.0 s")
    assert [line.level for line in found.values()] == ["ok", "ok", "ok", "busy", "ok"]


def test_a_server_that_has_ended_is_named() -> None:
    now = Sample(
        1.0, STATUS, capture_runs=True, change_count=0, problem="no answer", servers_down=("postgres", "kafka")
    )
    found = lines(now)

    assert found["servers"] == PartLine("servers", "DOWN", note="postgres, kafka")
    assert found["shop"] == PartLine("shop", "DOWN", note="no answer")
    assert found["servers"].level == "bad"


def test_a_capture_that_does_not_answer_is_starting_or_down() -> None:
    starting, ended = lines(Sample(1.0, {}, capture_runs=True)), lines(Sample(1.0, {}, capture_runs=False))

    assert {line.state for part, line in starting.items() if part in {"capture", "search", "cache"}} == {"STARTING"}
    assert {line.state for part, line in ended.items() if part in {"capture", "search", "cache"}} == {"DOWN"}


def test_an_error_is_the_note_of_its_part_and_a_restart_is_announced() -> None:
    error = {"message": "cannot connect to PostgreSQL", "hint": ""}
    sink = {"state": "WAITING", "lag_records": None, "lag_seconds": None, "next_start_seconds": 4.6, "error": error}
    waiting = {**STATUS, "state": "WAITING", "reason": "source", "error": error, "sinks": {"search": sink}}
    found = lines(Sample(1.0, waiting, capture_runs=True, change_count=0))

    assert found["capture"].note == "cannot connect to PostgreSQL"
    assert found["search"].note == "restarts in 5 s: cannot connect to PostgreSQL"


def test_a_sink_that_restarted_has_no_negative_rate() -> None:
    before = Sample(1.0, STATUS, capture_runs=True, sinks={"cache": {"records": 90}})
    now = Sample(2.0, STATUS, capture_runs=True, sinks={"cache": {"records": 5}})

    assert lines(now, before)["cache"].rate == ""


def test_a_lake_shows_how_many_bytes_it_is_behind() -> None:
    sinks = {"search": {"records": 0, "behind_bytes": 36_282_808}}

    assert lines(Sample(1.0, STATUS, capture_runs=True, sinks=sinks))["search"].lag == "36 MB behind, 4.0 s"


def test_an_own_database_shows_its_lag_instead_of_a_workload() -> None:
    found = lines(Sample(1.0, STATUS, capture_runs=True))

    assert found["your database"] == PartLine("your database", "RUNNING", lag="2 kB of WAL")


def shown(
    monkeypatch: pytest.MonkeyPatch, width: int, *, terminal: bool, clock_s: Iterator[float]
) -> tuple[DevScreen, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=20, force_terminal=terminal, highlight=False, markup=False)
    monkeypatch.setattr(output, "console", lambda: console)
    return DevScreen(clock_s=lambda: next(clock_s)), out


def test_in_a_narrow_terminal_only_notes_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, out = shown(monkeypatch, 60, terminal=True, clock_s=iter(()))

    screen.show([PartLine("capture", "CATCHING_UP", "1,000 rows/s", "12.0 s", "a long explanation " * 5)])
    screen.close()

    assert "capture" in out.getvalue()
    assert "CATCHING_UP" in out.getvalue()
    assert "1,000 rows/s" in out.getvalue()
    assert "12.0 s" in out.getvalue()
    assert "a lo" in out.getvalue()
    assert "explanation a long" not in out.getvalue()


def test_without_a_terminal_a_line_is_printed_once_a_minute_and_when_a_state_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen, out = shown(monkeypatch, 80, terminal=False, clock_s=iter([0.0, 30.0, 61.0, 62.0, 63.0]))
    running, waiting = (
        PartLine("capture", "RUNNING", "5 rows/s"),
        PartLine("capture", "WAITING", "0 rows/s", "", "x" * 90),
    )

    for line in (running, running, running, waiting, waiting):
        screen.show([line])

    printed = out.getvalue().splitlines()
    assert [line.partition("  ")[2][:16] for line in printed] == ["capture RUNNING "] * 2 + ["capture WAITING "]
    assert "\x1b" not in out.getvalue()


@pytest.fixture
def handlers() -> Iterator[None]:
    """Put the handlers back."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_once_and_its_echo_does_not(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    signals = DevSignals()

    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
    now_s[0] += 0.5
    os.kill(os.getpid(), number)
    now_s[0] += 2.0
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
    now_s[0] += 2.0
    signals.ignored = True
    os.kill(os.getpid(), number)


@pytest.mark.usefixtures("handlers")
def test_under_nohup_the_end_of_the_terminal_is_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    DevSignals()

    os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
