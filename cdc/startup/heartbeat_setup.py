"""Creates the heartbeats that are configured."""

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
    """Return the heartbeat writer, or an empty list.

    Runs the statement on the source until `closing` is closed. Raises the error of its first run.
    """
    settings = config.capture
    if not settings.heartbeat_interval_s:
        return []
    buffer = TopicBuffer(heartbeat_topic(config.name), 1, compacted=False)
    interval_s = settings.heartbeat_interval_s
    made = Heartbeats(config.name, clock, epoch=epoch, interval_s=interval_s, buffer=buffer, observer=observer)
    if settings.heartbeat_query:
        thread = HeartbeatThread(
            config.source.dsn,
            settings.heartbeat_query,
            clock,
            interval_s=interval_s,
            sent=made.sent,
            failed=observer.heartbeat_failed,
        )
        made.paces(thread.pace)
        thread.start()
        closing.callback(thread.close)
    return [made]
