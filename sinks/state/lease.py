"""Leases: expire unless their owner renews them, so a killed owner leaves nothing to clean up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cdc.clock import Clock
from cdc.errors import TailraceError
from cdc.telemetry import log

LEASE_S: Final = 30.0
"""The clocks of the machines may differ by half of it; an undisturbed index swap takes a second or two."""
RENEW_S: Final = 5.0


def lease_ms(clock: Clock) -> int:
    """Return the expiry of a lease that is taken or renewed now, in ms since 1970."""
    return int((clock.wall_s() + LEASE_S) * 1000)


@contextmanager
def renewing(renew: Callable[[], None]) -> Iterator[None]:
    """Call `renew` periodically in a thread, also after it failed."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(RENEW_S):
            try:
                renew()
            except TailraceError as error:
                log.get().warning("sink_lease_not_renewed", **log.error_fields(error))
            except Exception as error:  # noqa: BLE001 - the next call may succeed
                log.get().error("sink_lease_not_renewed", error=log.origin(error))

    thread = threading.Thread(target=work, name="sink-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
