"""`[outbox]`: topic names that could clash are rejected; Debezium's options are translated or rejected."""

from __future__ import annotations

import pytest

from cdc.config.load import parse
from cdc.config.outbox_debezium import _OTHER
from cdc.config.settings import Config
from cdc.errors import ConfigError
from cdc.patterns import matches

_HEAD = 'name = "shop"\n[source]\ndsn = "postgresql://cdc@localhost/shop"\ntables = ["*.*"]\n'
_TAIL = '[kafka]\nbootstrap = "localhost:1"\n'


def config(text: str) -> Config:
    return parse(f"{_HEAD}{_TAIL}{text}", {})


def test_there_is_no_outbox_without_the_section_and_one_by_a_variable() -> None:
    assert config("").outbox is None
    assert (
        parse(_HEAD + _TAIL, {"TAILRACE_OUTBOX_TABLE": "app.events"}).outbox
        == config("[outbox]\ntable = 'app.events'").outbox
    )


def test_table_and_its_partitions_are_no_data_unless_that_is_wanted() -> None:
    tables = config("[outbox]").source.tables
    there = ["outbox.outbox", "outbox.outbox_p20261123", "outbox.outbox_default", "outbox.inbox", "public.orders"]

    assert [table for table in there if matches(table, tables)] == ["outbox.inbox", "public.orders"]
    assert matches("outbox.outbox", config("[outbox]\npublish_table = true").source.tables)


@pytest.mark.parametrize(
    "topic",
    [
        "{name}.events",
        "{name}.{aggregate_type}",
        "{aggregate_type}",
        "shop.__dlq.{aggregate_type}",
        "{name}.views.{aggregate_type}",
        "s{aggregate_type}",
        "a b.{aggregate_type}",
        "{name}.events.{aggregate_type}.{aggregate_type}",
        "x" * 120 + "{aggregate_type}",
    ],
)
def test_pattern_whose_topics_could_be_others_is_refused(topic: str) -> None:
    with pytest.raises(ConfigError, match=r"outbox\.topic"):
        config(f"[outbox]\ntopic = '{topic}'")


@pytest.mark.parametrize("extra", ["'where'", "'header:id'", "'partition'", "'envelope:payload'"])
def test_placement_that_is_none_or_takes_a_reserved_name_is_refused(extra: str) -> None:
    with pytest.raises(ConfigError, match=r"outbox\.extra"):
        config(f"[outbox]\nextra = {{tenant = {extra}}}")


def test_unknown_field_is_refused_with_the_way_for_other_columns() -> None:
    with pytest.raises(ConfigError, match=r"outbox\.columns") as caught:
        config("[outbox]\ncolumns = {tenant = 'tenant'}")

    assert "outbox.extra" in caught.value.hint


def test_debeziums_options_mean_ours_quoted_or_not() -> None:
    made = config(
        "[outbox]\ntable = 'public.outboxevent'\n[outbox.debezium]\n'table.field.event.key' = 'entity'\n"
        "table.fields.additional.placement = 'tenant:header:who,region:envelope'\n'route.by.field' = 'kind'\n"
        "'route.topic.replacement' = 'out.${routedByValue}'\n'table.op.invalid.behavior' = 'fatal'\n"
    ).outbox

    assert made is not None
    assert made.columns == {"aggregate_id": "entity", "aggregate_type": "kind"}
    assert made.extra == {"tenant": "header:who", "region": "envelope"}
    assert (made.topic, made.on_update) == ("out.{aggregate_type}", "stop")
    plain = config("[outbox.debezium]\ntype = 'io.debezium.transforms.outbox.EventRouter'").outbox
    assert plain is not None
    assert plain.topic == "outbox.event.{aggregate_type}"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[(option, "something") for option in sorted(_OTHER)],
        ("table.fields.additional.placement", "tenant:partition"),
        ("table.fields.additional.placement", "tenant"),
        ("route.topic.replacement", "events"),
        ("table.op.invalid.behavior", "shrug"),
        ("no.such.option", "x"),
    ],
)
def test_debeziums_option_that_cannot_be_had_is_refused_by_its_name(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=r"outbox\.debezium") as caught:
        config(f"[outbox.debezium]\n'{option}' = '{value}'")

    assert option in caught.value.message
    assert caught.value.hint


def test_option_of_debezium_that_says_something_else_than_ours_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"but \[outbox\] has"):
        config("[outbox]\ncolumns = {id = 'a'}\n[outbox.debezium]\n'table.field.event.id' = 'b'")
