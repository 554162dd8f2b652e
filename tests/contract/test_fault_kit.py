"""The fault kit causes the faults that it claims; otherwise tests that use it would prove nothing."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from tests.fixtures.faults.failpoints import STEPS
from tests.fixtures.faults.limits import memory_limit, open_files, small_disk
from tests.fixtures.faults.proxy import END_TXN, Proxy
from tests.fixtures.faults.wallclock import WallClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HOST: Final = "127.0.0.1"
_HOUR_S: Final = 3600
_QUICK_S: Final = 60.0
_SILENCE_S: Final = 0.3


def test_slow_line_delays_and_carries_everything() -> None:
    with echo() as port, Proxy(port) as proxy, dialled(proxy) as line:
        assert exchange(line, b"at once") == b"at once"

        proxy.latency_s = 0.05
        began_s = time.monotonic()
        assert exchange(line, b"later") == b"later"
        assert time.monotonic() - began_s >= 0.1, "both ways are slow"

        proxy.latency_s, proxy.bytes_per_s, proxy.crumb_bytes = 0.0, 100_000, 1000
        began_s = time.monotonic()
        assert exchange(line, bytes(20_000)) == bytes(20_000)
        assert time.monotonic() - began_s >= 0.2


def test_one_way_silence_is_a_half_open_connection() -> None:
    with echo() as port, Proxy(port) as proxy, dialled(proxy) as line, dialled(proxy) as other:
        assert exchange(line, b"a") == exchange(other, b"a")
        assert proxy.silence("to client") == 2

        line.sendall(b"it is heard")
        line.settimeout(_SILENCE_S)
        with pytest.raises(TimeoutError):
            line.recv(100)
        with dialled(proxy) as later:
            assert exchange(later, b"new ones pass") == b"new ones pass"


def test_reset_is_a_reset_and_no_end_of_file() -> None:
    with echo() as port, Proxy(port) as proxy, dialled(proxy) as line:
        assert exchange(line, b"a") == b"a"
        proxy.reset()

        with pytest.raises(OSError) as error:
            exchange(line, b"b")
        assert error.value.errno in {errno.ECONNRESET, errno.EPIPE}


def test_held_request_arrives_when_it_is_released_and_not_before() -> None:
    heard: list[bytes] = []
    request = frame(END_TXN, b"of a transaction")
    with echo(heard) as port, Proxy(port, frames=True) as proxy:
        trap = proxy.trap(END_TXN, "hold", text=b"transaction")
        with dialled(proxy) as line:
            line.sendall(frame(3, b"another kind of request"))
            assert line.recv(1000)
            line.sendall(request)
            assert trap.sprung.wait(_QUICK_S)
        assert request not in b"".join(heard)

        trap.release()
        wait_for(lambda: request in b"".join(heard))
        proxy.clear()


def test_process_out_of_files_is_told_so() -> None:
    program = "import os; [os.open('/dev/null', 0) for _ in range(40)]"

    done = subprocess.run([*open_files(32), sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "Too many open files" in done.stderr


def test_process_over_its_memory_is_killed_and_counted() -> None:
    with memory_limit(64 << 20) as limit:
        fits, too_large = (
            subprocess.run([*limit.wrap, sys.executable, "-c", f"bytearray({size} << 20)"], check=False).returncode
            for size in (1, 256)
        )
        kills = limit.oom_kills

    assert (fits, too_large, kills) == (0, -9, 1)


def test_full_and_read_only_disks_refuse_and_take_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        file = disk.folder / "file"
        for break_it, mend_it, number in (
            (disk.fill, disk.free, errno.ENOSPC),
            (disk.read_only, lambda: disk.read_only(False), errno.EROFS),
        ):
            break_it()
            with pytest.raises(OSError) as error:
                file.write_bytes(b"x" * 5000)
            assert error.value.errno == number
            mend_it()
            file.write_bytes(b"x" * 5000)


def test_wall_clock_is_wrong_by_what_was_set_and_the_other_clock_is_not(tmp_path: Path) -> None:
    clock = WallClock(tmp_path)
    for offset_s in (_HOUR_S, -_HOUR_S):
        clock.set(offset_s)
        program = "import time; print(time.time(), time.monotonic())"
        said = subprocess.run(
            [sys.executable, "-c", program], env=clock.environ, capture_output=True, check=True
        ).stdout
        wall_s, monotonic_s = map(float, said.split())

        assert abs(wall_s - time.time() - offset_s) < 60
        assert abs(monotonic_s - time.monotonic()) < 60


def test_every_failpoint_names_a_step_that_is_there() -> None:
    """That each is come to, and kills, is shown by `tests/faults/test_failpoints.py`, for every name."""
    assert [step for step, (place, attribute) in STEPS.items() if not callable(getattr(place, attribute, None))] == []


def frame(api_key: int, body: bytes) -> bytes:
    """A request as Kafka frames it."""
    request = api_key.to_bytes(2, "big") + bytes(2) + bytes(4) + body
    return len(request).to_bytes(4, "big") + request


def exchange(line: socket.socket, data: bytes) -> bytes:
    """Send `data`; what comes back, as much as was sent."""
    line.sendall(data)
    back = b""
    while len(back) < len(data) and (part := line.recv(65536)):
        back += part
    return back


def wait_for(probe: object) -> None:
    """Until it says yes."""
    assert callable(probe)
    end_s = time.monotonic() + _QUICK_S
    while not probe():
        assert time.monotonic() < end_s
        time.sleep(0.01)


@contextmanager
def dialled(proxy: Proxy) -> Iterator[socket.socket]:
    """A connection through the proxy."""
    with socket.create_connection((_HOST, proxy.port), _QUICK_S) as line:
        yield line


@contextmanager
def echo(heard: list[bytes] | None = None) -> Iterator[int]:
    """A server that sends back what it hears, and notes it."""
    with socket.create_server((_HOST, 0)) as listener:

        def serve(line: socket.socket) -> None:
            with line:
                try:
                    while data := line.recv(65536):
                        if heard is not None:
                            heard.append(data)
                        line.sendall(data)
                except OSError:
                    return

        def accept() -> None:
            try:
                while True:
                    line, _ = listener.accept()
                    threading.Thread(target=serve, args=(line,), daemon=True).start()
            except OSError:
                return

        threading.Thread(target=accept, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
