"""Pauses and resumes a sink with a record in its state topic, which outlives every process."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import SinkBehind
from cdc.kafka.group_offsets import GroupAdmin
from cdc.model.topic_names import sink_group
from cdc.telemetry import log
from sinks.state.lease import lease_ms as held_ms
from sinks.state.lease import renewing
from sinks.state.pause_records import PAUSE_KEY, holds, pause_of, pause_value, paused_members, until_ms
from sinks.state.state_topic import StateTopic

PAUSE_S: Final = 30.0
"""Time for workers to stop. A rebuild has another guard against workers that do not stop."""
_POLL_S: Final = 0.2


def pause_sink(config: Config, sink: str, clock: Clock, *, timeout_s: float, lease_ms: int = 0) -> int:
    """Pause the sink, wait until every worker has committed and stopped, and return the number of workers.

    A sink that is already paused stays paused. With `lease_ms` the pause expires at that time, in ms since 1970.
    Raises SinkBehind when workers do not acknowledge in time; the pause stays in effect.
    """
    state, group = StateTopic(config, sink), sink_group(config.name, sink)
    admin = GroupAdmin(config.kafka)
    try:
        kept = state.load()
        pause = holds(kept.get(PAUSE_KEY), clock)
        if pause is None or (until_ms(kept.get(PAUSE_KEY)) and not lease_ms):
            pause = pause or secrets.token_hex(8)
            state.put([(PAUSE_KEY, pause_value(pause, lease_ms))])
        ends_s = clock.monotonic_s() + timeout_s
        while True:
            members = admin.members(group)
            missing = members - paused_members(state.load().items(), pause)
            if not missing:
                return len(members)
            if clock.monotonic_s() > ends_s:
                raise SinkBehind(
                    f"{len(missing)} of {len(members)} workers of {sink!r} have not stopped after {timeout_s:.0f} s",
                    hint="the pause stays in effect: they stop when they read it; see their logs",
                    command=f"cdc sink status {sink}",
                )
            clock.wait(threading.Event(), _POLL_S)
    finally:
        state.close()


def renew_pause(config: Config, sink: str, lease_ms: int) -> None:
    """Extend a pause that expires; does nothing if it is gone, or does not expire."""
    state = StateTopic(config, sink)
    try:
        there = state.load().get(PAUSE_KEY)
        pause = pause_of(there)
        if pause is not None and until_ms(there):
            state.put([(PAUSE_KEY, pause_value(pause, lease_ms))])
    finally:
        state.close()


def resume_sink(config: Config, sink: str) -> bool:
    """Resume the sink; False when it was not paused. Workers notice within a second."""
    state = StateTopic(config, sink)
    try:
        if PAUSE_KEY not in state.load():
            return False
        state.put([(PAUSE_KEY, None)])
        return True
    finally:
        state.close()


@contextmanager
def paused(config: Config, sink: str, clock: Clock) -> Iterator[None]:
    """Pause the workers, and resume them afterwards unless an operator had paused them before.

    Workers that do not stop in time are only logged: no caller relies on the pause alone.
    """
    try:
        with renewing(lambda: renew_pause(config, sink, held_ms(clock))):
            try:
                pause_sink(config, sink, clock, timeout_s=PAUSE_S, lease_ms=held_ms(clock))
            except SinkBehind as error:
                log.get().warning("sink_workers_not_paused", sink=sink, reason=str(error))
            yield
    finally:
        if not _paused_for_good(config, sink, clock):
            resume_sink(config, sink)


def _paused_for_good(config: Config, sink: str, clock: Clock) -> bool:
    """Whether an operator paused it without an expiry."""
    state = StateTopic(config, sink)
    try:
        there = state.load().get(PAUSE_KEY)
    finally:
        state.close()
    return holds(there, clock) is not None and not until_ms(there)
