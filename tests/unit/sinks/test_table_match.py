"""A sink whose `tables` match nothing says so: it names what was probably meant, and does not look healthy."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import structlog

from cdc.errors import SinkUnfit, TailraceError
from sinks.state.table_match import SETTLE_S, TableCheck, unmatched
from tests.fixtures.servers.manual_clock import ManualClock

_CAPTURED = {"public.customers": True, "public.orders": True, "public.log": False}


class World:
    """Captured tables, and a sink's check of them."""

    def __init__(
        self, *patterns: str, captured: Mapping[str, bool] = _CAPTURED, settings: Mapping[str, list[str]] | None = None
    ) -> None:
        self.tables = dict(captured)
        self.waited: list[TailraceError | None] = []
        self.clock = ManualClock()
        self.check = TableCheck("fast", patterns, self, self, self.clock, settings=settings)

    def captured(self) -> Mapping[str, bool]:
        return self.tables

    def waits(self, reason: str, cause: TailraceError | None) -> None:
        assert reason == "tables"
        self.waited.append(cause)

    def later(self) -> None:
        self.clock.now_s += SETTLE_S
        self.check.look()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("public.custmers", "sinks.fast.tables has 'public.custmers', which is not a captured table; did you mean "),
        ("public.zzz", "sinks.fast.tables has 'public.zzz', which is not a captured table"),
        ("public.log", "sinks.fast.tables has 'public.log', which has no key: "),
    ],
)
def test_name_that_no_captured_table_has_is_an_error_that_says_what_was_meant(name: str, message: str) -> None:
    world = World(name)

    world.check.look()
    with pytest.raises(SinkUnfit) as caught:
        world.later()

    assert world.waited[0] is None, "it waits at first, without a verdict: capture may be in its first start"
    assert world.waited[1] is caught.value
    assert caught.value.message.startswith(message)
    assert "public.customers?" in caught.value.message or "custmers" not in name


def test_pattern_that_matches_no_table_yet_waits_visibly_and_is_no_error() -> None:
    world = World("sales.*", "views.totals")

    with structlog.testing.capture_logs() as logged:
        world.later()
        world.later()

    cause = world.waited[-1]
    assert cause is not None
    assert "'sales.*', which matches no captured table" in cause.message
    assert [one["event"] for one in logged] == ["sink_tables_unmatched"]


@pytest.mark.parametrize(
    ("captured", "message"),
    [
        (_CAPTURED, "sinks.fast.tables has 'views.customer', which no lake has published yet"),
        (
            {**_CAPTURED, "views.customers": True},
            "sinks.fast.tables has 'views.customer', which no lake has published yet; did you mean views.customers?",
        ),
    ],
)
def test_view_that_is_not_published_yet_is_no_missing_table(captured: Mapping[str, bool], message: str) -> None:
    world = World("views.customer", captured=captured)

    world.later()

    cause = world.waited[-1]
    assert cause is not None
    assert cause.message == message
    assert "publish" in cause.hint
    assert "source.tables" not in cause.hint


def test_table_that_is_created_later_joins() -> None:
    world = World("public.new_*")
    world.later()
    world.tables["public.new_one"] = True

    world.later()

    assert len(world.waited) == 1


def test_sink_that_keeps_other_tables_goes_on_and_names_what_is_missing_once() -> None:
    world = World("public.orders", "public.custmers")

    with structlog.testing.capture_logs() as logged:
        world.check.look()
        world.later()
        world.later()

    assert [one["event"] for one in logged] == ["sink_tables_unmatched"]
    assert "did you mean public.customers?" in logged[0]["message"]
    assert world.waited == []


def test_other_settings_that_name_no_captured_table_are_logged_once() -> None:
    world = World("*.*", settings={"keys": ["public.custmers", "public.orders"], "fields": ["public.o*"]})

    with structlog.testing.capture_logs() as logged:
        world.check.look()
        world.later()
        world.later()

    (event,) = logged
    assert (event["event"], event["tables"]) == ("sink_tables_unmatched", ["public.custmers"])
    assert event["message"].startswith("sinks.fast.keys has 'public.custmers'")


def test_before_capture_has_ever_run_no_name_is_wrong() -> None:
    world = World("public.orders", captured={})

    world.later()

    assert len(world.waited) == 1


def test_exclusions_need_no_match() -> None:
    assert unmatched(["*.*", "!public.gone"], _CAPTURED) == []
    assert unmatched(["!public.gone"], _CAPTURED) == []
