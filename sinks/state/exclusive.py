"""Keeps commands that rebuild or mend one sink out of each other's way, on whatever machines they run."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from cdc.clock import Clock
from cdc.config.settings import Config
from sinks.state.claim_records import ClaimHolder
from sinks.state.lease import renewing
from sinks.state.state_topic import StateTopic


@contextmanager
def claimed(config: Config, sink: str, what: str, clock: Clock) -> Iterator[None]:
    """Nobody else does such a thing to the sink meanwhile.

    Waits for the claim of one that was killed to end, up to half a minute. Raises SinkBusy when its owner lives, and as
    `StateTopic`.
    """
    state = StateTopic(config, sink)
    claiming = ClaimHolder(state, sink, clock)
    try:
        claiming.take_or_wait(what, f"process {os.getpid()} on {socket.gethostname()}")
        try:
            with renewing(claiming.renew):
                yield
        finally:
            claiming.give_back()
    finally:
        state.close()
