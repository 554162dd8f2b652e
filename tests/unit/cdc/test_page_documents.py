"""The documents that the browser's tests serve have the form of the server's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cdc.overview.attention import Attention
from cdc.overview.picture import Seen, picture
from cdc.overview.places import Places, SinkPlace
from cdc.overview.sink_facts import SinkFacts
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from tests.browser import documents
from tests.fixtures.servers.manual_clock import ManualClock


def _keys(found: Iterable[Mapping[str, Any]]) -> set[str]:
    return {key for one in found for key in one}


def test_picture_of_the_browser_tests_has_the_keys_of_the_servers_picture() -> None:
    places = Places("shop", "db", "cdc_shop", "kafka", {"lake": SinkPlace("lake", "/lake", has_views=True)})
    status = Status("shop", ManualClock(), Metrics("shop")).snapshot()
    real = picture(Seen("2026-11-28T10:00:00Z", places, status, [SinkFacts(name="lake", state="RUNNING")]))

    for drawn in (documents.picture(), documents.broken_picture()):
        assert set(drawn) == set(real)
        assert set(drawn["counts"]) == set(real["counts"])
        for part in ("nodes", "edges"):
            assert _keys(drawn[part]) == _keys(real[part]), part


def test_sinks_and_alarms_of_the_browser_tests_have_the_keys_of_the_servers() -> None:
    sink = set(SinkFacts(name="cache", state="RUNNING").document) | {"kind", "detail", "level"}
    attention = set(Attention("bad", "slot", "lost").document)

    assert _keys(documents.sinks()["sinks"]) == sink
    assert _keys(documents.alarms()["alarms"]) == attention
    assert _keys(documents.broken_picture()["attention"]) == attention
