"""Heartbeats: written at their interval, never ahead of the log; and the lag of statements on the source."""

from __future__ import annotations

import json

import pytest

from cdc.capture.heartbeats import Heartbeats
from cdc.errors import ConfigError
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition, TopicBuffer
from tests.fixtures.capture.scripted_capture import NotingObserver
from tests.fixtures.capture.source_builders import config
from tests.fixtures.servers.manual_clock import ManualClock


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.observer = NotingObserver()
        self.buffer = TopicBuffer("shop.heartbeat", 1, compacted=False)
        self.beats = Heartbeats(
            "shop", self.clock, epoch=3, interval_s=10.0, buffer=self.buffer, observer=self.observer
        )

    def commit(self, end_lsn: int, *, seconds: float = 0.0) -> bool:
        wrote = self.beats.write(StreamPosition(Lsn(end_lsn), Lsn(end_lsn - 8)))
        self.clock.now_s += seconds
        self.beats.written()
        return wrote


def test_heartbeat_says_who_when_and_how_far() -> None:
    rig = Rig()

    rig.beats.write(StreamPosition(Lsn(100), Lsn(90), 7))

    ((key, value, _),) = rig.buffer.partitions[0]
    assert key == b'{"serverName":"shop"}'
    assert value is not None
    assert json.loads(value) == {
        "ts_ms": 1_700_001_000_000,
        "epoch": 3,
        "end_lsn": 100,
        "commit_lsn": 90,
        "next_ordinal": 7,
    }


def test_heartbeats_are_written_once_an_interval_however_many_commits_there_are() -> None:
    rig = Rig()

    wrote = []
    for second in range(31):
        wrote.append(rig.commit(100 + second))
        rig.clock.now_s += 1

    assert [second for second, one in enumerate(wrote) if one] == [0, 10, 20, 30]


def test_heartbeat_is_due_again_after_the_interval() -> None:
    rig = Rig()
    assert rig.beats.due()

    rig.commit(100)
    rig.clock.now_s += 9
    assert not rig.beats.due()
    rig.clock.now_s += 1

    assert rig.beats.due()


def test_heartbeat_of_the_source_is_back_when_the_log_has_it() -> None:
    rig = Rig()
    rig.beats.sent(Lsn(150), rig.clock.now_s)

    rig.commit(149, seconds=1.0)
    assert rig.observer.heartbeats_s == []
    rig.commit(150, seconds=2.0)
    rig.commit(160, seconds=4.0)

    assert rig.observer.heartbeats_s == [3.0]


def test_heartbeats_that_never_come_back_are_bounded() -> None:
    rig = Rig()

    for number in range(1000):
        rig.beats.sent(Lsn(200 + number), rig.clock.now_s)
    rig.commit(5000)

    assert len(rig.observer.heartbeats_s) == 100


def test_statement_without_an_interval_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"capture\.heartbeat_query needs capture"):
        config(kafka='[capture]\nheartbeat_query = "select 1"')
