"""Nothing in the signals topic harms capture; `make signal-fuzz` writes 20,000 records while rows stream.

Latency is measured from the insert of a row until a consumer has its record, before and during the signals. It is
printed and never asserted: the machine is shared.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer

from tests.fixtures.capture.signal_fuzz import fuzzed
from tests.fixtures.capture.signal_records import answered, signal
from tests.fixtures.capture.snapshot_waits import INITIAL, complete, differences
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections

_COUNT: Final = int(os.environ.get("TAILRACE_SIGNAL_FUZZ", "300"))
_SEED: Final = int(os.environ.get("TAILRACE_SIGNAL_SEED", "19"))
_WITHIN_S: Final = 60 + _COUNT / 10
_UNBOUNDED: Final[Sections] = {**INITIAL, "signals": {"per_second_max": 0}}
_TABLE: Final = (
    "create table t (id int primary key, status text)",
    "insert into t select n, 'old' from generate_series(1, 200) n",
    "create table wide (id int, a int, b text, primary key (id, a))",
)
ATTACKS: Final[tuple[dict[str, Any] | bytes, ...]] = (
    {"type": "execute-snapshot", "data": {"data-collections": [r"((\w*)*\.*)*!"]}},
    {"type": "execute-snapshot", "data": {"data-collections": ["a{99999999999}"]}},
    b'{"command":"start","tables":["public.t"],"keys":[{"id":1e400}]}',
    b'{"command":"start","tables":["public.t"],"keys":[{"id":' + b"9" * 5000 + b"}]}",
    {"command": "start", "tables": ["public.t"], "keys": [{"id": "\0"}]},
    {"type": "execute-snapshot", "id": "\ud800", "data": {"data-collections": ["public.t"]}},
    b'{"command":' + b"[" * 100_000,
)


def test_hostile_signals_are_answered_and_capture_goes_on_also_after_a_restart(capture: CaptureSite) -> None:
    capture.sql(*_TABLE)
    daemon = capture.running(_UNBOUNDED)
    complete(capture, daemon, "public.t")

    offsets = [signal(capture, attack) for attack in ATTACKS]
    last = [answered(capture, offset) for offset in offsets][-1]
    daemon.kill()
    daemon = capture.running(_UNBOUNDED)
    capture.sql("insert into t values (1001, 'new')")
    log = capture.settled(daemon)

    assert last["refused"]
    assert not differences(capture, log, "t").any
    shown = daemon.status()
    assert shown["state"] in {"RUNNING", "CATCHING_UP"}
    assert shown["signals"]["listening"]
    assert not daemon.events("signals_interrupted")
    assert not daemon.events("signal_failed")


def test_signals_that_are_switched_off_stay_in_the_topic_until_they_are_on(capture: CaptureSite) -> None:
    capture.sql(*_TABLE)
    daemon = capture.running({**INITIAL, "signals": {"enabled": False}})
    complete(capture, daemon, "public.t")
    assert daemon.status()["signals"] is None
    offset = signal(capture, {"command": "start", "tables": ["public.t"]})
    daemon.stop()

    capture.running(INITIAL)

    assert answered(capture, offset)["done"] == ["public.t"]


@pytest.mark.timeout(3600)
def test_random_signals_leave_capture_running_and_its_log_right(capture: CaptureSite) -> None:
    capture.sql(*_TABLE)
    daemon = capture.running(_UNBOUNDED)
    complete(capture, daemon, "public.t")
    with _latencies(capture) as seen:
        until(lambda: len(seen) >= 50, "rows arrive", within_s=_WITHIN_S)
        calm = list(seen)
        seen.clear()
        began_s, states = time.monotonic(), set[str]()
        end = _flood(capture)

        def done() -> bool:
            shown = daemon.status()
            states.add(str(shown["state"]))
            return bool(shown["signals"]["next_offset"] == end)

        until(done, "every signal is answered", within_s=_WITHIN_S, every_s=0.2)
        took_s, busy = time.monotonic() - began_s, list(seen)

    sys.stdout.write(f"\n{_COUNT} signals of seed {_SEED} in {took_s:.0f} s: {_shown(daemon)}\n")
    sys.stdout.write(f"latency before: {_milliseconds(calm)}; during: {_milliseconds(busy)}\n")
    assert states <= {"RUNNING", "CATCHING_UP"}
    assert not daemon.events("capture_waiting")
    assert not daemon.events("signals_interrupted")
    assert not daemon.events("signal_failed")
    signal(capture, {"command": "stop"})
    assert not differences(capture, capture.settled(daemon), "t").any


def _flood(capture: CaptureSite) -> int:
    """Write the signals, whose keys name this pipeline; the offset behind the last one that is answered."""
    producer = Producer({"bootstrap.servers": capture.bootstrap, "message.max.bytes": 4 << 20, "log_level": 3})
    topic, ends = f"{capture.name}.__signals", list[int | None]()
    for key, value in fuzzed(_SEED, _COUNT):
        mine = capture.name.encode() if key == b"shop" else key
        body = None if value is None or len(value) > 900_000 else value
        producer.produce(topic, body, mine, 0)
        producer.poll(0)
    producer.produce(
        topic, b'{"type":"log"}', capture.name.encode(), 0, lambda _, message: ends.append(message.offset())
    )
    producer.flush(60)
    assert ends
    assert ends[0] is not None
    return ends[0] + 1


@contextmanager
def _latencies(capture: CaptureSite) -> Iterator[list[float]]:
    """Seconds from an insert until a consumer has its record, row after row, measured by another process."""
    command = [sys.executable, "-m", "tests.fixtures.capture.latency_probe"]
    found = list[float]()
    with subprocess.Popen(
        [*command, capture.dsn, capture.bootstrap, capture.topic("t"), "t"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as probe:
        assert probe.stdin
        assert probe.stdout
        lines = probe.stdout

        def read() -> None:
            for line in lines:
                found.append(float(line))

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield found
        finally:
            probe.stdin.close()
            thread.join(30)
    assert probe.returncode == 0


def _milliseconds(found: list[float]) -> str:
    ranked = sorted(found)
    shares = {share: ranked[int(share * (len(ranked) - 1))] for share in (0.5, 0.95, 0.99, 1)} if ranked else {}
    return f"{len(ranked)} rows, " + ", ".join(f"p{share * 100:g} {1000 * s:.0f} ms" for share, s in shares.items())


def _shown(daemon: Daemon) -> str:
    found = daemon.status()["signals"]
    return f"{found['done']} done, {found['refused']} refused"
