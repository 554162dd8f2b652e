"""Pauses a sink and has it go on: a record in its state topic that outlives every process."""

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
"""For workers to stand still. Whoever fills a sink has another guard against those that do not."""
_LOOK_S: Final = 0.2


def pause_sink(config: Config, sink: str, clock: Clock, *, timeout_s: float, lease_ms: int = 0) -> int:
    """Returns when every worker of the sink has committed and applies nothing; how many there are.

    A sink that is paused already stays so. With `lease_ms` the wish holds until then only, in ms since 1970.
    Raises SinkBehind when workers do not say so in time; the wish holds.
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
                    hint="the wish holds: they stop as soon as they hear of it; see their logs",
                    command=f"cdc sink status {sink}",
                )
            clock.wait(threading.Event(), _LOOK_S)
    finally:
        state.close()


def renew_pause(config: Config, sink: str, lease_ms: int) -> None:
    """Have a pause that holds for a time hold longer; nothing if it is gone, or holds for good."""
    state = StateTopic(config, sink)
    try:
        there = state.load().get(PAUSE_KEY)
        pause = pause_of(there)
        if pause is not None and until_ms(there):
            state.put([(PAUSE_KEY, pause_value(pause, lease_ms))])
    finally:
        state.close()


def resume_sink(config: Config, sink: str) -> bool:
    """Have it go on; False when it was not paused. Workers hear of it within a second."""
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
    """Workers stand still, and go on afterwards unless somebody had paused them before.

    Those that do not hear of it in time are logged: nobody relies on it alone.
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
    """Whether somebody paused it until somebody resumes it."""
    state = StateTopic(config, sink)
    try:
        there = state.load().get(PAUSE_KEY)
    finally:
        state.close()
    return holds(there, clock) is not None and not until_ms(there)
