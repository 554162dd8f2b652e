"""What holds for a time and is renewed while its owner lives: nobody has to clean up behind one that was killed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cdc.clock import Clock
from cdc.errors import TailraceError
from cdc.telemetry import log

LEASE_S: Final = 30.0
"""Clocks of machines may differ by the half of it; a swap takes a second or two where nothing is in its way."""
RENEW_S: Final = 5.0


def lease_ms(clock: Clock) -> int:
    """Until when something that is done now holds, in ms since 1970."""
    return int((clock.wall_s() + LEASE_S) * 1000)


@contextmanager
def renewing(renew: Callable[[], None]) -> Iterator[None]:
    """Call it again and again, in a thread. One that fails is called again."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(RENEW_S):
            try:
                renew()
            except TailraceError as error:
                log.get().warning("sink_lease_not_renewed", **log.error_fields(error))
            except Exception as error:  # noqa: BLE001 - it is called again
                log.get().error("sink_lease_not_renewed", error=log.origin(error))

    thread = threading.Thread(target=work, name="sink-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
