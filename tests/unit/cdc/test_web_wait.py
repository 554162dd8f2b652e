"""/sinks/<sink>/wait: read your own writes over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from cdc.client import Waiter
from cdc.clock import SystemClock
from cdc.config.load import parse
from cdc.errors import BrokerUnreachable, LakeDamaged, SinkBehind
from cdc.lsn import Lsn
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from cdc.web.http_server import WebServer
from cdc.web.wait_endpoint import TIMEOUT_MAX_S, WAITING_MAX, WaitRoute
from sinks.operate.lsn_wait import (
    LOOK_EVERY_S,
    SETTLE_EVERY_S,
    AppliedCut,
    SharedCutSource,
    SharedRefresh,
    SinkProbe,
    await_lsn,
    parse_wait_key,
    parse_wait_lsn,
)
from tests.fixtures.servers.http_probe import ask
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.servers.waiting import until


class Lake:
    """A sink that is at `at` and advances by `step` at each check."""

    def __init__(self, at: int | None = None, step: int = 0) -> None:
        self.at = at
        self.looks = 0
        self._step = step

    def __call__(self) -> AppliedCut | None:
        self.looks += 1
        if self.at is None:
            return None
        self.at += self._step
        return AppliedCut(self.looks, Lsn(self.at))


def asked(lake: Lake, query: str, sink: str = "lake") -> tuple[int, dict[str, Any]]:
    """Return code and document, with a clock that does not wait."""
    found = WaitRoute({"lake": lake, "other": Lake()}, ManualClock()).answer(sink, query)
    return found.code.value, dict(found.document)


def test_answer_comes_as_soon_as_the_cut_reaches_the_lsn() -> None:
    lake = Lake(0x100, step=0x10)

    code, document = asked(lake, "lsn=0/150")

    assert code == 200
    assert document == {
        "sink": "lake",
        "lsn": "0/150",
        "reached": "0/150",
        "cut": 5,
        "waited_seconds": pytest.approx(4 * LOOK_EVERY_S),
    }


def test_time_that_is_up_says_what_is_reached() -> None:
    code, document = asked(Lake(0x100), "lsn=0/101&timeout_s=3")

    assert (code, document["reached"], document["waited_seconds"]) == (504, "0/100", pytest.approx(3))


def test_sink_without_a_cut_has_reached_nothing() -> None:
    code, document = asked(Lake(), "lsn=0/1&timeout_s=0")

    assert (code, document["reached"], document["cut"]) == (504, None, None)


def test_insert_position_behind_the_header_of_a_page_is_waited_for_in_front_of_it() -> None:
    """Like `cdc wait`; on an idle server no commit would ever end at that LSN."""
    assert parse_wait_lsn("0/2018") == Lsn(0x2000)
    assert asked(Lake(0x2000), "lsn=0/2018&timeout_s=0")[0] == 200


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "lsn is missing"),
        ("lsn=", "invalid LSN ''"),
        ("lsn=nonsense", "invalid LSN 'nonsense'"),
        ("lsn=0/1&timeout_s=soon", "invalid timeout_s 'soon'"),
        ("lsn=0/1&timeout_s=nan", "invalid timeout_s 'nan'"),
        ("lsn=0/1&timeout_s=-1", "invalid timeout_s '-1'"),
        (f"lsn=0/1&timeout_s={TIMEOUT_MAX_S + 1}", f"0 to {TIMEOUT_MAX_S:.0f}"),
        ("&".join(["lsn=0/1"] * 100), "more than 16 parameters"),
    ],
)
def test_question_that_is_none_is_refused_with_what_it_must_be(query: str, said: str) -> None:
    lake = Lake(0x100)

    code, document = asked(lake, query)

    assert code == 400
    assert said in document["error"]
    assert lake.looks == 0


def test_sink_that_is_not_there_is_answered_with_those_there_are() -> None:
    code, document = asked(Lake(), "lsn=0/1", sink="lak")

    assert code == 404
    assert "'lak'" in document["error"]
    assert "lake, other" in document["error"]


def test_lake_that_cannot_be_read_is_unavailable_and_says_why() -> None:
    def damaged() -> AppliedCut | None:
        raise LakeDamaged("current.json is corrupt")

    found = WaitRoute({"lake": damaged}, ManualClock()).answer("lake", "lsn=0/1")

    assert (found.code, found.document["error"]) == (503, "current.json is corrupt")


def test_many_waits_read_the_lake_no_more_often_than_one() -> None:
    lake, clock = Lake(0x100), ManualClock()
    shared = SharedCutSource(lake, clock)

    for _ in range(100):
        shared()
    clock.now_s += LOOK_EVERY_S
    shared()

    assert lake.looks == 2


def test_waiting_never_sleeps_longer_than_is_left() -> None:
    clock = ManualClock()
    began_s = clock.now_s

    await_lsn(Lake(1), Lsn(2), LOOK_EVERY_S * 1.5, clock, threading.Event())

    assert clock.now_s - began_s == pytest.approx(LOOK_EVERY_S * 1.5)


def test_readers_see_what_is_reached_before_the_answer_and_only_then_are_they_made_to() -> None:
    lake, settled = Lake(0x100), []
    route = WaitRoute({"search": SinkProbe(lake, settle=lambda: settled.append(lake.looks))}, ManualClock())

    behind = route.answer("search", "lsn=0/101&timeout_s=0")
    assert (behind.code, settled) == (504, [])
    reached = route.answer("search", "lsn=0/100")

    assert (reached.code, settled) == (200, [lake.looks])


def test_key_that_is_blocked_is_an_error_of_its_own_once_the_sink_is_there() -> None:
    asked_for: list[tuple[bytes, str | None]] = []

    def blocked(key: bytes, table: str | None) -> bool:
        asked_for.append((key, table))
        return key == b'{"id":7}' and table in {None, "public.t"}

    some = [("public.t", '{"id":7}')]
    probe = SinkProbe(Lake(0x100), blocked=blocked, blocked_keys=lambda: some)
    route = WaitRoute({"search": probe}, ManualClock())
    answers = [
        route.answer("search", f"lsn=0/{lsn}&timeout_s=0{key}").code.value
        for lsn, key in (("100", "&key=%7B%22id%22: 7%7D"), ("100", '&key={"id":8}'), ("101", '&key={"id":7}'),
                         ("100", '&key={"id":7}&table=public.t'), ("100", '&key={"id":7}&table=public.u'))
    ]  # fmt: skip

    assert answers == [409, 200, 504, 409, 200]
    seven, eight = b'{"id":7}', b'{"id":8}'
    assert asked_for == [(seven, None), (eight, None), (seven, "public.t"), (seven, "public.u")]
    shown = [route.answer("search", "lsn=0/100", authorised=allowed).document for allowed in (True, False)]
    assert shown[0]["blocked"] == [{"table": "public.t", "key": '{"id":7}'}], "who names no key learns which are old"
    assert shown[1]["blocked"] == [{"table": "public.t"}]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("lsn=0/1&timeout=3", "unknown query parameter 'timeout'; did you mean timeout_s?"),
        ("lsn=0/1&tabel=t", "did you mean table?"),
        ("LSN=0/1", "unknown query parameter 'LSN'"),
    ],
)
def test_unknown_query_parameter_is_refused_by_its_name(query: str, said: str) -> None:
    code, document = asked(Lake(0x100), query)

    assert (code, said in document["error"]) == (400, True)


def test_request_is_answered_at_its_deadline_while_the_check_hangs_and_threads_stay_bounded() -> None:
    free = threading.Event()

    def hung() -> AppliedCut | None:
        free.wait(60)
        return None

    route = WaitRoute({"cache": hung}, SystemClock())
    first = route.answer("cache", "lsn=0/1&timeout_s=0")
    more = [threading.Thread(target=route.answer, args=("cache", "lsn=0/1&timeout_s=0")) for _ in range(WAITING_MAX)]
    for thread in more:
        thread.start()
    for thread in more:
        thread.join(30)
    full = route.answer("cache", "lsn=0/1&timeout_s=0")
    free.set()
    until(lambda: route._slots._value == WAITING_MAX, "every place is free again")

    assert (first.code.value, first.document["reached"]) == (504, None)
    assert "did not finish in time" in first.document["error"]
    assert (full.code.value, "requests are already waiting" in full.document["error"]) == (503, True)


def test_unexpected_error_of_a_check_is_an_answer_and_gives_the_place_back() -> None:
    def broken() -> AppliedCut | None:
        raise KeyError("public.t")

    route = WaitRoute({"cache": broken}, SystemClock())

    assert route.answer("cache", "lsn=0/1").code.value == 503
    assert route._slots._value == WAITING_MAX


def test_store_is_refreshed_at_most_ten_times_a_second_however_many_ask() -> None:
    clock, count = ManualClock(), [0]

    def settle() -> None:
        count[0] += 1
        if count[0] == 2:
            raise LakeDamaged("away")

    route = WaitRoute({"search": SinkProbe(Lake(0x100), settle=settle)}, clock)
    began_s = clock.now_s
    codes = [route.answer("search", "lsn=0/100").code.value for _ in range(50)]

    assert codes == [200, 503, *[200] * 48]
    assert count[0] <= (clock.now_s - began_s) / SETTLE_EVERY_S + 1


@pytest.mark.parametrize("key", ["", "7", "[1]", '{"id":', "nonsense", '{"id":' + "[" * 5000, '{"id":"\\ud800"}'])
def test_key_that_is_no_object_is_refused(key: str) -> None:
    code, document = asked(Lake(0x100), f"lsn=0/100&key={quote(key)}")

    assert (code, "not a JSON object" in document["error"]) == (400, True)


def test_key_is_taken_as_topics_have_it_whatever_blanks_it_came_with() -> None:
    assert parse_wait_key(' { "id" : 18446744073709551616 , "t" : "a b\\u00e9" } ') == (
        b'{"id":18446744073709551616,"t":"a b\xc3\xa9"}'
    )


def test_broker_that_is_away_is_unavailable_and_says_so() -> None:
    def away() -> AppliedCut | None:
        raise BrokerUnreachable("no broker answers")

    found = WaitRoute({"cache": away}, ManualClock()).answer("cache", "lsn=0/1")

    assert (found.code, found.document["error"]) == (503, "no broker answers")


class CountedClock(SystemClock):
    """Counts the calls for the time."""

    asked = 0

    def monotonic_s(self) -> float:
        self.asked += 1
        return super().monotonic_s()


def test_one_settling_does_for_all_who_had_asked_before_it_began() -> None:
    began, free, clock = threading.Event(), threading.Event(), CountedClock()
    count: list[int] = []

    def settle() -> None:
        count.append(1)
        began.set()
        free.wait(10)

    shared = SharedRefresh(settle, clock)
    threads = [threading.Thread(target=shared) for _ in range(5)]
    threads[0].start()
    began.wait(10)
    for thread in threads[1:]:
        thread.start()
    until(lambda: clock.asked == 6, "all of them have asked")
    free.set()
    for thread in threads:
        thread.join(10)

    assert len(count) == 2


class Web:
    """A server of a sink that is at 0/100, on a free port."""

    def __init__(self) -> None:
        metrics = Metrics()
        self.lake = Lake(0x100)
        self.server = WebServer(
            "127.0.0.1:0",
            Status("shop", ManualClock(), metrics),
            metrics,
            waits=WaitRoute({"lake": self.lake}, SystemClock()),
        )

    @property
    def waiting(self) -> int:
        assert self.server._waits is not None
        return WAITING_MAX - self.server._waits._slots._value

    def ask(self, path: str) -> tuple[int, bytes]:
        code, _, body = ask("127.0.0.1", self.server.port, path)
        return code, body


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    found = Web()
    yield found
    found.server.close()


@pytest.mark.parametrize("lsn", ["0/100", quote("0/100", safe="")])
def test_lsn_may_be_escaped_or_not(web: Web, lsn: str) -> None:
    code, body = web.ask(f"/sinks/lake/wait?lsn={lsn}")

    assert code == 200
    assert json.loads(body)["reached"] == "0/100"


@pytest.mark.parametrize("path", ["/sinks/lake", "/sinks/lake/wait/", "/sinks/lake/x/wait", "/sinks"])
def test_path_beside_it_is_not_found_and_shows_how_it_is_written(web: Web, path: str) -> None:
    code, body = web.ask(path)

    assert code == 404
    assert b"/sinks/<sink>/wait?lsn=" in body


def test_close_releases_all_waiting_threads() -> None:
    web = Web()
    answers: list[int] = []
    waiting = [
        threading.Thread(target=lambda: answers.append(web.ask("/sinks/lake/wait?lsn=0/101&timeout_s=60")[0]))
        for _ in range(3)
    ]
    for thread in waiting:
        thread.start()
    until(lambda: web.waiting == 3, "all of them wait")

    web.server.close()
    for thread in waiting:
        thread.join(10)

    assert answers == [503] * 3


def test_check_that_fails_because_the_process_stops_says_so() -> None:
    began, ended = threading.Event(), threading.Event()

    def look() -> AppliedCut | None:
        began.set()
        ended.wait(10)
        raise BrokerUnreachable("the client is closed")

    route = WaitRoute({"cache": look}, SystemClock())
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(route.answer("cache", "lsn=0/1")))
    thread.start()
    began.wait(10)
    route.close()
    ended.set()
    thread.join(10)

    assert [(one.code.value, one.document) for one in answers] == [(503, {"error": "the process is stopping"})]


def test_more_than_can_wait_are_sent_away_at_once() -> None:
    route = WaitRoute({"lake": Lake(0x100)}, SystemClock())
    threads = [
        threading.Thread(target=route.answer, args=("lake", "lsn=0/101&timeout_s=60")) for _ in range(WAITING_MAX)
    ]
    for thread in threads:
        thread.start()
    until(lambda: not route._slots._value, "all places are taken")

    found = route.answer("lake", "lsn=0/1&timeout_s=0")
    route.close()
    for thread in threads:
        thread.join(10)

    assert found.code == 503
    assert str(WAITING_MAX) in found.document["error"]
    assert route.answer("lake", "lsn=0/1&timeout_s=0").code == 200, "places are given back"


def test_waiter_keeps_its_deadline_while_the_check_hangs() -> None:
    free = threading.Event()

    def hung() -> AppliedCut | None:
        free.wait(60)
        return None

    config = parse('name = "shop"\nsource = {dsn = "dbname=shop"}\nkafka = {bootstrap = "k:9092"}\n', {})
    with Waiter(config) as waiter:
        waiter._probes["cache"] = SinkProbe(hung)
        with pytest.raises(SinkBehind, match="did not finish"):
            waiter.wait("cache", "0/1", timeout_s=0)
    free.set()
