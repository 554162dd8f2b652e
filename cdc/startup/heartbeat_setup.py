"""Puts heartbeats together, as far as they are asked for."""

from __future__ import annotations

from contextlib import ExitStack

from cdc.capture.heartbeats import Heartbeats
from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.contracts import HeartbeatObserver
from cdc.model.change_records import TopicBuffer
from cdc.model.topic_names import heartbeat_topic
from cdc.replication.heartbeat_thread import HeartbeatThread


def heartbeats(
    config: Config, clock: Clock, observer: HeartbeatObserver, closing: ExitStack, *, epoch: int
) -> list[Heartbeats]:
    """One or none. The statement on the source runs until `closing`; raises what its first run says."""
    settings = config.capture
    if not settings.heartbeat_interval_s:
        return []
    buffer = TopicBuffer(heartbeat_topic(config.name), 1, compacted=False)
    interval_s = settings.heartbeat_interval_s
    made = Heartbeats(config.name, clock, epoch=epoch, interval_s=interval_s, buffer=buffer, observer=observer)
    if settings.heartbeat_query:
        pulse = HeartbeatThread(
            config.source.dsn,
            settings.heartbeat_query,
            clock,
            interval_s=interval_s,
            sent=made.sent,
            failed=observer.heartbeat_failed,
        )
        pulse.start()
        closing.callback(pulse.close)
    return [made]
