"""What the overview reads without viewers, for the notifier."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cdc.config.load import parse
from cdc.overview import live
from cdc.overview.live import Overview
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from tests.fixtures.servers.manual_clock import ManualClock

_CONFIG = """
name = "shop"
[source]
dsn = "postgresql://db.invalid/shop"
[kafka]
bootstrap = "kafka.invalid:9"
[sinks.fast]
kind = "cache"
url = "redis://cache.invalid"
"""


class _Once(ManualClock):
    """Ends a loop after its first turn."""

    ends: threading.Event

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.ends.set()
        return super().wait(stop, seconds)


class _Supervising(Status):
    """Capture that supervises its sink."""

    def snapshot(self) -> dict[str, Any]:
        return super().snapshot() | {"sinks": {"fast": {"state": "RUNNING", "pid": 7}}}


def test_blocked_keys_need_attention_without_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live._BlockedKeys, "counts", lambda _: {"fast": 3})
    clock = _Once()
    made = Overview(parse(_CONFIG, {}), _Supervising("shop", clock, Metrics("shop")), clock)
    clock.ends = made._stop

    made._read()

    (found,) = [one for one in made.attention() if one.what == "dead-letters of fast"]
    assert found.command == "cdc dlq list fast"
