"""The tables and outbox event topics that a sink keeps, and the part of a span that is read for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from cdc.config.settings import Warehouse
from cdc.errors import SinkUnfit
from cdc.model.topic_names import data_topic
from sinks.warehouse.lake.cut_position import START, CutPosition
from sinks.warehouse.log.span import Span
from sinks.warehouse.log.table_choice import choose, reading
from tests.fixtures.lake.lake_events import ID, schema

ORDERS = schema(ID)
LAKE = Warehouse(path="lake")


def mark(*topics: str, count: int = 3) -> CutPosition:
    return CutPosition(1, 100, 92, 5, {(topic, 0): (count + 1, count) for topic in topics}, {}, 0)


def test_events_are_those_topics_that_no_table_has() -> None:
    table = schema(ID, table="events.log")
    end = mark(ORDERS.topic, table.topic, "shop.events.order-2fline", "other.events.x", "shop.public.unknown")

    choice = choose("shop", end, [ORDERS, table], LAKE)

    assert choice.events == {"shop.events.order-2fline": "archive/shop.events.order-2fline"}
    assert choice.tables.keys() == {ORDERS.topic, table.topic}
    assert choice.left_out == frozenset()
    assert "archive/shop.events.order-2fline" in choice.lake_tables


def test_a_captured_table_whose_schema_was_lost_is_no_topic_of_events() -> None:
    end = replace(mark("shop.events.log"), complete={"events.log": "complete"})

    assert choose("shop", end, [], LAKE).events == {}


def test_patterns_leave_events_out_as_they_do_tables() -> None:
    end = mark(ORDERS.topic, "shop.events.order", "shop.events.order-2fline")

    some = choose("shop", end, [ORDERS], structs.replace(LAKE, tables=("*.*", "!events.order/*")))
    none = choose("shop", end, [ORDERS], structs.replace(LAKE, tables=("public.*",)))

    assert (set(some.events), set(some.left_out)) == ({"shop.events.order"}, {"shop.events.order-2fline"})
    assert none.left_out == {"shop.events.order", "shop.events.order-2fline"}
    assert {topic for topic, _ in reading(Span(START, end, 1), none, None).ranges} == {ORDERS.topic}


def test_a_topic_that_joins_the_lake_is_read_from_its_beginning() -> None:
    topics = (ORDERS.topic, "shop.events.order")
    span = Span(mark(*topics), mark(*topics, count=5), 1)
    choice = choose("shop", span.end, [ORDERS], LAKE)

    found = reading(span, choice, {f"archive/{ORDERS.topic}", "mirror/public.orders"})

    assert found.ranges == {(ORDERS.topic, 0): (4, 6, 2), ("shop.events.order", 0): (0, 6, 5)}


def test_tables_of_schemas_with_dots_have_folders_of_their_own() -> None:
    one, other = (
        structs.replace(schema(ID, table="a.b.c"), topic=data_topic("shop", *names))
        for names in (("a", "b.c"), ("a.b", "c"))
    )
    span = Span(mark(one.topic, other.topic), mark(one.topic, other.topic, count=5), 1)

    choice = choose("shop", span.end, [one, other], structs.replace(LAKE, history=("*",)))

    assert {names.mirror for names in choice.names.values()} == {"mirror/a.b-2ec", "mirror/a-2eb.c"}
    assert {names.history for names in choice.names.values()} == {"history/a.b-2ec", "history/a-2eb.c"}
    reading(span, choice, choice.lake_tables)
    with pytest.raises(SinkUnfit, match=r"an older release stored a\.b\.c where"):
        reading(span, choice, choice.lake_tables - {"mirror/a-2eb.c"})
