"""Outbox events on real servers: each committed event is in its topic once, in commit order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tests.fixtures.capture.repair_scenes import repaired
from tests.fixtures.outbox.outbox_events import OUTBOX, event, events_of, id_of, made, number_of, numbers, refused
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Sections

_MESSAGE: Final = (
    '{{"id": "00000000-0000-7000-8000-{number:012d}", "aggregate_type": "order", "aggregate_id": "1",'
    ' "type": "paid", "payload": {{"by":  "card"}}}}'
)


def emitted(number: int, *, transactional: str = "true") -> str:
    return f"select pg_logical_emit_message({transactional}, 'outbox', '{_MESSAGE.format(number=number)}')"


def test_events_are_routed_once_beside_rows_over_kills(capture: CaptureSite) -> None:
    capture.sql("create table orders (id int primary key)", *made(), event(1).insert(), event(2, kind="Ä b").insert())
    daemon = capture.running(OUTBOX)
    headers = {"headers": """'{"traceparent": "00-1-2-01", "id": "stolen", "n": 3}'""", "version": "2"}
    capture.transaction(
        "insert into orders values (1)", event(3).insert(**headers), emitted(4), "update orders set id = 2"
    )
    capture.transaction(event(5).insert(), "rollback")
    capture.sql(event(6, aggregate="2", payload=None).insert(payload_bytes="'\\x00ff'", content_type="'avro'"))
    capture.settled(daemon)
    daemon.kill()
    capture.transaction(event(7).insert(), "delete from outbox.outbox", "insert into orders values (3)")
    capture.sql("update orders set id = 4 where id = 3", event(8, kind="invoice").insert(), event(9, kind="").insert())
    log = capture.settled(capture.running(OUTBOX))

    assert numbers(log, capture) == [1, 3, 4, 6, 7]
    assert [number_of(one) for one in events_of(log, capture) if one.key == b"1"] == [1, 3, 4, 7]
    assert (numbers(log, capture, "-c3-84-20b"), numbers(log, capture, "invoice")) == ([2], [8])
    third, fourth, sixth = (next(one for one in events_of(log, capture) if number_of(one) == n) for n in (3, 4, 6))
    assert (third.value, fourth.value, sixth.value) == (b'{"total": 3}', b'{"by":  "card"}', b"\x00\xff")
    told = {"type": b"placed", "version": b"2", "content-type": b"application/json"}
    assert {name: value for name, value in third.headers.items() if name != "id"} == {
        **told,
        "n": b"3",
        "traceparent": b"00-1-2-01",
    }
    assert sixth.headers["content-type"] == b"avro"
    assert refused(log, capture) == [("no_aggregate_type", b'{"total": 3}')]
    assert log.faults() == []
    assert log.data_topics == [capture.topic("orders")]
    ends = {at: end for at, end in log.ends.items() if at[0].startswith(f"{capture.name}.events.")}
    counted: dict[str, int] = {}
    for cut in log.cuts:
        counted |= {at: count for at, (_, count, _) in cut["changed"].items()}
    assert {at: counted[f"{at[0]}-{at[1]}"] for at in ends if log.records[at]} == {
        at: len(log.records[at]) for at in ends if log.records[at]
    }


def test_rows_of_before_are_done_with_where_that_is_said_and_those_since_are_events(capture: CaptureSite) -> None:
    skipping: Sections = {"outbox": {"existing": "skip"}}
    capture.sql("create table orders (id int primary key)", *made(), event(1).insert(), event(2).insert())
    daemon = capture.running(skipping)
    capture.sql(event(3).insert(), "insert into orders values (1)")
    capture.settled(daemon)
    daemon.kill()
    capture.sql(event(4).insert())
    log = capture.settled(capture.running(skipping))

    assert numbers(log, capture) == [3, 4]
    assert refused(log, capture) == []
    assert capture.query("select count(*) from outbox.outbox") == [(4,)]


def test_outbox_that_is_made_while_capture_runs_is_taken_with_what_is_in_it(capture: CaptureSite) -> None:
    capture.sql("create table orders (id int primary key)")
    daemon = capture.running(OUTBOX)
    capture.sql("insert into orders values (1)", *made(partitioned=True), event(1).insert())

    until(lambda: len(daemon.events("capture_started")) == 2, "capture starts over, routes what is there, goes on")
    capture.sql(event(2).insert(), "truncate outbox.outbox", event(3).insert(), emitted(4, transactional="false"))
    log = capture.settled(daemon)

    assert numbers(log, capture) == [1, 2, 3]
    assert [reason for reason, _ in refused(log, capture)] == ["not_transactional"]
    until(lambda: daemon.status()["outbox"]["refused_by_reason"] == {"not_transactional": 1}, "that is shown")


def test_events_of_a_gap_that_are_still_in_the_table_are_published_once_after_the_repair(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)", *made(), event(1).insert())
    daemon = capture.running(OUTBOX)
    capture.sql(event(2).insert())
    capture.settled(daemon)
    assert daemon.stop() == 0
    capture.sql(f"select pg_drop_replication_slot('{capture.slot}')", event(3).insert(), event(4, kind="new").insert())
    stop = capture.daemon(OUTBOX).stopped_with()
    assert stop["state"] == "GAP"

    repaired(capture, stop["command"], sections=OUTBOX)
    daemon = capture.running(OUTBOX)
    capture.sql(event(5).insert())
    log = capture.settled(daemon)

    assert (numbers(log, capture), numbers(log, capture, "new")) == ([1, 2, 3, 5], [4])
    shown = cdc("tail", "--outbox", "--from", "beginning", "--no-follow", "--json", "-c", capture.write_config(OUTBOX))
    assert sorted(json.loads(one)["headers"]["id"] for one in shown.out.splitlines()) == [id_of(n) for n in range(1, 6)]


def test_outbox_replaced_while_capture_runs_is_no_gap(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)", *made())
    daemon = capture.running(OUTBOX)
    capture.sql(event(1).insert())
    publication = f'"cdc_{capture.name}"'
    capture.transaction(
        "alter table outbox.outbox rename to outbox_before",
        "alter index outbox.outbox_pkey rename to outbox_before_pkey",
        made()[1],
        f"alter publication {publication} drop table outbox.outbox_before",
        f"alter publication {publication} add table outbox.outbox",
        event(2).insert(),
    )
    capture.sql(event(3).insert())
    until(lambda: len(daemon.events("capture_started")) == 2, "capture takes the other one")
    log = capture.settled(daemon)

    assert [number_of(one) for one in events_of(log, capture)] == [1, 2, 3]
    assert daemon.events("capture_stopped") == []
