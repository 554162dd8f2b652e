"""Messages of a running capture, at a real HTTP server, while a real broker stops and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.servers.http_receiver import receiving
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import Servers


def test_broker_that_stops_is_one_message_that_names_it_and_its_return_is_another(
    fragile: Servers, fragile_capture: CaptureSite
) -> None:
    capture = fragile_capture
    capture.sql("create table t (id int primary key)")
    with receiving() as server:
        receiver = {"kind": "webhook", "url": server.url, "after_s": 3}
        daemon = capture.running({"notify": {"ops": receiver}})
        capture.settled(daemon)

        fragile.kafka.stop()
        capture.sql("insert into t values (1)")
        until(lambda: server.requests, "the trouble is sent", within_s=120)
        fragile.kafka.start()
        until(lambda: len(server.requests) > 1, "its end is sent", within_s=120)
        capture.settled(daemon, within_s=120)
        assert daemon.stop() == 0

    firing, resolved = server.documents
    (trouble,) = firing["data"]["firing"]
    assert (firing["type"], trouble["what"], trouble["severity"]) == ("tailrace.firing", "capture", "page")
    assert capture.bootstrap in trouble["says"]
    assert trouble["hint"]
    assert resolved["type"] == "tailrace.resolved"
    assert [one["what"] for one in resolved["data"]["resolved"]] == ["capture"]
    assert [one["receiver"] for one in daemon.events("notified")] == ["ops", "ops"]
    assert server.url not in "".join(str(event) for event in daemon.events())
