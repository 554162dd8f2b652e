"""An invalid event-time setting is refused with its name; a setting that fits some form of the table is accepted."""

from __future__ import annotations

import pytest

from cdc.errors import SinkUnfit
from sinks.warehouse.log.event_time import check_event_times, event_time_of
from sinks.warehouse.log.lake_columns import LakeColumn, LakeTable


def form(*columns: tuple[str, str], key: tuple[str, ...] = ("id",)) -> LakeTable:
    made = (LakeColumn(name, kind, "", name in key) for name, kind in (("id", "int"), *columns))
    return LakeTable("public.t", "shop.public.t", "00000001", key, tuple(made))


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_a_time_of_a_table_with_a_history_is_taken(kind: str) -> None:
    table = form(("at", kind))

    check_event_times({"public.t": "at", "public.unheard_of": "x"}, {"public.t": [table]}, ("public.*",))
    assert event_time_of(table, {"public.t": "at"}) == "at"


@pytest.mark.parametrize(
    ("table", "history", "message"),
    [
        (form(("at", "date")), ("public.other",), "has no history"),
        (form(("at", "date"), key=()), ("public.*",), "has no history"),
        (form(("when", "date")), ("public.*",), "names an unknown column: at"),
        (form(("at", "string")), ("public.*",), "'at', which is string"),
        (form(("at", "date"), ("_Effective_To", "date")), ("public.*",), "'_Effective_To'"),
    ],
)
def test_what_cannot_be_meant_is_refused(table: LakeTable, history: tuple[str, ...], message: str) -> None:
    with pytest.raises(SinkUnfit, match=message) as refused:
        check_event_times({"public.t": "at"}, {"public.t": [table]}, history)
    assert refused.value.facts["table"] == "public.t"


def test_a_column_that_was_renamed_is_the_event_time_of_the_forms_that_have_it() -> None:
    old, new = form(("seen", "timestamp")), form(("at", "timestamp"))

    check_event_times({"public.t": "at"}, {"public.t": [old, new]}, ("*.*",))
    assert event_time_of(old, {"public.t": "at"}) == ""
    assert event_time_of(new, {"public.t": "at"}) == "at"
    assert event_time_of(form(("at", "string")), {"public.t": "at"}) == ""
