"""Reload: each reloadable setting takes effect in what runs, others are named, and an invalid file changes nothing."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final, cast

import pytest
import structlog

from cdc.config.load import parse
from cdc.config.reloadable import ACCESS, RELOADABLE
from cdc.config.secret import Secret
from cdc.config.settings import Config
from cdc.errors import ConfigError
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.load_reading import Signal
from cdc.run.reload import Reloader, of_sink, passed_on, pending
from cdc.startup import wal_guard
from cdc.startup.signal_reader import SignalListener
from cdc.startup.wal_guard import WalGuard
from cdc.telemetry.load_status import LoadStatus
from cdc.telemetry.metrics import Metrics
from cdc.telemetry.signal_status import SignalStatus
from cdc.web.access import Access
from snapshot import load_guard
from snapshot.handover import HandOver
from snapshot.load_control import Limits, Pace
from snapshot.load_guard import LoadGuard
from snapshot.merger import Merger
from snapshot.reader_threads import ReaderThreads
from tests.fixtures.servers.manual_clock import ManualClock
from tests.unit.cdc.test_audit_follow import Scene
from tests.unit.cdc.test_heartbeat import Rig

_WHOLE: Final = """
name = "shop"
[source]
dsn = "postgresql://cdc@db/shop"
{source}
[kafka]
bootstrap = "kafka:9092"
{rest}
"""


def _config(source: str = "", rest: str = "") -> Config:
    return parse(_WHOLE.format(source=source, rest=rest), {})


def _reloader(old: Config, new: Config, **given: Any) -> Reloader:
    return Reloader(old, lambda: new, **given)


def _http() -> None:
    access = Access.of(_config().http)
    access.adopt(_config(rest='[http]\ntoken = "s3cret"\nhosts = ["cdc.example"]'))
    assert access.is_authorised("Bearer s3cret")
    assert access.accepts("cdc.example", on_loopback=True)
    assert not access.accepts("other.example", on_loopback=True)


def _audit() -> None:
    scene = Scene(_config(rest='[audit]\non_finding = "warn"').audit)
    scene.following.adopt(_config(rest="[audit]\ninterval_s = 9.0\nbytes_per_s_max = 10"))
    began_s = scene.clock.now_s
    scene.following._pace(1000)
    assert scene.clock.now_s - began_s == 100
    scene.steps = [scene.damage]
    scene.following.run()
    assert scene.following.due(), "on_finding is stop now"


def _heartbeat() -> None:
    rig, paces = Rig(), list[float]()
    rig.beats.paces(paces.append)
    rig.beats.write(StreamPosition(Lsn(100), Lsn(90)))
    rig.beats.adopt(_config(rest="[capture]\nheartbeat_interval_s = 2.0"))
    rig.clock.now_s += 2
    assert rig.beats.due()
    assert paces == [2.0]


def _signals() -> None:
    clock, never = ManualClock(), threading.Event()
    status = SignalStatus(Metrics())
    listening = SignalListener(_config(rest="[signals]\nper_second_max = 0.001"), clock, cast("Any", None), status)
    assert all(listening._rate.wait(never) for _ in range(21))
    listening.adopt(_config(rest="[signals]\nper_second_max = 0"))
    began_s = clock.now_s
    assert listening._rate.wait(never)
    assert clock.now_s == began_s


def _snapshot() -> None:
    handover, clock = HandOver(Merger(), lambda *_: None, epoch=1), ManualClock()
    readers = ReaderThreads(
        handover,
        Secret("dbname=shop"),
        clock,
        publication="p",
        tables=lambda _: [],
        workers=1,
        rows_per_s_max=1,
        pace=Pace(),
    )
    readers._throttle.read(1000, clock.now_s)
    assert not readers._throttle.open(clock.now_s)
    readers.start("")
    try:
        readers.adjust(workers=3, rows_per_s_max=0)
        assert readers._throttle.open(clock.now_s)
        assert sum(thread.is_alive() for thread in readers._threads) == 4
        readers.adjust(workers=1, rows_per_s_max=0)
        assert [readers._is_surplus() for _ in range(3)] == [True, True, False]
    finally:
        readers.close()


def _load() -> None:
    ignored, pace, patch = list[Any](), Pace(), pytest.MonkeyPatch()

    def standby_lag(_: object, names: object) -> tuple[str, float]:
        ignored.append(names)
        return "s1", 20.0

    try:
        patch.setattr(load_guard, "connect", lambda *_, **__: _Closed())
        patch.setattr(load_guard, "deadline", lambda *_: nullcontext())
        patch.setattr(load_guard, "may_read_statistics", lambda _: (True, "cdc"))
        patch.setattr(load_guard, "commit_latency_s", lambda *_, **__: 0.3)
        patch.setattr(load_guard, "standby_lag", standby_lag)
        patch.setattr(load_guard, "session_waits", lambda _: (6, 10))
        limits, observer = Limits(500, 30.0, 75), LoadStatus(Metrics())
        guard = LoadGuard(Secret("dbname=shop"), ManualClock(), limits, pace, observer=observer)
        guard._round()
        guard._round()
        assert pace.state.speed == 1
        lower: dict[Signal, Limits] = {
            "commit_latency": Limits(100, 30.0, 75),
            "standby_lag": Limits(500, 10.0, 75),
            "io_waits": Limits(500, 30.0, 50),
        }
        for signal_of, each in lower.items():
            guard.adjust(each, ("delayed",))
            guard._round()
            guard._round()
            assert pace.state.signal == signal_of
        assert ignored[-1] == ("delayed",)
    finally:
        patch.undo()


class _Reading:
    kept_bytes, slot, confirmed_lsn, current_lsn = 5 << 20, "cdc_shop", Lsn(1), Lsn(2)


class _Status:
    position = None

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []

    def wal_seen(self, _: object, *, alarm_bytes: int, transaction_alarm_s: float) -> None:
        self.seen.append((alarm_bytes, transaction_alarm_s))


class _Waits(ManualClock):
    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        stop.set()
        return True


def _wal() -> None:
    status, clock, dropped = _Status(), _Waits(), list[str]()
    guard = WalGuard(_config(), clock, cast("Any", status))
    patch = pytest.MonkeyPatch()
    try:
        patch.setattr(wal_guard, "connect", lambda *_, **__: _Closed())
        patch.setattr(wal_guard, "wal_reading", lambda *_, **__: _Reading())
        patch.setattr(wal_guard, "_drop_slot", lambda _, slot: dropped.append(slot))
        guard.check()
        limits = "wal_alarm_bytes = 2097152\ntransaction_alarm_s = 7.0\nwal_check_s = 3.0"
        guard.adopt(_config(source=f'{limits}\non_wal_pressure = "drop_slot"\nwal_drop_bytes = 4194304'))
        guard._run()
    finally:
        patch.undo()
    assert status.seen[-1] == (2 << 20, 7.0)
    assert clock.waits == [3.0]
    assert dropped == ["cdc_shop"]


class _Closed:
    def close(self) -> None:
        pass

    def fileno(self) -> int:
        raise OSError


_EFFECTS: Final[dict[Callable[[], None], frozenset[str]]] = {
    _http: ACCESS,
    _audit: frozenset({"audit.bytes_per_s_max", "audit.interval_s", "audit.on_finding"}),
    _heartbeat: frozenset({"capture.heartbeat_interval_s"}),
    _signals: frozenset({"signals.per_second_max"}),
    _snapshot: frozenset({"snapshot.rows_per_s_max", "snapshot.workers"}),
    _load: frozenset(
        {
            "snapshot.commit_latency_max_ms",
            "snapshot.io_waits_max_percent",
            "snapshot.standby_lag_max_s",
            "snapshot.standbys_ignored",
        }
    ),
    _wal: frozenset(
        {
            "source.on_wal_pressure",
            "source.transaction_alarm_s",
            "source.wal_alarm_bytes",
            "source.wal_check_s",
            "source.wal_drop_bytes",
        }
    ),
}


@pytest.mark.parametrize("effect", _EFFECTS, ids=lambda one: one.__name__.strip("_"))
def test_new_setting_takes_effect_while_capture_runs(effect: Callable[[], None]) -> None:
    effect()


def test_every_reloadable_setting_has_a_test_of_its_effect() -> None:
    assert frozenset().union(*_EFFECTS.values()) == RELOADABLE


def test_new_audit_interval_is_the_next_pause() -> None:
    scene = Scene(_config(rest="[audit]\ninterval_s = 5.0").audit)
    new = _config(rest="[audit]\ninterval_s = 9.0")
    scene.steps = [scene.more, lambda: scene.following.adopt(new), scene.end]

    began_s = scene.clock.now_s
    scene.following.run()

    assert scene.clock.now_s - began_s >= 9


def test_reload_applies_what_it_can_and_names_what_needs_a_restart() -> None:
    old = _config()
    new = _config(source='tables = ["public.t"]', rest="[snapshot]\nworkers = 5\nchunk_bytes = 9000")
    reloader, adopted = _reloader(old, new), list[Config]()

    with structlog.testing.capture_logs() as logged, reloader.followed_by(adopted.append):
        assert pending(reloader) == {
            "reload": ["snapshot.workers"],
            "restart": ["source.tables", "snapshot.chunk_bytes"],
        }
        found = reloader.reload()

    assert (found.applied, found.restart) == (("snapshot.workers",), ("source.tables", "snapshot.chunk_bytes"))
    assert adopted[0] == old
    assert adopted[-1].snapshot.workers == 5
    assert (adopted[-1].source, adopted[-1].snapshot.chunk_bytes) == (old.source, old.snapshot.chunk_bytes)
    assert [one["event"] for one in logged] == ["config_reloaded"]
    assert reloader.reload().applied == ()


def test_invalid_configuration_changes_nothing() -> None:
    def load() -> Config:
        raise ConfigError("audit.interval_s: Expected `float`, got `str`")

    reloader, adopted = Reloader(_config(), load), list[Config]()
    with structlog.testing.capture_logs() as logged, reloader.followed_by(adopted.append):
        with pytest.raises(ConfigError):
            reloader.reload()
        assert "error" in pending(reloader)

    assert adopted == [_config()]
    assert [one["event"] for one in logged] == ["config_reload_failed"]


@pytest.mark.parametrize(("before", "after"), [("0", "5"), ("5", "0")])
def test_heartbeats_that_begin_or_end_need_a_restart(before: str, after: str) -> None:
    old, new = (_config(rest=f"[capture]\nheartbeat_interval_s = {seconds}.0") for seconds in (before, after))

    assert _reloader(old, new).reload().restart == ("capture.heartbeat_interval_s",)


def test_sink_takes_over_its_token_and_names_only_its_own_settings() -> None:
    sinks = '[sinks.a]\nkind = "cache"\nurl = "redis://a"\n[sinks.b]\nkind = "cache"\nurl = "redis://{b}"\n'
    old = _config(rest=sinks.format(b="b"))
    new = _config(source='tables = ["public.t"]', rest='[http]\ntoken = "s3cret"\n' + sinks.format(b="c"))

    for_a, for_b = (_reloader(old, new, reloadable=ACCESS, concerns=of_sink(name)).reload() for name in ("a", "b"))

    assert (for_a.applied, for_a.restart) == (("http.token",), ())
    assert (for_b.applied, for_b.restart) == (("http.token",), ("sinks.b.url",))


def test_sinks_are_sent_the_signal_only_when_a_setting_of_theirs_changes() -> None:
    class View:
        def __init__(self, pid: int | None) -> None:
            self.pid = pid

    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    adopt = passed_on(_config(), lambda: cast("Any", [View(None), View(child.pid)]))

    adopt(_config(rest="[audit]\ninterval_s = 9.0"))
    assert child.poll() is None
    adopt(_config(rest='[http]\ntoken = "s3cret"'))

    assert child.wait(30) == -signal.SIGHUP


_PROGRAM: Final = """
import os, signal, sys, threading, time
if "nohup" in sys.argv:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
from cdc.run.reload import HangUps

HangUps(lambda: os._exit(5), lambda: os._exit(7))
os.write(3, b"ready")
time.sleep(600)
"""


def _on_terminal(*arguments: str, close: bool) -> int:
    """Run the program as the leader of a session with a terminal; close it, or send SIGHUP. Returns its exit code."""
    reads, writes = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        os.dup2(writes, 3)
        os.execv(sys.executable, [sys.executable, "-c", _PROGRAM, *arguments])
    os.close(writes)
    assert os.read(reads, 5) == b"ready"
    if close:
        os.close(terminal)
    else:
        os.kill(pid, signal.SIGHUP)
    _, status = os.waitpid(pid, 0)
    os.close(reads)
    if not close:
        os.close(terminal)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize(
    ("arguments", "close", "code"), [((), False, 5), ((), True, 7), (("nohup",), True, 5)], ids=str
)
def test_sighup_reloads_unless_the_terminal_was_closed(arguments: tuple[str, ...], *, close: bool, code: int) -> None:
    assert _on_terminal(*arguments, close=close) == code
