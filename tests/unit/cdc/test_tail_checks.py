"""`cdc tail` rejects options that match nothing, and reports a broker that does not answer."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator

import pytest

from cdc.cli import output, wait_notice
from cdc.cli.tail_checks import check_key, check_start
from cdc.cutindex.log_start import AtLsn, AtTime, Beginning
from cdc.errors import BrokerUnreachable, UsageError
from cdc.inspect.log_reading import Table
from cdc.lsn import Lsn
from cdc.model.progress_record import Cut
from cdc.model.topic_names import cuts_topic
from cdc.progress.record_format import encode
from tests.fixtures.capture.memory_log import MemoryLog
from tests.fixtures.servers.manual_clock import ManualClock

ORDERS = Table("public.orders", "shop.public.orders", ("customer_id", "nr"))
ITEMS = Table("public.items", "shop.public.items", ("id",))
BARE = Table("public.bare", "shop.public.bare", ())


@pytest.mark.parametrize(
    ("key", "tables", "said", "hint"),
    [
        ({"idd": 7}, [ITEMS], "'idd', which is not a key column of public.items", "did you mean id?"),
        ({"custmer_id": 7}, [ORDERS, ITEMS], "'custmer_id'", "did you mean customer_id?"),
        ({"zzz": 7}, [ITEMS], "'zzz'", "the key of public.items is id"),
        ({"id": 7, "nr": 1}, [ORDERS, ITEMS], "no table has all of the columns id, nr", "the key of public.orders"),
        (7, [ORDERS], "has several columns", "customer_id, nr"),
        (7, [BARE], "public.bare has no key", "omit --key"),
    ],
)
def test_key_that_no_table_can_have_is_refused_with_a_suggestion(
    key: object, tables: list[Table], said: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        check_key(key, tables)

    assert said in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize("key", [None, 7, "x", {"id": 7}, {"nr": 1}, {"nr": 1, "customer_id": 2}])
def test_key_that_some_table_can_have_is_accepted(key: object) -> None:
    check_key(key, [ORDERS, ITEMS, BARE])


def _log(end: int) -> MemoryLog:
    log = MemoryLog()
    _put(log, end)
    return log


def _put(log: MemoryLog, end: int) -> None:
    log.transactions += 1
    log.append(
        (cuts_topic("shop"), 0),
        (None, encode(Cut(epoch=1, end_lsn=end, full=True, changed={})), None),
        log.transactions,
    )
    log.committed.add(log.transactions)


def test_start_past_the_end_of_the_log_is_refused_with_where_it_ends() -> None:
    with pytest.raises(UsageError, match="past the end of the log at 0/64") as refused:
        check_start(_log(100), "shop", AtLsn(Lsn(101)), follow_s=0)

    assert refused.value.command == "cdc tail --from now"
    check_start(_log(100), "shop", AtLsn(Lsn(100)), follow_s=0)
    check_start(_log(100), "shop", Beginning(), follow_s=0)


def test_follower_waits_for_a_position_that_capture_is_about_to_publish_up_to_its_deadline() -> None:
    log, clock = _log(100), ManualClock()

    class Growing(ManualClock):
        def wait(self, stop: threading.Event, seconds: float) -> bool:
            _put(log, 200)
            return super().wait(stop, seconds)

    check_start(log, "shop", AtLsn(Lsn(150)), follow_s=30, clock=Growing())
    began_s = clock.now_s
    with pytest.raises(UsageError, match="after waiting 30 s"):
        check_start(log, "shop", AtLsn(Lsn(300)), follow_s=30, clock=clock)

    assert clock.now_s - began_s == pytest.approx(30, abs=1)


def test_start_in_the_future_is_refused() -> None:
    clock = ManualClock()

    with pytest.raises(UsageError, match="future"):
        check_start(_log(1), "shop", AtTime(int(clock.wall_s() * 1000) + 3_600_000), follow_s=0, clock=clock)
    check_start(_log(1), "shop", AtTime(int(clock.wall_s() * 1000) - 5), follow_s=0, clock=clock)


class Broker:
    """Answers from `back_s` on; every read takes a second."""

    def __init__(self, back_s: float) -> None:
        self.clock = ManualClock()
        self.back_s = self.clock.now_s + back_s

    def batches(self) -> Iterator[list[int]]:
        while True:
            self.clock.now_s += 1
            yield []

    def check(self, timeout_s: float) -> None:
        if self.clock.now_s < self.back_s:
            self.clock.now_s += timeout_s
            raise BrokerUnreachable("no broker answers")


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(output, "note", said.append)
    return said


def test_follower_gives_a_lost_broker_up_at_its_deadline_and_has_said_what_it_waits_for(notes: list[str]) -> None:
    broker = Broker(back_s=1e9)
    began_s = broker.clock.now_s
    events = wait_notice.patient(broker.batches(), broker.check, "waiting for Kafka", 30, broker.clock)

    with pytest.raises(BrokerUnreachable):
        for _ in events:
            pass

    assert 30 <= broker.clock.now_s - began_s <= 45
    assert notes == ["waiting for Kafka"]


def test_follower_goes_on_when_the_broker_is_back_in_time(notes: list[str]) -> None:
    broker = Broker(back_s=20)
    events = wait_notice.patient(broker.batches(), broker.check, "waiting for Kafka", 30, broker.clock)

    for _ in range(200):
        next(events)

    assert notes == ["waiting for Kafka", "Kafka answers again"]


@pytest.mark.parametrize("late_s", [0.0, 60.0])
def test_piped_command_says_what_it_waits_for_only_when_that_takes_long(
    monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    begun = threading.Event()
    err = io.StringIO()
    monkeypatch.setattr("sys.stderr", err)
    monkeypatch.setattr(output, "_LATE_S", late_s)
    note: Callable[[str], None] = output.note

    def noted(text: str) -> None:
        note(text)
        begun.set()

    monkeypatch.setattr(output, "note", noted)
    with output.waiting("waiting for Kafka at nowhere:9092"):
        if not late_s:
            begun.wait(10)

    assert ("waiting for Kafka at nowhere:9092" in err.getvalue()) == (late_s == 0)
