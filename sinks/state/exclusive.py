"""Lets one command at a time rebuild or repair a sink, across machines."""

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
    """Hold a claim on the sink, so that no other command rebuilds or repairs it.

    Waits up to half a minute for the claim of a killed command to expire. Raises SinkBusy when another command is
    running, and the errors of `StateTopic`.
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
