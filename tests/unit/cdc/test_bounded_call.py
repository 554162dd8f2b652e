"""A call that may never return is waited for within a bound."""

from __future__ import annotations

import threading

from cdc.kafka.bounded_call import within


def test_result_of_a_call_that_returns_is_passed_on() -> None:
    assert within(60.0, lambda: "done") == "done"


def test_call_that_does_not_return_is_given_up() -> None:
    never = threading.Event()

    assert within(0.01, never.wait) is None

    never.set()
