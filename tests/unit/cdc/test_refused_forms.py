"""A table that the planner refused is tried once in each form, and is then shown as left out."""

from __future__ import annotations

from dataclasses import replace

from cdc.model.left_out import LeftOut
from cdc.startup.refused_forms import RefusedForms
from tests.fixtures.capture.source_builders import table

ORDERS = table("orders")
CHANGED = replace(ORDERS, columns=ORDERS.columns[:1])


def refused(reason: str = "key_changed") -> dict[str, LeftOut]:
    return {ORDERS.table: LeftOut(ORDERS.table, ORDERS.oid, reason, "it is refused", "--")}  # type: ignore[arg-type]


def sorted_by(forms: RefusedForms, *tables: object, of: dict[str, LeftOut], has_topic: bool = False) -> tuple[int, int]:
    """How many stay left out, and how many are tried again."""
    stay, again = forms.sort(tables, of, lambda _: has_topic)  # type: ignore[arg-type]
    return len(stay), len(again)


def test_refused_table_is_tried_again_once_and_then_stays_left_out() -> None:
    forms = RefusedForms()

    assert sorted_by(forms, ORDERS, of=refused()) == (0, 1)
    assert sorted_by(forms, ORDERS, of=refused()) == (1, 0)


def test_table_that_is_refused_twice_between_two_checks_stays_left_out() -> None:
    """The check in between finds it neither refused nor captured."""
    forms = RefusedForms()
    sorted_by(forms, ORDERS, of=refused())

    assert sorted_by(forms, ORDERS, of={}) == (0, 0)
    assert sorted_by(forms, ORDERS, of=refused()) == (1, 0)


def test_table_is_tried_again_when_it_changes_or_its_topic_appears() -> None:
    forms = RefusedForms()
    sorted_by(forms, ORDERS, of=refused("no_topic"))

    assert sorted_by(forms, ORDERS, of=refused("no_topic"), has_topic=True) == (0, 1)
    assert sorted_by(forms, CHANGED, of=refused("no_topic"), has_topic=True) == (0, 1)


def test_table_that_was_unfit_meanwhile_is_tried_again_in_the_same_form() -> None:
    forms = RefusedForms()
    sorted_by(forms, ORDERS, of=refused())
    sorted_by(forms, of=refused())

    assert sorted_by(forms, ORDERS, of=refused()) == (0, 1)
